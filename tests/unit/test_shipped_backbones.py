"""The backbones that come with the product: the ones we think they are, small, and better than none."""

from importlib.resources import files
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.nn.functional as F

from silosynth.common.backbones import SHIPPED, Backbone, backbone, load_backbone
from silosynth.common.datasets import Records, load

DIGESTS = {
    "procedural-grey": "582e988ab223c08fc55492de1b2aaee7d14fd171c412bfa0b295b6a8446fb88a",
    "procedural-colour": "a3273c19ea5db0387570a95ee558f5942e7c24665b83b4fccb7532a3d3f90886",
}
FASHION = Path(__file__).parents[3] / "shared/datasets/fashion-mnist"


def test_they_are_the_ones_we_trained() -> None:
    assert {name: load_backbone(name).digest for name in SHIPPED} == DIGESTS


@pytest.mark.parametrize("name", SHIPPED)
def test_they_are_small_and_say_how_to_make_them(name: str) -> None:
    weights = files("silosynth.common.backbones") / "weights" / f"{name}.safetensors"
    assert len(weights.read_bytes()) < 1 << 20
    recipe = load_backbone(name).recipe
    assert recipe["images"] == "procedural"
    assert {"architecture", "channels", "steps", "batch", "seed", "learning_rate", "torch"} <= recipe.keys()


@pytest.mark.parametrize("side", [8, 16, 28, 32])
@pytest.mark.parametrize("name", SHIPPED)
def test_they_look_at_images_of_all_small_sizes(name: str, side: int) -> None:
    network = load_backbone(name)
    taps = network.forward_taps(torch.rand(3, network.blueprint.channels, side, side) * 2 - 1)
    assert all(tap.isfinite().all() and tap.std() > 0 for tap in taps)


def features(network: Backbone | None, records: Records) -> npt.NDArray[np.float64]:
    """Pixels, or taps pooled so that the layout stays: the last to 1x1, a middle one to 2x2, an early one to 3x3."""
    images = torch.from_numpy(records.features).permute(0, 3, 1, 2).float() / 127.5 - 1
    if network is None:
        return images.flatten(1).double().numpy()
    taps = network.forward_taps(images)
    pooled = [F.adaptive_avg_pool2d(taps[tap], side).flatten(1) for tap, side in ((6, 1), (4, 2), (2, 3))]
    return torch.cat(pooled, 1).double().numpy()


def probe(network: Backbone | None, train: Records, test: Records) -> float:
    """Accuracy of a ridge regression on the features."""
    inside, outside = features(network, train), features(network, test)
    mean, spread = inside.mean(0), inside.std(0) + 1e-6
    inside, outside = (inside - mean) / spread, (outside - mean) / spread
    gram = inside.T @ inside + 1e-2 * len(inside) * np.eye(inside.shape[1])
    weights = np.linalg.solve(gram, inside.T @ (np.eye(10)[train.labels] - 0.1))
    return float(((outside @ weights).argmax(1) == test.labels).mean())


def test_the_grey_one_sees_more_in_digits_than_pixels_show() -> None:
    train, test = load("digits", split="train"), load("digits", split="test")
    assert probe(load_backbone("procedural-grey"), train, test) > probe(None, train, test) + 0.02


@pytest.mark.slow
def test_the_grey_one_sees_more_in_clothes_than_a_random_one() -> None:
    if not FASHION.exists():
        pytest.skip("Fashion-MNIST is not beside the repository (../shared/datasets)")
    train = load(FASHION, classes=10, split="train").take(np.arange(4000))
    test = load(FASHION, classes=10, split="test").take(np.arange(4000))
    trained = probe(load_backbone("procedural-grey"), train, test)
    assert trained > 0.85
    assert trained > probe(backbone("residual-24", 1), train, test) + 0.02
    assert trained > probe(None, train, test) + 0.05
