"""How a recipe of several parts divides its budget: by shares of mu^2, as Gaussian differential privacy composes.

That plan only says how the parts relate; how much noise all of them need follows from the exact accounting of their
events together. (The paper's Theorem 2 is printed upside down, and its limit theorem under-reports: paper-notes.md,
error 6. No noise is chosen by looking at private scores.)
"""

from __future__ import annotations

import math

from silosynth.common.accounting import of_few_digits


def gaussian_noise(mu: float) -> float:
    """z of one Gaussian mechanism that is mu-GDP."""
    return 1 / mu


def sampled_noise(mu: float, sampling_probability: float, count: int) -> float:
    """z at which `count` Gaussian mechanisms on Poisson samples are about mu-GDP: ln(1 + mu^2 / (T p^2))^(-1/2)."""
    return 1 / math.sqrt(math.log1p(mu**2 / (count * sampling_probability**2)))


def shares_of(weights: dict[str, float]) -> dict[str, float]:
    """mu of each part relative to the whole's; parts of weight 0 have none."""
    total = sum(weights.values())
    return {name: math.sqrt(weight / total) for name, weight in weights.items() if weight > 0}


def divided(whole: float, weights: dict[str, float], sampled: dict[str, tuple[float, int]]) -> dict[str, float]:
    """z of each part, if all of them shall cost about what one Gaussian mechanism at z = `whole` does.

    `sampled` has Poisson rate and count of those that are no single Gaussian mechanism.
    """
    shares = shares_of(weights)
    if whole == 0:
        return dict.fromkeys(shares, 0.0)
    noises = {
        name: sampled_noise(share / whole, *sampled[name]) if name in sampled else gaussian_noise(share / whole)
        for name, share in shares.items()
    }
    return {name: of_few_digits(noise) for name, noise in noises.items()}
