"""Prints what an image must install: pyproject.toml's dependencies but for those that its part of a federation lacks.

python requirements.py pyproject.toml courier
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

# Only the server has a dashboard and metrics, draws figures, and reads embedded digits.
_SERVERS = {"fastapi", "jinja2", "markdown-it-py", "matplotlib", "prometheus-client", "scikit-learn", "uvicorn"}
# The courier runs code that the server ships: it computes nothing, and the less there is the less can be misused.
# The guard never speaks to Flower.
WITHOUT = {
    "server": set[str](),
    "courier": _SERVERS | {"torch", "torchvision", "safetensors", "mpmath"},
    "guard": _SERVERS | {"flwr"},
}


def requirements(pyproject: Path, part: str) -> list[str]:
    wanted = tomllib.loads(pyproject.read_text())["project"]["dependencies"]
    names = {requirement: re.split(r"[^A-Za-z0-9-]", requirement)[0] for requirement in wanted}
    if unknown := WITHOUT[part] - set(names.values()):
        raise ValueError(f"{part} does without {', '.join(unknown)}, which nobody has")
    return [requirement for requirement, name in names.items() if name not in WITHOUT[part]]


if __name__ == "__main__":
    print("\n".join(requirements(Path(sys.argv[1]), sys.argv[2])))
