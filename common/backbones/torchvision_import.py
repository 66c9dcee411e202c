"""Importing torchvision where its compiled half does not load.

Wheels of torchvision are linked against one build of torch; beside another (its CPU build, often) the import fails on
operators nobody here calls. Declaring them makes models and transforms importable; calling them still fails.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import torch

_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_MISSING = ("nms", "qnms")
_declared: list[torch.library.Library] = []
"""A declaration lasts as long as its library object."""


def import_torchvision(module: str = "torchvision") -> ModuleType:
    """torchvision or one of its modules. Must come before anything else imports torchvision."""
    try:
        return importlib.import_module(module)
    except RuntimeError as error:
        if not any(f"torchvision::{name} does not exist" in str(error) for name in _MISSING):
            raise
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    _declare_missing_operators()
    return importlib.import_module(module)


def _declare_missing_operators() -> None:
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for name in _MISSING:
        library.define(name + _SIGNATURE)  # type: ignore[no-untyped-call]
    _declared.append(library)
