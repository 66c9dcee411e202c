"""Where torch computes, and how it may do so fast on a processor."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

import torch

_KEPT_BYTES = 1 << 30
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # names of glibc's mallopt


def pick_device(name: str) -> torch.device:
    """`auto` is the graphics card where there is one."""
    device = torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
    if device.type == "cpu":
        _keep_freed_memory()
    return device


def fast_type(device: torch.device) -> torch.dtype:
    """For gradients that may be rough: bfloat16 where the processor multiplies it natively, else float32."""
    native = device.type == "cpu" and torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if native else torch.float32


@cache
def _keep_freed_memory() -> None:
    """By default glibc gives every large tensor back to the kernel, which clears it anew: a third of all time."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries may lack it
        if mallopt is not None:
            mallopt(_MMAP_THRESHOLD, _KEPT_BYTES)
            mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
