"""How a folder of synthetic records holds them, so that others' programs find them: pictures by class, and arrays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[Any]  # uint8
Labels = npt.NDArray[np.int64]

ARRAYS, PICTURES = "data/train.npz", "data/train"


def to_picture(image: Pixels) -> Image.Image:
    """Grey for one channel, colour for three."""
    return Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)


def write_pictures(folder: Path, images: Pixels, labels: Labels, names: Sequence[str]) -> None:
    """<class>/000001.png and so on, as torchvision's ImageFolder and Hugging Face's imagefolder expect them."""
    for label, name in enumerate(_folder_names(names)):
        (folder / name).mkdir(parents=True)
        for number, image in enumerate(images[labels == label], start=1):
            to_picture(image).save(folder / name / f"{number:06}.png")


def write_arrays(
    path: Path, kind: str, records: npt.NDArray[Any], labels: Labels, soft: npt.NDArray[Any] | None
) -> None:
    """`kind`: "images" or "features"."""
    arrays: dict[str, Any] = {kind: records, "labels": labels.astype(np.int64)}
    if soft is not None:
        arrays["soft_labels"] = soft.astype(np.float32)
    np.savez_compressed(path, **arrays)


def _folder_names(names: Sequence[str]) -> list[str]:
    """Loaders number classes by the order of their folders' names, so each begins with its number, zeros in front."""
    digits = len(str(len(names) - 1))
    plain = [re.sub(r"[^0-9A-Za-z]+", "-", name).strip("-").lower() for name in names]
    return [
        f"{label:0{digits}}" + (f"-{word}" if word not in ("", str(label)) else "") for label, word in enumerate(plain)
    ]
