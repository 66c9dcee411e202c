"""Training a model on synthetic records and testing it on real ones."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from silosynth.common.datasets.records import Records
from silosynth.common.schema import Schema
from silosynth.server.evaluation.models import build_model

_BATCH = 128
_TEST_BATCH = 2048
_LEARNING_RATE = 3e-3
_WEIGHT_DECAY = 1e-2
_SHIFT_SHARE = 1 / 8  # of an image's side


def pick_device(name: str) -> torch.device:
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


def train_model(
    model_name: str,
    schema: Schema,
    features: npt.NDArray[np.float32],
    targets: npt.NDArray[np.float32] | npt.NDArray[np.int64],
    *,
    steps: int,
    seed: int,
    device: torch.device,
) -> nn.Module:
    """AdamW with one warm and one long falling slope; images are shifted a little, the same for a whole batch."""
    inputs = torch.from_numpy(features.reshape(-1, schema.dimension)).to(device)
    wanted = torch.from_numpy(targets).to(device)
    dice = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build_model(model_name, schema).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LEARNING_RATE, weight_decay=_WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _LEARNING_RATE, total_steps=steps)
    for _ in range(steps):
        chosen = torch.randint(len(wanted), (min(_BATCH, len(wanted)),), generator=dice)
        batch = _shifted(inputs[chosen], schema, dice)
        loss = functional.cross_entropy(model(batch), wanted[chosen])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return model.eval()


@torch.no_grad()
def predict(model: nn.Module, records: Records, device: torch.device) -> npt.NDArray[np.int64]:
    parts = [
        model(torch.from_numpy(features).to(device)).argmax(dim=1).cpu().numpy()
        for features, _ in records.batches(_TEST_BATCH)
    ]
    return np.concatenate(parts)


def _shifted(batch: Tensor, schema: Schema, dice: torch.Generator) -> Tensor:
    """Moved by up to an eighth of the side, edges repeated; tables stay as they are."""
    if not schema.is_image:
        return batch
    height, width, channels = schema.shape
    reach = max(1, int(min(height, width) * _SHIFT_SHARE))
    down, right = torch.randint(0, 2 * reach + 1, (2,), generator=dice).tolist()
    images = batch.reshape(-1, height, width, channels).permute(0, 3, 1, 2)
    padded = functional.pad(images, (reach,) * 4, mode="replicate")
    moved = padded[:, :, down : down + height, right : right + width]
    return moved.permute(0, 2, 3, 1).reshape(batch.shape)
