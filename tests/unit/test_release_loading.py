"""A release loads with other people's programs alone: torchvision, Hugging Face datasets, numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.published import Server, product

from silosynth.common.backbones.torchvision_import import import_torchvision


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Server(tmp_path_factory.mktemp("server")).publish(product(per_class=5))[0]


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
