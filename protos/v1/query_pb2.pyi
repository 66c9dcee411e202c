from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Schema(_message.Message):
    __slots__ = ("shape", "classes")
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    CLASSES_FIELD_NUMBER: _ClassVar[int]
    shape: _containers.RepeatedScalarFieldContainer[int]
    classes: int
    def __init__(self, shape: _Optional[_Iterable[int]] = ..., classes: _Optional[int] = ...) -> None: ...

class Query(_message.Message):
    __slots__ = ("schema", "noise_multiplier", "class_counts", "mixtures", "sufficient_statistics")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    NOISE_MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    CLASS_COUNTS_FIELD_NUMBER: _ClassVar[int]
    MIXTURES_FIELD_NUMBER: _ClassVar[int]
    SUFFICIENT_STATISTICS_FIELD_NUMBER: _ClassVar[int]
    schema: Schema
    noise_multiplier: float
    class_counts: ClassCounts
    mixtures: Mixtures
    sufficient_statistics: SufficientStatistics
    def __init__(self, schema: _Optional[_Union[Schema, _Mapping]] = ..., noise_multiplier: _Optional[float] = ..., class_counts: _Optional[_Union[ClassCounts, _Mapping]] = ..., mixtures: _Optional[_Union[Mixtures, _Mapping]] = ..., sufficient_statistics: _Optional[_Union[SufficientStatistics, _Mapping]] = ...) -> None: ...

class ClassCounts(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Mixtures(_message.Message):
    __slots__ = ("mixtures", "sampling_probability", "center", "clip", "count_weight")
    MIXTURES_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    CENTER_FIELD_NUMBER: _ClassVar[int]
    CLIP_FIELD_NUMBER: _ClassVar[int]
    COUNT_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    mixtures: int
    sampling_probability: float
    center: float
    clip: float
    count_weight: float
    def __init__(self, mixtures: _Optional[int] = ..., sampling_probability: _Optional[float] = ..., center: _Optional[float] = ..., clip: _Optional[float] = ..., count_weight: _Optional[float] = ...) -> None: ...

class SufficientStatistics(_message.Message):
    __slots__ = ("center", "clip", "class_weight", "count_weight")
    CENTER_FIELD_NUMBER: _ClassVar[int]
    CLIP_FIELD_NUMBER: _ClassVar[int]
    CLASS_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    COUNT_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    center: float
    clip: float
    class_weight: float
    count_weight: float
    def __init__(self, center: _Optional[float] = ..., clip: _Optional[float] = ..., class_weight: _Optional[float] = ..., count_weight: _Optional[float] = ...) -> None: ...
