"""A report of attacks for people, and on disk."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from silosynth.deploy.attacks.plots import plot_attacks
from silosynth.server.attacks.report import AttackReport, Rate

ATTACKS = "attacks"


def write_report(report: AttackReport, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{ATTACKS}.json").write_text(report.model_dump_json(indent=2) + "\n")
    plot_attacks(report, folder / ATTACKS)


def as_tables(report: AttackReport) -> tuple[Table, Table]:
    attacks = Table(
        "attack", "area", "found at 0.1 % false alarms", "at 1 %", "refutes the claim", title="who took part?"
    )
    for found in report.membership:
        low, high = found.area_interval
        rates = [_rate(found.tpr_at_0_1_percent), _rate(found.tpr_at_1_percent)]
        attacks.add_row(found.attack, f"{found.area:.3f} ({low:.3f} to {high:.3f})", *rates, _yes(found.flagged))
    audits = Table(
        "query", "audit", "right", "epsilon at least", "claimed", "would find noise / 3", "refutes the claim"
    )
    audits.title = "what is epsilon really?"
    if report.not_audited:
        audits.caption = f"asked as well, but no noisy sums that could be audited: {', '.join(report.not_audited)}"
    for audit in report.audits:
        claimed = "none" if audit.epsilon_claimed is None else f"{audit.epsilon_claimed:.2f} at delta {audit.delta:g}"
        power = "" if audit.power is None else f"{100 * audit.power.share:.0f} %"
        right = f"{audit.correct} of {audit.guesses}"
        cells = (audit.mechanism, audit.method, right, f"{audit.epsilon_lower:.2f}", claimed, power)
        audits.add_row(*cells, _yes(audit.flagged))
    return attacks, audits


def _rate(rate: Rate | None) -> str:
    if rate is None:
        return "too few records"
    return f"{100 * rate.value:.2f} % ({100 * rate.low:.2f} to {100 * rate.high:.2f})"


def _yes(flagged: bool) -> str:
    return "[red]YES[/]" if flagged else "no"
