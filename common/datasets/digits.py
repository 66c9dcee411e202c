"""The 1,797 handwritten digits that come with scikit-learn: 8x8 grey images, ten classes, always at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from silosynth.common.datasets.data_config import DataConfig
from silosynth.common.datasets.records import Records
from silosynth.common.schema import Schema

TEST_SIZE = 360
BRIGHTEST = 16
SCHEMA = Schema((8, 8, 1), 10)


def recognises(path: Path) -> bool:
    """Never: it is asked for by name."""
    return False


def read(path: Path, config: DataConfig) -> Records:
    from sklearn.datasets import load_digits  # slow to import, and no guard with its own data needs it
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    indices = np.arange(len(digits.target))
    train, test = train_test_split(indices, test_size=TEST_SIZE, stratify=digits.target, random_state=0)
    pixels = np.rint(digits.images * (255 / BRIGHTEST)).astype(np.uint8)[..., None]
    records = Records(pixels, digits.target.astype(np.int64), SCHEMA)
    return records.take(test if config.split == "test" else train)
