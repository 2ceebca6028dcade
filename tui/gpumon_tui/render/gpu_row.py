"""A GPU as one line: recent history, current values, and its user."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.gpu_status import GpuStatus
from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.model.columns import GPU_BY_KEY
from gpumon.model.device import REPLAY_PREFIX
from gpumon.model.frame import Run, Sample
from gpumon.model.metrics import BY_NAME, Availability
from gpumon.model.vendors import short_name
from gpumon_tui import theme
from gpumon_tui.render.bars import CELL, TINTS, memory_bar
from gpumon_tui.render.gpu_columns import OPTIONAL_COLUMNS, TOTAL, GpuColumns
from gpumon_tui.render.gpu_status import FREE, GpuHolder, GpuLabel, holder, level, throttled, without_outdated
from gpumon_tui.render.table import Cell, Row, TableColumn
from gpumon_tui.render.text_width import Line, LineBuilder, fit, length, width

BRACKET = ("┌", "│", "└")
"""Glyphs for the first, middle and last GPU of a run."""
SHORT_STATES = {
    "allocated, idle": "idle", "heat-throttled": "throttled", "state unknown": "unknown",
    "no GPU driver answers": "no driver",
}  # fmt: skip
"""Short forms of states; next to the user of the GPU, "idle" means allocated and idle."""
MIN_SPACED_USERS = 7
_NAME = 12
"""Maximum length of a program name next to the idle time, if both do not fit."""
_FADED = frozenset({GpuState.STALE, GpuState.LOST, GpuState.UNREADABLE})
"""GPU states whose values are outdated or missing."""
_NO_ROOM = "…"
"""Replaces a number that does not fit, because a truncated number is a wrong number."""
_PERCENT = 3
"""Width of a percentage in digits."""


class GpuLine(NamedTuple):
    """Content of a GPU's line."""

    sample: Sample
    state: GpuState
    label: GpuLabel
    idle: str
    """How long it has been allocated but idle: `3 h 12 m`; empty if it is not."""
    holder: GpuHolder
    left: float
    """Seconds until its run ends, or NaN."""
    received: float
    sent: float
    """PCIe bytes sent per second, or NaN."""
    history: Line
    bracket: str = ""
    """One of `BRACKET` if neighboring GPUs belong to the same run."""


def gpu_row(gpu: GpuLine, columns: GpuColumns) -> Row:
    """Return the cells of a GPU."""
    is_old = gpu.state in _FADED
    return [_cell(gpu, placed.column, columns, is_old=is_old) for placed in columns.placed]


def _cell(gpu: GpuLine, column: TableColumn, columns: GpuColumns, *, is_old: bool) -> Cell:
    sample = gpu.sample
    match column.key:
        case "gpu":
            style = theme.PLAIN if gpu.state is GpuState.FREE else theme.STRONG
            return Cell(sample.device.label or units.MISSING, style)
        case "history":
            return Cell("", parts=gpu.history)
        case "utilization":
            # The last known value of a hung driver would look current next to a strip that ends in a gap.
            value = NAN if sample.state is Availability.STALE else sample.value("gpu.utilization")
            return _percent(value, theme.DIM if is_old else theme.STRONG)
        case "memory_used":
            return _memory(sample, column.cells, columns, is_old=is_old)
        case "throttled":
            is_hot = gpu.label.is_hot
            text = throttled(sample, is_hot=is_hot, room=column.cells) or units.MISSING
            style = theme.FAINT if text in ("no", units.MISSING) else gpu.label.style if is_hot else theme.PLAIN
            return Cell(text, style)
        case "holder":
            return Cell("", parts=(_short_holder if columns.is_short else _holder)(gpu, columns))
    return _number(gpu, column, is_old=is_old)


def _percent(value: float, strong: Style) -> Cell:
    if not isfinite(value):
        return Cell(units.MISSING, theme.FAINT)
    text = _first_fitting(_PERCENT, GPU_BY_KEY["utilization"].write_without_unit(value))
    style = strong if value >= 0.005 else theme.DIM
    return Cell("", parts=[Segment(fit(text, _PERCENT, right=True), style), Segment("%", theme.DIM)])


def _first_fitting(room: int, *texts: str) -> str:
    """Return the first of the texts that fits."""
    return next((text for text in texts if width(text) <= room), _NO_ROOM)


def _memory(sample: Sample, cells: int, columns: GpuColumns, *, is_old: bool) -> Cell:
    """Return the bar, the used memory, and in tables with GPUs of several sizes the memory size."""
    used, total = sample.value("gpu.memory_used"), sample.value("gpu.memory_total")
    end = cells - TOTAL * columns.has_total
    line = LineBuilder()
    line.segments(0, memory_bar(sample, columns.bar_cells) if columns.bar_cells else [])
    if sample.device.missing.get("gpu.memory_used") is Availability.SHARED_WITH_HOST:
        line.right(end, "host's", theme.DIM)
    elif not isfinite(used):
        line.right(end, units.MISSING, theme.FAINT)
    else:
        size, room = used / 2**30, end - columns.bar_cells
        style = theme.DIM if is_old or size < 0.05 else theme.LEVELS[level(BY_NAME["gpu.memory_used"], used, total)]
        if columns.is_short:
            line.put(end - 1, "G", theme.DIM)
            line.right(end - 1, _first_fitting(room - 1, f"{size:.0f}"), style)
        else:
            text = _first_fitting(room, GPU_BY_KEY["memory_used"].write_without_unit(used), f"{size:.0f}")
            line.right(end, text, style)
        if end < cells and isfinite(total) and not sample.device.is_divided:  # MIG: the rest is unusable
            line.put(end, f"/{_first_fitting(TOTAL - 1, f'{total / 2**30:.0f}')}", theme.DIM)
    return Cell("", parts=line.line(cells))


_FAINT_BELOW = {
    "pcie_received": 0.05 * 2**30, "pcie_sent": 0.05 * 2**30, **dict.fromkeys(OPTIONAL_COLUMNS, 0.005),
}  # fmt: skip


def _number(gpu: GpuLine, placed: TableColumn, *, is_old: bool) -> Cell:
    column = GPU_BY_KEY[placed.key]
    rates = {"pcie_received": gpu.received, "pcie_sent": gpu.sent}
    value = rates[column.key] if column.key in rates else gpu.sample.value(column.metric)
    style = theme.DIM if value < _FAINT_BELOW.get(column.key, 0.0) else theme.PLAIN
    if column.key == "performance_state":
        text, style = units.performance_state(value), theme.DIM
    else:
        text = column.write_without_unit(value)
    if column.key == "temperature":
        style = theme.LEVELS[level(BY_NAME[column.metric], value)]
    text = _first_fitting(placed.cells, text)
    return Cell(text, theme.FAINT if text == units.MISSING else theme.DIM if is_old else style)


def _holder(gpu: GpuLine, columns: GpuColumns) -> Line:
    """Return the user, run or program, and at the end the epoch and time left, or the state."""
    pieces = LineBuilder()
    end, x = columns.end, columns.run
    if gpu.state is GpuState.FREE:
        pieces.put(0, " free ", FREE)
        return pieces.line(end)
    holder = gpu.holder
    is_first = gpu.bracket in ("", BRACKET[0])
    if is_first:
        _users(pieces, holder.users, columns.user_cells - 1)
    if gpu.bracket:
        pieces.put(x, gpu.bracket, theme.RUN)
        x += 2
    name = holder.name if is_first and columns.has_holders else ""
    if gpu.label.is_unremarkable and holder.epoch:
        if is_first:
            end = _epoch(pieces, gpu, columns, columns.epoch - x - width(name) - 1)
    elif is_first or not gpu.label.is_unremarkable:
        room = end - x - (min(width(name), _NAME) + 1 if name else 0)
        text = _word(gpu, room, has_user=bool(holder.users))
        if text.endswith("…"):  # the state matters more than the name
            text = _word(gpu, end - x, has_user=bool(holder.users))
        end = pieces.right(end, text, gpu.label.style)
    if name and end - 1 > x:
        pieces.put(x, fit(name, end - 1 - x).rstrip(), theme.RUN if holder.is_run else theme.PLAIN)
    return pieces.line(columns.end)


def _epoch(pieces: LineBuilder, gpu: GpuLine, columns: GpuColumns, room: int) -> int:
    """Draw the progress of a run, in short form if the name needs the room; return its first cell."""
    if columns.epoch < columns.end and isfinite(gpu.left):
        pieces.right(columns.end, units.short_duration(gpu.left), theme.PLAIN)
    holder = gpu.holder
    is_brief = width(holder.position) > room
    return pieces.right(columns.epoch, holder.brief if is_brief else holder.position, theme.STRONG)


def _users(pieces: LineBuilder, users: tuple[str, ...], cells: int) -> None:
    if not users:
        return
    other_count = f"+{len(users) - 1}"
    suffixes = (f" {other_count}" if cells > MIN_SPACED_USERS else other_count, "+", "") if len(users) > 1 else ("",)
    suffix = next((candidate for candidate in suffixes if width(users[0]) + len(candidate) <= cells), "")
    pieces.put(1, fit(users[0], cells - len(suffix)).rstrip() + suffix, theme.PLAIN)


def _word(gpu: GpuLine, room: int, *, has_user: bool) -> str:
    """Return the state in a form that fits; `has_user`: the user is shown next to it."""
    word = gpu.label.word
    brief = SHORT_STATES.get(word, word) if has_user or word != "allocated, idle" else word
    with_time = [f"{state} {gpu.idle}" for state in (word, brief)] if gpu.idle else []
    for text in (*with_time, word, brief):
        if width(text) <= room:
            return text
    return fit(brief, max(0, room))


def _short_holder(gpu: GpuLine, columns: GpuColumns) -> Line:
    """Return the user, and at the end the epoch or the state in one word, which is always shown."""
    pieces, holder, end = LineBuilder(), gpu.holder, columns.end
    if gpu.state is GpuState.FREE:
        pieces.put(0, " free ", FREE)
        return pieces.line(end)
    if gpu.label.is_unremarkable and holder.epoch:
        begin = pieces.right(end, fit(holder.brief, end).strip(), theme.RUN)
    else:
        user = min(width(holder.users[0]), columns.user_cells) + 1 if holder.users else 0
        text = _word(gpu, end - user, has_user=bool(holder.users))
        if text.endswith("…"):  # the state matters more than the name
            text = _word(gpu, end, has_user=bool(holder.users))
        begin = pieces.right(end, text, gpu.label.style)
    _users(pieces, holder.users, min(columns.user_cells + 2, begin - 2))
    return pieces.line(end)


def gpu_text(status: GpuStatus, run: Run | None, word: str) -> str:
    """Return number, model, UUID, utilization, memory, temperature, power, users, run or program, epoch and `word`.

    The fields are separated by tabs. An unknown id is left empty. Values of a GPU whose driver does not respond are not
    presented as current.
    """
    device, sample = status.sample.device, without_outdated(status.sample)
    gpu_holder = holder(sample, run, status.processes, len(status.runs))
    write_watts = GPU_BY_KEY["power"].write_without_unit
    watts = [write_watts(sample.value(name)) for name in ("gpu.power", "gpu.power_limit")]
    power = watts if is_known(sample.value("gpu.power_limit")) else watts[:1]
    uuid = units.MISSING if device.uuid.startswith(REPLAY_PREFIX) else device.uuid
    return "\t".join((
        device.label, short_name(device.name), uuid,
        GPU_BY_KEY["utilization"].write(sample.value("gpu.utilization"), is_narrow=True),
        units.of_total(sample.value("gpu.memory_used"), sample.value("gpu.memory_total")),
        GPU_BY_KEY["temperature"].write(sample.value("gpu.temperature")), f"{'/'.join(power)} W",
        ", ".join(gpu_holder.users), gpu_holder.name, gpu_holder.epoch, word,
    ))  # fmt: skip


def host_row(history: Line, host: Callable[[str], float], name: str, columns: GpuColumns) -> Row:
    """Return the cells of the host; `host` returns its metrics by name."""
    used, total = host("host.memory_used"), host("host.memory_total")
    memory: Line = []
    if columns.bar_cells and isfinite(used) and total > 0:
        filled = min(columns.bar_cells, round(columns.bar_cells * used / total))
        memory += [
            Segment(CELL * filled, theme.tint("memory", 0.45)),
            Segment(CELL * (columns.bar_cells - filled), TINTS["free"]),
        ]
    size = f"{used / 2**30:.0f}G" if columns.is_short and isfinite(used) else units.gibibytes(used)
    cells = {
        "gpu": Cell("CPU", theme.STRONG),
        "history": Cell("", parts=history),
        "utilization": Cell(units.percent(host("host.cpu_utilization")), theme.STRONG),
        "holder": Cell(f"{'' if columns.is_short else ' '}host {name}".rstrip(), theme.DIM),
    }
    for placed in columns.placed:
        if placed.column.key == "memory_used":
            room = placed.column.cells - length(memory)
            cells["memory_used"] = Cell("", parts=[*memory, Segment(fit(size, room, right=True), theme.PLAIN)])
    return [cells.get(placed.column.key, Cell("")) for placed in columns.placed]
