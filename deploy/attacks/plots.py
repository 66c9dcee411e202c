"""ROC curves on logarithmic axes: what matters is who is recognized with hardly any false alarm."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from silosynth.server.attacks.claims import known
from silosynth.server.attacks.report import AttackReport
from silosynth.server.evaluation.plots import INK, QUIET, WEAK, save_figure

_STYLES = {"lira": (INK, "-"), "density": (WEAK, "--"), "nearest": ("black", ":")}
_LEAST = 1e-3


def plot_attacks(report: AttackReport, stem: Path) -> tuple[Path, Path]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "silosynth", "font.size": 9}):
        figure = Figure(figsize=(5.4, 4.6), layout="constrained")
        axes = figure.subplots()
        rates = np.geomspace(_LEAST, 1, 100)
        if (claim := known(report.claims, report.epsilon_claimed, report.delta)) is not None:
            most = [claim.allowed(rate) for rate in rates]
            axes.fill_between(
                rates, most, 1, color=QUIET, alpha=0.4, label=f"refutes epsilon {report.epsilon_claimed:g}"
            )
        axes.plot(rates, rates, color=QUIET, label="guessing")
        for found in report.membership:
            colour, line = _STYLES[found.attack]
            points = [(point.false_positive_rate, point.true_positive_rate) for point in found.roc]
            name = f"{found.attack}, area {found.area:.3f}"
            axes.step(*zip(*points, strict=True), where="post", color=colour, linestyle=line, label=name)
        axes.set(xscale="log", yscale="log", xlim=(_LEAST, 1), ylim=(_LEAST, 1))
        axes.set(xlabel="false positives", ylabel="true positives", title=_title(report))
        axes.legend(loc="lower right")
        return save_figure(figure, stem)


def _title(report: AttackReport) -> str:
    claim = "no privacy" if report.epsilon_claimed is None else f"epsilon {report.epsilon_claimed:g}"
    return f"Who took part? {report.recipe} on {report.data}, {claim}, {report.runs} runs"
