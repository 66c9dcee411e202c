"""Networks drawn from seeds: the papers' sizes, the default initialization, the same for the same seeds."""

from __future__ import annotations

import pytest
import torch

from silosynth.common.networks.extractors import draw_network
from silosynth.common.networks.pooling import AveragePool2
from silosynth.common.networks.shapes import ConvNetShape, embedding_size
from silosynth.common.schema import Schema

CIFAR, MNIST, DIGITS = Schema((32, 32, 3), 10), Schema((28, 28, 1), 10), Schema((8, 8, 1), 10)
ADULT = Schema((14,), 2)
SHAPES = [CIFAR, MNIST, DIGITS, Schema((7, 30, 2), 3), Schema((3, 2, 1), 4), Schema((1, 1, 1), 2)]


@pytest.mark.parametrize(("schema", "parameters"), [(CIFAR, 320_010), (MNIST, 317_706)])
def test_the_convnet_of_the_papers(schema: Schema, parameters: int) -> None:
    network = draw_network("convnet", schema, 128, 0, 0)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
    assert embedding_size("convnet", schema, 128) == 2048


@pytest.mark.parametrize("schema", SHAPES, ids=lambda schema: str(schema.shape))
def test_embeddings_have_the_announced_size(schema: Schema) -> None:
    height, breadth, channels = schema.shape
    network = draw_network("convnet", schema, 16, 1)
    images = torch.zeros(3, channels, height, breadth)
    assert network.embed(images).shape == (3, embedding_size("convnet", schema, 16))
    assert network(images).shape == (3, schema.classes)


def test_small_images_get_fewer_blocks() -> None:
    assert [ConvNetShape.of(schema, 16).blocks for schema in SHAPES] == [3, 3, 2, 1, 0, 0]


def test_the_linear_extractor_for_tables() -> None:
    network = draw_network("linear", ADULT, 64, 1)
    rows = torch.rand(5, 14)
    weight, bias = network.extractor[1].parameters()
    assert weight.shape == (64, 14)
    torch.testing.assert_close(network.embed(rows), rows @ weight.T + bias)


@pytest.mark.parametrize(("kind", "schema"), [("convnet", MNIST), ("linear", ADULT)])
def test_seed_and_index_make_the_network(kind: str, schema: Schema) -> None:
    before = torch.get_rng_state()
    one, same, next_one, other = (draw_network(kind, schema, 8, *seeds) for seeds in ((1, 2), (1, 2), (1, 3), (2, 2)))
    assert torch.equal(torch.get_rng_state(), before)
    first = dict(one.named_parameters())
    assert all(torch.equal(first[name], parameter) for name, parameter in same.named_parameters())
    for different in (next_one, other):
        weights = dict(different.named_parameters())["classifier.weight"]
        assert not torch.equal(first["classifier.weight"], weights)


def test_weights_are_distributed_as_pytorch_draws_them() -> None:
    drawn = draw_network("convnet", CIFAR, 64, 7)
    fresh = torch.nn.Conv2d(64, 64, 3)
    convolution = drawn.extractor[4]
    for ours, theirs in zip(convolution.parameters(), fresh.parameters(), strict=True):
        torch.testing.assert_close(ours.std(), theirs.std(), rtol=0.2, atol=0)
        torch.testing.assert_close(ours.abs().max(), theirs.abs().max(), rtol=0.2, atol=0)


@pytest.mark.parametrize("sides", [(2, 2), (5, 7), (32, 32), (3, 130)])
def test_pooling_is_average_pooling(sides: tuple[int, int]) -> None:
    maps = torch.randn(2, 3, *sides, generator=torch.Generator().manual_seed(0))
    expected = maps.unfold(2, 2, 2).unfold(3, 2, 2).mean(dim=(-2, -1))
    torch.testing.assert_close(AveragePool2()(maps), expected)
