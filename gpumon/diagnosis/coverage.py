"""Facts that no rule could judge, because no GPU tells them: "nothing needs attention" would be a guess then."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.model.frame import Sample
from gpumon.model.metrics import Availability

_JUDGED = (
    ("temperature", ("gpu.temperature", "gpu.temperature_memory")),
    ("throttling", ("gpu.throttled_hw_thermal", "gpu.throttled_sw_thermal")),
    ("memory limit", ("gpu.memory_used", "gpu.memory_total")),
)
"""Names for people, with the metrics that its rules read; of the first two any one tells, of memory both are needed."""
_ALL_NEEDED = ("memory limit",)
GPUS = "GPUs"
"""Where none can be read at all."""
NOTHING = "Nothing needs attention."


def nothing_found(unknown: Sequence[str]) -> str:
    """A sentence where no rule has found anything; `unknown` is what none could judge."""
    return f"Nothing found; not known here: {', '.join(unknown)}." if unknown else NOTHING


def not_judged(samples: Sequence[Sample], *, tells_processes: bool) -> list[str]:
    """Return what is not known of any GPU that answers, in words: `temperature`; empty where the rules had all.

    Of a GPU that does not answer a rule says so; where there is none, no rule can.
    """
    if not samples:
        return [GPUS]
    answering = [sample for sample in samples if sample.state is Availability.OK]
    if not answering:
        return []
    found = []
    for title, metrics in _JUDGED:
        enough = all if title in _ALL_NEEDED else any
        if not any(enough(_is_told(sample, name) for name in metrics) for sample in answering):
            found.append(title)
    return found if tells_processes else [*found, "processes", "runs"]


def _is_told(sample: Sample, metric: str) -> bool:
    """Whether it has a value, or will have: none is missing for good."""
    return metric not in sample.device.missing
