"""Differentiable Siamese augmentation: the same change for every image, whoever holds it, with gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from silosynth.common.augmentation import OPS, augment
from silosynth.common.errors import ConfigError

SEEDS = range(20)


def images(count: int, channels: int = 3, side: int = 12) -> Tensor:
    return torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(5)) * 2 - 1


@pytest.mark.parametrize("op", OPS)
class TestEachOp:
    def test_the_seed_alone_decides_the_change(self, op: str) -> None:
        many = images(7)
        for seed in SEEDS:
            together = augment(many, op, seed)
            assert together.shape == many.shape
            torch.testing.assert_close(augment(many[2:4], op, seed), together[2:4], rtol=0, atol=1e-6)

    def test_equal_images_stay_equal(self, op: str) -> None:
        twins = images(1).expand(3, -1, -1, -1)
        for seed in SEEDS:
            first, *others = augment(twins, op, seed)
            for other in others:
                torch.testing.assert_close(other, first)

    def test_gradients_pass(self, op: str) -> None:
        few = images(2).double().requires_grad_()
        assert torch.autograd.gradcheck(lambda pixels: augment(pixels, op, 3), (few,))

    def test_seeds_change_something(self, op: str) -> None:
        few = images(2)
        assert any(not torch.equal(augment(few, op, seed), few) for seed in SEEDS)

    def test_the_global_generator_is_left_alone(self, op: str) -> None:
        before = torch.get_rng_state()
        augment(images(2), op, 1)
        assert torch.equal(torch.get_rng_state(), before)

    def test_rectangles_and_tiny_images_keep_their_shape(self, op: str) -> None:
        for shape in ((2, 1, 8, 8), (2, 3, 10, 6), (1, 1, 1, 1)):
            assert augment(torch.ones(shape), op, 4).shape == shape


def test_no_ops_change_nothing() -> None:
    few = images(2)
    assert augment(few, "", 1) is few
    assert augment(few, (), 1) is few


def test_one_op_a_call_chosen_by_the_seed() -> None:
    few, names = images(2), ("color", "crop", "rotate")
    for seed in SEEDS:
        assert torch.equal(augment(few, names, seed), augment(few, ",".join(names), seed))
    mirrored = [torch.equal(augment(few, "flip", seed), few.flip(-1)) for seed in range(400)]
    assert 150 < sum(mirrored) < 250
    windows = [bool((augment(few, "cutout,flip", seed) == 0).any()) for seed in range(400)]
    assert 150 < sum(windows) < 250


def test_a_crop_shifts_by_at_most_an_eighth() -> None:
    dot = torch.zeros(1, 1, 16, 16)
    dot[0, 0, 8, 8] = 1
    places = {tuple(augment(dot, "crop", seed)[0, 0].nonzero()[0].tolist()) for seed in range(200)}
    assert {row for row, _ in places} == {column for _, column in places} == set(range(6, 11))


def test_a_cutout_covers_at_most_a_quarter() -> None:
    left = [float(augment(torch.ones(1, 1, 16, 16), "cutout", seed).mean()) for seed in range(100)]
    assert min(left) == 0.75
    assert max(left) <= 1 - 8 * 8 / 4 / 256


def test_color_keeps_grey_images_grey() -> None:
    grey = images(2, channels=1).expand(-1, 3, -1, -1)
    for seed in SEEDS:
        changed = augment(grey, "color", seed)
        torch.testing.assert_close(changed[:, :1].expand(-1, 3, -1, -1), changed)


def test_unknown_ops_are_named() -> None:
    with pytest.raises(ConfigError, match="unknown augmentation blur; choose among color, crop"):
        augment(images(1), "crop,blur", 0)
