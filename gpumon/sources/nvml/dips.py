"""Dips of the utilization that are shorter than a tick, from the driver's own samples.

The driver hands its samples out seconds later, when the frame that they belong to is in the ring. So a frame has what
the samples of the last read came to: a dip shows in all frames until the next read, and in none that could not know it.
"""

from __future__ import annotations

from bisect import bisect_left

from gpumon.common.clock import SECOND
from gpumon.model.metrics import IDLE, Availability
from gpumon.sources.nvml.answers import DeviceAnswers
from gpumon.sources.nvml.utilization_samples import SAMPLES_EVERY, UtilizationSamples

_LOW, _IDLE_SHARE = METRICS = ("gpu.utilization_low", "gpu.idle_share")
_WINDOW = round(SAMPLES_EVERY * SECOND)


def give_dips(answers: DeviceAnswers, samples: UtilizationSamples, state: Availability) -> None:
    """Fill in what the samples of one read come to; `state` says why there are none, and is OK if nothing was new."""
    if not samples:
        why = Availability.UNRELIABLE if state is Availability.OK else state
        for metric in METRICS:
            answers.lack(metric, why)
        return
    begin = samples[-1][0] - _WINDOW  # the first read brings more than the later ones
    ratios = sorted([ratio for when, ratio in samples if when > begin])
    answers.values[_LOW] = ratios[0]
    answers.values[_IDLE_SHARE] = bisect_left(ratios, IDLE) / len(ratios)
    for metric in METRICS:
        answers.missing.pop(metric, None)
