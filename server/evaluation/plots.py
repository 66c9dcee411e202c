"""An evaluation as a picture: accuracy between floor and ceiling, class by class, and how sure the models are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from silosynth.server.evaluation.report import Evaluation

if TYPE_CHECKING:  # it takes seconds to import
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURE = "evaluation"
INK, QUIET, WEAK = "#20618d", "#b8c4cc", "#c8553d"  # told apart by the colour-blind, and in grey


def save_figure(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """As PNG and as SVG; the same content gives the same bytes."""
    paths = stem.with_name(f"{stem.name}.png"), stem.with_name(f"{stem.name}.svg")
    for path in paths:
        figure.savefig(path, dpi=120, metadata={"Software" if path.suffix == ".png" else "Date": None})
    return paths


def plot_evaluation(evaluation: Evaluation, classes: Sequence[str], stem: Path) -> tuple[Path, Path]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "silosynth", "font.size": 9}):
        figure = Figure(figsize=(11, 3.6), layout="constrained")
        ladder, by_class, reliability = figure.subplots(1, 3, width_ratios=(1.2, 1.2, 1))
        _ladder(ladder, evaluation)
        _by_class(by_class, evaluation, classes)
        _reliability(reliability, evaluation)
        return save_figure(figure, stem)


def _ladder(axes: Axes, evaluation: Evaluation) -> None:
    """Everything that was tested on the same records, worst first; the headline stands out."""
    others = {"always the largest class": evaluation.floor, **_others(evaluation)}
    headline = f"trained on this data ({evaluation.model})"
    steps = sorted([*others.items(), (headline, evaluation.accuracy)], key=lambda step: step[1])
    names, shares = [name for name, _ in steps], [100 * share for _, share in steps]
    axes.barh(names, shares, color=[INK if name == headline else QUIET for name in names])
    for place, share in enumerate(shares):
        axes.text(119, place, f"{share:.1f}", horizontalalignment="right", verticalalignment="center")
    if evaluation.accuracy_interval is not None:
        ends = evaluation.accuracy_interval
        axes.plot([100 * ends.low, 100 * ends.high], [names.index(headline)] * 2, color="black", linewidth=1.5)
    axes.set(title="Accuracy on public test records", xlabel="per cent", xlim=(0, 120))


def _others(evaluation: Evaluation) -> dict[str, float]:
    known = {name: score.accuracy for name, score in evaluation.by_architecture.items() if name != evaluation.model}
    known |= {f"{name} (baseline)": found.accuracy for name, found in evaluation.baselines.items()}
    optional = {
        "all seeds together": evaluation.accuracy_ensemble,
        "all models together": evaluation.accuracy_ensemble_of_architectures,
        "the recipe's own classifier": evaluation.own_classifier_accuracy,
        "real data, not private": evaluation.ceiling,
    }
    return known | {name: share for name, share in optional.items() if share is not None}


def _by_class(axes: Axes, evaluation: Evaluation, classes: Sequence[str]) -> None:
    shares = [100 * (share or 0.0) for share in evaluation.accuracy_by_class]
    colours = [WEAK if label == evaluation.worst_class else INK for label in range(len(shares))]
    axes.bar(range(len(shares)), shares, color=colours)
    if len(shares) <= 30:  # more names would overlap
        axes.set_xticks(range(len(shares)), [name[:12] for name in classes], rotation=0 if len(shares) <= 10 else 90)
    worst = f"worst: {classes[evaluation.worst_class]}, {100 * evaluation.worst_class_accuracy:.1f}"
    axes.set(title=f"Accuracy by class ({worst})", xlabel="class", ylabel="per cent", ylim=(0, 100))


def _reliability(axes: Axes, evaluation: Evaluation) -> None:
    axes.plot([0, 100], [0, 100], color=QUIET, linestyle="--")
    axes.set(xlabel="how sure, per cent", ylabel="how often right, per cent", xlim=(0, 100), ylim=(0, 100))
    found = evaluation.calibration
    if found is None:
        axes.set(title="Calibration: not measured")
        return
    sure, right = ([100 * getattr(part, name) for part in found.bins] for name in ("confidence", "accuracy"))
    axes.plot(sure, right, color=INK, linewidth=1)
    axes.scatter(sure, right, s=[10 + 200 * part.share for part in found.bins], color=INK)
    axes.set(title=f"Calibration (expected error {100 * found.expected_error:.1f})")
