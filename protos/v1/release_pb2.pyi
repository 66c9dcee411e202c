from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Event(_message.Message):
    __slots__ = ("sampled_gaussian", "post_processing", "label_response")
    SAMPLED_GAUSSIAN_FIELD_NUMBER: _ClassVar[int]
    POST_PROCESSING_FIELD_NUMBER: _ClassVar[int]
    LABEL_RESPONSE_FIELD_NUMBER: _ClassVar[int]
    sampled_gaussian: SampledGaussian
    post_processing: PostProcessing
    label_response: LabelResponse
    def __init__(self, sampled_gaussian: _Optional[_Union[SampledGaussian, _Mapping]] = ..., post_processing: _Optional[_Union[PostProcessing, _Mapping]] = ..., label_response: _Optional[_Union[LabelResponse, _Mapping]] = ...) -> None: ...

class SampledGaussian(_message.Message):
    __slots__ = ("noise_multiplier", "sampling_probability", "count")
    NOISE_MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    noise_multiplier: float
    sampling_probability: float
    count: int
    def __init__(self, noise_multiplier: _Optional[float] = ..., sampling_probability: _Optional[float] = ..., count: _Optional[int] = ...) -> None: ...

class LabelResponse(_message.Message):
    __slots__ = ("noise_multiplier", "count")
    NOISE_MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    noise_multiplier: float
    count: int
    def __init__(self, noise_multiplier: _Optional[float] = ..., count: _Optional[int] = ...) -> None: ...

class PostProcessing(_message.Message):
    __slots__ = ("cost", "sources", "labels")
    COST_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    cost: SampledGaussian
    sources: _containers.RepeatedScalarFieldContainer[bytes]
    labels: LabelResponse
    def __init__(self, cost: _Optional[_Union[SampledGaussian, _Mapping]] = ..., sources: _Optional[_Iterable[bytes]] = ..., labels: _Optional[_Union[LabelResponse, _Mapping]] = ...) -> None: ...

class Payload(_message.Message):
    __slots__ = ("query_digest", "grid", "bytes_per_value", "values")
    QUERY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    GRID_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_VALUE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    query_digest: bytes
    grid: float
    bytes_per_value: int
    values: bytes
    def __init__(self, query_digest: _Optional[bytes] = ..., grid: _Optional[float] = ..., bytes_per_value: _Optional[int] = ..., values: _Optional[bytes] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("silo", "dataset", "query_digest", "event", "payload_digest", "sequence", "previous_hash", "entry_hash", "created", "public_key", "signature")
    SILO_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    QUERY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_HASH_FIELD_NUMBER: _ClassVar[int]
    ENTRY_HASH_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_KEY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    silo: str
    dataset: str
    query_digest: bytes
    event: Event
    payload_digest: bytes
    sequence: int
    previous_hash: bytes
    entry_hash: bytes
    created: str
    public_key: bytes
    signature: bytes
    def __init__(self, silo: _Optional[str] = ..., dataset: _Optional[str] = ..., query_digest: _Optional[bytes] = ..., event: _Optional[_Union[Event, _Mapping]] = ..., payload_digest: _Optional[bytes] = ..., sequence: _Optional[int] = ..., previous_hash: _Optional[bytes] = ..., entry_hash: _Optional[bytes] = ..., created: _Optional[str] = ..., public_key: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class SealedRelease(_message.Message):
    __slots__ = ("payload", "receipt")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    receipt: bytes
    def __init__(self, payload: _Optional[bytes] = ..., receipt: _Optional[bytes] = ...) -> None: ...
