"""Where candidates come from: built-in sources, any program, and what is said when one fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from silosynth.common.backbones.torchvision_import import import_torchvision
from silosynth.common.config import parse
from silosynth.common.errors import ConfigError, RunFailed
from silosynth.common.schema import Schema
from silosynth.server.generators.proposals import Proposals
from silosynth.server.recipes.evolution import Parameters

GREY, COLOUR = Schema((9, 7, 1), 3), Schema((8, 8, 3), 3)
LABELS = np.repeat(np.arange(3), 4)


def opened(schema: Schema, **source: Any) -> Proposals:
    return parse(Parameters, {"proposals": source}, "test").proposals.opened(schema)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    (folder / "deep").mkdir(parents=True)
    for number in range(5):
        Image.new("RGB", (20 + number, 30), (50 * number, 0, 0)).save(folder / "deep" / f"{number}.png")
    return folder


@pytest.mark.parametrize("schema", [GREY, COLOUR])
@pytest.mark.parametrize("source", ["procedural", "folder"])
class TestBuiltIn:
    def source(self, schema: Schema, source: str, pictures: Path) -> Proposals:
        return opened(schema, source=source, **{"folder": str(pictures)} if source == "folder" else {})

    def test_images_fit_and_follow_the_seed(self, schema: Schema, source: str, pictures: Path) -> None:
        proposals = self.source(schema, source, pictures)
        fresh = proposals.fresh(LABELS, 1)
        assert fresh.shape == (12, *schema.shape)
        assert fresh.dtype == np.uint8
        assert (proposals.fresh(LABELS, 1) == fresh).all()
        varied = proposals.varied(fresh, LABELS, 0.7, 2)
        assert varied.shape == fresh.shape
        assert (proposals.varied(fresh, LABELS, 0.7, 2) == varied).all()

    def test_the_stronger_the_less_alike(self, schema: Schema, source: str, pictures: Path) -> None:
        proposals = self.source(schema, source, pictures)
        fresh = proposals.fresh(LABELS, 1)
        distances = [
            np.abs(proposals.varied(fresh, LABELS, strength, 3).astype(float) - fresh).mean()
            for strength in (0.0, 0.3, 1.0)
        ]
        assert distances[0] < 1
        assert distances[0] < distances[1] < distances[2]


class TestFolder:
    def test_takes_different_images_as_long_as_there_are(self, pictures: Path) -> None:
        fresh = opened(COLOUR, source="folder", folder=str(pictures)).fresh(LABELS[:5], 0)
        assert len(np.unique(fresh, axis=0)) == 5

    def test_an_empty_one_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="holds no PNG or JPEG"):
            opened(GREY, source="folder", folder=str(tmp_path / "none"))

    def test_pictures_have_one_channel_or_three(self, pictures: Path) -> None:
        with pytest.raises(ConfigError, match="2 channels"):
            opened(Schema((8, 8, 2), 3), source="folder", folder=str(pictures))


NEGATIVE = """
import json, sys, pathlib, numpy as np
folder = pathlib.Path(sys.argv[1])
request = json.loads((folder / "request.json").read_text())
if request["action"] == "fresh":
    shape = (len(request["labels"]), *request["shape"])
    images = np.full(shape, request["seed"], dtype=np.uint8) + np.uint8(request["labels"])[:, None, None, None]
else:
    images = 255 - np.load(folder / "images.npz")["images"] + np.uint8(request["strength"] * 10)
np.savez(folder / "answer.npz", images=images)
"""


class TestCommand:
    def program(self, folder: Path, text: str, **more: Any) -> Proposals:
        file = folder / "program.py"
        file.write_text(text)
        return opened(GREY, source="command", command=[sys.executable, str(file)], **more)

    def test_is_told_what_is_wanted_and_is_believed(self, tmp_path: Path) -> None:
        proposals = self.program(tmp_path, NEGATIVE)
        fresh = proposals.fresh(LABELS, 7)
        assert fresh[:, 0, 0, 0].tolist() == (7 + LABELS).tolist()
        assert (proposals.varied(fresh, LABELS, 0.5, 1) == 255 - fresh + 5).all()

    @pytest.mark.parametrize(
        ("text", "complaint"),
        [
            ("raise SystemExit('no model here')", "ended with 1, saying 'no model here'"),
            ("", "left no answer.npz"),
            ("import sys; open(sys.argv[1] + '/answer.npz', 'w').write('x')", "left no answer.npz"),
            (NEGATIVE.replace("images=images", "images=images[1:]"), "not with uint8 of shape"),
            (NEGATIVE.replace("images=images", "images=images / 255"), "answered with float64"),
        ],
    )
    def test_what_went_wrong_is_told_with_the_command_to_try(self, text: str, complaint: str, tmp_path: Path) -> None:
        with pytest.raises(RunFailed, match=complaint) as error:
            self.program(tmp_path, text).fresh(LABELS, 7)
        by_hand = str(error.value).split("`")[1].split()
        assert (Path(by_hand[-1]) / "request.json").exists()

    def test_is_not_waited_for_for_ever(self, tmp_path: Path) -> None:
        with pytest.raises(RunFailed, match=r"more than 0\.2 s"):
            self.program(tmp_path, "import time; time.sleep(60)", seconds=0.2).fresh(LABELS, 7)

    def test_must_exist(self) -> None:
        with pytest.raises(ConfigError, match="no program 'no-such-program'"):
            opened(GREY, source="command", command=["no-such-program"])


class TestSettings:
    @pytest.mark.parametrize(
        ("source", "complaint"),
        [
            ({"source": "dreams"}, "dreams"),
            ({"source": "folder"}, "folder"),
            ({"source": "procedural", "folder": "x"}, "unknown key"),
        ],
    )
    def test_a_source_takes_what_it_uses(self, source: dict[str, Any], complaint: str) -> None:
        with pytest.raises(ConfigError, match=complaint):
            opened(GREY, **source)


class TestDiffusers:
    def test_needs_a_pipeline_and_prompts_that_fit(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="save_pretrained"):
            opened(GREY, source="diffusers", model=str(tmp_path), prompts=["a shoe"])
        with pytest.raises(ConfigError, match="2 for 3 classes"):
            opened(GREY, source="diffusers", model=str(tmp_path), prompts=["a shoe", "a shirt"])

    def test_a_pipeline_makes_and_varies_images(self, tmp_path: Path) -> None:
        """Of random weights: where diffusers is installed (pip install "silosynth[diffusers]")."""
        import_torchvision()
        pytest.importorskip("diffusers")
        save_tiny_pipeline(tmp_path)
        chosen = {"model": str(tmp_path), "prompts": ["a", "b", "c"], "denoising_steps": 2, "batch": 3}
        for schema in (GREY, COLOUR):
            proposals = opened(schema, source="diffusers", **chosen)
            labels = LABELS[::3]
            fresh = proposals.fresh(labels, 1)
            assert fresh.shape == (4, *schema.shape)
            assert (proposals.fresh(labels, 1) == fresh).all()
            varied = proposals.varied(fresh, labels, 0.5, 2)
            assert varied.shape == fresh.shape
            assert (varied != fresh).any()


def save_tiny_pipeline(folder: Path) -> None:
    import diffusers
    import transformers

    (folder / "vocab.json").write_text(json.dumps({"<|startoftext|>": 0, "<|endoftext|>": 1, "a</w>": 2, "b</w>": 3}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    small = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    text = transformers.CLIPTextConfig(vocab_size=4, max_position_embeddings=8, bos_token_id=0, eos_token_id=1, **small)
    channels = {"block_out_channels": (8,), "norm_num_groups": 2, "sample_size": 8}
    unet = diffusers.UNet2DConditionModel(
        **channels,
        **{"layers_per_block": 1, "cross_attention_dim": 8, "attention_head_dim": 1},
        **{"down_block_types": ("CrossAttnDownBlock2D",), "up_block_types": ("CrossAttnUpBlock2D",)},
    )
    tokenizer = transformers.CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=8)
    pipeline = diffusers.StableDiffusionPipeline(
        vae=diffusers.AutoencoderKL(**channels),
        text_encoder=transformers.CLIPTextModel(text),
        tokenizer=tokenizer,
        unet=unet,
        scheduler=diffusers.DDIMScheduler(steps_offset=1, clip_sample=False),
        **{"safety_checker": None, "feature_extractor": None, "requires_safety_checker": False},
    )
    pipeline.save_pretrained(folder)
