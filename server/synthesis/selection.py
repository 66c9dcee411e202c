"""Records to start from: of each class the pool's most typical ones, several packed into one image."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from torch import Tensor

from silosynth.common.networks.extractors import Network
from silosynth.common.procedural.dice import Dice
from silosynth.server.generators.base import Pool
from silosynth.server.synthesis.enlarging import QUARTERS

_BATCH = 250


def typical(pool: Pool, network: Network, per_class: int, seed: int) -> Tensor:
    """The records nearest to the centres of k-means, in the network's features, class by class."""
    chosen = [
        pool.records[rows][_nearest_to_centers(pool.records[rows], network, per_class, seed)]
        for rows in _by_class(pool)
    ]
    return torch.cat(chosen)


def any_of(pool: Pool, per_class: int, seed: int) -> Tensor:
    dice = Dice(seed)
    return torch.cat([pool.records[rows[dice.uniform(len(rows)).argsort()[:per_class]]] for rows in _by_class(pool)])


def packed(records: Tensor) -> Tensor:
    """Four after one another become the quarters of one image; `enlarged_quarters` undoes it, but for sharpness."""
    height, width = records.shape[-2:]
    rows, columns = (height + 1) // 2, (width + 1) // 2
    small = F.interpolate(records, (rows, columns), mode="bilinear", antialias=True)
    corners = small.reshape(-1, QUARTERS, *small.shape[1:])
    image = records.new_zeros(len(corners), *records.shape[1:])
    places = [(top, left) for top in (0, height - rows) for left in (0, width - columns)]
    for number, (top, left) in enumerate(places):
        image[:, :, top : top + rows, left : left + columns] = corners[:, number]
    return image


def _by_class(pool: Pool) -> list[Tensor]:
    return [torch.nonzero(pool.labels == label).flatten() for label in range(int(pool.labels.max()) + 1)]


@torch.no_grad()
def _nearest_to_centers(records: Tensor, network: Network, count: int, seed: int) -> Tensor:
    features = torch.cat([network.embed(part) for part in torch.split(records, _BATCH)])
    centers = KMeans(count, n_init=1, random_state=seed % (1 << 32)).fit(features.numpy()).cluster_centers_
    distances = torch.cdist(torch.from_numpy(centers).float(), features)
    return distances.argmin(dim=1)
