"""A release loads with other people's programs alone: torchvision, Hugging Face datasets, numpy, parquet readers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.published import Server, product, run_config

from silosynth.client.releases.export import export_parquet
from silosynth.common.backbones.torchvision_import import import_torchvision
from silosynth.common.schema import Schema

TABLE = Schema((4,), 3)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Server(tmp_path_factory.mktemp("server")).publish(product(per_class=5))[0]


@pytest.fixture
def table(tmp_path: Path) -> Server:
    return Server(tmp_path / "server")


def expected(path: Path) -> list[tuple[int, bytes]]:
    with np.load(path / "data/train.npz", allow_pickle=False) as data:
        images, labels = data["images"], data["labels"]
    return sorted((int(label), image.tobytes()) for image, label in zip(images, labels, strict=True))


def test_torchvision(path: Path) -> None:
    pictures = import_torchvision("torchvision.datasets").ImageFolder(path / "data/train")
    assert pictures.classes == ["0", "1", "2"]
    assert sorted((label, image.convert("L").tobytes()) for image, label in pictures) == expected(path)


@pytest.mark.filterwarnings("ignore")  # of its own libraries
@pytest.mark.parametrize("how", ["imagefolder", "card"])
def test_hugging_face(path: Path, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    cache = str(tmp_path)
    if how == "imagefolder":
        loaded = datasets.load_dataset("imagefolder", data_dir=str(path / "data/train"), cache_dir=cache)
    else:
        loaded = datasets.load_dataset(str(path), cache_dir=cache)
    found = [(row["label"], row["image"].convert("L").tobytes()) for row in loaded["train"]]
    assert sorted(found) == expected(path)


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_reads_the_parquet_export(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    assert export_parquet(path, tmp_path / "data.parquet") == 15
    loaded = datasets.Dataset.from_parquet(str(tmp_path / "data.parquet"), cache_dir=str(tmp_path))
    assert loaded.features["label"].names == ["0", "1", "2"]
    found = [(row["label"], row["image"].convert("L").tobytes()) for row in loaded]
    with np.load(path / "data/train.npz", allow_pickle=False) as data:
        assert found == [
            (int(label), image.tobytes()) for image, label in zip(data["images"], data["labels"], strict=True)
        ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("soft", [False, True])
def test_a_table_is_rows_to_everyone(
    table: Server, tmp_path: Path, soft: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets
    import pyarrow.parquet

    soft_labels = np.full((12, 3), 1 / 3, dtype=np.float32) if soft else None
    path, _ = table.publish(product(TABLE, soft_labels=soft_labels), run_config(TABLE))
    loaded = datasets.load_dataset(str(path), cache_dir=str(tmp_path))["train"]
    assert (loaded.column_names, len(loaded)) == (["x1", "x2", "x3", "x4", "label"], 12)
    export_parquet(path, tmp_path / "data.parquet")
    exported = pyarrow.parquet.read_table(tmp_path / "data.parquet")
    assert exported.column_names == [*loaded.column_names, *(["soft_labels"] if soft else [])]
    assert exported["x1"].to_pylist() == loaded["x1"][:]
