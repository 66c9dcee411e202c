"""The engine that turns any target into images: deterministic, resumable, the same on one device and on two."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import pytest
import torch
from torch import Tensor

from silosynth.common.errors import DataError
from silosynth.common.synthesis import Report, Settings, Sketch, Target, Workshop, balanced_labels, synthesize

SMALL = Settings(steps=20, batch=6, batches_together=2, smallest_crop=0.8, levels=2)
LABELS = balanced_labels(3, 10)


class Means(Target):
    """Class c wants a mean brightness; the running mean over batches is what is compared."""

    def __init__(self, wanted: Tensor) -> None:
        self.wanted = wanted
        self.running = torch.zeros_like(wanted)

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        means = torch.stack([images[labels == c].mean() for c in range(len(self.wanted))])
        self.running.mul_(0.5).add_(means.detach(), alpha=0.5)
        return (self.running + means - means.detach() - self.wanted).square().sum()

    def on(self, device: torch.device, autocast: bool) -> Self:
        return type(self)(self.wanted.to(device))

    @property
    def identity(self) -> str:
        return str(self.wanted.tolist())

    def memory(self) -> dict[str, Tensor]:
        return {"running": self.running}


class Stumbling(Means):
    """Fails after some batches, as a machine may."""

    left = 15

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        Stumbling.left -= 1
        if Stumbling.left < 0:
            raise KeyboardInterrupt
        return super().loss(images, labels)


WANTED = torch.tensor([-0.5, 0.0, 0.5])


def quiet(share: float, loss: float, sketch: Sketch) -> None:
    pass


def start(seed: int = 0) -> Tensor:
    return torch.randn(len(LABELS), 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def images_of(
    settings: Settings = SMALL,
    target: Target | None = None,
    report: Report = quiet,
    **others: Any,
) -> Tensor:
    return synthesize(target or Means(WANTED), start(), LABELS, settings, report, **others)


def test_images_of_each_class_become_what_was_wanted() -> None:
    images = images_of(SMALL.model_copy(update={"steps": 150, "rate": 0.1}))
    assert images.shape == start().shape
    assert images.abs().max() <= 1
    means = torch.stack([images[c == LABELS].mean() for c in range(3)])
    torch.testing.assert_close(means, WANTED, atol=0.05, rtol=0)


def test_the_same_seed_makes_the_same_images_and_another_others() -> None:
    assert torch.equal(images_of(), images_of())
    assert not torch.equal(images_of(), images_of(seed=1))


def test_two_devices_make_what_one_makes() -> None:
    assert torch.equal(images_of(), images_of(workshop=Workshop(devices=("cpu", "cpu"))))


def test_the_images_do_not_depend_on_who_else_is_made() -> None:
    """So more images can be made later: the first parts stay the same."""
    first = synthesize(Means(WANTED), start()[:12], LABELS[:12], SMALL, quiet)
    both = synthesize(Means(WANTED), start()[:24], LABELS[:24], SMALL, quiet)
    assert torch.equal(both[:12], first)


def test_progress_grows_to_one(tmp_path: Path) -> None:
    shares: list[float] = []
    images_of(report=lambda share, *_: shares.append(share), workshop=Workshop(devices=("cpu", "cpu")))
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_the_last_sketch_shows_the_finished_images() -> None:
    sketches: list[tuple[Tensor, Tensor]] = []
    images = images_of(SMALL.model_copy(update={"batch": 30}), report=lambda *told: sketches.append(told[2]()))
    assert torch.equal(sketches[-1][0], images)
    assert torch.equal(sketches[-1][1], LABELS)
    assert not torch.equal(sketches[0][0], images)


@pytest.mark.parametrize("devices", [("cpu",), ("cpu", "cpu")])
def test_an_interrupted_job_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: tuple[str, ...]
) -> None:
    monkeypatch.setattr("silosynth.common.synthesis.part.CHECKPOINT_EVERY", 3)
    workshop, Stumbling.left = Workshop(devices=devices), 55
    with pytest.raises(KeyboardInterrupt):
        images_of(target=Stumbling(WANTED), checkpoints=tmp_path, workshop=workshop)
    assert list(tmp_path.glob("*.safetensors"))
    assert torch.equal(images_of(checkpoints=tmp_path, workshop=workshop), images_of())


def test_a_finished_job_is_read_again(tmp_path: Path) -> None:
    images = images_of(checkpoints=tmp_path)
    Stumbling.left = 0
    assert torch.equal(images_of(target=Stumbling(WANTED), checkpoints=tmp_path), images)


@pytest.mark.parametrize("other", [{"settings": SMALL.model_copy(update={"rate": 0.2})}, {"target": Means(-WANTED)}])
def test_another_jobs_checkpoints_are_left_alone(tmp_path: Path, other: dict[str, Any]) -> None:
    """A run started again may have heard other silos, and then has another target."""
    images_of(checkpoints=tmp_path)
    kept = {file: file.read_bytes() for file in tmp_path.iterdir()}
    assert torch.equal(images_of(checkpoints=tmp_path, **other), images_of(**other))
    assert {file: file.read_bytes() for file in kept} == kept


def test_one_label_for_each_image() -> None:
    with pytest.raises(DataError, match="30 images to start from, 29 labels"):
        synthesize(Means(WANTED), start(), LABELS[1:], SMALL, quiet)


def test_schedules_begin_and_end_as_they_should() -> None:
    settings = Settings(steps=11)
    assert [settings.smallest_crop_at(step) for step in (0, 5, 10)] == pytest.approx([1, 0.65, 0.3])
    assert settings.rate_at(0) == 0.25
    assert settings.rate_at(10) < 0.01
