"""A picture of a synthetic dataset: the first images of every class beside its name."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from silosynth.common.publication.contents import Pixels, to_picture

_MOST_CLASSES = 200
_MOST_COLUMNS = 12
_LONGEST_NAME = 18
_LARGE_TILE, _SMALL_TILE = 56, 32  # small images are enlarged to about this side, pixel by pixel
_MANY_CLASSES = 24
_GAP = 4
_FONT_SIZE = 16
_SHEET_SHAPE = 4 / 3


def contact_sheet(images: Pixels, labels: npt.NDArray[np.int64], names: Sequence[str]) -> Image.Image:
    """`images` are uint8, NHWC. A class is a strip; the strips stand in as many columns as make a handy picture."""
    names = [name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…" for name in names[:_MOST_CLASSES]]
    font = ImageFont.load_default(_FONT_SIZE)
    margin = math.ceil(max(font.getlength(name) for name in names)) + 2 * _GAP
    strips = [_strip(images[labels == label], len(names)) for label in range(len(names))]
    width = margin + max(strip.width for strip in strips) + 2 * _GAP
    height = max(_FONT_SIZE, *(strip.height for strip in strips)) + _GAP
    rows = _rows(len(names), width, height)
    sheet = Image.new("RGB", (math.ceil(len(names) / rows) * width, rows * height + _GAP), "white")
    pen = ImageDraw.Draw(sheet)
    for number, (name, strip) in enumerate(zip(names, strips, strict=True)):
        left, top = number // rows * width, number % rows * height + _GAP
        pen.text((left + _GAP, top + (height - _GAP) // 2), name, fill="black", font=font, anchor="lm")
        sheet.paste(strip, (left + margin, top))
    return sheet


def _strip(images: Pixels, classes: int) -> Image.Image:
    """The first images of one class side by side."""
    height, width = images.shape[1:3]
    scale = max(1, (_LARGE_TILE if classes <= _MANY_CLASSES else _SMALL_TILE) // max(height, width))
    tiles = images[:_MOST_COLUMNS].repeat(scale, axis=1).repeat(scale, axis=2)
    strip = Image.new("RGB", (max(1, len(tiles)) * (width * scale + _GAP), height * scale), "white")
    for column, tile in enumerate(tiles):
        strip.paste(to_picture(tile), (column * (width * scale + _GAP), 0))
    return strip


def _rows(count: int, width: int, height: int) -> int:
    """How many strips stand below each other: the whole comes closest to 4:3."""

    def misshape(rows: int) -> float:
        return abs(math.log(math.ceil(count / rows) * width / (rows * height) / _SHEET_SHAPE))

    return min(range(1, count + 1), key=misshape)
