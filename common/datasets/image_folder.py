"""Folders of PNG or JPEG files, one folder a class: <class>/**/*.png, or train/<class>/... and test/<class>/...

Without declared class names the folders' names, sorted, are the classes and count as public.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from silosynth.common.datasets.data_config import DataConfig
from silosynth.common.datasets.files import parsing, reading
from silosynth.common.datasets.records import Records
from silosynth.common.errors import DataError
from silosynth.common.schema import MAX_DIMENSION, Schema

SUFFIXES = (".png", ".jpg", ".jpeg")
SPLITS = ("train", "val", "test")
GREY_MODES = ("1", "L", "LA")
COLOUR_MODES = ("P", "RGB", "RGBA", "CMYK")
DAMAGED = "is no PNG or JPEG image, or a damaged one: replace or remove it"

Pixels = npt.NDArray[np.uint8]


def recognises(path: Path) -> bool:
    return path.is_dir() and any(entry.is_dir() for entry in path.iterdir())


def read(path: Path, config: DataConfig) -> Records:
    with reading(path):
        root = _root(path, config)
        names = _class_names(root, config)
        files = [image_files(root / name) for name in names]
    labels = np.repeat(np.arange(len(names)), [len(group) for group in files])
    images = [file for group in files for file in group]
    with reading(images[0] if images else root):
        schema = Schema(_shape(images, config), len(names))
        features = np.empty((len(images), *schema.shape), dtype=np.uint8)
    for row, file in zip(features, images, strict=True):
        row[:] = _decode(file, schema.shape, config)
    return Records(features, labels, schema)


def _root(path: Path, config: DataConfig) -> Path:
    """The folder of class folders: `path`, or its train or test folder where it holds nothing else."""
    folders = {entry.name for entry in path.iterdir() if entry.is_dir()}
    if folders and folders.issubset(SPLITS):
        split = config.split or "train"
        if split not in folders:
            raise DataError(f"has no folder {split!r}: give the folder of the images itself, or check `split`")
        return path / split
    config.refuse_split()
    return path


def _class_names(root: Path, config: DataConfig) -> tuple[str, ...]:
    folders = sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not isinstance(config.classes, tuple):
        if not folders:
            raise DataError("holds no folders: put each class's images into a folder of its own")
        return tuple(folders)
    if undeclared := set(folders).difference(config.classes):
        raise DataError(f"{len(undeclared)} folders are not among the declared classes: rename or declare them")
    return config.classes


def image_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())


def _shape(images: list[Path], config: DataConfig) -> tuple[int, ...]:
    """What is declared; for the rest, the first image decides and the others must agree."""
    size, colour = config.size, config.colour
    if size is None or colour is None:
        if not images:
            raise DataError("holds no PNG or JPEG files: declare `size` and `colour`, or check `path`")
        with parsing(DAMAGED), _open(images[0]) as image:
            size = size or (image.height, image.width)
            colour = _is_colour(image) if colour is None else colour
    return (*size, 3 if colour else 1)


def _decode(file: Path, shape: tuple[int, ...], config: DataConfig) -> Pixels:
    height, width, channels = shape
    with reading(file), parsing(DAMAGED), _open(file) as image:
        if _is_colour(image) != (channels == 3) and config.colour is None:
            raise DataError("is grey among colour images or the other way round: declare `colour`")
        if config.size is None and image.size != (width, height):
            raise DataError(f"is not {height} x {width} as the first image is: declare `size`")
        return _fitted(image, shape)


def fitted_image(file: Path, shape: tuple[int, ...]) -> Pixels:
    """Of this height, width and number of channels, whatever the file's are."""
    with reading(file), parsing(DAMAGED), _open(file) as image:
        return _fitted(image, shape)


def _fitted(image: Image.Image, shape: tuple[int, ...]) -> Pixels:
    height, width, channels = shape
    # A palette's transparency needs the detour, or Pillow warns.
    plain = image.convert("RGBA") if image.mode == "P" else image
    plain = plain.convert("RGB" if channels == 3 else "L")
    if plain.size != (width, height):
        plain = plain.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(plain, dtype=np.uint8).reshape(shape)


def _open(file: Path) -> Any:
    """Reads the header only; pixels are decoded after its size was checked."""
    image = Image.open(file, formats=("PNG", "JPEG"))
    if image.width * image.height > MAX_DIMENSION:
        image.close()
        raise DataError(f"has more than {MAX_DIMENSION} pixels: shrink it first")
    return image


def _is_colour(image: Image.Image) -> bool:
    if image.mode not in GREY_MODES + COLOUR_MODES:
        raise DataError(f"has pixels of kind {image.mode}: convert it to 8 bits a channel")
    return image.mode in COLOUR_MODES
