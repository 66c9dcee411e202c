"""Queries that a silo answers to itself, for something that is made of the noisy answers.

Each is an entry of the ledger like any other: charged, drawn once, and answered with the same bytes when it is asked
again. So a guard that was killed in the middle goes on with the noise it had drawn. What is made of the answers is
post-processing: one more entry, which names theirs and adds no charge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from silosynth.client.guard.ledger import Answered
from silosynth.common.errors import QueryError, VerificationFailed
from silosynth.common.events import Event, PostProcessing, cost, left_of, within
from silosynth.common.queries import Query
from silosynth.common.releases import Integers, Receipt, open_release

Artifacts = Mapping[str, bytes]


@dataclass
class Inside:
    """Answers the inner queries of `outer`, in their order.

    `stored` finds what was answered before under an identity; `answer` computes, charges and stores, if all that is
    due from there to the end of the outer query fits the budget: what cannot be finished is not begun.
    """

    outer: Query
    stored: Callable[[bytes], Answered | None]
    answer: Callable[[Query, bytes, Artifacts, Event], Answered]
    receipts: list[Receipt] = field(default_factory=list)

    def ask(self, query: Query, artifacts: Artifacts) -> Integers:
        self._check(query)
        identity = self.outer.inner_identities()[len(self.receipts)]
        answered = self.stored(identity)
        if answered is None:
            left = left_of(self.outer.event(), self._paid())
            due = min(left, query.event(), key=lambda event: event.noise_multiplier)  # up to rounding they are the same
            answered = self.answer(query, identity, artifacts, due)
        try:
            values, receipt = open_release(query, answered.sealed, entered_as=identity)
        except VerificationFailed as error:
            raise QueryError(
                "this query was begun with other statistics, perhaps by another version of silosynth: they cannot be "
                "gone on with, and are not drawn again. Ask with another seed"
            ) from error
        self.receipts.append(receipt)
        return values

    def charge(self) -> PostProcessing:
        """Of what was made of all the answers."""
        if len(self.receipts) != len(self.outer.inner_identities()):
            raise QueryError(f"{len(self.receipts)} inner queries were asked, others than were announced")
        return PostProcessing(self.outer.event(), tuple(receipt.entry_hash for receipt in self.receipts))

    def _paid(self) -> list[Event]:
        return [cost(receipt.event) for receipt in self.receipts]

    def _check(self, query: Query) -> None:
        """The silo's people have allowed the outer query for what it says it costs and looks through."""
        if (
            len(self.receipts) >= len(self.outer.inner_identities())
            or not within([*self._paid(), query.event()], self.outer.event())
            or query.inner_identities()
            or query.schema != self.outer.schema
            or not set(query.backbones()) <= set(self.outer.backbones())
        ):
            raise QueryError(f"an inner query for {query.mechanism} is another than the outer one announces")
