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


class ClickPlace(NamedTuple):
    """A clickable range of cells in a line."""

    begin: int
    end: int
    does: str
    """Action of the equivalent key."""


class HeadShown(NamedTuple):
    """Content of the first line."""

    shown: int
    there: int
    tagged: int
    tags_unseen: int
    """Number of tagged processes that are not on the page."""
    is_told: bool
    """Whether the processes of every GPU are known."""
    left_out: int
    """Number of processes of which only the count is known, because frames have no room for them."""
    kept: int
    """Number of processes in `there` that come from stored history, for the same reason."""
    kept_age: float
    """Seconds since these were seen."""
    text: str
    """The filter."""
    is_typed: bool
    """Whether the filter is being typed."""
    is_tree: bool
    is_by_user: bool
    doubts: str
    """Names the GPUs whose processes are unknown or outdated; may be empty."""
    notice: str
    """Why some processes cannot be seen, as a sentence; may be empty."""


def head(of: HeadShown, edge: int, cells: int) -> tuple[Line, list[ClickPlace]]:
    """Return the first line of the page and its clickable ranges."""
    line: Line = [Segment(" " * edge), Segment("Processes", _TITLE), Segment("  ")]
    if of.text:
        line += [Segment(str(of.shown), _TEXT), Segment(f" of {of.there}", _DIM)]
    else:
        line.append(Segment(str(of.there) if of.is_told or of.there else units.MISSING, _TEXT))
    if of.kept and cells >= NARROW:
        line.append(Segment(f"  {of.kept} of history, {units.long_duration(of.kept_age)} old", _WARN))
    if of.left_out:
        line.append(Segment(f"  {of.left_out} more have no room" if cells >= NARROW else f" +{of.left_out}", _WARN))
    if of.doubts and (cells >= NARROW or not (of.text or of.is_typed)):
        line.append(Segment("  " + fit(of.doubts, cells - edge - length(line) - 2).rstrip(), _WARN))
    if of.tagged:
        line.append(Segment(f"  {of.tagged} tagged{f', {of.tags_unseen} unseen' if of.tags_unseen else ''}", _KEY))
    places: list[ClickPlace] = []
    switches: Line = []
    has_rows = bool(of.there or of.left_out or of.is_by_user or of.is_tree)
    every = (("u", "by user", "by_user", of.is_by_user), ("t", "tree", "tree", of.is_tree))
    for key, name, does, is_on in every if has_rows else ():
        lead = "   " if switches else ""
        switches += [Segment(lead), Segment(key, _KEY), Segment(f" {name}", _STRONG if is_on else _DIM)]
        end = length(switches)
        places.append(ClickPlace(end - len(name) - 2, end, does))
    room = cells - edge - length(switches)
    if of.text or of.is_typed:
        at = max(length(line) + 2, min(34, cells // 2 - FIELD // 2))
        own = min(FIELD, cells - at - 3 - edge)
        if at + own + 3 > room - 2:
            switches, places, room = [], [], cells
        if own < 4:
            line, at, own = [Segment(" " * edge)], edge, cells - 2 * edge - 2
        line += [Segment(" " * max(0, at - length(line))), Segment("/ ", _KEY), *_field(of, own)]
        left = room - length(line) - 4
        hints: Line = []
        for hint in HINTS:
            if of.is_typed and length(hints) + len(hint) + 2 <= left:
                hints.append(Segment(f"  {hint}", _FAINT))
        line += hints
        places.append(ClickPlace(at, at + own + 2, "filter"))
    elif of.notice and room - length(line) > 16:
        line.append(Segment("  " + fit(safe(of.notice), room - length(line) - 4).rstrip(), _DIM))
    if switches and length(line) + 2 <= room:
        line.append(Segment(" " * (room - length(line))))
        return [*line, *switches], [_moved(place, 0 if place.does == "filter" else room) for place in places]
    return line, [place for place in places if place.does == "filter"]


def _moved(place: ClickPlace, by: int) -> ClickPlace:
    return place._replace(begin=place.begin + by, end=place.end + by)


def _field(of: HeadShown, cells: int) -> Line:
    """Return the filter field; if it is too long, the end is shown, where the user types."""
    shown, room = safe(of.text), max(0, cells - 2)
    while width(shown) > room:
        shown = shown[1:]
    caret = Segment("▏", _CARET) if of.is_typed else Segment(" ", _FIELD)
    return cut([Segment(f" {shown}", _FIELD), caret, Segment(" " * (room - width(shown)), _FIELD)], cells)


def sums(totals: Sequence[tuple[str, KnownSum]], memory: float, below: int, edge: int, cells: int) -> Line:
    """Return the line below the rows: GPU memory by user and in total, and the number of rows further down."""
    more = f"+{below} ▼" if below > 0 else ""
    line: Line = [Segment(" " * edge), Segment("by user", _FAINT)]
    whole = f"   GiB of {units.gibibytes(memory)}" if is_known(memory) else "   GiB"
    room = cells - edge - len(more) - 1 - len(whole)
    for place, (user, total) in enumerate(totals):
        name, used = safe(user) or "unknown", at_least(total, units.gibibytes)
        others = len(f"   +{len(totals) - place - 1}") if place + 1 < len(totals) else 0
        if length(line) + width(name) + len(used) + 4 + others > room:
            line += [Segment(f"   +{len(totals) - place}", _DIM), *([Segment(whole, _FAINT)] if place else [])]
            break
        line += [Segment(f"   {name} ", _DIM), Segment(used, _TEXT)]
    else:
        if totals:
            line.append(Segment(whole, _FAINT))
    if len(line) == 2:
        line = [Segment(" " * edge)]
    line.append(Segment(" " * max(0, cells - edge - len(more) - length(line))))
    return [*line, Segment(more, palette.ink("key"))]


def at_least(total: KnownSum, shown: Callable[[float], str]) -> str:
    """Format a sum; `≥` if a part of it is unknown."""
    return shown(total.value) if total.is_whole or not is_known(total.value) else f"≥{shown(total.value)}"


Key = tuple[int, str]
"""A process has a row per device."""
_TOLD = (Availability.STALE, Availability.ASLEEP)
"""States of GPUs that do not respond, but whose processes are known: the last known ones, or none if asleep."""


def no_process(samples: Sequence[Sample], problem: str, until: str = "") -> str:
    """Return the text of an empty table; it says that there is no process only if that is known for every GPU.

    `until`: the time of the last samples if no newer ones arrive; later processes are unknown.
    """
    if not samples:
        return "no GPU can be read"
    silent = [sample for sample in samples if sample.state is not Availability.OK]
    if len(silent) == len(samples):
        return f"unknown: {silent[0].state.reason}"  # the remedy is shown below the header
    if silent:
        return f"unknown: {problem or silent[0].state.reason}"
    if until:
        return f"unknown since {until}"
    samples = [sample for sample in samples if not sample.device.is_divided]  # its MIG instances have the processes
    for sample in samples:
        if PROCESSES in sample.device.missing:
            return f"unknown on GPU {sample.device.label}: {sample.device.missing[PROCESSES].reason}"
    held = [is_held(sample, (), False) for sample in samples]
    if True in held:
        return "no process listed, but memory is in use (perhaps by another container)"
    if None in held:
        return "no process listed; memory use unknown"
    return "no process holds GPU memory"


def are_told(samples: Sequence[Sample]) -> bool:
    """Whether the processes of every GPU are known."""
    told = [
        sample.state is Availability.OK and PROCESSES not in sample.device.missing
        for sample in samples
        if not sample.device.is_divided
    ]
    return bool(told) and all(told)


def doubts(samples: Sequence[Sample], age: float = 0.0) -> str:
    """Return a text naming the GPUs whose processes are unknown or outdated; empty if all are current.

    `age` of the frame in seconds, if no newer one arrives.
    """
    labels = {sample.device.uuid: sample.device.label for sample in samples}
    stale = [sample for sample in samples if sample.state is Availability.STALE]
    unknown = [
        sample.device.uuid for sample in samples
        if not sample.device.is_divided  # its MIG instances have the processes
        and (PROCESSES in sample.device.missing or sample.state not in (Availability.OK, *_TOLD))
    ]  # fmt: skip
    parts = [f"of GPU {numbers(unknown, labels)} unknown"] if unknown else []
    if stale:
        told = numbers([sample.device.uuid for sample in stale], labels)
        ages = [sample.age + age for sample in stale if isfinite(sample.age + age)]
        parts.append(f"of GPU {told} stale" + (f" {units.duration(max(ages))}" if ages else ""))
    return f"those {', '.join(parts)}" if parts else ""


def key(process: Process) -> Key:
    """Return the key of a row, which is independent of the sort order."""
    return process.pid, process.uuid
