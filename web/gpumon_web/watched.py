"""Facts that a browser compares from tick to tick, to tell its viewer of what has changed."""

from __future__ import annotations

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.thresholds import LONG_IDLE
from gpumon_web.page import Cells, Now
from gpumon_web.tokens import gpu_address, run_address, run_name

_USED = frozenset((GpuState.BUSY.value, GpuState.ALLOCATED.value, GpuState.HELD.value))


def watched(now: Now) -> Cells:
    """GPUs known to be free, those known to be used, and each run: id, name, user, state, whether it is stalled.

    `places` begin the addresses of a GPU and of a run.
    """
    states = [(gpu.about["label"], gpu.about["state"]) for gpu in now.gpus]
    return {
        "places": [gpu_address(""), run_address("")],
        "free": [label for label, state in states if state == GpuState.FREE.value],
        "used": [label for label, state in states if state in _USED],
        "runs": [
            [run["id"], run_name(run), run["user"], run["state"], is_stalled(run, now)] for run in now.runs.values()
        ],
    }


def is_stalled(run: Cells, now: Now) -> bool:
    """Whether a run goes on while each of its GPUs is held and has done nothing for long."""
    its = [gpu.about for gpu in now.gpus if gpu.about["uuid"] in run["gpus"]]
    return (
        run["state"] == "running"
        and bool(its)
        and all(
            about["state"] == GpuState.HELD.value
            and about["since"] is not None
            and now.time - about["since"] >= LONG_IDLE
            for about in its
        )
    )
