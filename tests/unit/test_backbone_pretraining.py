"""Training a backbone: reproducible, resumable, from procedure or folder, by command."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from typer.testing import CliRunner

from silosynth.common.backbones import backbone, load_backbone, pretraining
from silosynth.common.backbones.pretraining import PretrainingPlan, pretrain
from silosynth.common.backbones.training_images import FolderImages, ProceduralImages
from silosynth.common.errors import ConfigError
from silosynth.deploy.backbone_commands import app

CPU = torch.device("cpu")
PLAN = PretrainingPlan(architecture="residual-16", side=16, steps=4, batch=8, seed=3)


def silent(done: int, loss: float, accuracy: float) -> None:
    """No progress."""


def train(plan: PretrainingPlan, checkpoint: Path) -> str:
    images = ProceduralImages(plan.seed, plan.channels, plan.side, CPU)
    return pretrain(plan, images, CPU, checkpoint, silent).digest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    dice = torch.Generator().manual_seed(0)
    for name in ("cats", "dogs"):
        (tmp_path / "public" / name).mkdir(parents=True)
        for number in range(4):
            pixels = torch.randint(256, (20, 24, 3), generator=dice, dtype=torch.uint8).numpy()
            Image.fromarray(pixels).save(tmp_path / "public" / name / f"{number}.png")
    return tmp_path / "public"


def test_the_same_plan_gives_the_same_backbone(tmp_path: Path) -> None:
    first = train(PLAN, tmp_path / "a")
    assert train(PLAN, tmp_path / "b") == first
    assert train(PLAN.model_copy(update={"seed": 4}), tmp_path / "c") != first


def test_an_interruption_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretraining, "CHECKPOINT_EVERY", 2)
    monkeypatch.setattr(pretraining, "REPORT_EVERY", 1)
    images = ProceduralImages(PLAN.seed, PLAN.channels, PLAN.side, CPU)
    steps: list[int] = []

    def stop_at_three(done: int, loss: float, accuracy: float) -> None:
        steps.append(done)
        if steps == [1, 2, 3]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(PLAN, images, CPU, tmp_path / "checkpoint", stop_at_three)
    resumed = pretrain(PLAN, images, CPU, tmp_path / "checkpoint", stop_at_three)
    assert steps == [1, 2, 3, 3, 4]
    assert resumed.digest == train(PLAN, tmp_path / "fresh")


def test_a_foreign_or_damaged_checkpoint_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretraining, "CHECKPOINT_EVERY", 2)
    train(PLAN, tmp_path / "checkpoint")
    with pytest.raises(ConfigError, match="other settings"):
        train(PLAN.model_copy(update={"batch": 9}), tmp_path / "checkpoint")
    (tmp_path / "checkpoint").write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match="damaged"):
        train(PLAN, tmp_path / "checkpoint")


def test_the_rate_climbs_then_falls_to_nothing() -> None:
    plan = PretrainingPlan(steps=1000)
    assert plan.rate(0) < plan.rate(99) > plan.rate(500) > plan.rate(999)
    assert plan.rate(999) < 1e-3 * plan.learning_rate


def test_a_folder_of_images_serves_too(tmp_path: Path, folder: Path) -> None:
    plan = PLAN.model_copy(update={"channels": 3})
    images = FolderImages(folder, plan.seed, 3, plan.side, CPU, mirrored=True)
    pixels, labels = images.batch(0, 5)
    assert pixels.shape == (5, 3, 16, 16)
    assert pixels.abs().max() <= 1
    assert labels.max() < images.classes == 2
    trained = pretrain(plan, images, CPU, tmp_path / "checkpoint", silent)
    assert trained.blueprint.classes == 2
    assert trained.recipe["images_count"] == 8


def test_the_commands_train_and_inspect(tmp_path: Path) -> None:
    out = str(tmp_path / "own.safetensors")
    options = ["--name", "residual-16", "--steps", "2", "--batch", "4", "--side", "16", "--channels", "3"]
    trained = CliRunner().invoke(app, ["pretrain", "--procedural", "--out", out, *options], catch_exceptions=False)
    assert trained.exit_code == 0
    assert load_backbone(out).digest[:12] in trained.output
    assert [file.name for file in tmp_path.iterdir()] == ["own.safetensors"]
    inspected = CliRunner().invoke(app, ["inspect", out, "--side", "28", "--format", "json"], catch_exceptions=False)
    facts = json.loads(inspected.stdout)
    assert facts["digest"] == load_backbone(out).digest
    assert facts["taps"][0] == [16, 14, 14]
    assert facts["recipe"]["images"] == "procedural"


def test_a_log_file_gets_lines_of_progress(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretraining, "REPORT_EVERY", 1)
    options = ["--name", "residual-16", "--steps", "4", "--batch", "4", "--side", "16", "--channels", "3"]
    out = str(tmp_path / "own.safetensors")
    trained = CliRunner().invoke(app, ["pretrain", "--images", str(folder), "--out", out, *options])
    assert trained.exit_code == 0, trained.output
    for done in range(1, 5):
        assert f"{done} of 4 steps, loss " in trained.output
    assert load_backbone(out).recipe["images"] == "folder"


class TestImport:
    """Weights from elsewhere become a backbone if they are those of the network they are said to be of."""

    @pytest.fixture
    def weights(self, tmp_path: Path) -> Path:
        state = backbone("residual-16", 3, classes=7, seed=5).network.state_dict()
        save_file(state, tmp_path / "weights.safetensors")
        return tmp_path / "weights.safetensors"

    def invoke(self, weights: Path, **options: str) -> dict[str, Any]:
        said = {"out": str(weights.with_name("own.safetensors")), "name": "residual-16", "classes": "7"} | options
        flags = [part for name, value in said.items() for part in (f"--{name}", value)]
        done = CliRunner().invoke(app, ["import", str(weights), *flags, "--format", "json"], catch_exceptions=False)
        facts: dict[str, Any] = json.loads(done.stdout)
        return facts

    def test_it_can_be_used_like_any_other(self, weights: Path) -> None:
        facts = self.invoke(weights, mean="0.5", std="2")
        own = load_backbone(weights.with_name("own.safetensors"))
        assert own.digest == facts["digest"]
        assert own.blueprint.mean == (0.5, 0.5, 0.5)
        wanted = backbone("residual-16", 3, classes=7, seed=5).network.state_dict()
        for name, tensor in own.network.state_dict().items():
            assert torch.equal(tensor, wanted[name])

    @pytest.mark.parametrize(
        ("options", "complaint"),
        [({"name": "residual-24"}, "not the tensors of residual-24"), ({"name": "residual-99"}, "residual-99")],
    )
    def test_weights_of_another_network_are_refused(
        self, weights: Path, options: dict[str, str], complaint: str
    ) -> None:
        with pytest.raises(ConfigError, match=complaint):
            self.invoke(weights, **options)

    def test_another_kind_of_file_is_refused(self, weights: Path) -> None:
        weights.write_bytes(b"PK a pickle")
        with pytest.raises(ConfigError, match="no safetensors file"):
            self.invoke(weights)


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--procedural", "--images", "."],
        ["--procedural", "--device", "abacus"],
        ["--procedural", "--channels", "2"],
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, options: list[str]) -> None:
    with pytest.raises(ConfigError):
        CliRunner().invoke(
            app, ["pretrain", "--out", str(tmp_path / "x.safetensors"), *options], catch_exceptions=False
        )
