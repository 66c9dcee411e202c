"""A release as a torch Dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from silosynth.client.releases.shelf import Shelf
from silosynth.common.publication.contents import ARRAYS
from silosynth.common.publication.manifest import Manifest
from silosynth.common.publication.names import ReleaseName
from silosynth.common.publication.verification import verify_release


class ReleaseDataset(Dataset[tuple[Tensor, int]]):
    """Records with their labels. Images come as torchvision's ToTensor gives them: float32 in [0, 1], channels first;
    tables as float32 in [-1, 1]. In memory images stay uint8.
    """

    def __init__(
        self, manifest: Manifest, features: npt.NDArray[Any], labels: npt.NDArray[np.int64], soft: Any
    ) -> None:
        self.manifest = manifest
        self.classes = manifest.classes
        self.features = torch.from_numpy(features)
        self.labels = torch.from_numpy(labels)
        self.soft_labels = None if soft is None else torch.from_numpy(soft)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        record, label = self.features[index], int(self.labels[index])
        return (record.permute(2, 0, 1).float() / 255 if record.dtype == torch.uint8 else record), label


def load_dataset(release: str | Path, shelf: Path | None, publisher: str | None) -> ReleaseDataset:
    if isinstance(release, Path):
        folder = release
    else:
        folder = (Shelf.default() if shelf is None else Shelf(shelf)).find(ReleaseName.parse(release))
    manifest = verify_release(folder, publisher)
    with np.load(folder / ARRAYS, allow_pickle=False) as data:
        features = data["images" if "images" in data else "features"]
        return ReleaseDataset(manifest, features, data["labels"], data.get("soft_labels"))
