"""Procedural images: the same for the same seed, in range, and every class visible."""

import pytest
import torch

from silosynth.common.procedural import class_count, procedural_batches
from silosynth.common.procedural.batches import families
from silosynth.common.procedural.dice import Dice
from silosynth.common.procedural.painting import placed_points


@pytest.mark.parametrize(("channels", "side"), [(1, 8), (1, 32), (3, 28)])
def test_batches_have_the_asked_shape_and_range(channels: int, side: int) -> None:
    images, labels = next(procedural_batches(0, 64, channels, side))
    assert images.shape == (64, channels, side, side)
    assert images.isfinite().all()
    assert images.abs().max() <= 1
    assert 0 <= labels.min() <= labels.max() < class_count()


def test_a_seed_and_a_number_decide_a_batch() -> None:
    stream = procedural_batches(7, 16, 1, 16)
    _, second = next(stream), next(stream)
    again = next(procedural_batches(7, 16, 1, 16, start=1))
    assert torch.equal(second[0], again[0])
    assert torch.equal(second[1], again[1])
    assert not torch.equal(second[0], next(procedural_batches(8, 16, 1, 16, start=1))[0])


def test_drawing_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    next(procedural_batches(0, 16, 3, 16))
    assert torch.equal(before, torch.random.get_rng_state())


def test_every_class_can_be_seen() -> None:
    """A class whose figures vanish or fill the frame would teach nothing."""
    dice = Dice(3)
    for family in families():
        classes = torch.arange(family.classes).repeat_interleave(16)
        points = placed_points(dice, len(classes), 32, family.is_texture)
        spread = family.draw(classes, points, dice).std(1).reshape(family.classes, 16).mean(1)
        assert spread.min() > 0.08, family.render.__name__


def test_there_are_dozens_of_classes() -> None:
    assert 60 <= class_count() <= 200
