"""`silosynth bench`: a matrix of runs, resumed where it was stopped, and its page."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console
from support.toy_images import toy_records
from typer.testing import CliRunner

from silosynth.common.datasets import Records, save_npz
from silosynth.common.errors import ConfigError, RunFailed, SilosynthError
from silosynth.common.schema import Schema
from silosynth.deploy.bench.estimates import Estimate, estimate_table
from silosynth.deploy.bench.matrix import load_matrix
from silosynth.deploy.bench.page import write_page
from silosynth.deploy.bench.rows import ROWS, Notebook, Row
from silosynth.deploy.bench.running import run_cell
from silosynth.deploy.bench.scaling import fitted_exponent, scaling_section
from silosynth.deploy.cli import app
from silosynth.server.evaluation.plots import save_figure

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


def test_only_names_datasets_or_ways(file: Path) -> None:
    matrix, notebook = load_matrix(file), Notebook(file.parent / "nothing-yet")
    whole = notebook.missing(matrix)
    assert notebook.missing(matrix, ["toys"]) == whole
    assert notebook.missing(matrix, ["pooled"]) == [cell for cell in whole if cell.way == "pooled"]
    assert notebook.missing(matrix, ["toys", "means"]) == [cell for cell in whole if cell.way == "means"]
    with pytest.raises(ConfigError, match="choose among toys, pooled"):
        notebook.missing(matrix, ["toy"])


def test_a_dataset_may_have_seeds_of_its_own(file: Path) -> None:
    file.write_text(MATRIX.replace("[datasets.toys]", "[datasets.toys]\nseeds = [0, 7]"))
    cells, missing = list(load_matrix(file).cells()), Notebook(file.parent / "out").missing(load_matrix(file))
    assert {cell.seed for cell in cells} == {0, 7}
    assert {cell.seed for cell in missing} == {7}  # those of seed 0 are still what they were


def test_the_best_of_several_recipes_is_bold(file: Path) -> None:
    file.write_text(MATRIX.replace("[evaluation]", '[recipes.mixed]\nrecipe = "ldpdc"\n[evaluation]'))
    matrix = load_matrix(file)
    rows = Notebook(file.parent / "out").rows_of(matrix)
    worse = [
        row.model_copy(update={"cell": row.cell.model_copy(update={"way": "mixed"}), "accuracy": 0.0}) for row in rows
    ]
    page = write_page(
        matrix, [*rows, *(row for row in worse if row.synthetic_records)], file.parent / "out"
    ).read_text()
    shown = {line.split(" | ")[0]: line for line in page.split("Points that")[0].splitlines() if line[:1] == "|"}
    assert shown["| means"].count("**") == 2 * 4
    assert "**" not in shown["| mixed"] + shown["| pooled"]


def test_a_run_that_cannot_be_made_does_not_stop_the_others(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).uniform(-1, 1, (60, 4)).astype(np.float32)
    save_npz(Records(rows, np.arange(60) % 3, Schema((4,), 3)), tmp_path / "toys.npz")
    file = tmp_path / "toys.toml"
    file.write_text(MATRIX.replace('["pooled", "alone"]', '["dp-fedavg"]').replace('leave_one_out = ["means"]', ""))
    done = CliRunner().invoke(app, ["bench", str(file), "--out", str(tmp_path / "out")])
    assert isinstance(done.exception, RunFailed)
    assert "4 runs could not be made" in str(done.exception)
    assert "leave that baseline out" in str(done.exception)
    assert len(Notebook(tmp_path / "out").rows()) == 4


@pytest.mark.parametrize(
    ("written", "instead", "complaint"),
    [('"classes"', '"clases"', "clases"), ('"toys.npz"', '"nowhere.npz"', "datasets.toys.data: there is no")],
)
def test_what_is_wrong_is_told_before_anything_is_run(written: str, instead: str, complaint: str, file: Path) -> None:
    file.write_text(MATRIX.replace(written, instead).replace("steps = 3", "steps = 4"))
    done = CliRunner().invoke(app, ["bench", str(file), "--out", str(file.parent / "elsewhere")])
    assert isinstance(done.exception, ConfigError)
    assert complaint in str(done.exception)
    assert not Notebook(file.parent / "elsewhere").rows()


def test_only_the_silo_that_worked_is_counted(file: Path) -> None:
    row = Notebook(file.parent / "out").rows()[0]
    known = {"silo_seconds": 10.0, "server_seconds": 1.0, "evaluation_seconds": 2.0}
    assert row.model_copy(update=known | {"cell": row.cell.model_copy(update={"silos": 5})}).cpu_seconds == 53.0
    assert row.model_copy(update=known | {"silos_at_work": 1}).cpu_seconds == 13.0


def test_pictures_of_datasets_whose_names_have_dots_are_two(file: Path) -> None:
    figures = [save_figure(Figure(), file.parent / f"toys.v{number}") for number in (1, 2)]
    assert len({path for paths in figures for path in paths}) == 4


def test_help_shows_the_whole_file() -> None:
    shown = CliRunner().invoke(app, ["bench", "--help"]).output
    assert "[datasets.digits]" in shown
    assert "[recipes.ldpdc]" in shown


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


def test_exponents_are_fitted_to_three_sizes_or_more(file: Path, tmp_path: Path) -> None:
    (row, *_) = [row for row in Notebook(file.parent / "out").rows() if row.cell.way == "means"]
    rows = [
        row.model_copy(
            update={
                "cell": row.cell.model_copy(update={"silos": silos, "records": 100}),
                "server_seconds": 0.5 * silos**2,
                "server_peak_bytes": 10**9,
                "silo_seconds": 1.0,
            }
        )
        for silos in (1, 5, 25)
    ]
    section = scaling_section(rows, tmp_path)
    assert "server time grows like (silos) to the power 2.00, from 0.5 to 312 CPU s for 1 to 25" in section
    assert "server memory grows like (silos) to the power 0.00" in section
    assert (tmp_path / "scaling.png").exists()
    assert scaling_section(rows[:2], tmp_path) == ""
    assert fitted_exponent([(float(size), 3.0 * size**2) for size in (1, 10, 50)]) == pytest.approx(2)


def test_a_server_apart_finds_the_same_and_tells_its_memory(file: Path) -> None:
    """Its silos' records never are in its process; it is asked the same, and left out silos stay out."""
    file.write_text(MATRIX.replace('title = "Toys"', 'title = "Toys"\napart = true').replace("[1, inf]", "[inf]"))
    matrix = load_matrix(file)
    cell = next(cell for cell in matrix.cells() if cell.without == 1)
    (before,) = [row for row in Notebook(file.parent / "out").rows() if row.cell == cell]
    row = run_cell(matrix, cell)
    assert (row.accuracy, row.sent_bytes) == (before.accuracy, before.sent_bytes)
    assert row.server_peak_bytes is not None
    assert row.server_idle_bytes is not None
    assert row.server_peak_bytes >= row.server_idle_bytes > 10**7


def test_a_server_that_dies_apart_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters that only the other process finds to be wrong."""
    file.write_text(MATRIX.replace('title = "Toys"', 'title = "Toys"\napart = true'))
    matrix = load_matrix(file)
    broken = matrix.model_copy(
        update={"recipes": {"means": matrix.recipes["means"].model_copy(update={"recipe": "x"})}}
    )
    cell = next(cell for cell in matrix.cells() if cell.way == "means")
    with pytest.raises(SilosynthError, match="died"):
        run_cell(broken, cell)


@pytest.mark.parametrize("way", ["fedavg", "dp-sgd", "dp-fedavg"])
def test_baselines_train_models_without_synthetic_records(file: Path, way: str) -> None:
    """With hardly any noise, all do better than guessing among three kinds."""
    changed = MATRIX.replace('["pooled", "alone"]', f'["{way}"]').replace("epsilons = [1, inf]", "epsilons = [1000]")
    file.write_text(changed.replace('model = "linear"', 'model = "convnet-8"'))
    matrix = load_matrix(file)
    cell = next(cell for cell in matrix.cells() if cell.way == way)
    assert cell.epsilon == (None if way == "fedavg" else 1000)
    row = run_cell(matrix, cell)
    assert row.accuracy > 0.5
    assert row.cpu_seconds > 0
    assert row.synthetic_records is None


def test_a_dry_run_tells_what_is_missing_and_its_cost(file: Path) -> None:
    assert bench(file, "--dry-run") == {"missing": 0, "unknown": 0, "seconds": 0.0, "shares": []}
    file.write_text(
        MATRIX.replace("seeds = 1", "seeds = 2").replace("recipes.means", "recipes.others").replace('["means"]', "[]")
    )
    found = bench(file, "--dry-run")
    assert (found["missing"], found["unknown"]) == (7, 4)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(*estimate_table(Estimate.model_validate(found)))
    assert "what the others cost is known once one of each was run" in console.export_text()


def test_one_dataset_may_be_run_first(file: Path) -> None:
    assert Notebook(file.parent / "empty").missing(load_matrix(file), ["toys"])
    with pytest.raises(ConfigError, match="choose among toys"):
        Notebook(file.parent / "empty").missing(load_matrix(file), ["trains"])
