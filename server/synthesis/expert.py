"""An expert's say about synthetic records: cross-entropy, and nearness to what it thinks of the pool's (DP-GENG).

The references of a class are the pool's records of it: their mean soft label tells which other classes it resembles.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from silosynth.common.networks.extractors import Network
from silosynth.server.generators.base import Pool

_BATCH = 250
_SMALLEST = 1e-6


class Expert:
    def __init__(self, network: Network, pool: Pool, divergence_weight: float) -> None:
        self.network, self._weight = network.requires_grad_(False), divergence_weight
        self._references = _mean_soft_labels(network, pool)

    def to(self, device: torch.device) -> Expert:
        self.network.to(device)
        self._references = self._references.to(device)
        return self

    def loss(self, records: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy + lambda * KL(references' mean soft label, the expert's opinion), averaged over records."""
        opinions = self.network(records).log_softmax(1)
        divergence = F.kl_div(opinions, self._references[labels], reduction="batchmean")
        return F.nll_loss(opinions, labels) + self._weight * divergence

    @torch.no_grad()
    def classes(self, records: Tensor) -> Tensor:
        """What it takes them for."""
        return torch.cat([self._seen(part).argmax(1).cpu() for part in torch.split(records, _BATCH)])

    def _seen(self, records: Tensor) -> Tensor:
        return cast(Tensor, self.network(records.to(self._references.device)))


@torch.no_grad()
def _mean_soft_labels(network: Network, pool: Pool) -> Tensor:
    opinions = torch.cat([network(part).softmax(1) for part in torch.split(pool.records, _BATCH)])
    sums = torch.zeros(opinions.shape[1], opinions.shape[1]).index_add_(0, pool.labels, opinions)
    means: Tensor = sums / pool.labels.bincount(minlength=len(sums))[:, None]
    return means.clamp_min(_SMALLEST)
