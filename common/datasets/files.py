"""Reading files that may be anything: errors that name the file, sizes checked before memory is taken."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from silosynth.common.errors import DataError, OneSetOnly, QueryError

MAX_DEFLATE_RATIO = 1032
"""Deflate cannot expand a byte into more: what a compressed file promises beyond that is a lie."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Failures inside become a DataError about `path`. Their causes are cut off: a cause may quote a record."""
    try:
        yield
    except OneSetOnly as error:
        raise OneSetOnly(f"{path}: {error}") from None
    except (DataError, QueryError) as error:
        raise DataError(f"{path}: {error}") from None
    except FileNotFoundError:
        raise DataError(f"{path}: no such file or folder: check the path of the records") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise DataError(f"{path}: the compressed data is truncated or damaged: fetch the file again") from None
    except MemoryError:
        raise DataError(f"{path}: does not fit into memory: split it") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or 'damaged'}): check the file") from None


def read_exactly(stream: IO[bytes], size: int) -> npt.NDArray[np.uint8]:
    """The rest of the stream, which must be `size` bytes long."""
    content = np.empty(size, dtype=np.uint8)
    filled = 0
    while filled < size and (count := stream.readinto(content.data[filled:])):  # type: ignore[attr-defined]
        filled += count
    if filled < size or stream.read(1):
        raise DataError("its length disagrees with its header: it is truncated or not what its name says")
    return content


@contextmanager
def parsing(complaint: str) -> Iterator[None]:
    """Around a library's parser, which fails on a damaged file in more ways than can be listed."""
    try:
        yield
    except (DataError, OSError, MemoryError):
        raise
    except Exception:
        raise DataError(complaint) from None
