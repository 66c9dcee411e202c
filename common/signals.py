"""Signals: what the features of a query are. Signal i is a network, an augmentation and perhaps a projection.

Unless the query brings networks of its own, all of it is drawn from (seed, i) on both sides and never stored or sent:
ten thousand networks and bases would take 50 to 100 gigabytes. Silos sum features of private records; the server
matches features of synthetic ones with the sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from silosynth.common.augmentation import augment
from silosynth.common.auxiliary import as_inputs, decode_auxiliary, procedural_auxiliary
from silosynth.common.networks.extractors import Network, draw_network
from silosynth.common.networks.weights import decode_networks, given_network
from silosynth.common.procedural.dice import Dice
from silosynth.common.projection import Projection, principal_components
from silosynth.common.queries import FeatureSums

_AUGMENTATION_STREAM = 1  # apart from the network's stream, which is (seed, i)
_BATCH = 250


@dataclass(frozen=True)
class Signal:
    network: Network
    augmentation: str
    augmentation_seed: int
    projection: Projection | None = None

    def size(self) -> int:
        """How many numbers it holds."""
        projection = (self.projection.center, self.projection.basis) if self.projection else ()
        return sum(tensor.numel() for tensor in (*self.network.parameters(), *projection))

    def augmented(self, inputs: Tensor) -> Tensor:
        return augment(inputs, self.augmentation, self.augmentation_seed)

    def features(self, inputs: Tensor) -> Tensor:
        """Of images (count, channels, height, width) or rows (count, columns), augmented on the way."""
        features = self.network.embed(self.augmented(inputs))
        return features if self.projection is None else self.projection(features)


class Signals:
    """The signals of a query, each made when it is asked for."""

    def __init__(self, query: FeatureSums, artifact: Callable[[str], bytes], device: torch.device) -> None:
        self._query, self._device = query, device
        self._auxiliary = _auxiliary_inputs(query, artifact) if query.projected else None
        self._given = decode_networks(artifact(query.weights), query.schema, query.width) if query.weights else None

    def __getitem__(self, index: int) -> Signal:
        query = self._query
        network = self._network(index).requires_grad_(False)
        seed = int(Dice(query.seed, index, _AUGMENTATION_STREAM).integers(1 << 62))
        plain = Signal(network.to(self._device), query.augmentation, seed)
        return plain if self._auxiliary is None else replace(plain, projection=self._projection(plain, self._auxiliary))

    def _network(self, index: int) -> Network:
        query = self._query
        if self._given is not None:
            return given_network(self._given[index % len(self._given)], query.schema, query.width)
        return draw_network(
            query.network, query.schema, query.width, query.seed, index, length_scale=query.length_scale
        )

    @torch.no_grad()
    def _projection(self, plain: Signal, auxiliary: Tensor) -> Projection:
        features = [plain.features(batch.to(self._device)).cpu() for batch in torch.split(auxiliary, _BATCH)]
        return principal_components(torch.cat(features), self._query.projected).to(self._device)


def _auxiliary_inputs(query: FeatureSums, artifact: Callable[[str], bytes]) -> Tensor:
    schema = query.schema
    if query.auxiliary:
        return as_inputs(decode_auxiliary(artifact(query.auxiliary), schema), schema)
    return as_inputs(procedural_auxiliary(schema), schema)
