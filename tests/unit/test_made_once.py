"""A network is trained once for what it learns from, whoever asks again."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from silosynth.server.synthesis.made_once import made_once, trained_once


class Lesson:
    """Training that counts how often it takes place."""

    def __init__(self, checkpoints: Path | None) -> None:
        self._checkpoints, self.given = checkpoints, 0

    def learn(self, target: float, start: float = 0.0) -> float:
        network = nn.BatchNorm1d(1)  # has buffers, one of them of integers
        nn.init.constant_(network.weight, start)

        def train() -> None:
            self.given += 1
            nn.init.constant_(network.weight, target)

        trained_once(network, self._checkpoints, (torch.tensor([target]), "settings"), train)
        return float(network.weight.detach())


def test_the_same_is_learned_once(tmp_path: Path) -> None:
    lesson = Lesson(tmp_path)
    assert [lesson.learn(2.0), lesson.learn(2.0)] == [2.0, 2.0]
    assert lesson.given == 1
    again = Lesson(tmp_path)
    assert again.learn(2.0) == 2.0
    assert again.given == 0


def test_other_lessons_and_other_networks_are_not_confused(tmp_path: Path) -> None:
    lesson = Lesson(tmp_path)
    assert [lesson.learn(2.0), lesson.learn(3.0), lesson.learn(2.0, start=1.0)] == [2.0, 3.0, 2.0]
    assert lesson.given == 3


def test_a_damaged_file_is_as_good_as_none(tmp_path: Path) -> None:
    lesson = Lesson(tmp_path)
    lesson.learn(2.0)
    (file,) = (tmp_path / "made").iterdir()
    whole = file.read_bytes()
    for damaged in (b"", whole[:20], whole[:-5], whole[:-1] + bytes([whole[-1] ^ 1])):
        file.write_bytes(damaged)
        assert lesson.learn(2.0) == 2.0
        assert file.read_bytes() == whole
    assert lesson.given == 5


def test_shapes_and_types_are_told_apart(tmp_path: Path) -> None:
    flat = torch.zeros(4)
    parts = [flat, flat.reshape(2, 2), flat.to(torch.int32), torch.zeros(4, 0)]
    for number, part in enumerate(parts):
        made = made_once(tmp_path, (part,), lambda number=number: {"it": torch.tensor(number)})  # type: ignore[misc]
        assert int(made["it"]) == number


def test_without_a_place_for_checkpoints_everything_is_learned() -> None:
    lesson = Lesson(None)
    assert [lesson.learn(2.0), lesson.learn(2.0)] == [2.0, 2.0]
    assert lesson.given == 2
