"""More images from a release's statistics: as many as were asked for, taken up after an interruption, described."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support.published import Server, product

from silosynth.client.releases.synthesis import Made, Models, Order, synthesize_more
from silosynth.common.backbones.torchvision_import import import_torchvision
from silosynth.common.errors import ConfigError, VerificationFailed
from silosynth.common.synthesis.engine import Report

STATISTICS = {"statistics-0": {"values": np.arange(5.0)}, "backbone": {"file": np.zeros(7, np.uint8)}}


class Painter:
    """Paints each part in the grey of its seed."""

    def __init__(self, soft: bool = False, patience: int = 100) -> None:
        self.seeds: list[int] = []
        self._soft, self._patience = soft, patience

    def __call__(self, models: Models, images_per_class: int, seed: int, report: Report) -> Made:
        assert models["statistics-0"]["values"].tolist() == [0, 1, 2, 3, 4]
        if len(self.seeds) == self._patience:
            raise KeyboardInterrupt
        self.seeds.append(seed)
        report(0.5, 1.0, lambda: (torch.zeros(1), torch.zeros(1)))
        count = 3 * images_per_class
        labels = np.repeat(np.arange(3), images_per_class)
        soft = np.full((count, 3), 1 / 3, dtype=np.float32) if self._soft else None
        return np.full((count, 8, 8, 1), seed, dtype=np.uint8), labels, soft


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Three classes of four images each."""
    return Server(tmp_path / "server").publish(product(models=STATISTICS))[0]


@pytest.mark.parametrize("soft", [False, True])
def test_images_come_in_parts_of_the_releases_size(release: Path, tmp_path: Path, soft: bool) -> None:
    painter = Painter(soft)
    shares: list[float] = []
    made = synthesize_more(release, Order(28, 5), tmp_path / "more", painter, shares.append)
    assert (made, painter.seeds) == (30, [5, 6, 7])  # ten of each class: 4, 4 and 2
    assert shares == sorted(shares)
    assert shares[-1] == 1
    with np.load(tmp_path / "more/data/train.npz", allow_pickle=False) as data:
        assert (data["images"].shape, data["images"].dtype) == ((30, 8, 8, 1), np.uint8)
        assert np.bincount(data["labels"]).tolist() == [10, 10, 10]
        assert ("soft_labels" in data) == soft
        assert np.bincount(data["images"][:, 0, 0, 0]).tolist() == [0] * 5 + [12, 12, 6]
    assert len(import_torchvision("torchvision.datasets").ImageFolder(tmp_path / "more/data/train")) == 30
    assert "30 more images of night-shift/1" in (tmp_path / "more/README.md").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {"more", "server"}


def test_finished_parts_are_not_made_again(release: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        synthesize_more(release, Order(36, 0), tmp_path / "more", Painter(patience=2), lambda share: None)
    assert not (tmp_path / "more").exists()
    again = Painter()
    assert synthesize_more(release, Order(36, 0), tmp_path / "more", again, lambda share: None) == 36
    assert again.seeds == [2]


def test_nothing_is_overwritten(release: Path, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    with pytest.raises(ConfigError, match="--output"):
        synthesize_more(release, Order(3, 0), tmp_path / "more", Painter(), lambda share: None)


def test_a_release_without_statistics_says_so(tmp_path: Path) -> None:
    path, _ = Server(tmp_path / "server").publish(product(models={"ridge": {"weights": np.zeros(3)}}))
    with pytest.raises(ConfigError, match="ldpdc and holds no statistics"):
        synthesize_more(path, Order(3, 0), tmp_path / "more", Painter(), lambda share: None)


def test_a_changed_release_is_not_used(release: Path, tmp_path: Path) -> None:
    (release / "models/backbone.safetensors").write_bytes(b"other")
    with pytest.raises(VerificationFailed, match="backbone"):
        synthesize_more(release, Order(3, 0), tmp_path / "more", Painter(), lambda share: None)
