"""Displayed state of a GPU, its users, and facts next to its curves."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from operator import attrgetter
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style

from gpumon.analysis.gpu_state import GpuState, Load, has_unlisted_holder
from gpumon.analysis.gpu_status import GpuStatus
from gpumon.analysis.throttling import THERMAL, throttle_reasons
from gpumon.common.numbers import NAN
from gpumon.diagnosis.finding import Severity
from gpumon.diagnosis.gpu import heat_severity
from gpumon.model import units
from gpumon.model.frame import TRAINING, Run, Sample
from gpumon.model.metrics import BY_NAME, GPU_METRICS, Availability, Metric
from gpumon.model.process import Process
from gpumon.model.vendors import SHORT_CLOCK_EVENTS
from gpumon.storage.history.recent import RecentHistory
from gpumon_tui import theme
from gpumon_tui.render.axis import number_format
from gpumon_tui.render.text_width import Line, cut, length, safe

FINE, WARN, CRITICAL = range(3)


def level(metric: Metric, value: float, limit: float = float("nan")) -> int:
    """Return `FINE`, `WARN` or `CRITICAL`; a missing value, or one without its limit, is `FINE`."""
    if metric.limit:
        value = value / limit if limit > 0 else float("nan")
    if value >= metric.critical:
        return CRITICAL
    return WARN if value >= metric.warn else FINE


HEAT_THROTTLED = "heat-throttled"
FREE = theme.tint("util", 1.0, "util", 0.06) + Style(bold=True)
"""Style of the word "free"."""


class GpuLabel(NamedTuple):
    """The state of a GPU as displayed."""

    word: str
    style: Style
    is_unremarkable: bool
    """Nothing that needs attention, so that the epoch of a run may replace it."""
    is_hot: bool = False
    """Whether heat is reducing its clocks, whatever `word` says."""


STEADY = 3.0
"""Seconds for which lower activity must last before the header's counts follow it, because activity may change
within each second.
"""
_ACTIVITY_LEVELS = (
    GpuState.FREE, GpuState.ASLEEP, GpuState.IDLE, GpuState.HELD, GpuState.ALLOCATED, Load.PAUSING, Load.LIGHT,
    Load.BUSY,
)  # fmt: skip
"""Activity levels of a GPU, lowest first; other states are faults and are counted immediately."""


class SteadyStatuses:
    """GPU statuses as counted by the header: higher activity counts immediately, lower activity after `STEADY`
    seconds.
    """

    def __init__(self) -> None:
        self._counted: dict[str, tuple[GpuStatus, float]] = {}
        """For each GPU the status counted, and the time of the last frame with at least that activity (s since
        1970).
        """
        self._until = 0.0

    def update(self, statuses: Sequence[GpuStatus], now: float) -> list[GpuStatus]:
        """Return the statuses to count in the frame at `now`."""
        if not self._until <= now <= self._until + STEADY:  # the time has jumped
            self._counted = {}
        previous, self._counted, self._until = self._counted, {}, now
        for status in statuses:
            uuid, counted = status.sample.device.uuid, previous.get(status.sample.device.uuid)
            is_less = counted is not None and 0 <= _activity_level(status) < _activity_level(counted[0])
            is_held = counted is not None and is_less and 0 < now - counted[1] < STEADY
            self._counted[uuid] = counted if counted is not None and is_held else (status, now)
        return [status for status, _ in self._counted.values()]


def _activity_level(status: GpuStatus) -> int:
    """Return the level of a status in `_ACTIVITY_LEVELS`; -1 for a fault."""
    state = (status.load or Load.BUSY) if status.state is GpuState.BUSY else status.state
    return _ACTIVITY_LEVELS.index(state) if state in _ACTIVITY_LEVELS else -1


_LIMITS = frozenset(metric.limit for metric in GPU_METRICS)
_STYLES = {
    GpuState.BUSY: theme.GOOD, GpuState.HELD: theme.LEVELS[WARN], GpuState.STALE: theme.WARN,
    GpuState.LOST: theme.CRITICAL, GpuState.UNREADABLE: theme.CRITICAL,
}  # fmt: skip
WITHOUT_VALUES = frozenset({GpuState.STALE, GpuState.UNREADABLE, GpuState.LOST, GpuState.ASLEEP})
"""GPU states without current values."""
_UNREMARKABLE = frozenset({
    GpuState.BUSY, GpuState.ALLOCATED, GpuState.IDLE, GpuState.FREE, GpuState.ASLEEP, GpuState.UNKNOWN,
    GpuState.DIVIDED,
})  # fmt: skip


def gpu_status(status: GpuStatus, history: RecentHistory, age: float = 0.0, now: float = inf) -> GpuLabel:
    """Return the displayed state: `busy`, `free`, `allocated, idle`, `heat-throttled`, `stale 12 s`, `lost` …

    `age` of the frame in seconds; `now` is its time (s since 1970), at which throttling is evaluated.
    """
    uuid, state = status.sample.device.uuid, status.state
    if state not in WITHOUT_VALUES:
        severity = heat_severity({metric.name: history.last(uuid, metric.name, now) for metric in THERMAL})
        if severity is not Severity.INFO:
            # An allocated, idle GPU keeps that word, for consistency with counts and idle times.
            word = status.word(age) if state is GpuState.HELD else HEAT_THROTTLED
            style = theme.CRITICAL if severity is Severity.CRITICAL else theme.WARN
            return GpuLabel(word, style, is_unremarkable=False, is_hot=True)
    return GpuLabel(status.word(age), _STYLES.get(state, theme.DIM), state in _UNREMARKABLE)


def without_outdated(sample: Sample) -> Sample:
    """Return the sample without outdated values: for a GPU whose driver does not respond, only its limits."""
    if sample.state is not Availability.STALE:
        return sample
    values = (
        value if metric.name in _LIMITS else NAN for metric, value in zip(GPU_METRICS, sample.values, strict=True)
    )
    return sample._replace(values=list(values))


class GpuHolder(NamedTuple):
    """The run or processes on a GPU; any part may be empty."""

    name: str
    """Name of the run, or of the largest process."""
    is_run: bool
    epoch: str
    """Progress of the run: `7 (8/90)`, as in `status`."""
    users: tuple[str, ...]
    position: str = ""
    """Progress in a table: `8/90`, the same form in all rows for the whole run; for steps `step 140/300`."""
    brief: str = ""
    """Short form of the progress; for steps `140/300`."""


def holder(sample: Sample, run: Run | None, processes: Sequence[Process], runs: int = 0) -> GpuHolder:
    """Return the run or processes on a device; `runs` is the number of runs that use it."""
    names = dict.fromkeys(map(attrgetter("user"), processes))
    users = tuple(dict.fromkeys(safe(name) for name in names if name))
    if run is not None:
        progress = progress_text(run)
        position = units.epoch_position(run.epoch, run.epochs, run.base) if run.epoch >= 0 else progress
        suffix = f" +{runs - 1}" if runs > 1 else ""
        run_users = (safe(run.user),) if run.user else users
        return GpuHolder(safe(run.name) + suffix, True, progress, run_users, position, position.removeprefix("step "))
    if not processes:
        return GpuHolder("unknown process" if has_unlisted_holder(sample, processes) else "", False, "", ())
    suffix = f" +{len(processes) - 1}" if len(processes) > 1 else ""
    return GpuHolder((safe(processes[0].name) or f"pid {processes[0].pid}") + suffix, False, "", users)


def progress_text(run: Run) -> str:
    """Return the progress: `12 (13/90)`, `step 140/300` for a plan in steps, or the phase of a run before its first
    epoch.
    """
    if run.epoch >= 0:
        return run.epoch_text
    if run.epochs or not run.facts.planned_steps > 0:
        return safe(run.phase)
    return f"step {run.step_text}" + (f" {safe(run.phase)}" if run.phase not in ("", TRAINING) else "")


BETWEEN = 3
"""Cells between two facts."""


def throttled(sample: Sample, *, is_hot: bool, room: int = 0) -> str:
    """Return the throttling reasons of a GPU, `no` if there are none; empty if unknown.

    `is_hot`: counters since the previous sample show thermal throttling; the driver itself only reports the reasons at
    this moment. With `room` in cells, reasons are abbreviated, or only counted if they do not fit.
    """
    reasons = throttle_reasons(sample)
    if reasons is None:
        return "heat" if is_hot else ""
    if room:
        reasons = tuple(SHORT_CLOCK_EVENTS.get(reason, reason) for reason in reasons)
    text = ", ".join(reasons) or ("heat" if is_hot else "no")
    return text if not room or len(text) <= room else units.counted(len(reasons), "reason")


def facts(sample: Sample, *, charted: bool = True, is_hot: bool = False) -> list[tuple[str, str]]:
    """Return names and values of what the driver reports; values it does not report are left out.

    `charted`: temperature, power and clock have their own charts and are left out; `is_hot`: as in `throttled`.
    """
    pairs: list[tuple[str, str]] = []
    for metric in () if charted else (BY_NAME[name] for name in ("gpu.temperature", "gpu.power", "gpu.clock_sm")):
        if isfinite(value := sample.value(metric.name)):
            value_format = number_format(metric, value)
            pairs.append(("", f"{value_format.text(value)} {value_format.unit}"))
    state = sample.value("gpu.performance_state")
    pairs += [("", units.performance_state(state))] if isfinite(state) else []
    for name, metric_name in (("fan", "gpu.fan"), ("encoder", "gpu.encoder_utilization"),
                         ("decoder", "gpu.decoder_utilization")):  # fmt: skip
        if isfinite(value := sample.value(metric_name)):
            pairs.append((name, units.metric(value, BY_NAME[metric_name])))
    if reasons := throttled(sample, is_hot=is_hot):
        pairs.append(("throttled", reasons))
    return pairs


def facts_line(sample: Sample, cells: int, *, charted: bool = True, is_hot: bool = False) -> Line:
    """Return the facts in one line of at most `cells` cells; the last ones are dropped if they do not fit."""
    line: Line = []
    for name, value in facts(sample, charted=charted, is_hot=is_hot):
        part: Line = [Segment(f"{name} ", theme.DIM)] if name else []
        part.append(Segment(value, theme.PLAIN))
        if length(line) + BETWEEN + length(part) > cells:
            break
        line += [Segment(" " * BETWEEN), *part] if line else part
    return line


def card_head(
    sample: Sample, holder: Line, cells: int, left_margin: int, *, charted: bool, rows: int = 1, is_hot: bool = False
) -> list[Line]:  # fmt: skip
    """Return the first lines of a GPU's card: the GPU, its user and activity (`holder`), and facts at the right.

    With two `rows`, the second one has the facts.
    """
    head: Line = [Segment(" " * left_margin), Segment(f"GPU {sample.device.label}", theme.STRONG)]
    if holder:
        head += [Segment("  "), *holder]
    end = cells - left_margin
    if rows > 1:
        return [
            cut(head, end),
            [Segment(" " * left_margin), *facts_line(sample, end - left_margin, charted=charted, is_hot=is_hot)],
        ]
    facts_text = facts_line(sample, end - length(head) - BETWEEN, charted=charted, is_hot=is_hot)
    room = end - length(head) - length(facts_text)
    return [[*head, Segment(" " * room), *facts_text] if facts_text else cut(head, end)]
