"""The release folder: loads without our code, comes whole or not at all, and can be verified."""

from __future__ import annotations

import csv
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file
from support.published import GREY, Ledger, Server, product, question, run_config

from silosynth.common.accounting import epsilon
from silosynth.common.errors import ConfigError, VerificationFailed
from silosynth.common.publication.manifest import Manifest, receipt_wire
from silosynth.common.publication.signature import Signature
from silosynth.common.publication.verification import verify_cost, verify_release
from silosynth.common.schema import Schema
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation import evaluate
from silosynth.server.recipes.base import Product
from silosynth.server.releases import folder as folder_module
from silosynth.server.releases.contact_sheet import contact_sheet
from silosynth.server.releases.keys import load_key
from silosynth.server.releases.publisher import Outcome

COLOUR, TABLE = Schema((6, 5, 3), 3), Schema((4,), 3)
DELTA = 1e-5


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path / "server")


def release(server: Server, schema: Schema = GREY, made: Product | None = None, **others: Any) -> Path:
    names = others.pop("class_names", ())
    records = {"shape": schema.shape, "classes": schema.classes, "class_names": names}
    return server.publish(made, run_config(schema, records=records), **others)[0]


def test_arrays_load_without_pickle(server: Server) -> None:
    soft = np.full((12, 3), 1 / 3, dtype=np.float32)
    made = product(soft_labels=soft)
    with np.load(release(server, made=made) / "data/train.npz", allow_pickle=False) as data:
        assert (data["images"].dtype, data["images"].shape) == (np.uint8, (12, 8, 8, 1))
        assert data["labels"].dtype == np.int64
        np.testing.assert_allclose(data["images"] / 127.5 - 1, made.features, atol=0.5 / 127.5 + 1e-6)
        np.testing.assert_array_equal(data["soft_labels"], soft)


@pytest.mark.parametrize(("schema", "mode"), [(GREY, "L"), (COLOUR, "RGB")])
def test_pictures_lie_as_image_folders_expect_them(server: Server, schema: Schema, mode: str) -> None:
    path = release(server, schema)
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


def test_folders_sort_in_the_order_of_labels(server: Server) -> None:
    schema = Schema((2, 2, 1), 12)
    names = ["zebra", "Ankle boot / left", "../up", "", "4", *"ghijklm"]
    path = release(server, schema, class_names=names)
    folders = sorted(folder.name for folder in (path / "data/train").iterdir())
    assert folders[:5] == ["00-zebra", "01-ankle-boot-left", "02-up", "03", "04"]
    assert len(folders) == 12
    unnamed = release(server, schema)
    assert sorted(folder.name for folder in (unnamed / "data/train").iterdir()) == [f"{n:02}" for n in range(12)]


def test_tables_come_as_rows_and_as_arrays(server: Server) -> None:
    path = release(server, TABLE)
    files = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
    documents = {"README.md", "croissant.json", "privacy-card.yaml", "manifest.json", "manifest.json.sig"}
    assert files == {"data/train.csv", "data/train.npz"} | documents
    with np.load(path / "data/train.npz", allow_pickle=False) as data:
        assert data["features"].dtype == np.float32
        features, labels = data["features"], data["labels"]
    with (path / "data/train.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    np.testing.assert_allclose([[float(row[f"x{n}"]) for n in range(1, 5)] for row in rows], features, atol=1e-6)
    assert [row["label"] for row in rows] == [str(label) for label in labels]


PEOPLE: dict[str, Any] = {
    "columns": [
        {"name": "age", "bounds": [0, 120]},
        {"name": "smoker", "categories": ["yes", ["no", "never"]], "other": True},
        {"name": "id", "skip": True},
        {"name": "ill", "categories": ["no", "yes, very"]},
    ],
    "label": "ill",
}


def test_rows_come_in_the_units_and_words_of_their_columns(server: Server) -> None:
    rows = [[-1, -1, 1, -1], [0.5, 0.1, 0.2, 0.9]]
    made = Product(np.array(rows, dtype=np.float32), np.array([0, 1]))
    records = {"shape": [4], "classes": 2, "table": PEOPLE}
    path, _ = server.publish(made, run_config(Schema((4,), 2), records=records))
    assert (path / "data/train.csv").read_text() == 'age,smoker,ill\n0,no,no\n90,(other),"yes, very"\n'
    assert verify_release(path).classes == ("no", "yes, very")


def test_a_table_that_is_not_the_schemas_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \[4\] and 2 classes"):
        run_config(records={"shape": [5], "classes": 2, "table": PEOPLE})
    with pytest.raises(ValueError, match="leave them out"):
        run_config(records={"shape": [4], "classes": 2, "table": PEOPLE, "class_names": ["a", "b"]})


def test_models_and_evaluation_come_along(server: Server) -> None:
    made = product(TABLE, models={"ridge": {"weights": np.arange(12.0).reshape(3, 4).T}})
    score = evaluate(made, made.records(TABLE), EvaluationSettings(steps=2, seeds=1, device="cpu"))
    path = release(server, TABLE, made, evaluation=score)
    np.testing.assert_array_equal(load_file(path / "models/ridge.safetensors")["weights"][:, 0], [0, 1, 2, 3])
    assert json.loads((path / "evaluation.json").read_text())["accuracy"] == score.accuracy


def test_the_manifest_states_what_the_receipts_prove(server: Server) -> None:
    first, second = question(), question(noise_multiplier=1.0)
    path, _ = server.publish(ledgers=(Ledger("a"), Ledger("b")), queries=(first, second, first))
    manifest = verify_release(path)
    spent = manifest.privacy.epsilon_by_silo
    receipts = [receipt for receipt in manifest.restored_receipts() if receipt.silo == "b"]
    assert spent["a"] == spent["b"] == pytest.approx(epsilon([receipt.event for receipt in receipts], DELTA))
    assert manifest.privacy.epsilon_worst == spent["b"]
    assert (manifest.run.name, str(manifest.release)) == ("night shift", "night-shift/1")
    assert manifest.restored_queries() == [first, second]
    assert [head.silo for head in manifest.restored_heads()] == ["a", "b"]
    assert manifest.receipts[0]["event"]["sampled_gaussian"]["noise_multiplier"] == 2.0


def test_a_repeated_answer_is_counted_once(server: Server) -> None:
    ledger, query = Ledger("a"), question()
    receipt = ledger.answer(query)
    server.witness.note(ledger.head())
    outcome = Outcome(run_config(), product(), "Nothing.", None, [query, query], [receipt, receipt])
    server.publisher.publish(server.folder / "repeated", outcome)
    manifest = verify_release(server.folder / "repeated")
    assert len(manifest.receipts) == len(manifest.queries) == 1
    assert manifest.privacy.epsilon_worst == pytest.approx(epsilon([query.event()], DELTA))


def test_the_manifest_lists_every_file(server: Server) -> None:
    path = release(server)
    files = verify_release(path).files
    assert list(files) == sorted(files)
    for name, facts in files.items():
        content = (path / name).read_bytes()
        assert (facts.sha256, facts.bytes) == (hashlib.sha256(content).hexdigest(), len(content))
    assert {"README.md", "contact-sheet.png", "data/train.npz", "data/train/0/000001.png"} <= set(files)


def test_no_noise_is_no_finite_epsilon(server: Server) -> None:
    path = release(server, queries=(question(noise_multiplier=0.0),))
    assert verify_release(path).privacy.epsilon_worst is None


def test_the_publisher_can_be_insisted_on(server: Server, tmp_path: Path) -> None:
    path = release(server)
    verify_release(path, server.publisher_key)
    with pytest.raises(VerificationFailed, match="not by the publisher"):
        verify_release(path, Server(tmp_path / "other").publisher_key)


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


def remove_signature(path: Path) -> None:
    (path / "manifest.json.sig").unlink()


def respell_signature(path: Path) -> None:
    """The same signature in capitals."""
    document = json.loads((path / "manifest.json.sig").read_text())
    (path / "manifest.json.sig").write_text(json.dumps({k: v.upper() for k, v in document.items()}, indent=2) + "\n")


def respace_manifest(path: Path) -> None:
    (path / "manifest.json").write_bytes((path / "manifest.json").read_bytes() + b" ")


@pytest.mark.parametrize(
    ("tamper", "complaint"),
    [
        (alter_picture, r"data/train/1/000002\.png was changed"),
        (remove_arrays, r"data/train\.npz is missing"),
        (add_file, r"data/extra\.txt is not listed"),
        (add_link, "link is a symbolic link"),
        (remove_manifest, "manifest.json is missing"),
        (remove_signature, "manifest.json.sig is missing"),
        (respell_signature, "manifest.json.sig was changed"),
        (respace_manifest, "manifest.json was changed"),
    ],
)
def test_tampering_is_named(server: Server, tamper: Any, complaint: str) -> None:
    path = release(server)
    tamper(path)
    with pytest.raises(VerificationFailed, match=complaint):
        verify_release(path)


class TestADishonestPublisher:
    """Signs whatever it likes; what the silos signed stands against it."""

    @pytest.fixture
    def manifest(self, server: Server) -> Manifest:
        return verify_release(release(server))

    def test_understates_epsilon(self, manifest: Manifest) -> None:
        privacy = manifest.privacy.model_copy(update={"epsilon_by_silo": {"a": 0.01}, "epsilon_worst": 0.01})
        self.refused(manifest, "not that of its receipts", privacy=privacy)

    def test_understates_the_worst_case_alone(self, manifest: Manifest) -> None:
        privacy = manifest.privacy.model_copy(update={"epsilon_worst": 0.01})
        self.refused(manifest, "not that of its receipts", privacy=privacy)

    def test_changes_an_event(self, manifest: Manifest) -> None:
        (receipt,) = manifest.restored_receipts()
        event = replace(receipt.event, noise_multiplier=20.0)
        self.refused(manifest, "'a' is not signed", receipts=(receipt_wire(replace(receipt, event=event)),))

    def test_lists_another_query(self, manifest: Manifest, server: Server) -> None:
        other = verify_release(release(server, queries=(question(mixtures=7),)))
        self.refused(manifest, "not listed", queries=other.queries)

    def test_hides_the_head(self, manifest: Manifest) -> None:
        self.refused(manifest, "no head of the ledger of 'a'", heads=())

    def test_shows_another_ledgers_head(self, manifest: Manifest, server: Server) -> None:
        other = verify_release(release(server))
        self.refused(manifest, "no head of the ledger of 'a'", heads=other.heads)

    def test_writes_nonsense(self, manifest: Manifest) -> None:
        receipt = {**manifest.receipts[0], "event": {"sampled_gaussian": {"noise_multiplier": 1.0}}}
        self.refused(manifest, "makes no sense", receipts=(receipt,))

    @staticmethod
    def refused(manifest: Manifest, complaint: str, **changes: Any) -> None:
        verify_cost(manifest)
        with pytest.raises(VerificationFailed, match=complaint):
            verify_cost(manifest.model_copy(update=changes))


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "a/../../b", "a\\b", ".hidden", "", "a//b", "manifest.json"])
def test_a_manifest_cannot_name_files_outside(server: Server, name: str) -> None:
    path = release(server)
    document = json.loads((path / "manifest.json").read_text())
    document["files"][name] = next(iter(document["files"].values()))
    content = json.dumps(document).encode()
    (path / "manifest.json").write_bytes(content)
    (path / "manifest.json.sig").write_bytes(Signature.of(content, load_key(server.folder)).to_bytes())
    with pytest.raises(VerificationFailed, match="not a manifest"):
        verify_release(path)


def test_a_release_is_never_overwritten(server: Server) -> None:
    path = release(server)
    server._count -= 1
    with pytest.raises(ConfigError, match="never overwritten"):
        release(server)
    verify_release(path)


def test_a_failure_leaves_no_release_and_the_next_try_succeeds(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*arguments: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(folder_module, "write_manifest", full_disk)
        with pytest.raises(OSError, match="no space left"):
            release(server)
    assert server.store.entries() == []
    server._count -= 1
    verify_release(release(server))
    assert not list(server.folder.glob(".*unfinished"))
    assert [str(entry.release) for entry in server.store.entries()] == ["night-shift/2"]


def test_too_few_class_names_are_refused(server: Server) -> None:
    with pytest.raises(ConfigError, match="2 class names are given for 3 classes"):
        release(server, class_names=("x", "y"))
    assert server.store.entries() == []


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
