"""A guard on a Unix socket that signs real releases of made-up values: for tests of the way between silo and server."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import grpc
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from silosynth.common import channels
from silosynth.common.heads import Head
from silosynth.common.queries import decode
from silosynth.common.releases import Receipt, entry_hash, pack_payload, seal
from silosynth.protos.v1 import guard_pb2
from silosynth.protos.v1.guard_pb2_grpc import GuardServicer, add_GuardServicer_to_server


class FakeGuard(GuardServicer):
    """Answers every query with `value` in each coordinate, the same bytes every time."""

    def __init__(self, silo: str, folder: Path, value: int = 1, seconds: float = 0.0) -> None:
        self.silo, self.value, self.seconds = silo, value, seconds
        self.refusal: guard_pb2.Refusal | None = None
        self.asked = 0
        self.releases = 0
        self.witnessed: list[Head] = []
        self.answering = threading.Event()
        self._key = Ed25519PrivateKey.generate()
        self.address = f"unix:{folder / silo}.sock"
        self._server = grpc.server(ThreadPoolExecutor(4), options=channels.OPTIONS)
        add_GuardServicer_to_server(self, self._server)
        self._server.add_insecure_port(self.address)
        self._server.start()

    def __enter__(self) -> FakeGuard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(0).wait()

    def Describe(self, request: guard_pb2.DescribeRequest, context: grpc.ServicerContext) -> guard_pb2.Description:  # noqa: N802
        public = self._key.public_key().public_bytes_raw()
        return guard_pb2.Description(silo=self.silo, dataset="fake", public_key=public, head=self.head().to_proto())

    def Budget(self, request: guard_pb2.BudgetRequest, context: grpc.ServicerContext) -> guard_pb2.BudgetStatus:  # noqa: N802
        return guard_pb2.BudgetStatus(epsilon_total=8.0, delta=1e-5)

    def Lacking(self, request: guard_pb2.Question, context: grpc.ServicerContext) -> guard_pb2.Digests:  # noqa: N802
        return guard_pb2.Digests()

    def Answer(self, request: guard_pb2.Question, context: grpc.ServicerContext) -> Iterator[guard_pb2.AnswerPart]:  # noqa: N802
        self.asked += 1
        self.answering.set()
        if self.refusal is not None:
            yield guard_pb2.AnswerPart(refusal=self.refusal)
            return
        yield guard_pb2.AnswerPart(progress=guard_pb2.Progress(phase="computing", fraction=0.5))
        time.sleep(self.seconds)
        sealed = self.sealed(request.query)
        self.releases = max(self.releases, 1)
        header = guard_pb2.ReleaseHeader(size=len(sealed), replayed=self.asked > 1, head=self.head().to_proto())
        yield guard_pb2.AnswerPart(header=header)
        for start in range(0, len(sealed), channels.CHUNK_BYTES):
            yield guard_pb2.AnswerPart(chunk=sealed[start : start + channels.CHUNK_BYTES])

    def Witness(self, request: guard_pb2.Head, context: grpc.ServicerContext) -> guard_pb2.Head:  # noqa: N802
        self.witnessed.append(Head.from_proto(request))
        return self.head().to_proto()

    def head(self) -> Head:
        """Of a ledger that has `releases` entries, or says so."""
        public, entry = self._key.public_key().public_bytes_raw(), bytes([self.releases]) * 32 if self.releases else b""
        head = Head(self.silo, self.releases, entry, public)
        return replace(head, signature=self._key.sign(head.signed_bytes()))

    def sealed(self, query_bytes: bytes) -> bytes:
        plan, identity = decode(query_bytes).plan(), hashlib.sha256(query_bytes).digest()
        payload = pack_payload(identity, plan.grid, np.full(plan.layout.size, self.value, dtype=np.int64))
        event = plan.event.to_proto().SerializeToString(deterministic=True)
        digest = hashlib.sha256(payload).digest()
        link = entry_hash(b"", 1, "fake", identity, event, digest, "now")
        public = self._key.public_key().public_bytes_raw()
        receipt = Receipt(self.silo, "fake", identity, plan.event, digest, 1, b"", link, "now", public)
        signature = self._key.sign(receipt.signed_bytes())
        return seal(payload, Receipt(**{**receipt.__dict__, "signature": signature}))
