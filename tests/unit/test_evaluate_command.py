"""`silosynth evaluate`: a finished release on public records, written beside it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from support.published import GREY, Server, product
from support.toy_images import toy_records
from typer.testing import CliRunner

from silosynth.common.datasets import save_npz
from silosynth.common.errors import ConfigError, DataError, VerificationFailed
from silosynth.common.publication.verification import verify_release
from silosynth.deploy.cli import app
from silosynth.deploy.evaluations import Order, evaluate_release
from silosynth.server.evaluation import Evaluation

ORDER = Order("digits", None, None, 1, "linear", (), "quick")


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Server(tmp_path_factory.mktemp("server")).publish(product(per_class=6))[0]


@pytest.fixture(scope="module")
def public_test(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "public.npz"
    save_npz(toy_records((20, 20, 20)), path)
    return path


def test_a_release_is_judged_and_stays_as_it_was_signed(release: Path, public_test: Path, tmp_path: Path) -> None:
    target = tmp_path / "found"
    options = ["--test", public_test, "--classes", 3, "--seeds", 2, "--architecture", "linear", "--out", target]
    done = CliRunner().invoke(app, ["evaluate", str(release), *map(str, options), "--format", "json"])
    assert done.exit_code == 0, done.stderr
    written = json.loads((target / "evaluation.json").read_text())
    assert json.loads(done.stdout) == written
    found = Evaluation.model_validate(written)
    assert found.release == "night-shift/1"
    assert found.code is not None
    assert (found.model, list(found.by_architecture), found.seeds) == ("convnet", ["convnet", "linear"], (0, 1))
    assert found.calibration is not None
    assert found.likeness is not None
    with Image.open(target / "evaluation.png") as picture:
        assert picture.size > (800, 200)
    assert (target / "evaluation.svg").read_text().startswith("<?xml")
    verify_release(release)


def test_people_get_a_table(release: Path, public_test: Path, tmp_path: Path) -> None:
    options = ["--test", public_test, "--classes", 3, "--seeds", 1, "--model", "linear", "--out", tmp_path]
    done = CliRunner().invoke(app, ["evaluate", str(release), *map(str, options)])
    assert done.exit_code == 0, done.stderr
    assert done.stdout == ""
    for words in ("worst class", "coverage", "calibration", "night-shift/1"):
        assert words in done.stderr


def test_nothing_is_written_into_the_release(release: Path, public_test: Path) -> None:
    with pytest.raises(ConfigError, match="signed"):
        CliRunner().invoke(
            app,
            ["evaluate", str(release), "--test", str(public_test), "--out", str(release / "more")],
            catch_exceptions=False,
        )


def test_records_that_do_not_fit_are_refused(release: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="of the same kind"):
        evaluate_release(release, ORDER, tmp_path, print)


def test_bad_orders_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="model"):
        evaluate_release(tmp_path / "nothing", replace(ORDER, model="oracle"), tmp_path, print)
    with pytest.raises(DataError):
        replace(ORDER, test=str(tmp_path / "nothing")).test_records(())


def test_a_tampered_release_is_not_judged(tmp_path: Path) -> None:
    path, _ = Server(tmp_path / "server").publish(product(GREY))
    (path / "README.md").write_text("changed")
    with pytest.raises(VerificationFailed):
        evaluate_release(path, ORDER, tmp_path / "out", print)


def test_two_parts_are_tested_on_the_test_part() -> None:
    assert len(ORDER.test_records(())) == 360


def test_a_test_part_that_cannot_be_read_is_not_replaced_by_the_training_part(tmp_path: Path) -> None:
    for part in ("train", "val"):
        for name in ("cat", "dog"):
            (tmp_path / "pets" / part / name).mkdir(parents=True)
            Image.new("L", (4, 4)).save(tmp_path / "pets" / part / name / "a.png")
    order = replace(ORDER, test=str(tmp_path / "pets"))
    with pytest.raises(DataError):
        order.test_records(("cat", "dog"))
    apart = replace(order, test=str(tmp_path / "pets" / "val"))
    assert apart.test_records(("bird", "cat", "dog")).labels.tolist() == [1, 2]
    with pytest.raises(DataError, match="not among the declared"):
        apart.test_records(("bird", "cat"))


def test_a_toml_file_tells_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("10,no\n90,yes\n50,no\n")
    columns = '{name = "age", bounds = [0, 100]}, {name = "sick", categories = ["no", "yes"]}'
    table = f'[data]\npath = "rows.csv"\n[data.table]\nlabel = "sick"\nheader = false\ncolumns = [{columns}]\n'
    (tmp_path / "rows.toml").write_text(table)
    assert replace(ORDER, test=str(tmp_path / "rows.toml")).test_records(()).labels.tolist() == [0, 1, 0]


def test_the_schema_is_printed() -> None:
    done = CliRunner().invoke(app, ["evaluate", "--schema"])
    assert done.exit_code == 0
    assert "accuracy_interval" in json.loads(done.stdout)["properties"]
