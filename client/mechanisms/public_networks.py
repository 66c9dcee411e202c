"""The public network that a query names, and records as it sees them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from silosynth.client.guard.mechanism import Bench
from silosynth.common.backbones import Backbone, decode_backbone
from silosynth.common.datasets.records import Features
from silosynth.common.devices import pick_device
from silosynth.common.errors import QueryError, VerificationFailed
from silosynth.common.queries import SufficientStatistics
from silosynth.common.statistics.spatial import SpatialFeatures

FORWARD_BATCH = 250  # always so many images at once, some of them blank: see the note on neighbours


def stored_network(digest: str, bench: Bench) -> Backbone:
    try:
        return decode_backbone(bench.artifact(digest), f"artifact {digest}")
    except VerificationFailed as error:
        raise QueryError(str(error)) from error


def public_network(digest: str, bench: Bench) -> Backbone:
    """Where the silo computes."""
    return stored_network(digest, bench).to(pick_device(bench.device))


def seen_through(query: SufficientStatistics, bench: Bench) -> Callable[[Features], Features]:
    """From flat records to their spatial features, in batches of one size whatever comes."""
    backbone = public_network(query.backbone, bench)
    spatial, channels = SpatialFeatures(backbone), query.schema.shape[2]
    if channels not in (1, backbone.blueprint.channels):
        raise QueryError(f"the backbone takes {backbone.blueprint.channels} channels, the records have {channels}")
    if (size := spatial.size(query.schema.shape)) != query.features:
        raise QueryError(f"the backbone gives {size} features, the query is for {query.features}")

    @torch.inference_mode()
    def look(features: Features) -> Features:
        parts = [features[start : start + FORWARD_BATCH] for start in range(0, len(features), FORWARD_BATCH)]
        return np.concatenate([spatial(_images(part).to(spatial.device)).cpu().numpy()[: len(part)] for part in parts])

    def _images(part: Features) -> Tensor:
        padded = np.pad(part, ((0, FORWARD_BATCH - len(part)), (0, 0)))
        return torch.from_numpy(padded.reshape(-1, *query.schema.shape)).permute(0, 3, 1, 2)

    return look
