"""What a recipe tells of its long work arrives in the journal in coarse steps, with a picture now and then."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from silosynth.deploy.watch import RunView
from silosynth.server import desk
from silosynth.server.desk import Desk
from silosynth.server.journal import FORMING, Journal
from silosynth.server.recipes.workplace import Sketch

CLASSES = ("zero", "one")


def desk_in(folder: Path, classes: tuple[str, ...] = CLASSES) -> Desk:
    return Desk(folder=folder, journal=Journal(folder / "journal.jsonl"), classes=classes)


def entries(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]


def sketch_of(brightness: float) -> Sketch:
    return lambda: (np.full((4, 8, 8, 1), brightness, np.float32), np.array([0, 1, 0, 1]))


def test_a_hundred_entries_at_most_whatever_is_reported(tmp_path: Path) -> None:
    place = desk_in(tmp_path)
    for step in range(1, 5001):
        place.report(step / 5000, 1 / step)
    told = entries(tmp_path)
    assert [entry["share"] for entry in told] == [step / 100 for step in range(101)]
    assert all(entry["kind"] == "working" and entry["what"] == "synthesizing" for entry in told)
    assert told[-1]["loss"] == pytest.approx(1 / 5000)


def test_another_piece_of_work_begins_anew(tmp_path: Path) -> None:
    place = desk_in(tmp_path)
    place.report(0.5, 1.0, what="training the expert")
    place.report(0.5, 2.0)
    assert [(entry["what"], entry["loss"]) for entry in entries(tmp_path)] == [
        ("training the expert", 1.0),
        ("synthesizing", 2.0),
    ]


@pytest.mark.parametrize("loss", [math.inf, math.nan])
def test_a_loss_that_is_no_number_is_told_as_such(tmp_path: Path, loss: float) -> None:
    desk_in(tmp_path).report(0.5, loss)
    assert entries(tmp_path)[0]["loss"] is None


def test_pictures_are_drawn_now_and_then_and_at_the_end(tmp_path: Path) -> None:
    place, drawn = desk_in(tmp_path), list[float]()

    def counted(brightness: float) -> Sketch:
        def sketch() -> Any:
            drawn.append(brightness)
            return sketch_of(brightness)()

        return sketch

    for step in range(1, 11):
        place.report(step / 10, 1.0, counted(step / 10))
    assert drawn == [0.1, 1.0]  # the others came too soon after the first
    assert [entry.get("picture") for entry in entries(tmp_path)] == [FORMING, *[None] * 8, FORMING]
    with Image.open(tmp_path / FORMING) as picture:
        assert picture.convert("L").getextrema() == (0, 255)
    assert sorted(file.name for file in tmp_path.iterdir()) == [FORMING, "journal.jsonl"]


def test_later_pictures_replace_earlier_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "_SECONDS_BETWEEN_PICTURES", 0.0)
    place = desk_in(tmp_path)
    place.report(0.1, 1.0, sketch_of(-1.0))
    dark = (tmp_path / FORMING).read_bytes()
    place.report(0.2, 1.0, sketch_of(1.0))
    assert (tmp_path / FORMING).read_bytes() != dark


def test_tables_have_no_pictures(tmp_path: Path) -> None:
    desk_in(tmp_path, classes=()).report(1.0, 1.0, lambda: pytest.fail("nothing to draw"))
    assert [file.name for file in tmp_path.iterdir()] == ["journal.jsonl"]


def shown(*told: dict[str, Any]) -> str:
    view, console = RunView.of(["one"]), Console(width=120)
    for entry in told:
        view.note({"kind": "working", "what": "synthesizing", "loss": None} | entry)
    with console.capture() as capture:
        console.print(view.render())
    return capture.get()


def test_people_see_how_far_it_is_and_how_long_it_will_take() -> None:
    first, later = {"time": 100.0, "share": 0.1}, {"time": 160.0, "share": 0.4, "loss": 1.23456}
    line = next(line for line in shown(first, later).splitlines() if "synthesizing" in line)
    assert line.rstrip().endswith("40%, loss 1.235, about 2 min left")
    assert "left" not in shown(first)


def test_work_that_goes_on_after_an_interruption_is_timed_anew() -> None:
    before = {"time": 0.0, "share": 0.0}, {"time": 1000.0, "share": 0.5}
    after = {"time": 9000.0, "share": 0.4}, {"time": 9030.0, "share": 0.7}
    assert "about 30 s left" in shown(*before, *after)
