"""Whether nothing goes on in a tick, so that the next one may come later."""

from __future__ import annotations

from gpumon.model.frame import RunState, Sample, Tick
from gpumon.model.metrics import GPU_INDEX, PROCESSES, Availability

_UTILIZATION = GPU_INDEX["gpu.utilization"]
_OK, _ASLEEP = Availability.OK, Availability.ASLEEP


def _is_still(sample: Sample) -> bool:
    """Whether it is known to do nothing; of a MIG instance, on which nothing runs without a process, by its list."""
    is_still = sample.values[_UTILIZATION] == 0 or sample.device.is_instance
    return is_still and PROCESSES not in sample.device.missing


def is_idle(tick: Tick) -> bool:
    """Return whether every GPU is known to do nothing, and to have no process and no run; False without any GPU."""
    if not tick.samples or tick.processes or any(run.state is RunState.RUNNING for run in tick.runs):
        return False
    return all(
        sample.state is _ASLEEP or (sample.state is _OK and (sample.device.is_divided or _is_still(sample)))
        for sample in tick.samples
    )
