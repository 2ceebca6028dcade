"""The header: host and GPU models, counts by state, power, and freshness.

Each part has a fixed position, so that nothing moves when a state changes. What does not fit is dropped in this order:
power, models, host, counts. The labels of simulated or recorded data and the freshness are always shown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from math import fsum, isfinite
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style

from gpumon.analysis.gpu_state import FREE_OR_NOT, GpuState, Load
from gpumon.analysis.gpu_status import GpuStatus, busy_counts, countable_statuses
from gpumon.common.program import callable_commands
from gpumon.diagnosis.finding import ranges
from gpumon.model import units
from gpumon.model.metrics import Availability
from gpumon.model.vendors import short_name
from gpumon_tui import theme
from gpumon_tui.render.text_width import Line, cut, length, safe, width

if TYPE_CHECKING:  # `View` imports from this package
    from gpumon_tui.state import View

WIDE = 100
"""Minimum width, in columns, at which power is shown."""
_FRESHNESS_END, _POWER_END = 11, 29
"""Cells from the start of the clock, and of the freshness before it, to the end of a wide line."""
_STATE, _WIDE_STATE, _USUAL_POWER = 14, 17, 15
"""Cells reserved for freshness and power, whatever their current width."""
_GAP = 2
_MACHINE_GAP = 4
"""Cells between the machine and its neighbors."""
_GIB = 2.0**30
_BRIEF_FROM = 3
"""Number of models from which only their count is shown."""
_MEMORY_KIND = re.compile(r" HBM\w*$")
_GROUND = "panel"
_WARNING_SHARE = 0.06
"""Share of the warning color behind the line with the reason."""
_COUNTED_STATES = (
    (GpuState.BUSY, "busy", "busy", "strong"),
    (GpuState.ALLOCATED, "allocated", "allocated", "strong"),
    (GpuState.HELD, "allocated, idle", "idle", "warn"),
    (GpuState.IDLE, "idle", "idle", "strong"),
    (GpuState.ASLEEP, "asleep", "asleep", "strong"),
    (GpuState.UNKNOWN, "unknown", "unknown", "strong"),
    (GpuState.STALE, "stale", "stale", "warn"),
    (GpuState.UNREADABLE, "unreadable", "unreadable", "crit"),
    (GpuState.LOST, "lost", "lost", "crit"),
    (GpuState.FREE, "free", "free", "util"),
)
"""States with their long and short words, and the role of the number."""
_USUAL_STATES = (GpuState.BUSY, GpuState.HELD, GpuState.FREE)
_HELD_NEXT_TO_IDLE = "held idle"
"""Text for allocated and idle GPUs if it is unknown whether other idle GPUs are allocated."""
_SILENT = frozenset((Availability.LOST, Availability.NO_DRIVER))


def header(view: View, cells: int) -> Line:
    """Return the header at the given width."""
    name, chips = [_text(" gpumon", "key", bold=True)], _chips(view)
    state, clock = _state(view), _clock(view)
    right_end = cells - (_FRESHNESS_END if clock else 1)
    min_cells = length(name) + length(chips) + _GAP + length(state)
    if min_cells > right_end:
        clock, right_end = [], cells - 1  # the state matters more than the time
    if min_cells > right_end:
        return cut(_append_at([*name, *chips, _text(" ", "text"), *state], [_text(" " * cells, "text")], cells), cells)
    state_begin = right_end - length(state)
    head, counts, power = _left_parts(
        view, name, chips, min(state_begin, right_end - (_STATE if cells < WIDE else _WIDE_STATE)), cells
    )
    if state_begin <= cells - _POWER_END:  # the state is longer than usual
        power = []
    power_begin = cells - _POWER_END - length(power) if power else state_begin
    line = _append_at(head, counts, _middle(head, counts, power_begin - _GAP, cells)) if counts else head
    for machine in _machine(view) if cells >= WIDE else ():
        begin = power_begin - _MACHINE_GAP - length(machine)
        if begin >= length(line) + _MACHINE_GAP:
            line = _append_at(line, machine, begin)
            break
    if power:
        line = _append_at(line, power, cells - _POWER_END - length(power))
    line = _append_at(_append_at(line, state, state_begin), clock, cells - 1 - length(clock))
    return cut(_append_at(line, [], cells), cells)


def _left_parts(view: View, name: Line, chips: Line, end_cell: int, cells: int) -> tuple[Line, Line, Line]:
    """Return host and models, counts, and power, as far as they fit left of the state."""
    host, models = _host(view), _models(view)
    full, brief = (_counts(view.countable_statuses, is_brief=is_brief) for is_brief in (False, True))
    least_counts = _counts(view.countable_statuses, is_brief=True, is_least=True)
    free = _counts(view.countable_statuses, is_brief=True, counted_states=frozenset((GpuState.FREE,)))
    everything, hosted, bare = [*name, *host, *models, *chips], [*name, *host, *chips], [*name, *chips]
    if cells >= WIDE:
        power = _power(view)
        end = cells - _POWER_END - (length(power) or _USUAL_POWER)
        versioned = [*name, *host, *models, *_driver(view), *chips]
        for head, counts in ((versioned, full), (everything, full), (everything, brief), (hosted, brief)):
            usual = max(length(counts), _usual_counts(view))
            if head is versioned and cells // 2 - 4 - usual // 2 < length(head) + _GAP:
                continue  # the counts and the version keep their positions
            if length(head) + _GAP + length(counts) + _GAP <= end:
                return head, counts, power
    for head, counts in (
        (everything, brief),
        (hosted, brief),
        (hosted, least_counts),
        (bare, brief),
        (bare, least_counts),
        (hosted, free),
        (bare, free),
        (hosted, []),
    ):
        if counts is free and not free:
            continue
        if length(head) + _GAP + length(counts) + _GAP <= end_cell:
            return head, counts, []
    return bare, [], []


def _usual_counts(view: View) -> int:
    """Return the width of the counts with typical states, so that the layout does not depend on the current ones."""
    count = len(countable_statuses(view.statuses))
    words = (Load.PAUSING.value, *(full for state, full, _, _ in _COUNTED_STATES if state in _USUAL_STATES))
    return length([_text(" · ".join(f"{count} {word}" for word in words), "dim")]) if count else 0


def _middle(head: Line, counts: Line, end: int, cells: int) -> int:
    """Return the position of the counts: centered left of the middle, because the right side is longer."""
    center = cells // 2 - 4 if cells >= WIDE else (cells + length(head) - _FRESHNESS_END - _STATE) // 2
    return max(length(head) + _GAP, min(center - length(counts) // 2, end - length(counts)))


def _text(text: str, role: str, *, bold: bool = False) -> Segment:
    return Segment(text, theme.ink(role, _GROUND, bold=bold))


def _append_at(line: Line, part: Line, cell: int) -> Line:
    return [*line, _text(" " * max(0, cell - length(line)), "text"), *part]


def _host(view: View) -> Line:
    return [_text(f"  {safe(view.hostname)}", "strong", bold=True)] if view.hostname else []


def _models(view: View) -> Line:
    """Return the GPU models: `8 × H100 80GB HBM3`; MIG instances are not counted as GPUs."""
    names = [
        _MEMORY_KIND.sub("", short_name(sample.device.name)) for sample in view.samples if not sample.device.is_instance
    ]
    model_counts = Counter(names)
    if not model_counts:
        return []
    if len(model_counts) >= _BRIEF_FROM:
        return [_text(f"  {len(names)} GPUs", "dim")]
    return [_text("  " + " + ".join(f"{count} × {safe(name)}" for name, count in model_counts.items()), "dim")]


def _driver(view: View) -> Line:
    """Return the driver version, if available."""
    version = safe(view.driver.version)
    is_gone = bool(view.samples) and all(sample.state is Availability.NO_DRIVER for sample in view.samples)
    return [_text(f"  driver {version}", "dim")] if version and not is_gone else []


def _machine(view: View) -> list[Line]:
    """Return current CPU and memory use of the host, in a long form and a short one with CPU only; empty if unknown."""
    if view.age > 0:
        return []
    cpu, used, total = (view.host(f"host.{name}") for name in ("cpu_utilization", "memory_used", "memory_total"))
    cpu_text: Line = []
    if isfinite(cpu):
        cpu_text = [_text("CPU ", "dim"), _text(f"{100 * cpu:3.0f}", "strong", bold=True), _text("%", "dim")]
    if not (isfinite(used) and isfinite(total) and total > 0):
        return [cpu_text] if cpu_text else []
    digits = 1 if total < 100 * _GIB else 0
    size = f"{total / _GIB:.{digits}f}"
    memory = [
        _text("   RAM ", "dim"), _text(f"{used / _GIB:.{digits}f}".rjust(len(size)), "strong", bold=True),
        _text(f" of {size} GiB", "dim"),
    ]  # fmt: skip
    return [[*cpu_text, *memory], cpu_text] if cpu_text else [memory]


def _chips(view: View) -> Line:
    """Return labels for data that are not from live hardware or not current."""
    chips: Line = []
    label = _label(view)
    style = theme.CHIP if label == "REPLAY" else theme.LABEL
    for text, chip_style in ((label, style), ("PAST" if view.shows_past else "", theme.CHIP)):
        if text:
            chips += [_text(" ", "text"), Segment(f" {text} ", chip_style)]
    return chips


def _label(view: View) -> str:
    """Return the label for data that are not from live hardware; if only some GPUs are affected, with their numbers."""
    origin = view.origin
    if not origin.parts:
        return safe(origin.label).split(" ")[0]
    labels = {part.origin.source: safe(part.origin.label).split(" ")[0] for part in origin.parts if part.origin.label}
    text = " + ".join(dict.fromkeys(labels.values()))
    if len(labels) == len(origin.parts):
        return text
    indexes = {sample.device.index for sample in view.samples if sample.device.source in labels}
    return f"{text} {ranges(indexes)}" if indexes else ""


def _counts(
    statuses: Sequence[GpuStatus],
    *,
    is_brief: bool,
    is_least: bool = False,
    counted_states: Collection[GpuState] = tuple(GpuState),
) -> Line:
    """Return the numbers of GPUs by state; "0 free" is shown only if the state of every GPU is known.

    `is_brief`: short words; `is_least`: one number for all GPUs in use.
    """
    if not statuses:
        return []
    statuses = countable_statuses(statuses)
    states = Counter(status.state for status in statuses)
    if states and set(states) <= {GpuState.UNREADABLE, GpuState.LOST}:
        return [_text("no GPU answers", "crit", bold=True)]
    numbers: list[tuple[int, str, str]] = []
    for state, full, short, role in _COUNTED_STATES:
        count = states[state]
        if state not in counted_states:
            continue
        shows_zero = state in (GpuState.BUSY, GpuState.FREE) and set(states) <= FREE_OR_NOT
        if not count and not shows_zero:
            continue
        if state is GpuState.BUSY:
            numbers += [(number, word, role) for number, word in busy_counts(statuses, is_brief=is_least)]
            continue
        if state is GpuState.HELD and states[GpuState.IDLE]:
            short = _HELD_NEXT_TO_IDLE
        numbers.append((count, short if is_brief else full, role))
    parts: Line = []
    for count, word, role in numbers:
        if parts:
            parts.append(_text(" · ", "faint"))
        is_good = role == "util" and count
        parts.append(_text(str(count), role if count else "dim", bold=bool(count)))
        parts.append(_text(f" {word}", "util" if is_good else "dim", bold=bool(is_good)))
    return parts


def _power(view: View) -> Line:
    """Return power and limit of the GPUs that respond; `≥` if some do not report it, `–` if none does."""
    gpus = [sample for sample in view.samples if not sample.device.is_instance]
    samples = [sample for sample in gpus if sample.state not in _SILENT]
    if not samples:
        return []
    samples = [sample for sample in samples if sample.state is not Availability.STALE] or samples
    is_old = view.age > 0 or samples[0].state is Availability.STALE
    reporting = [sample for sample in samples if isfinite(sample.value("gpu.power"))] or samples
    watts = fsum(sample.value("gpu.power") for sample in reporting)
    limit = fsum(sample.value("gpu.power_limit") for sample in samples)
    if not isfinite(limit) and not isfinite(watts):
        return []
    scale, unit, digits = (1000.0, "kW", 2) if max(watts, limit, key=_finite_or_zero) >= 1000.0 else (1.0, "W", 0)
    sign = "≥" if len(reporting) < len(samples) else ""
    value = f"{sign}{watts / scale:.{digits}f}" if isfinite(watts) and not is_old else "–"
    room = len(f"{limit / scale:.{digits}f}") if isfinite(limit) else 0
    limit_text = f" of {limit / scale:.{digits}f} {unit}" if isfinite(limit) else f" {unit}"
    coverage = f", {len(reporting)} of {len(gpus)} GPUs" if len(reporting) < len(gpus) else ""
    return [_text(value.rjust(room), "strong", bold=True), _text(limit_text + coverage, "dim")]


def _finite_or_zero(value: float) -> float:
    return value if isfinite(value) else 0.0


def _state(view: View) -> Line:
    fresh = view.freshness
    style: Style = fresh.style + theme.ON_BAR
    return [Segment(f"{fresh.mark} {safe(fresh.word)}", style)]


def _clock(view: View) -> Line:
    """Return the time on screen; it advances even without new frames, and stops while paused."""
    if view.frame is None:
        return []
    silent = view.freshness.frame_age
    age = silent if isfinite(silent) and not view.paused else 0.0
    return [_text(units.clock(view.now + age), "text")]


def reason(view: View, cells: int) -> Line:
    """Return why no newer data arrive and the time of the values on screen, in the warning color."""
    fresh = view.freshness
    role = "crit" if fresh.style is theme.CRITICAL else "warn"
    ground = Style(bgcolor=theme.color(role, _WARNING_SHARE))
    parts, values_note = safe(callable_commands(fresh.reason)).split(" · "), ""
    while len(parts) > 1 and width(" · ".join(parts)) + 3 > cells:  # a truncated part would be useless
        parts.pop(0 if parts[0].startswith("paused ") else -1)  # the header already shows that the view is paused
    text = " · ".join(parts)
    if fresh.age > 0 and view.frame is not None and isfinite(fresh.read_before):
        values_note = f"  The values below are from {units.clock(view.now - fresh.read_before)}."
    line: Line = [Segment(f"  {text}.", theme.ink(role, bold=True) + ground)]
    line = cut(line, cells)
    if values_note and length(line) + len(values_note) <= cells:
        line.append(Segment(values_note, theme.ink("text") + ground))
    return [*line, Segment(" " * (cells - length(line)), ground)]
