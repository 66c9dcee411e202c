"""Images from a program of the user's: whatever model there is, in whatever language.

The program is started with one more argument, a folder, once for every request. There it finds `request.json`:

    {"version": 1, "action": "vary", "shape": [28, 28, 1], "classes": 10, "labels": [0, 1], "seed": 7, "strength": 0.5}

`action` is "fresh", an image for each label from nothing, or "vary", another image like each of those in `images.npz`
(array `images`: uint8, count x height x width x channels), almost the same at strength 0, hardly alike at 1. `fresh`
comes without strength and file. The program writes `answer.npz` of the same form, with as many images, and exits with
0.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from silosynth.common.config import Section
from silosynth.common.datasets.records import Labels
from silosynth.common.errors import ConfigError, RunFailed
from silosynth.common.schema import Schema
from silosynth.server.generators.proposals.base import Pixels

_VERSION = 1
_WORDS_QUOTED = 600


class CommandSource(Section):
    """A program that makes images: see `silosynth.server.generators.proposals.command` for what it is asked."""

    source: Literal["command"]
    command: tuple[str, ...] = Field(min_length=1, description="program and arguments; a folder's path is added")
    seconds: float = Field(3600, gt=0, description="how long one request may take")

    def opened(self, schema: Schema) -> CommandProposals:
        if shutil.which(self.command[0]) is None:
            raise ConfigError(f"proposals.command: there is no program {self.command[0]!r}: check its path")
        return CommandProposals(schema, self.command, self.seconds)


@dataclass(frozen=True)
class CommandProposals:
    schema: Schema
    command: tuple[str, ...]
    seconds: float

    def fresh(self, labels: Labels, seed: int) -> Pixels:
        return self._asked({"action": "fresh"}, labels, seed, None)

    def varied(self, images: Pixels, labels: Labels, strength: float, seed: int) -> Pixels:
        return self._asked({"action": "vary", "strength": strength}, labels, seed, images)

    def _asked(self, action: dict[str, Any], labels: Labels, seed: int, images: Pixels | None) -> Pixels:
        """The folder stays where something goes wrong, so that the program can be tried on it by hand."""
        folder = Path(tempfile.mkdtemp(prefix="silosynth-proposals-"))
        request = {"version": _VERSION, "shape": self.schema.shape, "classes": self.schema.classes, "seed": seed}
        (folder / "request.json").write_text(json.dumps(request | action | {"labels": labels.tolist()}))
        if images is not None:
            np.savez(folder / "images.npz", images=images)
        self._run(folder)
        answer = self._read(folder, len(labels))
        shutil.rmtree(folder)
        return answer

    def _run(self, folder: Path) -> None:
        try:
            done = subprocess.run([*self.command, str(folder)], capture_output=True, timeout=self.seconds)
        except subprocess.TimeoutExpired:
            raise self._failure(folder, f"took more than {self.seconds:g} s: allow it more `seconds`") from None
        except OSError as error:
            raise self._failure(folder, f"cannot be started: {error.strerror}") from None
        if done.returncode:
            said = (done.stderr or done.stdout).decode(errors="replace").strip()[-_WORDS_QUOTED:]
            raise self._failure(folder, f"ended with {done.returncode}, saying {said!r}")

    def _read(self, folder: Path, count: int) -> Pixels:
        expected = (count, *self.schema.shape)
        try:
            with np.load(folder / "answer.npz", allow_pickle=False) as arrays:
                images = arrays["images"]
        except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile):
            raise self._failure(folder, "left no answer.npz with an array images") from None
        if images.dtype != np.uint8 or images.shape != expected:
            found = f"{images.dtype} of shape {images.shape}"
            raise self._failure(folder, f"answered with {found}, not with uint8 of shape {expected}")
        return np.asarray(images, dtype=np.uint8)

    def _failure(self, folder: Path, what: str) -> RunFailed:
        by_hand = shlex.join([*self.command, str(folder)])
        return RunFailed(f"the program that proposes images {what}. Try it by hand: `{by_hand}`, then run again")
