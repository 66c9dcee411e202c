"""The rules of the house, checked: lint, types, who imports whom, current stubs."""

import subprocess
import sys
from pathlib import Path

import pytest

from silosynth.protos.regenerate import regenerate

REPOSITORY = Path(__file__).parents[2]
ROOMS = ("client", "common", "deploy", "protos", "server")


@pytest.fixture(scope="module")
def package_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The mapped package as a folder: static tools do not follow an editable install's import hooks."""
    tree = tmp_path_factory.mktemp("tree")
    (tree / "silosynth").mkdir()
    for room in ROOMS:
        (tree / "silosynth" / room).symlink_to(REPOSITORY / room)
    (tree / "silosynth" / "__init__.py").symlink_to(REPOSITORY / "client/api/__init__.py")
    return tree


def check(*command: str, cwd: Path) -> None:
    program = Path(sys.executable).parent / command[0]
    done = subprocess.run([program, *command[1:]], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff_finds_nothing() -> None:
    check("ruff", "check", "--no-cache", ".", cwd=REPOSITORY)
    check("ruff", "format", "--no-cache", "--check", ".", cwd=REPOSITORY)


def test_types_hold(package_tree: Path) -> None:
    cache = str(package_tree / "cache")
    check(
        *("mypy", "--config-file", str(REPOSITORY / "pyproject.toml"), "--cache-dir", cache, "-p", "silosynth"),
        cwd=package_tree,
    )


def test_imports_respect_the_rooms(package_tree: Path) -> None:
    check("lint-imports", "--no-cache", "--config", str(REPOSITORY / "pyproject.toml"), cwd=package_tree)


def test_stubs_are_current(tmp_path: Path) -> None:
    """After editing a .proto file: python -m silosynth.protos.regenerate."""
    regenerate(tmp_path)
    for stub in tmp_path.iterdir():
        assert (REPOSITORY / "protos/v1" / stub.name).read_text() == stub.read_text(), stub.name


def test_no_file_names_a_machine_path() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "*.py", "*.toml", "*.md"], cwd=REPOSITORY, capture_output=True, text=True
    )
    suspects = [str(Path.home()) + "/", str(REPOSITORY.parent) + "/"]
    for name in tracked.stdout.split():
        text = (REPOSITORY / name).read_text()
        assert not any(suspect in text for suspect in suspects), name
