"""The models that synthetic data is tried with: they learn, fit, and say when they do not fit."""

from __future__ import annotations

import typing
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from torch import nn

from silosynth.common.backbones import Backbone, backbone, backbone_for, save_backbone
from silosynth.common.datasets import Records
from silosynth.common.errors import ConfigError
from silosynth.common.schema import Schema
from silosynth.server.config import EvaluationSettings, ModelName
from silosynth.server.evaluation import ceiling, model_for
from silosynth.server.evaluation.examples import Examples
from silosynth.server.evaluation.finetuning import TunedBackbone
from silosynth.server.evaluation.models import build_model
from silosynth.server.evaluation.protocols import PROTOCOLS
from silosynth.server.evaluation.training import predict, train

CPU = torch.device("cpu")
TABLE = Schema((4,), 3)
IMAGE_MODELS = ["linear", "mlp", "convnet-8", "lenet", "alexnet-8", "vgg11-8", "resnet18-4"]
SIZES = [(1, 1, 1), (3, 3, 1), (8, 8, 1), (16, 12, 3), (28, 28, 1), (32, 32, 3)]


def squares(count: int, seed: int, schema: Schema) -> Records:
    """Class c has a bright square in corner c, in grey noise."""
    generator = np.random.default_rng(seed)
    height, width, _ = schema.shape
    labels = generator.integers(0, schema.classes, count)
    pixels = generator.integers(0, 100, (count, *schema.shape), dtype=np.uint8)
    for label, (row, column) in enumerate([(0, 0), (0, width // 2), (height // 2, 0)][: schema.classes]):
        pixels[labels == label, row : row + height // 2, column : column + width // 2] = 255
    return Records(pixels, labels, schema)


def built(name: str, schema: Schema, seed: int = 0) -> nn.Module:
    return build_model(name, schema, seed, CPU)


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.fixture
def random_backbone(tmp_path: Path) -> Path:
    path = tmp_path / "random.safetensors"
    save_backbone(backbone("residual-16", 1, seed=3), path)
    return path


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_each_model_learns(name: str) -> None:
    schema = Schema((12, 12, 1), 3)
    settings = EvaluationSettings(model=name, steps=60, device="cpu")
    assert ceiling(squares(90, 0, schema), squares(90, 1, schema), settings) > 0.6


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_images_of_any_size(name: str, shape: tuple[int, int, int]) -> None:
    schema = Schema(shape, 7)
    if name == "lenet" and min(shape[:2]) < 9:
        with pytest.raises(ConfigError, match="does not fit"):
            model_for(name, schema)
        return
    scores = built(name, schema)(torch.rand(2, shape[2], shape[0], shape[1]) * 2 - 1)
    assert scores.shape == (2, 7)
    assert scores.isfinite().all()
    assert not torch.equal(scores[0], scores[1])


@pytest.mark.parametrize(
    ("name", "shape", "count"),
    [
        ("convnet-128", (32, 32, 3), 320_010),
        ("convnet-128", (28, 28, 1), 317_706),
        ("lenet", (32, 32, 3), 62_006),
        ("mlp", (28, 28, 1), 118_282),
        ("resnet18-64", (32, 32, 3), 11_173_962),
        ("vgg11-64", (32, 32, 3), 9_231_114),
    ],
)
def test_the_papers_sizes(name: str, shape: tuple[int, ...], count: int) -> None:
    assert parameters(built(name, Schema(shape, 10))) == count


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_the_seed_alone_decides_the_first_weights(name: str) -> None:
    schema = Schema((12, 12, 1), 3)
    first = built(name, schema)
    torch.rand(1)
    again, other = built(name, schema), built(name, schema, seed=1)
    same = [torch.equal(one, two) for one, two in zip(first.parameters(), again.parameters(), strict=True)]
    assert all(same)
    assert not torch.equal(next(iter(other.parameters())), next(iter(first.parameters())))


def test_auto() -> None:
    assert model_for("auto", TABLE) == model_for("auto", TABLE, "sps") == "linear"
    images = Schema((8, 8, 1), 3)
    assert (model_for("auto", images), model_for("auto", images, "sps")) == ("convnet", "backbone")


@pytest.mark.parametrize("name", ["convnet", "lenet", "alexnet", "vgg11", "resnet18", "backbone"])
def test_tables_take_no_image_models(name: str) -> None:
    with pytest.raises(ConfigError, match=r"choose auto, linear, mlp$"):
        model_for(name, TABLE)


def test_settings_know_the_names() -> None:
    names = TypeAdapter[str](ModelName)
    for name in [*IMAGE_MODELS, "auto", "backbone", "convnet-128"]:
        assert names.validate_python(name) == name
    for name in ["", "convnet-", "convnet-0", "linear-4", "backbone-2", "resnet50"]:
        with pytest.raises(ValueError, match="pattern"):
            names.validate_python(name)


def test_a_backbone_nobody_uses_is_refused() -> None:
    with pytest.raises(ValueError, match="not used"):
        EvaluationSettings(backbone="some.safetensors")
    assert EvaluationSettings(backbone="some.safetensors", protocol="sps").backbone
    assert EvaluationSettings(backbone="some.safetensors", architectures=("backbone",)).backbone


@pytest.mark.parametrize("protocol", ["quick", "family", "sps"])
def test_a_fine_tuned_backbone_learns(protocol: typing.Any, random_backbone: Path) -> None:
    schema = Schema((16, 16, 1), 3)
    settings = EvaluationSettings(
        model="backbone", protocol=protocol, backbone=str(random_backbone), steps=5, device="cpu"
    )
    assert ceiling(squares(60, 0, schema), squares(90, 1, schema), settings) > 0.8


def test_fine_tuning_leaves_batchnorm_and_the_public_network_alone() -> None:
    schema = Schema((16, 16, 1), 3)
    public = backbone("residual-16", 1, seed=3)
    digest = public.digest
    model = TunedBackbone(public, schema, CPU)
    norms, weights = _state(model, nn.BatchNorm2d), _state(model, nn.Conv2d)
    model.train()
    train(
        model, Examples(squares(60, 0, schema), None, CPU), PROTOCOLS["quick"], steps=3, augmentation=("crop",), seed=0
    )
    assert all(torch.equal(norms[name], tensor) for name, tensor in _state(model, nn.BatchNorm2d).items())
    assert not any(torch.equal(weights[name], tensor) for name, tensor in _state(model, nn.Conv2d).items())
    assert Backbone(public.blueprint, public.network, {}).digest == digest
    assert not any(parameter.requires_grad for parameter in public.network.parameters())


def _state(model: nn.Module, kind: type[nn.Module]) -> dict[str, torch.Tensor]:
    return {
        f"{name}.{key}": tensor.clone()
        for name, module in model.named_modules()
        if isinstance(module, kind)
        for key, tensor in module.state_dict().items()
    }


def test_tuning_draws_from_nobody_elses_randomness() -> None:
    schema = Schema((8, 8, 1), 3)
    before = torch.random.get_rng_state()
    model = TunedBackbone(backbone("residual-24", 1), schema, CPU)
    train(model, Examples(squares(9, 0, schema), None, CPU), PROTOCOLS["sps"], steps=1, augmentation=(), seed=0)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_head_alone_fits_and_follows_soft_labels() -> None:
    schema = Schema((16, 16, 1), 3)
    records = squares(90, 0, schema)
    shifted = np.eye(3, dtype=np.float32)[(records.labels + 1) % 3]
    model = TunedBackbone(backbone("residual-24", 1), schema, CPU)
    model.fit_head(Examples(records, shifted, CPU))
    answers = predict(model, Examples(squares(90, 1, schema), None, CPU)).argmax(axis=1)
    assert ((squares(90, 1, schema).labels + 1) % 3 == answers).mean() > 0.8


def test_a_backbone_for_other_images_is_refused(random_backbone: Path) -> None:
    with pytest.raises(ConfigError, match="1 channels, these have 3"):
        backbone_for(Schema((8, 8, 3), 2), str(random_backbone))
    with pytest.raises(ConfigError, match="no backbone is shipped for images of 2 channels"):
        backbone_for(Schema((8, 8, 2), 2), None)


def test_grey_images_through_a_colour_backbone() -> None:
    model = TunedBackbone(backbone("residual-24", 3), Schema((8, 8, 1), 2), CPU)
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 2)
