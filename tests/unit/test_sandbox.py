"""The sandbox: what is denied stays shut for every later program, everything else stays open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from silosynth.common.errors import ConfigError
from silosynth.deploy import sandbox
from silosynth.deploy.kit_texts import Answers
from silosynth.deploy.kits import FederationFolder, Kit, Place
from silosynth.deploy.site import private_folders

pytestmark = pytest.mark.skipif(not sandbox.landlock_version(), reason="this kernel has no Landlock")

OPEN = """
import sys
for path in sys.argv[1:]:
    try:
        open(path).close()
        print("open")
    except PermissionError:
        print("shut")
"""


@pytest.fixture
def house(tmp_path: Path) -> Path:
    for room in ("records", "guard", "courier"):
        (tmp_path / room / "deep").mkdir(parents=True)
        (tmp_path / room / "file").write_text(room)
        (tmp_path / room / "deep" / "file").write_text(room)
    return tmp_path


def tried(denied: list[Path], *paths: Path) -> list[str]:
    options = [argument for folder in denied for argument in ("--deny", str(folder))]
    command = [sys.executable, "-m", "silosynth.deploy.sandbox", *options, "--", sys.executable, "-c", OPEN]
    done = subprocess.run([*command, *map(str, paths)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_several_folders_are_denied_and_nothing_else(house: Path) -> None:
    files = [house / room / file for room in ("records", "guard", "courier") for file in ("file", "deep/file")]
    assert tried([house / "records", house / "guard"], *files) == ["shut"] * 4 + ["open"] * 2


def test_a_denied_folder_within_a_denied_folder_opens_nothing(house: Path) -> None:
    denied = [house / "guard", house / "guard" / "deep"]
    assert tried(denied, house / "guard/file", house / "guard/deep/file", house / "courier/file") == [
        "shut",
        "shut",
        "open",
    ]


def test_a_link_beside_it_is_no_way_in(house: Path) -> None:
    (house / "shortcut").symlink_to(house / "guard")
    (house / "courier/shortcut").symlink_to(house / "guard/file")
    assert tried([house / "guard"], house / "shortcut/file", house / "courier/shortcut") == ["shut", "shut"]


def test_a_folder_reached_by_a_link_is_denied_where_it_is(house: Path) -> None:
    (house / "data").symlink_to(house / "records")
    assert tried([house / "data"], house / "records/file", house / "courier/file") == ["shut", "open"]


def test_a_folder_that_does_not_exist_denies_nothing_else(house: Path) -> None:
    assert tried([house / "absent/deep", house / "guard"], house / "guard/file", house / "courier/file") == [
        "shut",
        "open",
    ]


def kit_with(tmp_path: Path, records: str) -> Kit:
    federation = FederationFolder.create(tmp_path / "federation", Place(("127.0.0.1",)))
    answers = Answers({"path": records, "classes": 2}, {"epsilon": 1.0, "delta": 1e-5}, {})
    return federation.add_silo("one", "unix:/run/guard.sock", answers)


def test_private_is_what_the_guard_keeps_wherever_it_lies(house: Path) -> None:
    kit = kit_with(house, str(house / "records/file"))
    assert private_folders(kit) == [kit.guard, kit.logs, house / "records"]


def test_records_in_the_couriers_way_are_refused(house: Path) -> None:
    for records in ("../records.npz", "../courier/records.npz", "../../records.npz"):
        kit = kit_with(house / records.replace("/", "-"), records)
        with pytest.raises(ConfigError, match="folder of their own"):
            private_folders(kit)
