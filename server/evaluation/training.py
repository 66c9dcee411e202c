"""Training a model on records and asking it about others. The same seed gives the same model on the same machine."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.nn import functional

from silosynth.common.datasets.records import Records, to_unit_range
from silosynth.server.evaluation.models import build_model

Labels = npt.NDArray[np.int64]
SoftLabels = npt.NDArray[np.float32]

_BATCH = 64
_TEST_BATCH = 2048
_LEARNING_RATE = 5e-3
_WEIGHT_DECAY = 1e-2
_LARGEST_NOISE = 0.3


def pick_device(name: str) -> torch.device:
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


def train_model(
    model_name: str, records: Records, soft_labels: SoftLabels | None, *, steps: int, seed: int, device: torch.device
) -> nn.Module:
    """AdamW with one warm and one long falling slope, on batches drawn with replacement.

    Each record gets noise of its own random strength: small synthetic sets are learned by heart without it.
    (Chosen on the training parts of MNIST and Fashion-MNIST; shifting images as well made small ones worse.)
    """
    targets = torch.from_numpy(records.labels if soft_labels is None else soft_labels)
    dice = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build_model(model_name, records.schema).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, weight_decay=_WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _LEARNING_RATE, total_steps=steps)
    for _ in range(steps):
        chosen = torch.randint(len(records), (_BATCH,), generator=dice)
        batch = torch.from_numpy(to_unit_range(records.features[chosen.numpy()]).reshape(_BATCH, -1))
        strength = _LARGEST_NOISE * torch.rand(_BATCH, 1, generator=dice)
        batch += strength * torch.randn(batch.shape, generator=dice)
        loss = functional.cross_entropy(model(batch.to(device)), targets[chosen].to(device))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return model.eval()


@torch.no_grad()
def predict(model: nn.Module, records: Records, device: torch.device) -> Labels:
    parts = [
        model(torch.from_numpy(features).to(device)).argmax(dim=1).cpu().numpy()
        for features, _ in records.batches(_TEST_BATCH)
    ]
    return np.concatenate(parts)
