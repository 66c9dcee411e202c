"""Gradient sums (DP-SGD across silos).

Released: the sum over a fresh Poisson sample of the records of the gradient of each one's cross-entropy, clipped, at
the weights that the server sent.
Neighbours: datasets of one silo that differ by one record added or removed.
Sensitivity: clip in L2: a record adds one vector no longer than that, cut to the grid towards zero; a gradient that is
no number counts as 0. A record's gradient does not depend on who is beside it, to the last bit (`places`).
Event: one Gaussian mechanism on a Poisson sample. A run asks as often as it takes steps.
Reference: Abadi et al., "Deep learning with differential privacy"; methods.md, section 4.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from silosynth.client.guard.entropy import coin_flips
from silosynth.client.guard.mechanism import Bench
from silosynth.client.mechanisms.record_gradients import clipped_sum, per_record_gradients
from silosynth.common.auxiliary import as_inputs
from silosynth.common.datasets.records import Records
from silosynth.common.networks.extractors import draw_network
from silosynth.common.networks.weights import decode_networks
from silosynth.common.queries import GradientSums


def gradient_sums(query: GradientSums, records: Records, bench: Bench) -> npt.NDArray[np.int64]:
    weights = decode_networks(bench.artifact(query.weights), query.schema, query.width)[0]
    gradients = per_record_gradients(draw_network("convnet", query.schema, query.width, 0))
    drawn = records.take(np.flatnonzero(coin_flips(bench.entropy, len(records), query.sampling_probability)))
    inputs = as_inputs(drawn.flat(), query.schema)
    return clipped_sum(gradients, weights, inputs, torch.from_numpy(drawn.labels), query.clip, bench.report)
