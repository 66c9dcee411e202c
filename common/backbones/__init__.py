"""Public networks through which private records are summarized and synthetic ones are shaped. Imports torch."""

from silosynth.common.backbones.backbone import Backbone
from silosynth.common.backbones.blueprint import Blueprint
from silosynth.common.backbones.sources import SHIPPED, backbone, backbone_for, imported_backbone, load_backbone
from silosynth.common.backbones.storage import decode_backbone, encode_backbone, save_backbone

__all__ = [
    "SHIPPED",
    "Backbone",
    "Blueprint",
    "backbone",
    "backbone_for",
    "decode_backbone",
    "encode_backbone",
    "imported_backbone",
    "load_backbone",
    "save_backbone",
]
