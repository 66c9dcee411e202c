"""The public network that a query names, and records as it sees them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from silosynth.client.guard.mechanism import Bench
from silosynth.common.auxiliary import decode_records
from silosynth.common.backbones import Backbone, decode_backbone
from silosynth.common.datasets.records import Features
from silosynth.common.devices import pick_device
from silosynth.common.errors import QueryError, VerificationFailed
from silosynth.common.queries import Scores, SufficientStatistics, TeacherAnswers, Votes
from silosynth.common.queries.training import Training
from silosynth.common.schema import Schema
from silosynth.common.statistics.spatial import SpatialFeatures
from silosynth.common.teaching.views import View

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
    """From flat records to their spatial features."""
    spatial = _spatial(query, bench)
    return _in_equal_batches(spatial, query.schema, spatial.device)


def distances_from(query: Votes, bench: Bench) -> Callable[[Features], Features]:
    """From flat records to how far they are from each candidate, class after class."""
    spatial, schema = _spatial(query, bench), query.schema
    images = decode_records(bench.artifact(query.candidates), schema, "candidates", query.images, query.images)
    seen = _in_equal_batches(spatial, schema, spatial.device)(images)
    places = torch.from_numpy(seen.reshape(-1, query.views, query.features).mean(axis=1)).to(spatial.device)
    return _in_equal_batches(lambda records: torch.cdist(spatial(records), places), schema, spatial.device)


def _spatial(query: SufficientStatistics | Votes, bench: Bench) -> SpatialFeatures:
    spatial = SpatialFeatures(_fitting_network(query.backbone, query.schema, bench))
    if (size := spatial.size(query.schema.shape)) != query.features:
        raise QueryError(f"the backbone gives {size} features, the query is for {query.features}")
    return spatial


def view_for(query: Training | TeacherAnswers, bench: Bench) -> View:
    """How classifiers trained here see records."""
    backbone = _fitting_network(query.backbone, query.schema, bench) if query.backbone else None
    view = View(query.schema, backbone, pick_device(bench.device))
    if (size := view.features()) != query.features:
        raise QueryError(f"the backbone gives {size} features, the query is for {query.features}")
    return view


def judged_by(query: Scores, bench: Bench) -> Callable[[Features], Features]:
    """From flat records to what the model says about each class; it may be no number."""
    model = _fitting_network(query.model, query.schema, bench)
    if (outputs := model.blueprint.classes) != query.schema.classes:
        raise QueryError(f"the model tells {outputs} classes apart, the records have {query.schema.classes}")
    return _in_equal_batches(model.logits, query.schema, pick_device(bench.device))


def _fitting_network(digest: str, schema: Schema, bench: Bench) -> Backbone:
    """QueryError if it cannot look at such images."""
    network, channels = public_network(digest, bench), schema.shape[2]
    if channels not in (1, network.blueprint.channels):
        raise QueryError(f"the backbone takes {network.blueprint.channels} channels, the records have {channels}")
    return network


def _in_equal_batches(
    look: Callable[[Tensor], Tensor], schema: Schema, device: torch.device
) -> Callable[[Features], Features]:
    """Of one size whatever comes."""

    @torch.inference_mode()
    def look_at_all(features: Features) -> Features:
        parts = [features[start : start + FORWARD_BATCH] for start in range(0, len(features), FORWARD_BATCH)]
        return np.concatenate([look(_images(part).to(device)).cpu().numpy()[: len(part)] for part in parts])

    def _images(part: Features) -> Tensor:
        padded = np.pad(part, ((0, FORWARD_BATCH - len(part)), (0, 0)))
        return torch.from_numpy(padded.reshape(-1, *schema.shape)).permute(0, 3, 1, 2)

    return look_at_all
