"""Crops, flips and pyramids."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from silosynth.common.procedural.dice import Dice
from silosynth.common.synthesis.augmentation import augmented
from silosynth.common.synthesis.parametrization import image_of, pyramid
from silosynth.common.synthesis.resampling import resampled, weights


def pictures(height: int = 9, width: int = 12) -> Tensor:
    return torch.randn(5, 2, height, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_windows_are_sampled_as_torch_does() -> None:
    images, generator = pictures().float(), torch.Generator().manual_seed(1)
    shares, middles = torch.rand(2, 5, generator=generator), torch.rand(2, 5, generator=generator) * 0.2
    shares[0, ::2] *= -1
    views = torch.zeros(5, 2, 3)
    views[:, 0, 0], views[:, 1, 1] = shares
    views[:, :, 2] = middles.T
    grid = F.affine_grid(views, list(images.shape), align_corners=False)
    expected = F.grid_sample(images, grid, padding_mode="border", align_corners=False)
    columns = weights(12, 12, shares[0], middles[0])
    torch.testing.assert_close(resampled(images, weights(9, 9, shares[1], middles[1]), columns), expected)


class TestAugmentation:
    def test_whole_images_without_flips_stay_as_they_are(self) -> None:
        # A window of all of the area may be as wide and not quite as high: only square ones are whole.
        images = torch.ones(5, 2, 9, 12) * torch.linspace(-1, 1, 12)
        seen = augmented(images, 1.0, False, Dice(0))
        assert (seen.diff(dim=3) >= 0).all()

    def test_flips_mirror_about_half_of_the_images(self) -> None:
        images = (torch.ones(400, 1, 4, 4) * torch.linspace(-1, 1, 4)).contiguous()
        rising = (augmented(images, 0.5, True, Dice(0)).diff(dim=3).sum((1, 2, 3)) > 0).float().mean()
        assert 0.4 < rising < 0.6

    def test_small_windows_show_less(self) -> None:
        images = (torch.ones(200, 1, 8, 8) * torch.linspace(-1, 1, 8)).contiguous()
        spans = [
            (lambda seen: (seen[..., -1] - seen[..., 0]).mean().item())(augmented(images, smallest, False, Dice(0)))
            for smallest in (1.0, 0.5, 0.1)
        ]
        assert spans[0] > spans[1] > spans[2] > 0.5

    def test_draws_depend_on_the_dice_alone(self) -> None:
        images = pictures().float()
        assert torch.equal(augmented(images, 0.3, True, Dice(4)), augmented(images, 0.3, True, Dice(4)))
        assert not torch.equal(augmented(images, 0.3, True, Dice(4)), augmented(images, 0.3, True, Dice(5)))

    def test_gradients_flow_to_the_images(self) -> None:
        images = pictures().float().requires_grad_(True)
        (gradient,) = torch.autograd.grad(augmented(images, 0.9, True, Dice(1)).sum(), images)
        assert torch.isfinite(gradient).all()
        assert (gradient.sum((1, 2, 3)) > 0).all()


class TestPyramid:
    @pytest.mark.parametrize("levels", [1, 2, 3, 4])
    def test_it_is_the_image_it_was_made_from(self, levels: int) -> None:
        images = pictures(14, 9).float()
        parts = pyramid(images, levels)
        assert len(parts) == levels
        torch.testing.assert_close(image_of(parts), images)

    def test_a_common_step_of_all_levels_moves_the_image_as_far(self) -> None:
        parts = pyramid(torch.zeros(1, 1, 8, 8), 3)
        torch.testing.assert_close(image_of([part + 0.25 for part in parts]), torch.full((1, 1, 8, 8), 0.25))
