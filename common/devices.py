"""Where torch computes."""

from __future__ import annotations

import torch


def pick_device(name: str) -> torch.device:
    """`auto` is the graphics card where there is one."""
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)
