"""A score on the silos' own records: a query like any other, which is charged."""

from __future__ import annotations

import hashlib

from silosynth.common.accounting import calibrate
from silosynth.common.backbones import backbone_for, encode_backbone
from silosynth.common.devices import pick_device
from silosynth.common.events import SampledGaussian
from silosynth.common.queries import Scores
from silosynth.common.schema import Schema
from silosynth.server.config import EvaluationSettings
from silosynth.server.evaluation.examples import Examples
from silosynth.server.evaluation.finetuning import TunedBackbone
from silosynth.server.evaluation.intervals import noisy_share
from silosynth.server.evaluation.report import SiloScore
from silosynth.server.recipes.base import Ask, Product, Summed


def score_query(schema: Schema, model: str, epsilon: float, delta: float) -> Scores:
    """With the noise that this epsilon affords."""
    noise_multiplier = calibrate(lambda noise: [SampledGaussian(noise)], epsilon, delta)
    return Scores(schema=schema, noise_multiplier=noise_multiplier, model=model)


class SiloScoring:
    """What to ask the silos about a product, and what their answer means."""

    def __init__(self, schema: Schema, settings: EvaluationSettings, epsilon: float, delta: float) -> None:
        """ConfigError if no backbone fits: before anybody is asked anything."""
        self._backbone = backbone_for(schema, settings.backbone)
        self._schema, self._device = schema, pick_device(settings.device)
        self._epsilon, self._delta = epsilon, delta

    def ask(self, product: Product) -> Ask:
        """A head fitted to the set as it is published: the same set gives the same model, hence the same query."""
        model = TunedBackbone(self._backbone, self._schema, self._device)
        model.fit_head(Examples(product.records(self._schema), product.soft_labels, self._device))
        content = encode_backbone(model.published())
        digest = hashlib.sha256(content).hexdigest()
        return Ask(score_query(self._schema, digest, self._epsilon, self._delta), {digest: content})

    def read(self, asked: Ask, answer: Summed) -> SiloScore:
        correct, records = (float(answer.blocks[name].sum()) for name in ("correct", "records"))
        share = noisy_share(correct, records, self._schema.classes * answer.noise_variance)
        accuracy, interval = share or (None, None)
        (model,) = asked.query.artifacts()
        return SiloScore(
            model=model,
            accuracy=accuracy,
            accuracy_interval=interval,
            silos=answer.silos,
            epsilon=self._epsilon,
            delta=self._delta,
        )
