"""The state of a GPU in a word, and who uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.style import Style

from gpumon import units
from gpumon.analysis.gpu_state import GpuState, has_unlisted_holder
from gpumon.frame import TRAINING, Process, Run, Sample
from gpumon.history.recent import RecentHistory
from gpumon.metrics import BY_NAME, IDLE
from gpumon_tui import theme
from gpumon_tui.levels import CRITICAL, FINE, WARN, level
from gpumon_tui.renderables.text_width import safe

HEAT = (BY_NAME["gpu.throttled_hw_thermal"], BY_NAME["gpu.throttled_sw_thermal"])


class GpuStatus(NamedTuple):
    """The state of a GPU as a view shows it."""

    word: str
    style: Style
    quiet: bool
    """Nothing a person has to look at, so that a run's epoch may stand in its place."""


_STYLES = {
    GpuState.BUSY: theme.GOOD, GpuState.HELD: theme.LEVELS[WARN], GpuState.STALE: theme.WARN,
    GpuState.LOST: theme.CRITICAL, GpuState.UNREADABLE: theme.CRITICAL,
}  # fmt: skip
_QUIET = frozenset({GpuState.BUSY, GpuState.IDLE, GpuState.FREE, GpuState.UNKNOWN})


def gpu_status(sample: Sample, history: RecentHistory, state: GpuState, age: float = 0.0) -> GpuStatus:
    """`busy`, `free`, `allocated, idle`, `heat-throttled`, `stale 12 s`, `lost` …; `age` of the data in seconds."""
    uuid = sample.device.uuid
    word = state.title
    if state is GpuState.STALE:
        word = f"stale {units.duration(max(sample.age, age))}"
    elif state is GpuState.UNREADABLE:
        word = sample.reason
    elif state is not GpuState.LOST:
        heat = max(level(metric, history.last(uuid, metric.name)) for metric in HEAT)
        if heat > FINE:
            return GpuStatus("heat-throttled", theme.CRITICAL if heat == CRITICAL else theme.WARN, False)
        if state is GpuState.BUSY and sample.value("gpu.utilization") < IDLE:
            word = "pausing"  # "busy" beside 0 % reads as an error
    return GpuStatus(word, _STYLES.get(state, theme.DIM), state in _QUIET)


def epoch_text(run: Run) -> str:
    """`e12 (13/90) validate`, or nothing before the first epoch."""
    if run.epoch < 0:
        return safe(run.phase)
    phase = "" if run.phase == TRAINING else " " + safe(run.phase)
    return f"e{run.epoch_text}{phase}"


def holders(sample: Sample, run: Run | None, processes: Sequence[Process]) -> tuple[str, str, str]:
    """Run, epoch and users on a device, each may be empty."""
    users = list(dict.fromkeys(safe(process.user) for process in processes if process.user))
    if run is not None:
        return safe(run.name), epoch_text(run), safe(run.user) or ", ".join(users)
    if not processes:
        return ("unknown process" if has_unlisted_holder(sample, processes) else ""), "", ""
    more = f" +{len(processes) - 1}" if len(processes) > 1 else ""
    return (safe(processes[0].name) or f"pid {processes[0].pid}") + more, "", ", ".join(users)
