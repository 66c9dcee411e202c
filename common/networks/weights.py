"""ConvNets that were trained on the server, as an artifact: a safetensors file of one tensor, `weights`.

A row holds all parameters of one network, in the order of its modules. A guard reads it from a server it does not
trust.
"""

from __future__ import annotations

import numpy as np
import safetensors.numpy
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from silosynth.common.errors import QueryError
from silosynth.common.networks.extractors import Network, draw_network
from silosynth.common.schema import Schema

_MOST_NETWORKS = 256


def encode_networks(networks: list[Network]) -> bytes:
    rows = [flat_weights(network).cpu().float().numpy() for network in networks]
    content: bytes = safetensors.numpy.save({"weights": np.stack(rows)})
    return content


def decode_networks(content: bytes, schema: Schema, width: int) -> Tensor:
    """One row a network."""
    try:
        rows = safetensors.numpy.load(content).get("weights")
    except (SafetensorError, KeyError, ValueError) as error:
        raise QueryError("the artifact of weights is no safetensors file: ask the server's operator") from error
    expected = sum(parameter.numel() for parameter in draw_network("convnet", schema, width, 0).parameters())
    if rows is None or rows.dtype != np.float32 or rows.ndim != 2 or rows.shape[1] != expected:
        raise QueryError(f"the artifact of weights holds no rows of {expected} float32 values, as the network has")
    if not 1 <= len(rows) <= _MOST_NETWORKS:
        raise QueryError(f"{len(rows)} networks are not between 1 and {_MOST_NETWORKS}")
    return torch.from_numpy(rows.copy())  # what safetensors gives cannot be written to


def given_network(weights: Tensor, schema: Schema, width: int) -> Network:
    network = draw_network("convnet", schema, width, 0)
    with_weights(network, weights)
    return network


@torch.no_grad()
def flat_weights(network: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(network.parameters()).detach().clone()


@torch.no_grad()
def with_weights(network: nn.Module, weights: Tensor) -> nn.Module:
    """Into the network's own memory: where a slice of `weights` lies might decide on a kernel."""
    parameters = list(network.parameters())
    for parameter, part in zip(parameters, torch.split(weights, [own.numel() for own in parameters]), strict=True):
        parameter.copy_(part.view_as(parameter))
    return network
