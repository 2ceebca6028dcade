"""Lines around the rows of processes: counts, filter, totals by user, and why processes are missing or unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import NamedTuple

from rich.segment import Segment

from gpumon.analysis.gpu_state import is_held
from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.frame import Sample
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.process import Process
from gpumon_tui import palette
from gpumon_tui.data.process_filters import HINTS
from gpumon_tui.data.user_totals import KnownSum
from gpumon_tui.render.gpu_columns import numbers
from gpumon_tui.render.text_width import Line, cut, fit, length, safe, width

_TITLE, _TEXT, _DIM, _FAINT = (
    palette.ink("strong", bold=True), palette.ink("text"), palette.ink("dim"), palette.ink("faint"),
)  # fmt: skip
_KEY, _WARN, _STRONG = palette.ink("key", bold=True), palette.ink("warn"), palette.ink("strong")
_FIELD, _CARET = palette.ink("strong", "panel"), palette.ink("key", "panel")
NARROW = 80
FIELD = 26
"""Width of the filter field."""


class ClickRange(NamedTuple):
    """A clickable range of cells in a line."""

    begin: int
    end: int
    action: str
    """Action of the equivalent key."""


class HeadContent(NamedTuple):
    """Content of the first line."""

    shown: int
    total: int
    tagged: int
    hidden_tags: int
    """Number of tagged processes that are not on the page."""
    is_complete: bool
    """Whether every GPU reports its processes."""
    left_out: int
    """Number of further processes; frames contain only their count, because they have no room for them."""
    from_history: int
    """Number of processes in `total` that come from stored history, for the same reason."""
    history_age: float
    """Seconds since these were seen."""
    text: str
    """The filter."""
    is_typing: bool
    """Whether the filter is being typed."""
    is_tree: bool
    is_by_user: bool
    unknown: str
    """Names the GPUs whose processes are unknown or outdated; may be empty."""
    notice: str
    """Why some processes cannot be seen, as a sentence; may be empty."""


def head_line(content: HeadContent, edge: int, cells: int) -> tuple[Line, list[ClickRange]]:
    """Return the first line of the page and its clickable ranges."""
    line: Line = [Segment(" " * edge), Segment("Processes", _TITLE), Segment("  ")]
    if content.text:
        line += [Segment(str(content.shown), _TEXT), Segment(f" of {content.total}", _DIM)]
    else:
        line.append(Segment(str(content.total) if content.is_complete or content.total else units.MISSING, _TEXT))
    if content.from_history and cells >= NARROW:
        line.append(
            Segment(f"  {content.from_history} of history, {units.long_duration(content.history_age)} old", _WARN)
        )
    if content.left_out:
        line.append(
            Segment(f"  {content.left_out} more have no room" if cells >= NARROW else f" +{content.left_out}", _WARN)
        )
    if content.unknown and (cells >= NARROW or not (content.text or content.is_typing)):
        line.append(Segment("  " + fit(content.unknown, cells - edge - length(line) - 2).rstrip(), _WARN))
    if content.tagged:
        line.append(
            Segment(
                f"  {content.tagged} tagged{f', {content.hidden_tags} unseen' if content.hidden_tags else ''}", _KEY
            )
        )
    ranges: list[ClickRange] = []
    switches: Line = []
    has_rows = bool(content.total or content.left_out or content.is_by_user or content.is_tree)
    all_switches = (("u", "by user", "by_user", content.is_by_user), ("t", "tree", "tree", content.is_tree))
    for hotkey, name, action, is_on in all_switches if has_rows else ():
        lead = "   " if switches else ""
        switches += [Segment(lead), Segment(hotkey, _KEY), Segment(f" {name}", _STRONG if is_on else _DIM)]
        end = length(switches)
        ranges.append(ClickRange(end - len(name) - 2, end, action))
    room = cells - edge - length(switches)
    if content.text or content.is_typing:
        field_begin = max(length(line) + 2, min(34, cells // 2 - FIELD // 2))
        field_cells = min(FIELD, cells - field_begin - 3 - edge)
        if field_begin + field_cells + 3 > room - 2:
            switches, ranges, room = [], [], cells
        if field_cells < 4:
            line, field_begin, field_cells = [Segment(" " * edge)], edge, cells - 2 * edge - 2
        line += [Segment(" " * max(0, field_begin - length(line))), Segment("/ ", _KEY), *_field(content, field_cells)]
        hint_cells = room - length(line) - 4
        hints: Line = []
        for hint in HINTS:
            if content.is_typing and length(hints) + len(hint) + 2 <= hint_cells:
                hints.append(Segment(f"  {hint}", _FAINT))
        line += hints
        ranges.append(ClickRange(field_begin, field_begin + field_cells + 2, "filter"))
    elif content.notice and room - length(line) > 16:
        line.append(Segment("  " + fit(safe(content.notice), room - length(line) - 4).rstrip(), _DIM))
    if switches and length(line) + 2 <= room:
        line.append(Segment(" " * (room - length(line))))
        return [*line, *switches], [
            _shifted(click_range, 0 if click_range.action == "filter" else room) for click_range in ranges
        ]
    return line, [click_range for click_range in ranges if click_range.action == "filter"]


def _shifted(click_range: ClickRange, offset: int) -> ClickRange:
    return click_range._replace(begin=click_range.begin + offset, end=click_range.end + offset)


def _field(content: HeadContent, cells: int) -> Line:
    """Return the filter field; if it is too long, the end is shown, where the user types."""
    text, room = safe(content.text), max(0, cells - 2)
    while width(text) > room:
        text = text[1:]
    caret = Segment("▏", _CARET) if content.is_typing else Segment(" ", _FIELD)
    return cut([Segment(f" {text}", _FIELD), caret, Segment(" " * (room - width(text)), _FIELD)], cells)


def sums_line(totals: Sequence[tuple[str, KnownSum]], memory: float, hidden: int, edge: int, cells: int) -> Line:
    """Return the line below the rows: GPU memory by user and in total, and the number of rows further down."""
    hidden_text = f"+{hidden} ▼" if hidden > 0 else ""
    line: Line = [Segment(" " * edge), Segment("by user", _FAINT)]
    total_text = f"   GiB of {units.gibibytes(memory)}" if is_known(memory) else "   GiB"
    room = cells - edge - len(hidden_text) - 1 - len(total_text)
    for index, (user, total) in enumerate(totals):
        name, used = safe(user) or "unknown", at_least(total, units.gibibytes)
        more_cells = len(f"   +{len(totals) - index - 1}") if index + 1 < len(totals) else 0
        if length(line) + width(name) + len(used) + 4 + more_cells > room:
            line += [Segment(f"   +{len(totals) - index}", _DIM), *([Segment(total_text, _FAINT)] if index else [])]
            break
        line += [Segment(f"   {name} ", _DIM), Segment(used, _TEXT)]
    else:
        if totals:
            line.append(Segment(total_text, _FAINT))
    if len(line) == 2:
        line = [Segment(" " * edge)]
    line.append(Segment(" " * max(0, cells - edge - len(hidden_text) - length(line))))
    return [*line, Segment(hidden_text, palette.ink("key"))]


def at_least(total: KnownSum, write: Callable[[float], str]) -> str:
    """Format a sum; `≥` if a part of it is unknown."""
    return write(total.value) if total.is_whole or not is_known(total.value) else f"≥{write(total.value)}"


Key = tuple[int, str]
"""A process has a row per device."""
_WITH_PROCESSES = (Availability.STALE, Availability.ASLEEP)
"""States of GPUs that do not respond, but whose processes are available: the last reported ones, or none if asleep."""


def empty_text(samples: Sequence[Sample], problem: str, last_time: str = "") -> str:
    """Return the text of an empty table; it says that there is no process only if every GPU reports its processes.

    `last_time`: the time of the last samples if no newer ones arrive; later processes are unknown.
    """
    if not samples:
        return "no GPU can be read"
    not_responding = [sample for sample in samples if sample.state is not Availability.OK]
    if len(not_responding) == len(samples):
        return f"unknown: {not_responding[0].state.reason}"  # the remedy is shown below the header
    if not_responding:
        return f"unknown: {problem or not_responding[0].state.reason}"
    if last_time:
        return f"unknown since {last_time}"
    samples = [sample for sample in samples if not sample.device.is_divided]  # its MIG instances have the processes
    for sample in samples:
        if PROCESSES in sample.device.missing:
            return f"unknown on GPU {sample.device.label}: {sample.device.missing[PROCESSES].reason}"
    usage = [is_held(sample, (), False) for sample in samples]
    if True in usage:
        return "no process listed, but memory is in use (perhaps by another container)"
    if None in usage:
        return "no process listed; memory use unknown"
    return "no process holds GPU memory"


def are_processes_known(samples: Sequence[Sample]) -> bool:
    """Whether every GPU reports its processes."""
    known_by_gpu = [
        sample.state is Availability.OK and PROCESSES not in sample.device.missing
        for sample in samples
        if not sample.device.is_divided
    ]
    return bool(known_by_gpu) and all(known_by_gpu)


def unknown_text(samples: Sequence[Sample], age: float = 0.0) -> str:
    """Return text that names the GPUs whose processes are unknown or outdated; empty if all are current.

    `age` of the frame in seconds, if no newer one arrives.
    """
    labels = {sample.device.uuid: sample.device.label for sample in samples}
    stale = [sample for sample in samples if sample.state is Availability.STALE]
    unknown = [
        sample.device.uuid for sample in samples
        if not sample.device.is_divided  # its MIG instances have the processes
        and (PROCESSES in sample.device.missing or sample.state not in (Availability.OK, *_WITH_PROCESSES))
    ]  # fmt: skip
    parts = [f"of GPU {numbers(unknown, labels)} unknown"] if unknown else []
    if stale:
        stale_numbers = numbers([sample.device.uuid for sample in stale], labels)
        ages = [sample.age + age for sample in stale if isfinite(sample.age + age)]
        parts.append(f"of GPU {stale_numbers} stale" + (f" {units.duration(max(ages))}" if ages else ""))
    return f"those {', '.join(parts)}" if parts else ""


def row_key(process: Process) -> Key:
    """Return the key of a row, which is independent of the sort order."""
    return process.pid, process.uuid
