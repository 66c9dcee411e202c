"""Fused normalization gives every record the gradient that it has alone."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from silosynth.client.mechanisms.record_gradients import per_record_gradients
from silosynth.common.networks.weights import flat_weights

RECORDS, CLASSES = 5, 3


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("affine", [True, False])
def test_gradients_are_those_of_the_record_alone(groups: int, affine: bool) -> None:
    dice = torch.Generator().manual_seed(groups)
    norm = nn.GroupNorm(groups, 4, eps=1e-3, affine=affine)
    classifier = nn.Sequential(nn.Conv2d(2, 4, 3), norm, nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(36, CLASSES)))
    with torch.no_grad():
        for parameter in classifier.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=dice))
    records, labels = torch.randn(RECORDS, 2, 5, 5, generator=dice), torch.arange(RECORDS) % CLASSES
    found = per_record_gradients(classifier).of(flat_weights(classifier))(records, labels).detach().numpy()
    for record, label, gradient in zip(records, labels, found, strict=True):
        classifier.zero_grad()
        F.cross_entropy(classifier(record[None]), label[None]).backward()  # type: ignore[no-untyped-call]
        alone = torch.cat([part.grad.flatten() for part in classifier.parameters() if part.grad is not None])
        assert gradient == pytest.approx(alone.numpy(), rel=1e-4, abs=1e-4)
    assert classifier[1] is norm
