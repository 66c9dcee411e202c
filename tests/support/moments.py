"""Backbones by digest, honest and hostile ones, and queries for moments and scores that name them."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch

from silosynth.common.backbones import Backbone, backbone, encode_backbone
from silosynth.common.queries import Moments
from silosynth.common.schema import Schema
from silosynth.common.statistics import encode_center, unflatten

LAYERS = 7  # of residual-24
SHELF: dict[str, bytes] = {}
"""All artifacts that were made, by digest."""


def shelve(content: bytes) -> str:
    digest = hashlib.sha256(content).hexdigest()
    SHELF[digest] = content
    return digest


def altered(factor: float, variance: float = 1.0, classes: int = 10) -> Backbone:
    """A random network with its weights times `factor`, and this variance in every BatchNorm."""
    network = backbone("residual-24", 1, classes=classes, seed=1)
    with torch.no_grad():
        for name, tensor in network.network.state_dict().items():
            if name.endswith("weight"):
                tensor.mul_(factor)
            if name.endswith("running_var"):
                tensor.fill_(variance)
    return network


HONEST = shelve(encode_backbone(altered(2.0)))  # lively: clipping binds for many records, not for all
# Activations vanish, saturate, become no numbers on the way or from the first layer on.
CHANGES = ((0.0, 1.0), (1e3, 1.0), (1e6, 1e-12), (3e37, 0.0))
HOSTILE = [shelve(encode_backbone(altered(*change))) for change in CHANGES]


def models(classes: int) -> list[str]:
    """That tell so many classes apart: an honest one, then hostile ones."""
    return [shelve(encode_backbone(altered(*change, classes=classes))) for change in ((2.0, 1.0), *CHANGES)]


def moments_query(**changes: Any) -> Moments:
    """Small, for grey images of 8x8 and 4 classes, unless told otherwise."""
    usual: dict[str, Any] = {
        "schema": Schema((8, 8, 1), 4),
        "noise_multiplier": 1.0,
        "backbone": HONEST,
        "layers": LAYERS,
        "global_dimension": 6,
        "class_dimension": 5,
        "class_layers": 3,
        "pseudo_classes": 0,
        "classes_per_pseudo_class": 0,
        "seed": 7,
        "clip": 0.125,
        "count_weight": 0.15,
        "center": "",
    }
    return Moments(**usual | changes)


def shelved_center(query: Moments, seed: int, size: float = 1.0) -> str:
    """A random centre for this query, of numbers up to `size`."""
    flat = np.random.default_rng(seed).uniform(-size, size, query.moments_layout().size)
    return shelve(encode_center(unflatten(flat, query)))
