"""A picture of a synthetic dataset: one row per class, its name at the left."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

Pixels = npt.NDArray[np.uint8]

_COLUMNS = 12
_TILE = 48  # small images are enlarged to about this side, pixel by pixel
_GAP = 4
_FONT_SIZE = 16
_MOST_ROWS = 100


def contact_sheet(images: Pixels, labels: npt.NDArray[np.int64], names: Sequence[str]) -> Image.Image:
    """Up to twelve images (uint8, NHWC) of each class, of the first hundred classes."""
    names = names[:_MOST_ROWS]
    height, width = images.shape[1:3]
    scale = max(1, _TILE // max(height, width))
    step_x, step_y = width * scale + _GAP, max(height * scale + _GAP, _FONT_SIZE + _GAP)
    font = ImageFont.load_default(_FONT_SIZE)
    margin = int(max(font.getlength(name) for name in names)) + 3 * _GAP
    columns = min(_COLUMNS, int(np.bincount(labels, minlength=1).max(initial=1)))
    sheet = Image.new("RGB", (margin + columns * step_x + _GAP, len(names) * step_y + _GAP), "white")
    pen = ImageDraw.Draw(sheet)
    for row, name in enumerate(names):
        top = row * step_y + _GAP
        pen.text((_GAP, top + step_y // 2 - _FONT_SIZE), name, fill="black", font=font)
        for column, index in enumerate(np.flatnonzero(labels == row)[:columns]):
            tile = to_picture(images[index]).resize((width * scale, height * scale), Image.Resampling.NEAREST)
            sheet.paste(tile, (margin + column * step_x, top))
    return sheet


def to_picture(image: Pixels) -> Image.Image:
    """Grey for one channel, colour for three."""
    return Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
