"""The line below the rows of processes, and why processes are missing or unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite

from rich.segment import Segment

from gpumon.analysis.gpu_state import is_held
from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.frame import Sample
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.process import Process
from gpumon_tui import theme
from gpumon_tui.data.user_totals import KnownSum
from gpumon_tui.render.gpu_columns import numbers
from gpumon_tui.render.text_width import Line, length, safe, width

_TEXT, _DIM, _FAINT = theme.ink("text"), theme.ink("dim"), theme.ink("faint")


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
    return [*line, Segment(hidden_text, theme.ink("key"))]


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

    `age`: age of the frame in seconds if newer frames have stopped arriving, otherwise 0.
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
