"""Runs told from their journals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from silosynth.server.dashboard.story import Story
from silosynth.server.dashboard.views.work import work_of
from silosynth.server.journal import JournalReader
from silosynth.server.narration import Narrator

BUDGET = {"epsilon_spent": 1.0, "epsilon_total": 8.0, "delta": 1e-5}
RELEASED = {"bytes": 1_600_000, "replayed": False, "epsilon_spent": 3.0, "epsilon_total": 8.0}


def told(*news: tuple[str, dict[str, Any]]) -> Story:
    story = Story(("a", "b"))
    for place, (kind, facts) in enumerate(news):
        story.hear({"time": 100.0 + 3 * place, "kind": kind, **facts})
    return story


ASKED = (
    ("gathering", {"silos": ["a", "b"]}),
    ("attending", {"silo": "a", "dataset": "ward", "version": "0.1.0", **BUDGET}),
    ("asking", {"mechanism": "class_counts", "digest": "ab" * 32, "values": 10}),
)


def test_rounds_are_told_with_how_many_answered_and_how_much_came() -> None:
    answered = (("released", {"silo": "a", **RELEASED}), ("released", {"silo": "b", **RELEASED}))
    story = told(*ASKED, *answered, ("summed", {"silos": 2, "digest": "ab" * 32}))
    assert story.feed[-1].words == "Round 1: 2 of 2 silos answered, 3.2 MB"
    assert [phase.name for phase in story.phases] == ["Gathering silos", "Round 1: class counts"]
    assert [phase.ended for phase in story.phases] == [106.0, 115.0]


def test_a_silo_s_part_has_what_it_declared_and_sent() -> None:
    part = told(*ASKED, ("progress", {"silo": "a", "phase": "computing", "fraction": 0.5})).parts["a"]
    assert (part.state, part.fraction, part.spent, part.total) == ("computing", 0.5, 1.0, 8.0)
    part = told(*ASKED, ("released", {"silo": "a", **RELEASED})).parts["a"]
    assert (part.state, part.bytes, part.spent_before, part.spent) == ("answered", 1_600_000, 1.0, 3.0)
    assert part.slowest_seconds == 3.0


def test_waiting_for_consent_ends_with_the_answer_and_is_not_the_silo_s_time() -> None:
    waiting = (*ASKED, ("waiting_for_consent", {"silo": "a", "digest": "ab" * 32}))
    assert told(*waiting).parts["a"].waits_for == "ab" * 32
    part = told(*waiting, ("released", {"silo": "a", **RELEASED})).parts["a"]
    assert (part.waits_for, part.slowest_seconds) == ("", 0.0)
    assert told(*waiting, ("without", {"silo": "a", "message": "denied"})).parts["a"].state == "left out"


def test_work_is_a_phase_with_a_curve_and_a_guess_of_its_end() -> None:
    steps = [("working", {"what": "synthesizing", "share": step / 10, "loss": 1.0 / (step + 1)}) for step in range(6)]
    story = told(*ASKED, *steps)
    work = work_of(story)
    assert work is not None
    assert (work.what, work.share, work.seconds_left) == ("Synthesizing", 0.5, 15.0)
    assert story.curves[0].seconds == [0.0, 3.0, 6.0, 9.0, 12.0, 15.0]
    assert work_of(told(*ASKED, *steps, ("synthesized", {"records": 3}))) is None


def test_states_and_ends() -> None:
    assert Story(("a",)).state == "submitted"
    assert told(*ASKED).state == "running"
    assert told(*ASKED).is_quiet  # 1970 was long ago
    story = told(*ASKED, ("released_dataset", {"name": "demo/1"}), ("finished", {}))
    assert (story.state, story.release, story.is_quiet) == ("finished", "demo/1", False)
    assert story.phases[-1].name == "Writing and signing"


def test_entries_of_another_version_do_no_harm() -> None:
    story = told(*ASKED, ("asking", {}), ("released", {"silo": "a"}), ("news of the future", {"silo": "b"}))
    assert story.state == "running"
    assert Narrator().tell({"time": 1.0, "kind": "failed"}) == "failed, in words this version does not know"


def test_a_journal_with_a_torn_line_is_read_around_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    reader = JournalReader(path)
    assert list(reader.new_entries()) == []
    whole = json.dumps({"time": 1.0, "kind": "finished"})
    path.write_text(f'{whole}\n{{"time": 2.0, "ki{whole}\n[]\n{whole}\n{whole[:9]}')
    assert len(list(reader.new_entries())) == 2
    assert list(reader.new_entries()) == []
    with path.open("a") as file:
        file.write(f"{whole[9:]}\n")
    assert len(list(reader.new_entries())) == 1
