"""Splits one dataset among simulated silos: evenly, skewed by class or by size.

Every partitioner returns one ascending array of indices per silo; together they hold every record once. The same
seed gives the same split. No silo stays empty while another has two records.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from silosynth.common.errors import ConfigError

Indices = npt.NDArray[np.int64]
Labels = npt.NDArray[np.integer]
Shares = npt.NDArray[np.float64]

SMALLEST_ALPHA = 1e-3
KINDS = '"iid", "dirichlet:<alpha>" (such as dirichlet:0.5), "classes", "powerlaw:<exponent>" (such as powerlaw:1.5)'


def partition(kind: str, labels: Labels, silos: int, seed: int) -> list[Indices]:
    match kind.split(":"):
        case ["iid"]:
            return iid(labels, silos, seed)
        case ["classes"]:
            return by_class(labels, silos, seed)
        case ["dirichlet", alpha]:
            return dirichlet(labels, silos, seed, _number(kind, alpha))
        case ["powerlaw", exponent]:
            return power_law(labels, silos, seed, _number(kind, exponent))
    raise ConfigError(f"unknown partition {kind!r}: choose one of {KINDS}")


def iid(labels: Labels, silos: int, seed: int) -> list[Indices]:
    """Equal sizes, classes at random."""
    return power_law(labels, silos, seed, exponent=0)


def power_law(labels: Labels, silos: int, seed: int, exponent: float) -> list[Indices]:
    """Silo k, counted from 1, gets a share proportional to k^-exponent, classes at random."""
    _check(labels, silos, seed)
    if not 0 <= exponent < math.inf:
        raise ConfigError(f"a power law's exponent must be 0 or more, not {exponent}")
    weights = np.arange(1, silos + 1, dtype=np.float64) ** -exponent
    return _deal(np.zeros(len(labels), dtype=np.int64), (weights / weights.sum())[None], np.random.default_rng(seed))


def dirichlet(labels: Labels, silos: int, seed: int, alpha: float) -> list[Indices]:
    """Each class is shared out in proportions drawn from Dirichlet(alpha): the smaller alpha, the more skewed."""
    _check(labels, silos, seed)
    if not SMALLEST_ALPHA <= alpha < math.inf:
        raise ConfigError(f"Dirichlet's alpha must be at least {SMALLEST_ALPHA}, not {alpha}")
    rng = np.random.default_rng(seed)
    classes, groups = np.unique(labels, return_inverse=True)
    return _deal(groups, rng.dirichlet(np.full(silos, alpha), size=len(classes)), rng)


def by_class(labels: Labels, silos: int, seed: int) -> list[Indices]:
    """Every silo holds one class; with fewer silos than classes, whole classes in turn."""
    _check(labels, silos, seed)
    classes, groups = np.unique(labels, return_inverse=True)
    rows, columns = np.arange(len(classes))[:, None], np.arange(silos)
    holds = rows == columns % max(len(classes), 1) if silos > len(classes) else rows % silos == columns
    return _deal(groups, holds / holds.sum(axis=1, keepdims=True), np.random.default_rng(seed))


def _deal(groups: Indices, shares: Shares, rng: np.random.Generator) -> list[Indices]:
    """Gives silo s the fraction shares[g, s] of group g, records at random."""
    totals = np.bincount(groups, minlength=len(shares))
    edges = np.rint(np.cumsum(shares, axis=1) * totals[:, None]).astype(np.int64)
    edges[:, -1] = totals
    counts = _fill_empty(np.diff(np.minimum(edges, totals[:, None]), axis=1, prepend=0))
    shuffled = rng.permutation(len(groups))
    by_group = shuffled[np.argsort(groups[shuffled], kind="stable")]
    owners = np.empty(len(groups), dtype=np.int64)
    owners[by_group] = np.repeat(np.tile(np.arange(counts.shape[1]), len(counts)), counts.ravel())
    return np.split(np.argsort(owners, kind="stable"), np.cumsum(counts.sum(axis=0))[:-1])


def _fill_empty(counts: Indices) -> Indices:
    """Moves one record from the largest silo to each empty one, while the largest has one to spare."""
    sizes = counts.sum(axis=0)
    for empty in np.flatnonzero(sizes == 0):
        giver = sizes.argmax()
        if sizes[giver] < 2:
            break
        group = counts[:, giver].argmax()
        counts[group, [giver, empty]] += (-1, 1)
        sizes[[giver, empty]] += (-1, 1)
    return counts


def _check(labels: Labels, silos: int, seed: int) -> None:
    if labels.ndim != 1:
        raise ConfigError(f"labels must be one number for each record, not of shape {labels.shape}")
    if silos < 1 or seed < 0:
        raise ConfigError(f"{silos} silos and seed {seed}: there must be at least one silo, and no negative seed")


def _number(kind: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"partition {kind!r}: {text!r} is not a number; choose one of {KINDS}") from None
