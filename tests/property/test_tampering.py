"""Replayed, spliced and tampered: what is not, byte for byte, what a guard sealed for this query, is rejected."""

from __future__ import annotations

import hashlib
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf.message import Message
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.guards import SCHEMA, counts_query, ignore_progress, open_ledger, toy_guard

from silosynth.client.guard.identity import Identity
from silosynth.common.errors import BudgetExhausted, LedgerError, PolicyDenied, QueryError, VerificationFailed
from silosynth.common.events import SampledGaussian
from silosynth.common.queries import Mixtures, Query, SufficientStatistics, decode, digest, encode
from silosynth.common.releases import Receipt, entry_hash, open_release, pack_payload, seal, unseal
from silosynth.protos.v1 import release_pb2
from silosynth.server.assembly import _Intake

KEY, OTHER_KEY = (Identity(Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)) for seed in (1, 2))
COUNTS = counts_query(5.0)
MIXTURES = Mixtures(
    schema=SCHEMA,
    noise_multiplier=5.0,
    mixtures=2,
    sampling_probability=0.5,
    center=0.0,
    clip=1.0,
    count_weight=1.0,
)

STATISTICS = SufficientStatistics(
    schema=SCHEMA, noise_multiplier=50.0, center=0.0, clip=1.0, class_weight=1.0, count_weight=1.0
)


def payload_of(query: Query, seed: int = 0, grid: float | None = None, size: int | None = None) -> bytes:
    plan = query.plan()
    values = np.random.default_rng(seed).integers(-1000, 1000, plan.layout.size if size is None else size)
    return pack_payload(digest(query), plan.grid if grid is None else grid, values)


def receipt_of(query: Query, payload: bytes, key: Identity = KEY, **changes: Any) -> Receipt:
    """Signed and, but for `changes`, as a guard would have made it."""
    event = changes.get("event", query.event())
    fields: dict[str, Any] = {
        "silo": "toy",
        "dataset": "default",
        "query_digest": digest(query),
        "event": event,
        "payload_digest": hashlib.sha256(payload).digest(),
        "sequence": 1,
        "previous_hash": b"",
        "created": "2026-01-01T00:00:00+00:00",
    } | changes
    event_bytes = event.to_proto().SerializeToString(deterministic=True)
    hashed = ("previous_hash", "sequence", "dataset", "query_digest", "payload_digest", "created")
    link = entry_hash(event=event_bytes, previous=fields["previous_hash"], **{n: fields[n] for n in hashed[1:]})
    return key.sign(Receipt(**{"entry_hash": link, "public_key": key.public_key} | fields))


def sealed_of(query: Query, seed: int = 0, **changes: Any) -> bytes:
    payload = payload_of(query, seed)
    return seal(payload, receipt_of(query, payload, **changes))


SEALED = {query: sealed_of(query) for query in (COUNTS, MIXTURES)}


def assert_rejected(query: Query, sealed: bytes) -> None:
    with pytest.raises(VerificationFailed):
        open_release(query, sealed)


# --- releases


@pytest.mark.parametrize("query", SEALED)
def test_what_was_sealed_opens(query: Query) -> None:
    values, receipt = open_release(query, SEALED[query])
    assert (len(values), receipt.event) == (query.layout().size, query.event())


@pytest.mark.parametrize("query", SEALED)
def test_every_flipped_bit_and_every_cut_is_rejected(query: Query) -> None:
    sealed = SEALED[query]
    for position in range(8 * len(sealed)):
        flipped = bytearray(sealed)
        flipped[position // 8] ^= 1 << position % 8
        assert_rejected(query, bytes(flipped))
    for length in range(len(sealed)):
        assert_rejected(query, sealed[:length])
        assert_rejected(query, sealed[length:] if length else b"")


@given(st.sampled_from(list(SEALED)), st.data())
@settings(max_examples=300, deadline=None)
def test_inserted_removed_and_moved_bytes_are_rejected(query: Query, data: st.DataObject) -> None:
    sealed, other = SEALED[query], SEALED[COUNTS if query is MIXTURES else MIXTURES]
    start, stop = sorted(data.draw(st.tuples(st.integers(0, len(sealed)), st.integers(0, len(sealed)))))
    source = data.draw(st.sampled_from([sealed, other, b""]))
    cut = data.draw(st.integers(0, len(source)))
    filling = data.draw(st.one_of(st.binary(max_size=20), st.just(source[cut:]), st.just(source[:cut])))
    tampered = sealed[:start] + filling + sealed[stop:]
    assume(tampered != sealed)
    assert_rejected(query, tampered)


def test_receipt_and_payload_of_different_releases_are_rejected() -> None:
    """The same query answered by two silos, or by one silo for two datasets: halves do not fit together."""
    (one, receipt), (other, its_receipt) = (unseal(sealed_of(COUNTS, seed, key=KEY)) for seed in (1, 2))
    for payload, signed in ((one, its_receipt), (other, receipt)):
        assert_rejected(COUNTS, seal(payload, signed))
    assert_rejected(COUNTS, seal(payload_of(MIXTURES), receipt_of(COUNTS, payload_of(COUNTS))))


FORGERIES: dict[str, Callable[[Receipt], Receipt]] = {
    "another silo": lambda receipt: replace(receipt, silo="other"),
    "another dataset": lambda receipt: replace(receipt, dataset="other"),
    "another query": lambda receipt: replace(receipt, query_digest=digest(MIXTURES)),
    "a cheaper event": lambda receipt: replace(receipt, event=SampledGaussian(500.0)),
    "another payload": lambda receipt: replace(receipt, payload_digest=bytes(32)),
    "another place": lambda receipt: replace(receipt, sequence=2),
    "another past": lambda receipt: replace(receipt, previous_hash=bytes(32)),
    "another entry": lambda receipt: replace(receipt, entry_hash=bytes(32)),
    "another time": lambda receipt: replace(receipt, created="2020-01-01T00:00:00+00:00"),
    "another key": lambda receipt: replace(receipt, public_key=OTHER_KEY.public_key),
    "no key": lambda receipt: replace(receipt, public_key=b""),
    "no signature": lambda receipt: replace(receipt, signature=b""),
}


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
def test_altered_receipts_are_rejected(forgery: Callable[[Receipt], Receipt]) -> None:
    payload = payload_of(COUNTS)
    assert_rejected(COUNTS, seal(payload, forgery(receipt_of(COUNTS, payload))))


def test_a_signature_has_one_form() -> None:
    """Adding the group's order to a signature's second half gives another valid one where this is not checked."""
    order = 2**252 + 27742317777372353535851937790883648493
    payload = payload_of(COUNTS)
    receipt = receipt_of(COUNTS, payload)
    scalar = int.from_bytes(receipt.signature[32:], "little") + order
    twin = replace(receipt, signature=receipt.signature[:32] + scalar.to_bytes(32, "little"))
    assert_rejected(COUNTS, seal(payload, twin))


DISHONEST = {
    "a cheaper event": lambda: sealed_of(COUNTS, event=SampledGaussian(500.0)),
    "another query": lambda: sealed_of(COUNTS, query_digest=digest(MIXTURES)),
    "an entry that does not hash": lambda: sealed_of(COUNTS, entry_hash=bytes(32)),
    "an older form of the entry": lambda: sealed_of(COUNTS, sequence=2, entry_hash=receipt_of(COUNTS, b"").entry_hash),
    "another grid": lambda: _with_payload(payload_of(COUNTS, grid=2 * COUNTS.grid())),
    "no grid": lambda: _with_payload(payload_of(COUNTS, grid=0.0)),
    "one value more": lambda: _with_payload(payload_of(COUNTS, size=4)),
    "one value less": lambda: _with_payload(payload_of(COUNTS, size=2)),
    "no values": lambda: _with_payload(payload_of(COUNTS, size=0)),
    "values of two bytes": lambda: _with_payload(_payload(bytes_per_value=2, values=bytes(6))),
    "values of no bytes": lambda: _with_payload(_payload(bytes_per_value=0, values=b"")),
    "half a value": lambda: _with_payload(_payload(bytes_per_value=4, values=bytes(13))),
    "another query inside": lambda: _with_payload(_payload(query_digest=digest(MIXTURES))),
    "a field nobody knows inside": lambda: _with_payload(payload_of(COUNTS) + b"\xa0\x06\x01"),
    "no payload": lambda: _with_payload(b""),
}


def _payload(**changes: Any) -> bytes:
    fields = {"query_digest": digest(COUNTS), "grid": COUNTS.grid(), "bytes_per_value": 4, "values": bytes(12)}
    return release_pb2.Payload(**fields | changes).SerializeToString(deterministic=True)


def _with_payload(payload: bytes) -> bytes:
    return seal(payload, receipt_of(COUNTS, payload))


@pytest.mark.parametrize("sealed", DISHONEST.values(), ids=DISHONEST)
def test_a_silos_own_signature_does_not_make_it_right(sealed: Callable[[], bytes]) -> None:
    assert_rejected(COUNTS, sealed())


# --- protobuf takes one message in many forms: only one is ours


def _field(number: int, content: bytes) -> bytes:
    assert len(content) < 1 << 14
    size = bytes([len(content) & 0x7F | 0x80, len(content) >> 7])  # a varint longer than it need be, where short
    return bytes([number << 3 | 2]) + size + content


def _reforms(message: Message) -> dict[str, bytes]:
    """Other bytes that protobuf reads as the same message, or as the same with something added."""
    whole = message.SerializeToString(deterministic=True)
    (first, value), *_ = message.ListFields()
    head = type(message)(**{first.name: value}).SerializeToString()
    return {
        "unknown field": whole + b"\xa0\x06\x01",
        "unknown bytes": whole + b"\xa2\x06\x04leak",
        "repeated field": whole + head,
        "repeated field in front": head + whole,
        "another order": whole[len(head) :] + head,
        "another field first": type(message)(**{first.name: type(value)()}).SerializeToString() + b"\x0a\x00" + whole,
        "empty group": whole + b"\xa3\x06\xa4\x06",
    }


def _envelope(sealed: bytes = SEALED[COUNTS]) -> release_pb2.SealedRelease:
    return release_pb2.SealedRelease.FromString(sealed)


@pytest.mark.parametrize("form", _reforms(_envelope()))
def test_an_envelope_has_one_form(form: str) -> None:
    sealed = _reforms(_envelope())[form]
    assert release_pb2.SealedRelease.FromString(sealed).payload == _envelope().payload
    assert_rejected(COUNTS, sealed)


@pytest.mark.parametrize("form", _reforms(release_pb2.Receipt.FromString(_envelope().receipt)))
def test_a_receipt_has_one_form(form: str) -> None:
    receipt = _reforms(release_pb2.Receipt.FromString(_envelope().receipt))[form]
    assert release_pb2.Receipt.FromString(receipt).signature
    with pytest.raises(VerificationFailed):
        Receipt.from_bytes(receipt)
    sealed = release_pb2.SealedRelease(payload=_envelope().payload, receipt=receipt)
    assert_rejected(COUNTS, sealed.SerializeToString(deterministic=True))


def test_lengths_have_one_form() -> None:
    whole = _field(1, _envelope().payload) + _field(2, _envelope().receipt)
    assert release_pb2.SealedRelease.FromString(whole) == _envelope()
    assert_rejected(COUNTS, whole)


def test_reformed_envelope_in_a_ledger_is_refused(tmp_path: Path) -> None:
    """Else a stored answer could be given other bytes, with something added that nobody signed."""
    with closing(open_ledger(tmp_path)) as ledger:
        toy_guard(ledger).answer(encode(COUNTS), ignore_progress)
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as outsider:
        (trigger,) = outsider.execute("SELECT sql FROM sqlite_schema WHERE name = 'never_changed'").fetchone()
        outsider.execute("DROP TRIGGER never_changed")
        outsider.execute("UPDATE entries SET sealed = CAST(sealed || x'a20604' || 'leak' AS BLOB)")
        outsider.execute(trigger)
        outsider.commit()
    with pytest.raises(LedgerError, match="canonical"):
        open_ledger(tmp_path)


# --- replays


def test_a_release_for_another_query_is_rejected() -> None:
    closest = replace(MIXTURES, clip=np.nextafter(1.0, 2.0).item())
    assert closest.event() == MIXTURES.event()
    for asked in (COUNTS, closest, replace(MIXTURES, center=-0.0), replace(MIXTURES, noise_multiplier=5.000001)):
        assert_rejected(asked, SEALED[MIXTURES])


def accepting(query: Query, silo: str, key: Identity) -> _Intake:
    """The server's sum, with `silo` attending under `key`."""
    hello = SimpleNamespace(description=SimpleNamespace(public_key=key.public_key))
    exchange: Any = SimpleNamespace(hello=lambda name: hello if name == silo else None)
    return _Intake(query, exchange)


@pytest.mark.parametrize(
    ("sender", "key", "sealed"),
    [
        ("other", OTHER_KEY, sealed_of(COUNTS)),
        ("other", KEY, sealed_of(COUNTS)),
        ("toy", OTHER_KEY, sealed_of(COUNTS)),
        ("toy", KEY, sealed_of(COUNTS, key=OTHER_KEY)),
        ("toy", KEY, sealed_of(COUNTS, silo="other")),
        ("toy", KEY, sealed_of(MIXTURES)),
    ],
)
def test_the_server_adds_no_release_that_is_not_the_senders_own(sender: str, key: Identity, sealed: bytes) -> None:
    total = accepting(COUNTS, sender, key)
    with pytest.raises(VerificationFailed):
        total.accept(sender, sealed)
    summed = total.collected.all()
    assert (summed.silos, summed.blocks["counts"].any()) == (0, False)
    assert total.receipts == []


def test_the_server_adds_no_release_of_a_silo_that_never_came() -> None:
    total = accepting(COUNTS, "toy", KEY)
    with pytest.raises(VerificationFailed, match="not its own"):
        total.accept("absent", sealed_of(COUNTS, silo="absent"))
    assert total.receipts == []


# --- queries


def test_a_tampered_query_is_refused_or_charged_as_what_it_is(tmp_path: Path) -> None:
    """Every answer to mutated bytes has a row of its own and is charged as its own event."""
    rng = random.Random(11)
    charged: dict[bytes, bytes] = {}
    refused = 0
    with closing(open_ledger(tmp_path)) as ledger:
        guard = toy_guard(ledger, epsilon=50.0, max_values=1000)
        for _ in range(400):
            query = bytearray(encode(rng.choice([COUNTS, STATISTICS])))
            for _ in range(rng.choice([1, 1, 2])):
                query[rng.randrange(len(query))] ^= 1 << rng.randrange(8)
            try:
                charged[bytes(query)] = guard.answer(bytes(query), ignore_progress).sealed
            except (QueryError, PolicyDenied, BudgetExhausted):
                refused += 1
        assert guard.budget().releases == len(charged) == len(set(charged.values()))
    for asked, sealed in charged.items():
        _, receipt = open_release(decode(asked), sealed)
        assert (receipt.query_digest, receipt.event) == (digest(asked), decode(asked).event())
    print(f"\n400 tampered queries: {refused} refused, {len(charged)} other queries, each charged as what it is")
