"""Teacher answers: what classifiers trained in a silo say about synthetic inputs (DPSD, FedDPSD)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from scipy.special import ndtri

from silosynth.common.events import Event, SampledGaussian
from silosynth.common.layout import Layout
from silosynth.common.queries.base import Query, Response, encode, in_range, inner_identity, length, require
from silosynth.common.queries.label_training import LabelTraining
from silosynth.common.queries.private_training import PrivateTraining
from silosynth.common.queries.training import check_network, check_training

TRAINED_PRIVATELY = ("dp-sgd", "label-dp")
KINDS = ("plain", "sub-teachers", *TRAINED_PRIVATELY)
ANSWERS = ("probabilities", "gradients", "classes")
MOST_INPUTS = 1 << 16
MOST_PARTS = 1 << 10
ANSWER_GRID = 2.0**-12

_SHARED = ("schema", "noise_multiplier", "network", "backbone", "seed", "steps", "features")  # with training
_BISECTIONS = 200


@dataclass(frozen=True, kw_only=True)
class TeacherAnswers(Query):
    """For each of `number` inputs, beside the student's probabilities: the teacher's own, a gradient or a class.

    Probabilities are summed over the silo's teachers, and so are gradients. A gradient is that of the decoupled
    distillation loss with regard to the student's logits, its `kept` largest coordinates cut to length 1 (the paper's
    beta: whoever asks multiplies by it). A class is the teacher's, told by randomized response among the `kept` that
    the student finds most probable.

    What is protected depends on the teachers. A plain one may change altogether: the guarantee is for all records of
    the silo together, hence also for each. Of sub-teachers on disjoint parts of the records one record changes one.
    What a teacher trained by DP-SGD says costs nothing beyond its training, which all queries for it share. So it is
    with one trained on labels by randomized response, which protects labels only.
    """

    mechanism: ClassVar[str] = "teacher_answers"

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

    def __post_init__(self) -> None:
        require(1 <= self.number <= MOST_INPUTS, f"{self.number} inputs are not in 1..{MOST_INPUTS}")
        self._check_answers()
        self._check_teachers()
        super().__post_init__()

    def _check_answers(self) -> None:
        classes = self.schema.classes
        require(self.answers in ANSWERS, f"answers {self.answers[:80]!r} are none of {', '.join(ANSWERS)}")
        fewest = classes if self.answers == "probabilities" else 2
        require(fewest <= self.kept <= classes, f"{self.kept} kept of {classes} classes are not in {fewest}..{classes}")
        gradients = self.answers == "gradients"
        require(in_range(self.other_weight, 0, 1e3), f"other weight {self.other_weight} is not in [0, 1000]")
        require(gradients or self.other_weight == 0, "a weight of other classes is for gradients only")
        require(self.answers != "classes" or self.teachers == "plain", "classes are told by a plain teacher only")

    def _check_teachers(self) -> None:
        require(self.teachers in KINDS, f"teachers {self.teachers[:80]!r} are none of {', '.join(KINDS)}")
        fewest, most = (2, MOST_PARTS) if self.teachers == "sub-teachers" else (1, 1)
        require(fewest <= self.parts <= most, f"{self.parts} parts are not in {fewest}..{most} for {self.teachers}")
        check_network(self.schema, self.network, self.backbone, self.features)
        check_training(self.seed, self.steps)
        sampled = self.teachers == "dp-sgd"
        require(sampled or self.sampling_probability == self.clip == 0, "rate and clip are for dp-sgd only")

    @property
    def trained_privately(self) -> bool:
        """Whether training is charged, and answers are post-processing of it."""
        return self.teachers in TRAINED_PRIVATELY

    def remark(self) -> str:
        if self.teachers == "label-dp":
            return "its epsilon holds for labels only, one of them replaced: all else about records counts as public"
        if self.teachers != "plain":
            return ""
        whole = "its epsilon holds for all records of a silo together, hence for each"
        if self.answers != "classes":
            return whole
        return f"{whole}; one response alone has epsilon {self.label_epsilon():.3g}"

    def training(self) -> PrivateTraining | LabelTraining:
        """The inner query of teachers trained privately."""
        shared: dict[str, Any] = {name: getattr(self, name) for name in _SHARED}
        if self.teachers == "label-dp":
            return LabelTraining(**shared)
        return PrivateTraining(**shared, sampling_probability=self.sampling_probability, clip=self.clip)

    def artifacts(self) -> tuple[str, ...]:
        return (self.inputs, self.backbone) if self.backbone else (self.inputs,)

    def backbones(self) -> tuple[str, ...]:
        return (self.backbone,) if self.backbone else ()

    def passing_artifacts(self) -> tuple[str, ...]:
        return (self.inputs,)

    def inner_identities(self) -> tuple[bytes, ...]:
        """The training is the same for all inputs: asked once, then found in the ledger."""
        return (inner_identity(0, encode(self.training())),) if self.trained_privately else ()

    def layout(self) -> Layout:
        columns = self.kept if self.answers == "classes" else self.schema.classes
        return Layout.of(answers=(self.number, columns))

    def sensitivity(self) -> float:
        """One teacher's answers to all inputs: vectors of length at most 1 become others.

        Gradients may turn round; what has no negative coordinates turns by a right angle at most.
        """
        if self.trained_privately:
            return 0.0
        return length((math.sqrt(2) if self.answers == "probabilities" else 2) * math.sqrt(self.number))

    def grid(self) -> float:
        return 1.0 if self.answers == "classes" else ANSWER_GRID

    def event(self) -> Event:
        """Of the whole batch: one Gaussian mechanism, which also bounds that many responses (see `response`)."""
        return self.training().event() if self.trained_privately else SampledGaussian(self.noise_multiplier)

    def response(self) -> Response | None:
        if self.answers != "classes":
            return None
        return Response(self.kept, _kept_probability(self.kept, self.noise_multiplier * math.sqrt(self.number)))

    def label_epsilon(self) -> float:
        """Of one response alone, pure: the paper's figure."""
        response = self.response()
        if response is None or response.kept == 1:
            return math.inf
        return math.log(response.kept * (response.choices - 1) / (1 - response.kept))


def _kept_probability(choices: int, noise_multiplier: float) -> float:
    """Of randomized response that tells two inputs apart no better than a Gaussian mechanism of this multiplier does.

    Let p be the probability of the true choice and r that of each other one. The errors of the best tests between two
    inputs are piecewise linear, with corners at (r, 1 - p) and (1 - p, r). Those of a Gaussian mechanism are convex, so
    they lie below once they do at the corners: where quantile(p) - quantile(r) <= 1 / noise_multiplier. An input that
    is none of the choices is harder to tell from any other. Rounded down: kept a little less often than allowed.
    """
    if noise_multiplier == 0:
        return 1.0
    low, high = 1 / choices, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        apart = ndtri(middle) - ndtri((1 - middle) / (choices - 1))
        low, high = (middle, high) if apart <= 1 / noise_multiplier else (low, middle)
    return float(max(low - 1e-12, 1 / choices))
