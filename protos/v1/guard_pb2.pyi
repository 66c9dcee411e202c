from silosynth.protos.v1 import query_pb2 as _query_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Head(_message.Message):
    __slots__ = ("silo", "sequence", "hash", "public_key", "signature")
    SILO_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    silo: str
    sequence: int
    hash: bytes
    public_key: bytes
    signature: bytes
    def __init__(self, silo: _Optional[str] = ..., sequence: _Optional[int] = ..., hash: _Optional[bytes] = ..., public_key: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class DescribeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Description(_message.Message):
    __slots__ = ("silo", "dataset", "version", "schema", "mechanisms", "public_key", "head", "disjoint_from")
    SILO_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    MECHANISMS_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    DISJOINT_FROM_FIELD_NUMBER: _ClassVar[int]
    silo: str
    dataset: str
    version: str
    schema: _query_pb2.Schema
    mechanisms: _containers.RepeatedScalarFieldContainer[str]
    public_key: bytes
    head: Head
    disjoint_from: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, silo: _Optional[str] = ..., dataset: _Optional[str] = ..., version: _Optional[str] = ..., schema: _Optional[_Union[_query_pb2.Schema, _Mapping]] = ..., mechanisms: _Optional[_Iterable[str]] = ..., public_key: _Optional[bytes] = ..., head: _Optional[_Union[Head, _Mapping]] = ..., disjoint_from: _Optional[_Iterable[str]] = ...) -> None: ...

class BudgetRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BudgetStatus(_message.Message):
    __slots__ = ("epsilon_total", "epsilon_spent", "delta", "releases")
    EPSILON_TOTAL_FIELD_NUMBER: _ClassVar[int]
    EPSILON_SPENT_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    RELEASES_FIELD_NUMBER: _ClassVar[int]
    epsilon_total: float
    epsilon_spent: float
    delta: float
    releases: int
    def __init__(self, epsilon_total: _Optional[float] = ..., epsilon_spent: _Optional[float] = ..., delta: _Optional[float] = ..., releases: _Optional[int] = ...) -> None: ...

class Question(_message.Message):
    __slots__ = ("query",)
    QUERY_FIELD_NUMBER: _ClassVar[int]
    query: bytes
    def __init__(self, query: _Optional[bytes] = ...) -> None: ...

class Digests(_message.Message):
    __slots__ = ("digests",)
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    digests: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, digests: _Optional[_Iterable[str]] = ...) -> None: ...

class ArtifactPart(_message.Message):
    __slots__ = ("digest", "chunk")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    digest: str
    chunk: bytes
    def __init__(self, digest: _Optional[str] = ..., chunk: _Optional[bytes] = ...) -> None: ...

class Deposited(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AnswerPart(_message.Message):
    __slots__ = ("progress", "header", "chunk", "refusal")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    progress: Progress
    header: ReleaseHeader
    chunk: bytes
    refusal: Refusal
    def __init__(self, progress: _Optional[_Union[Progress, _Mapping]] = ..., header: _Optional[_Union[ReleaseHeader, _Mapping]] = ..., chunk: _Optional[bytes] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("phase", "fraction")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    FRACTION_FIELD_NUMBER: _ClassVar[int]
    phase: str
    fraction: float
    def __init__(self, phase: _Optional[str] = ..., fraction: _Optional[float] = ...) -> None: ...

class ReleaseHeader(_message.Message):
    __slots__ = ("size", "budget", "replayed", "head")
    SIZE_FIELD_NUMBER: _ClassVar[int]
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    size: int
    budget: BudgetStatus
    replayed: bool
    head: Head
    def __init__(self, size: _Optional[int] = ..., budget: _Optional[_Union[BudgetStatus, _Mapping]] = ..., replayed: bool = ..., head: _Optional[_Union[Head, _Mapping]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("error", "message")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    error: str
    message: str
    def __init__(self, error: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...
