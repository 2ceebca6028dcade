"""A GPU as one line: recent history, current values, and its user."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import NamedTuple

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
from gpumon_tui import palette, theme
from gpumon_tui.render.bars import CELL, TINTS, memory_bar
from gpumon_tui.render.gpu_columns import NUMBERS, OPTIONAL_COLUMNS, GpuColumns
from gpumon_tui.render.gpu_facts import throttled
from gpumon_tui.render.gpu_status import GpuHolder, GpuLabel, holder, level, without_outdated
from gpumon_tui.render.text_width import Line, LineBuilder, Piece, fit, width

MARK = "▌"
BRACKET = ("┌", "│", "└")
"""Glyphs for the first, middle and last GPU of a run."""
SHORT_STATES = {
    "allocated, idle": "idle", "heat-throttled": "throttled", "divided by MIG": "divided", "state unknown": "unknown",
    "no GPU driver answers": "no driver",
}  # fmt: skip
"""Short forms of states; next to the user of the GPU, "idle" means allocated and idle."""
THROTTLED_CELLS = 11
"""Width of the throttling reasons."""
MIN_SPACED_USERS = 7
_NAME = 12
"""Maximum length of a program name next to the idle time, if both do not fit."""
FREE = palette.tint("util", 1.0, "util", 0.06) + Style(bold=True)
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
    is_selected: bool = False


def gpu_row(gpu: GpuLine, columns: GpuColumns) -> list[Piece]:
    """Return the texts of a line with their positions."""
    pieces = LineBuilder()
    is_old = gpu.state in _FADED
    strong = theme.DIM if is_old else theme.STRONG
    if gpu.is_selected:
        pieces.put(0, MARK, theme.TITLE)
    label = gpu.sample.device.label or units.MISSING
    pieces.right(columns.label, label, theme.PLAIN if gpu.state is GpuState.FREE else theme.STRONG)
    if columns.strip_cells:
        pieces.segments(columns.strip, gpu.history)
    # The last known value of a hung driver would look current next to a strip that ends in a gap.
    utilization = NAN if gpu.sample.state is Availability.STALE else gpu.sample.value("gpu.utilization")
    _percent(pieces, utilization, columns.percent, strong)
    if columns.bar_cells:
        pieces.segments(columns.bar, memory_bar(gpu.sample, columns.bar_cells))
    _memory(pieces, gpu.sample, columns, is_old=is_old)
    _numbers(pieces, gpu, columns, is_old=is_old)
    (_short_tail if columns.is_short else _tail)(pieces, gpu, columns)
    return pieces.pieces


def _percent(pieces: LineBuilder, value: float, end: int, strong: Style) -> None:
    if not isfinite(value):
        pieces.right(end, units.MISSING, theme.FAINT)
        return
    pieces.put(end - 1, "%", theme.DIM)
    pieces.right(
        end - 1,
        _first_fitting(_PERCENT, GPU_BY_KEY["utilization"].write_without_unit(value)),
        strong if value >= 0.005 else theme.DIM,
    )


def _first_fitting(room: int, *texts: str) -> str:
    """Return the first of the texts that fits."""
    return next((text for text in texts if width(text) <= room), _NO_ROOM)


def _memory(pieces: LineBuilder, sample: Sample, columns: GpuColumns, *, is_old: bool) -> None:
    used, total = sample.value("gpu.memory_used"), sample.value("gpu.memory_total")
    if sample.device.missing.get("gpu.memory_used") is Availability.SHARED_WITH_HOST:
        pieces.right(columns.used, "host's", theme.DIM)
        return
    if not isfinite(used):
        pieces.right(columns.used, units.MISSING, theme.FAINT)
        return
    size = used / 2**30
    style = theme.DIM if is_old or size < 0.05 else theme.LEVELS[level(BY_NAME["gpu.memory_used"], used, total)]
    if columns.is_short:
        pieces.put(columns.used - 1, "G", theme.DIM)
        pieces.right(columns.used - 1, _first_fitting(columns.used - 2 - columns.percent, f"{size:.0f}"), style)
    else:
        begin = columns.bar + columns.bar_cells if columns.bar_cells else columns.percent + 1
        pieces.right(
            columns.used,
            _first_fitting(columns.used - begin, GPU_BY_KEY["memory_used"].write_without_unit(used), f"{size:.0f}"),
            style,
        )
    if columns.of and isfinite(total) and not sample.device.is_divided:  # MIG: the rest is unusable
        pieces.put(columns.used, f"/{_first_fitting(columns.of - columns.used - 1, f'{total / 2**30:.0f}')}", theme.DIM)


def _numbers(pieces: LineBuilder, gpu: GpuLine, columns: GpuColumns, *, is_old: bool) -> None:
    sample, last_end = gpu.sample, max(columns.used, columns.of)

    def number(end: int, text: str, style: Style) -> None:
        nonlocal last_end  # in column order
        if end:
            text = _first_fitting(end - last_end - 1, text)
            pieces.right(end, text, theme.FAINT if text == units.MISSING else theme.DIM if is_old else style)
            last_end = end

    faint_below = {"pcie_received": 0.05 * 2**30, "pcie_sent": 0.05 * 2**30, **dict.fromkeys(OPTIONAL_COLUMNS, 0.005)}
    rates = {"pcie_received": gpu.received, "pcie_sent": gpu.sent}
    for key in NUMBERS:
        column = GPU_BY_KEY[key]
        value = rates[key] if key in rates else sample.value(column.metric)
        if key == "performance_state":
            number(columns.performance_state, units.performance_state(value), theme.DIM)
            continue
        style = theme.DIM if value < faint_below.get(key, 0.0) else theme.PLAIN
        if key == "temperature":
            style = theme.LEVELS[level(BY_NAME[column.metric], value)]
        number(getattr(columns, key), column.write_without_unit(value), style)
    if columns.throttled:
        is_hot = gpu.label.is_hot
        text = throttled(sample, is_hot=is_hot, room=THROTTLED_CELLS) or units.MISSING
        style = theme.FAINT if text in ("no", units.MISSING) else gpu.label.style if is_hot else theme.PLAIN
        pieces.put(columns.throttled, fit(text, THROTTLED_CELLS), style)


def _tail(pieces: LineBuilder, gpu: GpuLine, columns: GpuColumns) -> None:
    """Draw the user, run or program, and at the end the epoch and time left, or the state."""
    if gpu.state is GpuState.FREE:
        pieces.put(columns.user - 1, " free ", FREE)
        return
    holder = gpu.holder
    is_first = gpu.bracket in ("", BRACKET[0])
    x = columns.run
    if is_first:
        _users(pieces, holder.users, columns.user, columns.user_cells - 1)
    if gpu.bracket:
        pieces.put(x, gpu.bracket, theme.RUN)
        x += 2
    name = holder.name if is_first and columns.has_holders else ""
    end = columns.end
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


def _epoch(pieces: LineBuilder, gpu: GpuLine, columns: GpuColumns, room: int) -> int:
    """Draw the progress of a run, in short form if the name needs the room; return its first cell."""
    if columns.epoch < columns.end and isfinite(gpu.left):
        pieces.right(columns.end, units.short_duration(gpu.left), theme.PLAIN)
    holder = gpu.holder
    is_brief = width(holder.position) > room
    return pieces.right(columns.epoch, holder.brief if is_brief else holder.position, theme.STRONG)


def _users(pieces: LineBuilder, users: tuple[str, ...], x: int, cells: int) -> None:
    if not users:
        return
    other_count = f"+{len(users) - 1}"
    suffixes = (f" {other_count}" if cells > MIN_SPACED_USERS else other_count, "+", "") if len(users) > 1 else ("",)
    suffix = next((candidate for candidate in suffixes if width(users[0]) + len(candidate) <= cells), "")
    pieces.put(x, fit(users[0], cells - len(suffix)).rstrip() + suffix, theme.PLAIN)


def _word(gpu: GpuLine, room: int, *, has_user: bool) -> str:
    """Return the state in a form that fits; `has_user`: the user is shown next to it."""
    word = gpu.label.word
    brief = SHORT_STATES.get(word, word) if has_user or word != "allocated, idle" else word
    with_time = [f"{state} {gpu.idle}" for state in (word, brief)] if gpu.idle else []
    for text in (*with_time, word, brief):
        if width(text) <= room:
            return text
    return fit(brief, max(0, room))


def _short_tail(pieces: LineBuilder, gpu: GpuLine, columns: GpuColumns) -> None:
    """Draw the user, and at the end the epoch or the state in one word, which is always shown."""
    holder = gpu.holder
    if gpu.state is GpuState.FREE:
        pieces.put(columns.user, " free ", FREE)
        return
    end, room = columns.end, columns.end - columns.user
    if gpu.label.is_unremarkable and holder.epoch:
        begin = pieces.right(end, fit(holder.brief, room).strip(), theme.RUN)
    else:
        user = min(width(holder.users[0]), columns.user_cells) + 1 if holder.users else 0
        text = _word(gpu, room - user, has_user=bool(holder.users))
        if text.endswith("…"):  # the state matters more than the name
            text = _word(gpu, room, has_user=bool(holder.users))
        begin = pieces.right(end, text, gpu.label.style)
    _users(pieces, holder.users, columns.user + 1, min(columns.user_cells + 2, begin - columns.user - 2))


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


def host_row(history: Line, host: Callable[[str], float], name: str, columns: GpuColumns) -> list[Piece]:
    """Return the texts of the host's line; `host` returns its metrics by name."""
    pieces = LineBuilder()
    pieces.right(columns.label, "CPU", theme.STRONG)
    if columns.strip_cells:
        pieces.segments(columns.strip, history)
    pieces.right(columns.percent, units.percent(host("host.cpu_utilization")), theme.STRONG)
    used, total = host("host.memory_used"), host("host.memory_total")
    if columns.bar_cells and isfinite(used) and total > 0:
        filled = min(columns.bar_cells, round(columns.bar_cells * used / total))
        pieces.put(columns.bar, CELL * filled, palette.tint("memory", 0.45))
        pieces.put(columns.bar + filled, CELL * (columns.bar_cells - filled), TINTS["free"])
    size = units.gibibytes(used)
    pieces.right(columns.used, f"{used / 2**30:.0f}G" if columns.is_short and isfinite(used) else size, theme.PLAIN)
    pieces.put(columns.user, f"host {name}".rstrip(), theme.DIM)
    return pieces.pieces
