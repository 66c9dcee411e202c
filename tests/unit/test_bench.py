"""`silosynth bench`: a matrix of runs, resumed where it was stopped, and its page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from support.toy_images import toy_records
from typer.testing import CliRunner

from silosynth.common.datasets import save_npz
from silosynth.common.errors import ConfigError
from silosynth.deploy.bench.matrix import load_matrix
from silosynth.deploy.bench.page import write_page
from silosynth.deploy.bench.rows import ROWS, Notebook, Row
from silosynth.deploy.bench.running import run_cell
from silosynth.deploy.bench.scaling import fitted_exponent, scaling_section
from silosynth.deploy.cli import app

MATRIX = """
title = "Toys"
epsilons = [1, inf]
silos = [2]
partitions = ["iid", "classes"]
baselines = ["pooled", "alone"]
leave_one_out = ["means"]
[datasets.toys]
data = "toys.npz"
classes = 3
[recipes.means]
recipe = "prototypes"
[evaluation]
model = "linear"
seeds = 1
steps = 3
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A matrix file beside its rows and its page."""
    folder = tmp_path_factory.mktemp("bench")
    save_npz(toy_records((30, 30, 30)), folder / "toys.npz")
    path = folder / "toys.toml"
    path.write_text(MATRIX)
    first = bench(path)
    assert (first["made"], first["rows"]) == (1 + 2 * (1 + 2 * 3), 15)
    return path


@pytest.fixture
def file(finished: Path) -> Iterator[Path]:
    """The same for a test that changes something."""
    before = {path: path.read_bytes() for path in (finished, finished.parent / "out" / ROWS)}
    yield finished
    for path, content in before.items():
        path.write_bytes(content)


def bench(file: Path, *options: str) -> dict[str, object]:
    done = CliRunner().invoke(
        app, ["bench", str(file), "--out", str(file.parent / "out"), "--format", "json", *options]
    )
    assert done.exit_code == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_every_cell_is_made_once_and_the_page_shows_it(file: Path) -> None:
    assert bench(file)["made"] == 0
    rows = Notebook(file.parent / "out").rows()
    assert all(row.commit and row.machine.cores and row.evaluation_seconds >= 0 for row in rows)
    assert {row.cell.epsilon for row in rows if row.cell.way == "means"} == {1.0, None}
    page = (file.parent / "out" / "README.md").read_text()
    for words in (
        "# Toys",
        "2 silos, iid, epsilon 1",
        "2 silos, classes, no noise",
        "pooled",
        "without silo 1",
        "seed 0",
    ):
        assert words in page
    assert page.count("toys, means") == 12
    with Image.open(file.parent / "out" / "toys.png") as picture:
        assert picture.size > (800, 300)
    assert (file.parent / "out" / "toys.svg").exists()


def test_a_bench_that_was_killed_goes_on_where_it_was(file: Path) -> None:
    rows = file.parent / "out" / ROWS
    lines = rows.read_text().splitlines(keepends=True)
    rows.write_text("".join(lines[:4]) + lines[4][:100])  # the fifth was being written
    matrix, notebook = load_matrix(file), Notebook(file.parent / "out")
    assert len(notebook.missing(matrix)) == 11
    notebook.add(Row.model_validate_json(lines[4]))
    assert len(notebook.missing(matrix)) == 10
    page = write_page(matrix, notebook.rows_of(matrix), file.parent / "out").read_text()
    assert "5 of 15 runs are made so far" in page
    assert bench(file, "--page-only")["made"] == 0


def test_what_decides_a_row_decides_whether_it_is_made_again(file: Path) -> None:
    file.write_text(MATRIX.replace("steps = 3", "steps = 4"))
    assert len(Notebook(file.parent / "out").missing(load_matrix(file))) == 15
    file.write_text(MATRIX.replace("epsilons = [1, inf]", "epsilons = [1, 2, inf]"))
    assert len(Notebook(file.parent / "out").missing(load_matrix(file))) == 6


def test_fifty_silos_and_chosen_sizes(file: Path) -> None:
    changed = MATRIX.replace("silos = [2]", "silos = [50]\nrecords = [4]").replace(
        '["iid", "classes"]', '["powerlaw:1"]'
    )
    file.write_text(changed.replace('["pooled", "alone"]', "[]").replace('leave_one_out = ["means"]', ""))
    matrix = load_matrix(file)
    cells = list(matrix.cells())
    assert len(cells) == 2
    row = run_cell(matrix, cells[0])
    assert (row.cell.silos, row.cell.records) == (50, 4)
    assert row.silo_seconds is not None
    assert row.sent_bytes == 8 * 3 * 65


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("prototypes", "magic"), "magic"),
        (('title = "Toys"', "colour = 1"), "colour: unknown key"),
        (('leave_one_out = ["means"]', 'leave_one_out = ["others"]'), "others"),
        (("recipes.means", "recipes.alone"), "name of a baseline"),
        (("epsilons = [1, inf]", "epsilons = [0]"), "epsilons"),
        (("silos = [2]", "silos = [51]"), "silos"),
    ],
)
def test_mistakes_are_told_before_anything_is_run(file: Path, change: tuple[str, str], complaint: str) -> None:
    file.write_text(MATRIX.replace(*change))
    with pytest.raises(ConfigError, match=complaint):
        load_matrix(file)


def test_rows_of_another_version_are_not_mixed_in(file: Path) -> None:
    (file.parent / "out" / ROWS).write_text('{"row": 1}\n')
    with pytest.raises(ConfigError, match="line 1"):
        Notebook(file.parent / "out").rows()


def test_exponents_are_fitted_to_three_sizes_or_more() -> None:
    square = [(float(size), 3.0 * size**2) for size in (1, 10, 50)]
    assert fitted_exponent(square) == pytest.approx(2)
    assert fitted_exponent(square[:2]) is None
    assert fitted_exponent([(None, 1.0), (2.0, None), (3.0, 0.0)]) is None


def test_scaling_has_a_section_where_sizes_differ(file: Path) -> None:
    (row,) = [row for row in Notebook(file.parent / "out").rows() if row.cell.way == "means"][:1]
    rows = [
        row.model_copy(
            update={
                "cell": row.cell.model_copy(update={"silos": silos}),
                "server_seconds": 0.5 * silos,
                "silo_seconds": 1.0,
            }
        )
        for silos in (1, 5, 25)
    ]
    assert "server time grows like (silos) to the power 1.00" in scaling_section(rows)
    assert scaling_section(rows[:2]) == ""
