"""How much synthetic records are like public ones: distance, coverage, variety, as a public network sees them.

Public reference records only: the same figures against the silos' records would be queries, and are none.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from scipy.spatial.distance import cdist

from silosynth.common.backbones import backbone_for
from silosynth.common.config import Section
from silosynth.common.datasets.records import Labels, Records
from silosynth.common.shipped import BY_CHANNELS
from silosynth.server.evaluation.examples import Examples
from silosynth.server.evaluation.finetuning import TunedBackbone

Points = npt.NDArray[np.float64]

_MOST_RECORDS = 2_000  # of each kind: all pairs are measured
_NEAREST = 5
_SEED = 0
_DIVISIONS = 3


class Likeness(Section):
    """Of 2,000 records of each kind at most.

    `space` is the public backbone in whose features records are compared, or "columns" for tables.

    Distances are Frechet's between Gaussians fitted to the features, of up to half as many records as the reference
    has, to the rest of the reference; means over several divisions. The fewer records, the larger: compare the two.
    Density and coverage: Naeem et al., "Reliable fidelity and diversity metrics for generative models" (2020).
    """

    space: str
    reference_records: int
    distance: float
    distance_of_reference: float  # the same of as many reference records: as near as records of the same kind come
    density: float  # how deep among reference records the synthetic ones lie; 1 for records of the same kind
    coverage: float  # share of reference records that have a synthetic one near by
    variety: float | None  # spread within classes over that of the reference; None where there is none to compare


def likeness(synthetic: Records, reference: Records, backbone: str | None, device: torch.device) -> Likeness | None:
    """None for images that no public backbone at hand looks at, and where there is hardly anything to compare with."""
    seeable = not reference.schema.is_image or backbone or reference.schema.shape[2] in BY_CHANNELS
    if not seeable or len(reference) < 2 * _NEAREST:
        return None
    dice = np.random.default_rng(_SEED)
    synthetic, reference = (_some(records, dice) for records in (synthetic, reference))
    space, seen, known = _features(synthetic, reference, backbone, device)
    distance, distance_of_reference = _distances(seen, known)
    density, coverage = _density_and_coverage(seen, known)
    return Likeness(
        space=space,
        reference_records=len(reference),
        distance=distance,
        distance_of_reference=distance_of_reference,
        density=density,
        coverage=coverage,
        variety=_variety(seen, synthetic.labels, known, reference.labels),
    )


def _distances(seen: Points, known: Points) -> tuple[float, float]:
    """Of synthetic records, and of as many of the reference's own, to the same others."""
    count, dice, found = min(len(seen), len(known) // 2), np.random.default_rng(_SEED), []
    for _ in range(_DIVISIONS):
        order, some = dice.permutation(len(known)), dice.permutation(len(seen))[:count]
        others = known[order[count:]]
        found.append([frechet_distance(points, others) for points in (seen[some], known[order[:count]])])
    distance, of_reference = np.mean(found, axis=0)
    return float(distance), float(of_reference)


def frechet_distance(left: Points, right: Points) -> float:
    """Squared; of the Gaussians that have these means and covariances."""
    (mean, root), (other_mean, other) = _moments(left), _moments(right)
    overlap = np.linalg.svd(root.T @ other, compute_uv=False).sum()
    spread = np.square(root).sum() + np.square(other).sum() - 2 * overlap
    return float(max(np.square(mean - other_mean).sum() + spread, 0.0))


def _moments(points: Points) -> tuple[Points, Points]:
    """The mean, and a square root R of the covariance: R R^T."""
    mean = points.mean(axis=0)
    covariance = (points - mean).T @ (points - mean) / max(len(points), 1)
    values, vectors = np.linalg.eigh(covariance)
    return mean, vectors * np.sqrt(np.maximum(values, 0))


def _density_and_coverage(synthetic: Points, reference: Points) -> tuple[float, float]:
    radii = np.partition(cdist(reference, reference), _NEAREST, axis=1)[:, _NEAREST]  # each is its own nearest
    inside = cdist(reference, synthetic) <= radii[:, None]
    return float(inside.sum() / (_NEAREST * len(synthetic))), float(inside.any(axis=1).mean())


def _variety(seen: Points, labels: Labels, known: Points, known_labels: Labels) -> float | None:
    """Square root of the mean over classes of both of how much of the reference's spread the synthetic have."""
    ratios = []
    for label in np.intersect1d(labels, known_labels):
        spread, wanted = (
            float(points[which == label].var(axis=0).sum()) for points, which in ((seen, labels), (known, known_labels))
        )
        ratios += [spread / wanted] if wanted > 0 else []
    return float(np.sqrt(np.mean(ratios))) if ratios else None


def _features(
    synthetic: Records, reference: Records, backbone: str | None, device: torch.device
) -> tuple[str, Points, Points]:
    if not reference.schema.is_image:
        return "columns", _flat(synthetic), _flat(reference)
    name = backbone or BY_CHANNELS[reference.schema.shape[2]]
    looking = TunedBackbone(backbone_for(reference.schema, name), reference.schema, device)
    seen, known = (looking.features(Examples(records, None, device)) for records in (synthetic, reference))
    return Path(name).name, seen.double().cpu().numpy(), known.double().cpu().numpy()


def _flat(records: Records) -> Points:
    return np.concatenate([features for features, _ in records.batches()]).astype(np.float64)


def _some(records: Records, dice: np.random.Generator) -> Records:
    chosen = dice.permutation(len(records))[:_MOST_RECORDS]
    return records if len(records) <= _MOST_RECORDS else records.take(np.sort(chosen))
