"""A journal in plain words: what people read in `silosynth run watch` and on the dashboard."""

from __future__ import annotations

from silosynth.server.journal import Fact

_SENTENCES = {
    "gathering": "Inviting {silos}",
    "attending": "{silo} attends",
    "away": "{silo} lost the connection: waiting for it to redial",
    "planning": "Recipe {recipe} at eps {epsilon:g}, delta {delta:g} for each silo",
    "asking": "Round {round}: asking every silo for {mechanism}, {values:,} values (query {digest:.12})",
    "recalled": "Round {round}: {answered} silos had told {mechanism} before the run was interrupted",
    "fetching": "{silo} fetches a public file, {size}",
    "summed": "Round {round}: {answered} silos answered, {size}",
    "waiting_for_consent": "{silo} waits for its people to approve query {digest:.12}",
    "rolled_back": "{silo} is left out: {message}",
    "left_out": "{silo} is left out: {message}",
    "without": "Going on without {silo}: {message}",
    "synthesized": "{records:,} synthetic records",
    "evaluating": "Training {model} on the synthetic data",
    "evaluated": "Models trained on the synthetic data are right in {accuracy:.1%} of public test records",
    "compared": "{baseline}, for the same epsilon again, is right in {accuracy:.1%}",
    "not_compared": "Not compared with {baseline}: {message}",
    "scored": "{silos} silos scored the synthetic data on their own records, for a charge",
    "not_scored": "No silo scored the synthetic data: {message}",
    "released_dataset": "Released as {name}",
    "failed": "Failed: {message}",
    "finished": "The run is finished",
}


class Narrator:
    """Tells one run's journal, entry by entry: it remembers which round it is and what has come in so far."""

    def __init__(self) -> None:
        self._round, self._invited, self._bytes = 0, 0, 0

    def tell(self, entry: Fact) -> str | None:
        """An entry as a sentence; None for those that only move a bar."""
        try:
            return self._told(entry)
        except (KeyError, TypeError, ValueError):  # written by another version of silosynth
            return f"{entry['kind']}, in words this version does not know"

    def _told(self, entry: Fact) -> str | None:
        kind = entry["kind"]
        if kind == "gathering":
            self._invited = len(entry["silos"])
        elif kind in ("asking", "recalled"):
            self._round, self._bytes = self._round + 1, 0
        elif kind == "released":
            self._bytes += entry["bytes"]
        sentence = _SENTENCES.get(kind)
        return sentence.format(**entry | self._words(entry)) if sentence else None

    def _words(self, entry: Fact) -> Fact:
        silos = entry.get("silos")
        size = human_bytes(entry.get("bytes", self._bytes))
        words: Fact = {"round": self._round, "size": size, "answered": f"{silos} of {self._invited}"}
        return words | ({"silos": ", ".join(silos)} if isinstance(silos, list) else {})


def human_bytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.1f} kB"


def human_seconds(seconds: float) -> str:
    minutes = round(seconds / 60)
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"
