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
    __slots__ = ("schema", "noise_multiplier", "class_counts", "mixtures", "sufficient_statistics", "moments", "feature_sums", "local_synthesis", "scores", "private_training", "teacher_answers", "label_training", "gradient_sums", "votes")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    NOISE_MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    CLASS_COUNTS_FIELD_NUMBER: _ClassVar[int]
    MIXTURES_FIELD_NUMBER: _ClassVar[int]
    SUFFICIENT_STATISTICS_FIELD_NUMBER: _ClassVar[int]
    MOMENTS_FIELD_NUMBER: _ClassVar[int]
    FEATURE_SUMS_FIELD_NUMBER: _ClassVar[int]
    LOCAL_SYNTHESIS_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    PRIVATE_TRAINING_FIELD_NUMBER: _ClassVar[int]
    TEACHER_ANSWERS_FIELD_NUMBER: _ClassVar[int]
    LABEL_TRAINING_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_SUMS_FIELD_NUMBER: _ClassVar[int]
    VOTES_FIELD_NUMBER: _ClassVar[int]
    schema: Schema
    noise_multiplier: float
    class_counts: ClassCounts
    mixtures: Mixtures
    sufficient_statistics: SufficientStatistics
    moments: Moments
    feature_sums: FeatureSums
    local_synthesis: LocalSynthesis
    scores: Scores
    private_training: PrivateTraining
    teacher_answers: TeacherAnswers
    label_training: LabelTraining
    gradient_sums: GradientSums
    votes: Votes
    def __init__(self, schema: _Optional[_Union[Schema, _Mapping]] = ..., noise_multiplier: _Optional[float] = ..., class_counts: _Optional[_Union[ClassCounts, _Mapping]] = ..., mixtures: _Optional[_Union[Mixtures, _Mapping]] = ..., sufficient_statistics: _Optional[_Union[SufficientStatistics, _Mapping]] = ..., moments: _Optional[_Union[Moments, _Mapping]] = ..., feature_sums: _Optional[_Union[FeatureSums, _Mapping]] = ..., local_synthesis: _Optional[_Union[LocalSynthesis, _Mapping]] = ..., scores: _Optional[_Union[Scores, _Mapping]] = ..., private_training: _Optional[_Union[PrivateTraining, _Mapping]] = ..., teacher_answers: _Optional[_Union[TeacherAnswers, _Mapping]] = ..., label_training: _Optional[_Union[LabelTraining, _Mapping]] = ..., gradient_sums: _Optional[_Union[GradientSums, _Mapping]] = ..., votes: _Optional[_Union[Votes, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("center", "clip", "class_weight", "count_weight", "backbone", "features", "centers", "sums_only")
    CENTER_FIELD_NUMBER: _ClassVar[int]
    CLIP_FIELD_NUMBER: _ClassVar[int]
    CLASS_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    COUNT_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    BACKBONE_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    CENTERS_FIELD_NUMBER: _ClassVar[int]
    SUMS_ONLY_FIELD_NUMBER: _ClassVar[int]
    center: float
    clip: float
    class_weight: float
    count_weight: float
    backbone: str
    features: int
    centers: str
    sums_only: bool
    def __init__(self, center: _Optional[float] = ..., clip: _Optional[float] = ..., class_weight: _Optional[float] = ..., count_weight: _Optional[float] = ..., backbone: _Optional[str] = ..., features: _Optional[int] = ..., centers: _Optional[str] = ..., sums_only: bool = ...) -> None: ...

class Moments(_message.Message):
    __slots__ = ("backbone", "layers", "global_dimension", "class_dimension", "class_layers", "pseudo_classes", "classes_per_pseudo_class", "seed", "clip", "count_weight", "center")
    BACKBONE_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_DIMENSION_FIELD_NUMBER: _ClassVar[int]
    CLASS_DIMENSION_FIELD_NUMBER: _ClassVar[int]
    CLASS_LAYERS_FIELD_NUMBER: _ClassVar[int]
    PSEUDO_CLASSES_FIELD_NUMBER: _ClassVar[int]
    CLASSES_PER_PSEUDO_CLASS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    CLIP_FIELD_NUMBER: _ClassVar[int]
    COUNT_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    CENTER_FIELD_NUMBER: _ClassVar[int]
    backbone: str
    layers: int
    global_dimension: int
    class_dimension: int
    class_layers: int
    pseudo_classes: int
    classes_per_pseudo_class: int
    seed: int
    clip: float
    count_weight: float
    center: str
    def __init__(self, backbone: _Optional[str] = ..., layers: _Optional[int] = ..., global_dimension: _Optional[int] = ..., class_dimension: _Optional[int] = ..., class_layers: _Optional[int] = ..., pseudo_classes: _Optional[int] = ..., classes_per_pseudo_class: _Optional[int] = ..., seed: _Optional[int] = ..., clip: _Optional[float] = ..., count_weight: _Optional[float] = ..., center: _Optional[str] = ...) -> None: ...

class FeatureSums(_message.Message):
    __slots__ = ("first", "signals", "sampling_probability", "network", "width", "seed", "augmentation", "projected", "auxiliary", "clip", "count_weight", "length_scale", "weights")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SIGNALS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    AUGMENTATION_FIELD_NUMBER: _ClassVar[int]
    PROJECTED_FIELD_NUMBER: _ClassVar[int]
    AUXILIARY_FIELD_NUMBER: _ClassVar[int]
    CLIP_FIELD_NUMBER: _ClassVar[int]
    COUNT_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    LENGTH_SCALE_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    first: int
    signals: int
    sampling_probability: float
    network: str
    width: int
    seed: int
    augmentation: str
    projected: int
    auxiliary: str
    clip: float
    count_weight: float
    length_scale: float
    weights: str
    def __init__(self, first: _Optional[int] = ..., signals: _Optional[int] = ..., sampling_probability: _Optional[float] = ..., network: _Optional[str] = ..., width: _Optional[int] = ..., seed: _Optional[int] = ..., augmentation: _Optional[str] = ..., projected: _Optional[int] = ..., auxiliary: _Optional[str] = ..., clip: _Optional[float] = ..., count_weight: _Optional[float] = ..., length_scale: _Optional[float] = ..., weights: _Optional[str] = ...) -> None: ...

class LocalSynthesis(_message.Message):
    __slots__ = ("backbone", "questions", "images_per_class", "labels", "seed", "settings")
    BACKBONE_FIELD_NUMBER: _ClassVar[int]
    QUESTIONS_FIELD_NUMBER: _ClassVar[int]
    IMAGES_PER_CLASS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    backbone: str
    questions: int
    images_per_class: int
    labels: str
    seed: int
    settings: str
    def __init__(self, backbone: _Optional[str] = ..., questions: _Optional[int] = ..., images_per_class: _Optional[int] = ..., labels: _Optional[str] = ..., seed: _Optional[int] = ..., settings: _Optional[str] = ...) -> None: ...

class Scores(_message.Message):
    __slots__ = ("model",)
    MODEL_FIELD_NUMBER: _ClassVar[int]
    model: str
    def __init__(self, model: _Optional[str] = ...) -> None: ...

class PrivateTraining(_message.Message):
    __slots__ = ("network", "backbone", "seed", "steps", "features", "sampling_probability", "clip")
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    BACKBONE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    CLIP_FIELD_NUMBER: _ClassVar[int]
    network: str
    backbone: str
    seed: int
    steps: int
    features: int
    sampling_probability: float
    clip: float
    def __init__(self, network: _Optional[str] = ..., backbone: _Optional[str] = ..., seed: _Optional[int] = ..., steps: _Optional[int] = ..., features: _Optional[int] = ..., sampling_probability: _Optional[float] = ..., clip: _Optional[float] = ...) -> None: ...

class LabelTraining(_message.Message):
    __slots__ = ("network", "backbone", "seed", "steps", "features")
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    BACKBONE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    network: str
    backbone: str
    seed: int
    steps: int
    features: int
    def __init__(self, network: _Optional[str] = ..., backbone: _Optional[str] = ..., seed: _Optional[int] = ..., steps: _Optional[int] = ..., features: _Optional[int] = ...) -> None: ...

class TeacherAnswers(_message.Message):
    __slots__ = ("inputs", "number", "answers", "kept", "other_weight", "teachers", "parts", "network", "backbone", "seed", "steps", "sampling_probability", "clip", "features")
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    OTHER_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    TEACHERS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    NETWORK_FIELD_NUMBER: _ClassVar[int]
    BACKBONE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    CLIP_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    inputs: str
    number: int
    answers: str
    kept: int
    other_weight: float
    teachers: str
    parts: int
    network: str
    backbone: str
    seed: int
    steps: int
    sampling_probability: float
    clip: float
    features: int
    def __init__(self, inputs: _Optional[str] = ..., number: _Optional[int] = ..., answers: _Optional[str] = ..., kept: _Optional[int] = ..., other_weight: _Optional[float] = ..., teachers: _Optional[str] = ..., parts: _Optional[int] = ..., network: _Optional[str] = ..., backbone: _Optional[str] = ..., seed: _Optional[int] = ..., steps: _Optional[int] = ..., sampling_probability: _Optional[float] = ..., clip: _Optional[float] = ..., features: _Optional[int] = ...) -> None: ...

class GradientSums(_message.Message):
    __slots__ = ("width", "weights", "sampling_probability", "clip")
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    CLIP_FIELD_NUMBER: _ClassVar[int]
    width: int
    weights: str
    sampling_probability: float
    clip: float
    def __init__(self, width: _Optional[int] = ..., weights: _Optional[str] = ..., sampling_probability: _Optional[float] = ..., clip: _Optional[float] = ...) -> None: ...

class Votes(_message.Message):
    __slots__ = ("backbone", "features", "candidates", "per_class", "views")
    BACKBONE_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    PER_CLASS_FIELD_NUMBER: _ClassVar[int]
    VIEWS_FIELD_NUMBER: _ClassVar[int]
    backbone: str
    features: int
    candidates: str
    per_class: int
    views: int
    def __init__(self, backbone: _Optional[str] = ..., features: _Optional[int] = ..., candidates: _Optional[str] = ..., per_class: _Optional[int] = ..., views: _Optional[int] = ...) -> None: ...
