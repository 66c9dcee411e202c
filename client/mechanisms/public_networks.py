"""The public network that a query names, and records as it sees them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from silosynth.client.guard.mechanism import Bench
from silosynth.client.mechanisms.places import Rows, Samples, batch_size, held_by, in_batches, without_gradients
from silosynth.common.auxiliary import as_inputs
from silosynth.common.backbones import Backbone, Blueprint, decode_backbone
from silosynth.common.datasets.records import Features, Records
from silosynth.common.devices import pick_device
from silosynth.common.errors import QueryError, VerificationFailed
from silosynth.common.queries import Scores, SufficientStatistics, TeacherAnswers, Votes
from silosynth.common.queries.training import Training
from silosynth.common.schema import Schema
from silosynth.common.statistics.spatial import SpatialFeatures
from silosynth.common.teaching.views import View

Looking = Callable[[Backbone], Callable[[Tensor], Tensor]]

_LARGEST_BATCH = 256


def stored_network(digest: str, bench: Bench) -> Backbone:
    try:
        return decode_backbone(bench.artifact(digest), f"artifact {digest}")
    except VerificationFailed as error:
        raise QueryError(str(error)) from error


def public_network(digest: str, bench: Bench) -> Backbone:
    """Where the silo computes."""
    return stored_network(digest, bench).to(pick_device(bench.device))


def seen_through(query: SufficientStatistics | Votes, bench: Bench) -> Look:
    """From flat records to their spatial features: rows no longer than 1 but for rounding."""
    network = _fitting_network(query.backbone, query.schema, bench)
    if (size := SpatialFeatures(network).size(query.schema.shape)) != query.features:
        raise QueryError(f"the backbone gives {size} features, the query is for {query.features}")
    return Look("spatial", network, SpatialFeatures, query.schema)


def view_for(query: Training | TeacherAnswers, bench: Bench) -> View:
    """How classifiers trained here see records."""
    backbone = _fitting_network(query.backbone, query.schema, bench) if query.backbone else None
    view = View(query.schema, backbone, pick_device(bench.device))
    if (size := view.features()) != query.features:
        raise QueryError(f"the backbone gives {size} features, the query is for {query.features}")
    return view


def seen_alone(query: Training, records: Records, bench: Bench) -> Tensor:
    """What `view_for` shows of each record, whoever is beside it."""
    view, features = view_for(query, bench), records.flat()
    if view.backbone is None:
        return as_inputs(features, query.schema)
    look = Look("view", view.backbone, lambda ours: replace(view, backbone=ours), query.schema)
    return torch.from_numpy(look(features))


def judged_by(query: Scores, bench: Bench) -> Look:
    """From flat records to what the model says about each class; it may be no number."""
    model = _fitting_network(query.model, query.schema, bench)
    if (outputs := model.blueprint.classes) != query.schema.classes:
        raise QueryError(f"the model tells {outputs} classes apart, the records have {query.schema.classes}")
    return Look("logits", model, lambda ours: ours.logits, query.schema)


def _fitting_network(digest: str, schema: Schema, bench: Bench) -> Backbone:
    """QueryError if it cannot look at such images."""
    network, channels = public_network(digest, bench), schema.shape[2]
    if channels not in (1, network.blueprint.channels):
        raise QueryError(f"the backbone takes {network.blueprint.channels} channels, the records have {channels}")
    return network


class Look:
    """From flat records to what is seen of each through a network, whoever is beside it.

    `looking` makes of a network the way to look through it; `what` names that way.
    """

    def __init__(self, what: str, network: Backbone, looking: Looking, schema: Schema) -> None:
        kind = (what, kind_of(network), schema.shape)
        self._size = batch_size(kind, _LARGEST_BATCH, lambda: _trial(of_our_own(network), looking, schema))
        self._rows, self._schema = _rows(looking(network), network.device), schema

    @property
    def together(self) -> int:
        """As many records as it looks at in one go."""
        return held_by(self._size)

    def __call__(self, features: Features) -> Features:
        images = torch.from_numpy(features.reshape(-1, *self._schema.shape))
        return torch.cat(list(in_batches(self._rows, self._size, images))).numpy()


def kind_of(network: Backbone) -> tuple[str, torch.device]:
    """All about a network that decides on kernels."""
    return _neutral(network.blueprint).canonical(), network.device


def of_our_own(network: Backbone) -> Backbone:
    """One of the same kind, about which a server has no say: neither weights nor what records look like to it."""
    blueprint = _neutral(network.blueprint)
    return Backbone(blueprint, blueprint.network(), {}).to(network.device)


def channels_last(images: Tensor) -> Tensor:
    """In memory, as records have them: two thirds of the time."""
    return images.permute(0, 3, 1, 2)


def _neutral(blueprint: Blueprint) -> Blueprint:
    return blueprint.model_copy(update={"mean": (0.0,) * blueprint.channels, "std": (1.0,) * blueprint.channels})


def _trial(ours: Backbone, looking: Looking, schema: Schema) -> tuple[Rows, Samples]:
    dice = torch.Generator().manual_seed(0)
    return _rows(looking(ours), ours.device), lambda count: (torch.randn(count, *schema.shape, generator=dice),)


def _rows(look: Callable[[Tensor], Tensor], device: torch.device) -> Rows:
    return without_gradients(lambda images: look(channels_last(images)), device)
