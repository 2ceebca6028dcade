"""The state of a GPU in a word, and who uses it."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from operator import attrgetter
from typing import NamedTuple

from rich.style import Style

from gpumon.analysis.gpu_state import GpuState, Load, has_unlisted_holder
from gpumon.analysis.gpu_status import GpuStatus
from gpumon.analysis.throttling import THERMAL
from gpumon.common.numbers import NAN
from gpumon.diagnosis.finding import Severity
from gpumon.diagnosis.gpu import heat_severity
from gpumon.model import units
from gpumon.model.frame import TRAINING, Run, Sample
from gpumon.model.metrics import GPU_METRICS, Availability, Metric
from gpumon.model.process import Process
from gpumon.storage.history.recent import RecentHistory
from gpumon_tui import theme
from gpumon_tui.render.text_width import safe

FINE, WARN, CRITICAL = range(3)


def level(metric: Metric, value: float, limit: float = float("nan")) -> int:
    """`FINE`, `WARN` or `CRITICAL`; a missing value, or one without its limit, is fine."""
    if metric.limit:
        value = value / limit if limit > 0 else float("nan")
    if value >= metric.critical:
        return CRITICAL
    return WARN if value >= metric.warn else FINE


HEAT_THROTTLED = "heat-throttled"


class GpuLabel(NamedTuple):
    """The state of a GPU as a view shows it."""

    word: str
    style: Style
    quiet: bool
    """Nothing a person has to look at, so that a run's epoch may stand in its place."""
    is_hot: bool = False
    """Whether heat lowers its clocks, whatever the word says."""


STEADY = 3.0
"""Seconds for which a GPU must do less before the counts of the header say so: one may change within each second."""
_BY_USE = (
    GpuState.FREE, GpuState.ASLEEP, GpuState.IDLE, GpuState.HELD, GpuState.ALLOCATED, Load.PAUSING, Load.LIGHT,
    Load.BUSY,
)  # fmt: skip
"""What a GPU does, from the least; other states are faults and are counted at once."""


class SteadyStatuses:
    """GPUs as the header counts them: more use is counted at once, and less once it has lasted `STEADY`."""

    def __init__(self) -> None:
        self._counted: dict[str, tuple[GpuStatus, float]] = {}
        """Of each GPU what is counted, and the time of the last frame in which it did as much (s since 1970)."""
        self._until = 0.0

    def take(self, statuses: Sequence[GpuStatus], now: float) -> list[GpuStatus]:
        """Return the statuses to count in the frame of `now`."""
        if not self._until <= now <= self._until + STEADY:  # frames of another time
            self._counted = {}
        before, self._counted, self._until = self._counted, {}, now
        for status in statuses:
            uuid, last = status.sample.device.uuid, before.get(status.sample.device.uuid)
            is_less = last is not None and 0 <= _use(status) < _use(last[0])
            is_held = last is not None and is_less and 0 < now - last[1] < STEADY
            self._counted[uuid] = last if last is not None and is_held else (status, now)
        return [status for status, _ in self._counted.values()]


def _use(status: GpuStatus) -> int:
    """The place of a status among `_BY_USE`; -1 for a fault."""
    state = (status.load or Load.BUSY) if status.state is GpuState.BUSY else status.state
    return _BY_USE.index(state) if state in _BY_USE else -1


_LIMITS = frozenset(metric.limit for metric in GPU_METRICS)
_STYLES = {
    GpuState.BUSY: theme.GOOD, GpuState.HELD: theme.LEVELS[WARN], GpuState.STALE: theme.WARN,
    GpuState.LOST: theme.CRITICAL, GpuState.UNREADABLE: theme.CRITICAL,
}  # fmt: skip
SILENT = frozenset({GpuState.STALE, GpuState.UNREADABLE, GpuState.LOST, GpuState.ASLEEP})
"""States of a GPU without values of now."""
_QUIET = frozenset({
    GpuState.BUSY, GpuState.ALLOCATED, GpuState.IDLE, GpuState.FREE, GpuState.ASLEEP, GpuState.UNKNOWN,
    GpuState.DIVIDED,
})  # fmt: skip


def gpu_status(status: GpuStatus, history: RecentHistory, age: float = 0.0, now: float = inf) -> GpuLabel:
    """`busy`, `free`, `allocated, idle`, `heat-throttled`, `stale 12 s`, `lost` …

    `age` of the frame in seconds; `now` is its time (s since 1970), by which heat is judged.
    """
    uuid, state = status.sample.device.uuid, status.state
    if state not in SILENT:
        severity = heat_severity({metric.name: history.last(uuid, metric.name, now) for metric in THERMAL})
        if severity is not Severity.INFO:
            # What holds a GPU and does nothing keeps its word: all that counts or times it says the same.
            word = status.word(age) if state is GpuState.HELD else HEAT_THROTTLED
            style = theme.CRITICAL if severity is Severity.CRITICAL else theme.WARN
            return GpuLabel(word, style, quiet=False, is_hot=True)
    return GpuLabel(status.word(age), _STYLES.get(state, theme.DIM), state in _QUIET)


def of_now(sample: Sample) -> Sample:
    """Return the sample as far as it is of now: of a GPU whose driver does not answer, its limits alone."""
    if sample.state is not Availability.STALE:
        return sample
    known = (value if metric.name in _LIMITS else NAN for metric, value in zip(GPU_METRICS, sample.values, strict=True))
    return sample._replace(values=list(known))


class GpuHolder(NamedTuple):
    """The run or the processes on a GPU; each part may be empty."""

    name: str
    """Of the run, or of the largest process."""
    is_run: bool
    epoch: str
    """Where the run is: `7 (8/90)`, as `status` has it."""
    users: tuple[str, ...]
    place: str = ""
    """The same in a table, `8/90`: one form for all rows, for as long as a run goes on. Of steps `step 140/300`."""
    brief: str = ""
    """The same where there is little room: of steps `140/300`."""


def holder(sample: Sample, run: Run | None, processes: Sequence[Process], runs: int = 0) -> GpuHolder:
    """Return the run or the processes on a device, of which `runs` are known to be on it."""
    names = dict.fromkeys(map(attrgetter("user"), processes))
    users = tuple(dict.fromkeys(safe(name) for name in names if name))
    if run is not None:
        whole = place_text(run)
        place = units.epoch_position(run.epoch, run.epochs, run.base) if run.epoch >= 0 else whole
        more = f" +{runs - 1}" if runs > 1 else ""
        by = (safe(run.user),) if run.user else users
        return GpuHolder(safe(run.name) + more, True, whole, by, place, place.removeprefix("step "))
    if not processes:
        return GpuHolder("unknown process" if has_unlisted_holder(sample, processes) else "", False, "", ())
    more = f" +{len(processes) - 1}" if len(processes) > 1 else ""
    return GpuHolder((safe(processes[0].name) or f"pid {processes[0].pid}") + more, False, "", users)


def place_text(run: Run) -> str:
    """`12 (13/90)`, `step 140/300` of a plan of steps, or the phase of a run before its first epoch."""
    if run.epoch >= 0:
        return run.epoch_text
    if run.epochs or not run.facts.planned_steps > 0:
        return safe(run.phase)
    return f"step {run.step_text}" + (f" {safe(run.phase)}" if run.phase not in ("", TRAINING) else "")
