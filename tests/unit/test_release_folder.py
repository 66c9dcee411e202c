"""The release folder: loads without our code, comes whole or not at all, and can be verified."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from PIL import Image
from safetensors.numpy import load_file

from silosynth.common.accounting import epsilon
from silosynth.common.errors import ConfigError, VerificationFailed
from silosynth.common.events import SampledGaussian
from silosynth.common.releases import Receipt
from silosynth.common.schema import Schema
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation import evaluate
from silosynth.server.recipes.base import Product
from silosynth.server.releases import folder as folder_module
from silosynth.server.releases import verify_release, write_release
from silosynth.server.releases.contact_sheet import contact_sheet

GREY, COLOUR, TABLE = Schema((8, 8, 1), 3), Schema((6, 5, 3), 3), Schema((4,), 3)
DELTA = 1e-5
RUN = {"name": "night shift", "config_digest": "ab" * 32}


def product(schema: Schema, per_class: int = 4, **others: Any) -> Product:
    generator = np.random.default_rng(0)
    values = generator.uniform(-1, 1, (per_class, schema.classes, schema.dimension))
    return Product.of(values, schema, **others)


def receipt(silo: str, sequence: int = 1, z: float = 2.0) -> Receipt:
    key = Ed25519PrivateKey.generate()
    fields: dict[str, Any] = {
        "silo": silo,
        "dataset": "ward",
        "query_digest": b"q" * 32,
        "event": SampledGaussian(z, 0.5, 3),
        "payload_digest": b"p" * 32,
        "sequence": sequence,
        "previous_hash": b"0" * 32,
        "entry_hash": hashlib.sha256(f"{silo}{sequence}".encode()).digest(),
        "created": "2026-01-01T00:00:00+00:00",
        "public_key": key.public_key().public_bytes_raw(),
    }
    return Receipt(**fields, signature=key.sign(Receipt(**fields).signed_bytes()))


def release(path: Path, schema: Schema = GREY, made: Product | None = None, **changes: Any) -> Path:
    settings: dict[str, Any] = {"class_names": (), "evaluation": None, "receipts": [receipt("a")], "delta": DELTA}
    return write_release(path, made or product(schema), schema, run=RUN, **{**settings, **changes})


def manifest_of(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((path / "manifest.json").read_text())
    return document


def test_arrays_load_without_pickle(tmp_path: Path) -> None:
    soft = np.full((12, 3), 1 / 3, dtype=np.float32)
    made = product(GREY, soft_labels=soft)
    with np.load(release(tmp_path / "r", made=made) / "data/train.npz", allow_pickle=False) as data:
        assert (data["images"].dtype, data["images"].shape) == (np.uint8, (12, 8, 8, 1))
        assert data["labels"].dtype == np.int64
        np.testing.assert_allclose(data["images"] / 127.5 - 1, made.features, atol=0.5 / 127.5 + 1e-6)
        np.testing.assert_array_equal(data["soft_labels"], soft)


@pytest.mark.parametrize(("schema", "mode"), [(GREY, "L"), (COLOUR, "RGB")])
def test_pictures_lie_as_image_folders_expect_them(tmp_path: Path, schema: Schema, mode: str) -> None:
    path = release(tmp_path / "r", schema)
    with np.load(path / "data/train.npz", allow_pickle=False) as data:
        images, labels = data["images"], data["labels"]
    folders = sorted((path / "data/train").iterdir())
    for label, folder in enumerate(folders):  # a loader's label is the place of the folder in this order
        pictures = sorted(folder.iterdir())
        assert [picture.name for picture in pictures] == [f"{number:06}.png" for number in range(1, 5)]
        for picture, expected in zip(pictures, images[labels == label], strict=True):
            with Image.open(picture) as opened:
                assert opened.mode == mode
                np.testing.assert_array_equal(np.asarray(opened).reshape(schema.shape), expected)


def test_folders_sort_in_the_order_of_labels(tmp_path: Path) -> None:
    schema = Schema((2, 2, 1), 12)
    names = ["zebra", "Ankle boot / left", "../up", "", "4", *"ghijklm"]
    path = release(tmp_path / "r", schema, class_names=names)
    folders = sorted(folder.name for folder in (path / "data/train").iterdir())
    assert folders[:5] == ["00-zebra", "01-ankle-boot-left", "02-up", "03", "04"]
    assert len(folders) == 12
    unnamed = release(tmp_path / "s", schema)
    assert sorted(folder.name for folder in (unnamed / "data/train").iterdir()) == [f"{n:02}" for n in range(12)]


def test_tables_come_as_arrays_only(tmp_path: Path) -> None:
    path = release(tmp_path / "r", TABLE)
    assert sorted(file.name for file in path.rglob("*") if file.is_file()) == ["manifest.json", "train.npz"]
    with np.load(path / "data/train.npz", allow_pickle=False) as data:
        assert data["features"].dtype == np.float32


def test_models_and_evaluation_come_along(tmp_path: Path) -> None:
    made = product(TABLE, models={"ridge": {"weights": np.arange(12.0).reshape(3, 4).T}})
    score = evaluate(made, made.records(TABLE), EvaluationSettings(steps=2, seeds=1, device="cpu"))
    path = release(tmp_path / "r", TABLE, made, evaluation=score)
    np.testing.assert_array_equal(load_file(path / "models/ridge.safetensors")["weights"][:, 0], [0, 1, 2, 3])
    assert json.loads((path / "evaluation.json").read_text())["accuracy"] == score.accuracy


def test_the_manifest_states_what_the_receipts_prove(tmp_path: Path) -> None:
    receipts = [receipt("a"), receipt("b"), receipt("b", 2, z=1.0)]
    repeated = receipts[0]  # the same answer again was not charged again
    manifest = manifest_of(release(tmp_path / "r", receipts=[*receipts, repeated], class_names=("x", "y", "z")))
    spent = manifest["privacy"]["epsilon_by_silo"]
    assert spent["a"] == pytest.approx(epsilon([receipts[0].event], DELTA))
    assert spent["b"] == pytest.approx(epsilon([receipts[1].event, receipts[2].event], DELTA))
    assert manifest["privacy"]["epsilon_worst"] == spent["b"] > spent["a"]
    assert manifest["run"] == RUN
    assert manifest["classes"] == ["x", "y", "z"]
    assert len(manifest["receipts"]) == 3
    described = manifest["receipts"][0]
    assert described["event"] == {"noise_multiplier": 2.0, "sampling_probability": 0.5, "count": 3}
    assert (described["silo"], described["dataset"], described["sequence"]) == ("a", "ward", 1)
    assert bytes.fromhex(described["signature"]) == receipts[0].signature


def test_the_manifest_lists_every_file(tmp_path: Path) -> None:
    path = release(tmp_path / "r")
    files = manifest_of(path)["files"]
    assert list(files) == sorted(files)
    for name, facts in files.items():
        content = (path / name).read_bytes()
        assert facts == {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    assert {"contact-sheet.png", "data/train.npz", "data/train/0/000001.png"} <= set(files)


def test_no_noise_is_no_finite_epsilon(tmp_path: Path) -> None:
    path = release(tmp_path / "r", receipts=[receipt("a", z=0.0)])
    assert manifest_of(path)["privacy"]["epsilon_worst"] is None
    verify_release(path)


def test_a_sound_release_verifies(tmp_path: Path) -> None:
    path = release(tmp_path / "r", receipts=[receipt("a"), receipt("b")])
    assert verify_release(path) == manifest_of(path)


def alter_picture(path: Path) -> None:
    (path / "data/train/1/000002.png").write_bytes(b"something else")


def remove_arrays(path: Path) -> None:
    (path / "data/train.npz").unlink()


def add_file(path: Path) -> None:
    (path / "data/extra.txt").write_text("hello")


def add_link(path: Path) -> None:
    (path / "link").symlink_to("manifest.json")


def remove_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()


def break_manifest(path: Path) -> None:
    (path / "manifest.json").write_text('["not", "a", "manifest"]')


def rewritten(path: Path, **sections: Any) -> None:
    (path / "manifest.json").write_text(json.dumps({**manifest_of(path), **sections}))


def understate_epsilon(path: Path) -> None:
    privacy = manifest_of(path)["privacy"]
    rewritten(path, privacy={**privacy, "epsilon_by_silo": {"a": 0.01}})


def hide_epsilon(path: Path) -> None:
    privacy = manifest_of(path)["privacy"]
    rewritten(path, privacy={**privacy, "epsilon_by_silo": {"a": None}})


def milden_receipt(path: Path) -> None:
    (only,) = manifest_of(path)["receipts"]
    event = {**only["event"], "noise_multiplier": 20.0}
    privacy = {**manifest_of(path)["privacy"], "epsilon_by_silo": {"a": epsilon([SampledGaussian(**event)], DELTA)}}
    rewritten(path, receipts=[{**only, "event": event}], privacy=privacy)


def impossible_event(path: Path) -> None:
    (only,) = manifest_of(path)["receipts"]
    rewritten(path, receipts=[{**only, "event": {**only["event"], "sampling_probability": 2.0}}])


@pytest.mark.parametrize(
    ("tamper", "complaint"),
    [
        (alter_picture, r"data/train/1/000002\.png was changed"),
        (remove_arrays, r"data/train\.npz is missing"),
        (add_file, r"data/extra\.txt is not listed"),
        (add_link, "link is a symbolic link"),
        (remove_manifest, "missing or not JSON"),
        (break_manifest, "not a manifest"),
        (understate_epsilon, "not that of its receipts"),
        (hide_epsilon, "not that of its receipts"),
        (milden_receipt, "'a' is not signed"),
        (impossible_event, "impossible event"),
    ],
)
def test_tampering_is_named(tmp_path: Path, tamper: Any, complaint: str) -> None:
    path = release(tmp_path / "r")
    tamper(path)
    with pytest.raises(VerificationFailed, match=complaint):
        verify_release(path)


def test_a_release_is_never_overwritten(tmp_path: Path) -> None:
    path = release(tmp_path / "r")
    before = manifest_of(path)
    with pytest.raises(ConfigError, match="never overwritten"):
        release(path)
    assert manifest_of(path) == before


def test_a_failure_leaves_no_release_and_the_next_try_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*arguments: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(folder_module, "write_manifest", full_disk)
        with pytest.raises(OSError, match="no space left"):
            release(tmp_path / "r")
    assert not (tmp_path / "r").exists()
    verify_release(release(tmp_path / "r"))
    assert [left.name for left in tmp_path.iterdir()] == ["r"]


def test_too_few_class_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="2 class names are given for 3 classes"):
        release(tmp_path / "r", class_names=("x", "y"))
    assert not (tmp_path / "r").exists()


class TestContactSheet:
    @pytest.mark.parametrize(
        ("classes", "per_class", "shape"),
        [(10, 1, (8, 8, 1)), (10, 50, (8, 8, 1)), (100, 12, (32, 32, 3)), (2, 3, (64, 48, 3)), (1, 1, (1, 1, 1))],
    )
    def test_is_of_a_handy_shape(self, classes: int, per_class: int, shape: tuple[int, int, int]) -> None:
        images = np.zeros((classes * per_class, *shape), dtype=np.uint8)
        labels = np.tile(np.arange(classes), per_class)
        sheet = contact_sheet(images, labels, [f"class {label}" for label in range(classes)])
        assert 0.4 < sheet.width / sheet.height < 7
        assert max(sheet.size) < 2500

    def test_enlarges_small_images_pixel_by_pixel(self) -> None:
        image = np.full((1, 8, 8, 1), 255, dtype=np.uint8)
        image[0, 0, 0, 0] = 7
        pixels = np.asarray(contact_sheet(image, np.array([0]), [""]))
        assert (pixels == 7).all(axis=2).sum() == 7 * 7

    def test_bears_a_class_without_images_and_a_long_name(self) -> None:
        images = np.zeros((1, 8, 8, 1), dtype=np.uint8)
        sheet = contact_sheet(images, np.array([1]), ["empty", "a very long name of a class " * 10])
        assert sheet.width < 600
