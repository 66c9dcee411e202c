"""Images from a diffusion model in a local folder, by Hugging Face's diffusers: text to image, and image to image."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from pydantic import Field

from silosynth.common.backbones.torchvision_import import import_torchvision
from silosynth.common.config import Section
from silosynth.common.datasets.records import Labels
from silosynth.common.devices import pick_device
from silosynth.common.errors import ConfigError
from silosynth.common.publication.contents import to_picture
from silosynth.common.schema import Schema
from silosynth.server.generators.proposals.base import Pixels, require_pictures


class DiffusersSource(Section):
    """A model that saw public images only: what it learned of anybody's records is told to all."""

    source: Literal["diffusers"]
    model: Path = Field(description="folder of a text-to-image pipeline, as `save_pretrained` writes it")
    prompts: tuple[str, ...] = Field(min_length=1, description="one for all classes, or one for each")
    side: int | None = Field(None, ge=8, multiple_of=8, description="of the model's images; default: its own")
    denoising_steps: int = Field(30, ge=1, le=1000)
    batch: int = Field(8, ge=1, le=1000, description="images made at once")

    def opened(self, schema: Schema) -> DiffusersProposals:
        require_pictures(schema, self.source)
        if len(self.prompts) not in (1, schema.classes):
            raise ConfigError(f"proposals.prompts: {len(self.prompts)} for {schema.classes} classes: one, or one each")
        if not (self.model / "model_index.json").exists():
            raise ConfigError(f"proposals.model: {self.model} holds no pipeline: save one there with `save_pretrained`")
        return DiffusersProposals(schema, self)


@dataclass(frozen=True)
class DiffusersProposals:
    schema: Schema
    chosen: DiffusersSource
    device: torch.device = field(default_factory=lambda: pick_device("auto"))

    def fresh(self, labels: Labels, seed: int) -> Pixels:
        size = {} if self.chosen.side is None else {"height": self.chosen.side, "width": self.chosen.side}
        return self._made(self._from_text, labels, seed, [size] * len(labels))

    def varied(self, images: Pixels, labels: Labels, strength: float, seed: int) -> Pixels:
        """At least one step of denoising changes an image."""
        side = self.chosen.side or self._own_side
        pictures = [to_picture(image).convert("RGB").resize((side, side)) for image in images]
        least = 1 / self.chosen.denoising_steps
        given = [{"image": picture, "strength": min(max(strength, least), 1.0)} for picture in pictures]
        return self._made(self._from_image, labels, seed, given)

    def _made(self, pipeline: Any, labels: Labels, seed: int, given: list[dict[str, Any]]) -> Pixels:
        """An image's noise depends on the seed and its number alone, whatever the batch."""
        prompts, made = [self._prompt(label) for label in labels], list[Pixels]()
        for start in range(0, len(labels), self.chosen.batch):
            rows = range(start, min(start + self.chosen.batch, len(labels)))
            several = {name: [given[row][name] for row in rows] for name in given[start] if name == "image"}
            pictures = pipeline(
                prompt=[prompts[row] for row in rows],
                generator=[torch.Generator().manual_seed(seed + row) for row in rows],
                num_inference_steps=self.chosen.denoising_steps,
                **given[start] | several,
            ).images
            made += [self._fitted(picture) for picture in pictures]
        return np.stack(made)

    def _prompt(self, label: int) -> str:
        prompts = self.chosen.prompts
        return prompts[label if len(prompts) > 1 else 0]

    def _fitted(self, picture: Image.Image) -> Pixels:
        height, width, channels = self.schema.shape
        plain = picture.convert("RGB" if channels == 3 else "L").resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(plain, dtype=np.uint8).reshape(self.schema.shape)

    @property
    def _own_side(self) -> int:
        pipeline = self._from_text
        return int(pipeline.unet.config.sample_size * pipeline.vae_scale_factor)

    @cached_property
    def _from_text(self) -> Any:
        diffusers = _library()
        pipeline = diffusers.AutoPipelineForText2Image.from_pretrained(self.chosen.model, local_files_only=True)
        pipeline.set_progress_bar_config(disable=True)
        return pipeline.to(self.device)

    @cached_property
    def _from_image(self) -> Any:
        pipeline = _library().AutoPipelineForImage2Image.from_pipe(self._from_text)
        pipeline.set_progress_bar_config(disable=True)
        return pipeline


def _library() -> Any:
    import_torchvision()  # transformers would, without the cure
    try:
        import diffusers
    except ImportError as error:
        raise ConfigError('proposals of source "diffusers" need it: pip install "silosynth[diffusers]"') from error
    return diffusers
