"""Cost of a command, as a few lines for a person."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpumon.common.numbers import NAN, is_known
from gpumon.common.text import clean
from gpumon.launcher.child import Ended
from gpumon.launcher.cost import DeviceCost
from gpumon.launcher.epochs import Training
from gpumon.launcher.watcher import CommandReport
from gpumon.model import units
from gpumon.model.metrics import Unit
from gpumon.model.units import AT_LEAST
from gpumon.model.vendors import short_name

_SHOWN = 4
"""Trainings that have a line of their own."""
_SEEN_AFTER = 10.0
"""Seconds: processes on a device are looked up every few, so that nobody saw what was shorter."""
_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


class SummaryLine(NamedTuple):
    """Label, amount and a note."""

    title: str
    value: str
    note: str = ""


def text(name: str, ended: Ended, seconds: float, report: CommandReport, *, color: bool) -> str:
    """The closing table of a command that ran for `seconds`; `color` for a terminal."""
    bold, dim, plain = (_BOLD, _DIM, _PLAIN) if color else ("", "", "")
    lines = list(_lines(ended, seconds, report))
    titles, values = (max(len(part) for part in parts) for parts in list(zip(*lines, strict=True))[:2])
    head = "  ·  ".join(part for part in (f"{bold}{clean(name, 60)}{plain}", how(ended)) if part)
    rows = [f"gpumon  {head}"]
    for line in lines:
        row = f"  {dim}{line.title:<{titles}}{plain}  {bold}{line.value:>{values}}{plain}  {line.note}"
        rows.append(row.rstrip())
    if report.shown_as:
        rows.append(f"  {dim}gpumon runs show {report.shown_as}{plain}")
    return "\n".join(rows) + "\n"


def how(ended: Ended) -> str:
    """Return in words why a command failed; empty when it did not."""
    if ended.signal:
        known = ended.signal in set(signal.Signals)
        return f"ended by {signal.Signals(ended.signal).name if known else f'signal {ended.signal}'}"
    return f"exit code {ended.code}" if ended.code else ""


def _lines(ended: Ended, seconds: float, report: CommandReport) -> Iterator[SummaryLine]:
    cores = f"{ended.cpu / seconds:.1f} CPU cores" if seconds >= 1 and is_known(ended.cpu) else ""
    memory = "" if not is_known(ended.memory) else f"{units.bytes_binary(ended.memory)} of memory"
    yield SummaryLine("time", units.brief(seconds), ", ".join(part for part in (cores, memory) if part))
    if report.uses:
        yield from _device_lines(report.uses)
        if report.problem:
            yield SummaryLine("", "", report.problem)
    else:
        yield SummaryLine("GPU time", *_without(report, seconds))
    if report.awaited and not report.trainings:
        yield SummaryLine("trainings", "0", f"--auto knows {report.awaited}, in a Python that heeds PYTHONPATH")
    for training in report.trainings[-_SHOWN:]:
        yield _training(training, alone=len(report.trainings) == 1)
    if len(report.trainings) > _SHOWN:
        yield SummaryLine("", "", f"and {len(report.trainings) - _SHOWN} earlier trainings")


def _without(report: CommandReport, seconds: float) -> tuple[str, str]:
    if report.problem:
        return units.MISSING, clean(report.problem, 300)
    if report.hidden:
        return units.MISSING, "unknown: the driver does not report which processes of this container use a GPU"
    if not report.devices:
        return units.MISSING, "unknown: the command exited before the first sample"
    if seconds < _SEEN_AFTER:
        return units.MISSING, "no process seen on a GPU (the command may have been too short)"
    return units.duration(0), f"none of the {report.devices} GPUs was used" if report.devices > 1 else "no GPU was used"


def _device_lines(uses: Sequence[DeviceCost]) -> Iterator[SummaryLine]:
    names = {clean(short_name(use.device.name), 40): 0 for use in uses}
    which = f"GPU {', '.join(use.device.label for use in uses)}" if len(uses) <= 8 else f"{len(uses)} GPUs"
    total = sum(use.seconds for use in uses)
    least = AT_LEAST if any(use.lacks_time for use in uses) else ""
    yield SummaryLine("GPU time", least + units.duration(total), f"{which}: {', '.join(names)}")
    energy, metered = sum(use.energy for use in uses), sum(use.metered for use in uses)
    mean = f"{units.number(energy / metered, Unit.WATTS)} on average" if metered and is_known(energy) else ""
    least = AT_LEAST if any(use.lacks_energy for use in uses) else ""
    yield SummaryLine("energy", units.limited(energy, Unit.JOULES, least), mean)
    seen = sum(use.seen for use in uses)
    busy = sum(use.utilization * use.seen for use in uses if use.seen) / seen if seen else NAN
    idle = sum(use.idle_share * use.seen for use in uses if use.seen) / seen if seen else NAN
    notes = [note for note in (_idle(idle), _spread(uses)) if note]
    yield SummaryLine("utilization", units.number(busy, Unit.RATIO), ", ".join(notes))
    fullest = max(uses, key=lambda use: -1.0 if not is_known(use.memory_peak) else use.memory_peak)
    where = f", on GPU {fullest.device.label}" if len(uses) > 1 else ""
    peak = "" if not is_known(fullest.memory_peak) else f"peak, of {units.bytes_binary(fullest.memory_total)}{where}"
    yield SummaryLine("GPU memory", units.bytes_binary(fullest.memory_peak), peak or "not reported by the driver")


def _idle(share: float) -> str:
    return "" if not is_known(share) else f"idle {units.number(share, Unit.RATIO)} of the time"


def _spread(uses: Sequence[DeviceCost]) -> str:
    means = [use.utilization for use in uses if is_known(use.utilization)]
    if len(means) < 2:
        return ""
    return f"{units.whole(min(means) * 100)} to {units.number(max(means), Unit.RATIO)} by GPU"


def _training(training: Training, *, alone: bool) -> SummaryLine:
    parts = [] if alone else [clean(training.name, 40)]
    if training.epochs:
        parts.append(f"{units.brief(training.seconds)} each")
    parts += [f"{clean(name, 40)} {units.plain(value)}" for name, value in training.metrics.items()]
    if training.steps and not training.epochs:  # of boosted trees, say
        return SummaryLine("steps", str(training.steps), ", ".join(parts))
    return SummaryLine("epochs", str(training.epochs), ", ".join(parts))
