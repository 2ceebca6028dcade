"""Rows of the table of epochs: what the GPUs of a run did in each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpumon import units
from gpumon.analysis.epochs import StepSpan, Stretch
from gpumon.frame import NAN
from gpumon.history.grid import Grid
from gpumon.history.query import HOST, History, Query, Series
from gpumon.metrics import BY_NAME
from gpumon.missing import is_known
from gpumon_tui import theme
from gpumon_tui.renderables.table import Cell, Row, TableColumn
from gpumon_tui.renderables.text_width import safe

if TYPE_CHECKING:
    from gpumon.ledger.epoch_summary import EpochSummary

_GPU = ("gpu.utilization", "gpu.memory_used", "gpu.power")
_HOST = ("host.cpu_utilization", "host.memory_used", "")


def columns(on_gpus: bool, *, by_steps: bool = False) -> tuple[TableColumn, ...]:
    """A training without a GPU is told of by its host; one without epochs has rows `by_steps`."""
    return (
        TableColumn("STEPS" if by_steps else "EPOCH", 16, right=True, keep=9),
        TableColumn("BEGAN", 9, right=True, keep=5),
        TableColumn("TOOK", 8, right=True, keep=8),
        TableColumn(BY_NAME[(_GPU if on_gpus else _HOST)[0]].column, 6, right=True, keep=7),
        TableColumn("MEM PEAK", 9, right=True, keep=6),
        TableColumn("POWER", 7, right=True, keep=4),
        TableColumn("", 0),
    )


ALL = "all"
"""The row of a whole run."""


class Summary(NamedTuple):
    """An epoch's readings over all GPUs of its run; of the host where it has none."""

    utilization: float
    memory_peak: float
    power: float


def summary(history: History, uuids: Sequence[str], begin: float, end: float) -> Summary:
    """Means and peaks of the samples from `begin` to before `end`."""
    metrics = _GPU if uuids else _HOST
    whole = Grid(0, end - begin, 1, phase=begin)
    found = [history.query(Query(uuid, metrics, begin, end, grid=whole)) for uuid in uuids or (HOST,)]
    utilization, memory, power = ([one[metric] for one in found] for metric in metrics)
    return Summary(_mean(utilization), max(_known(one.high[0] for one in memory), default=NAN), _mean(power))


def row(stretch: Stretch, of: Summary) -> Row:
    """`power` is the mean of a GPU, not the sum."""
    return named_row(f"e{stretch.epoch}", stretch, of)


def steps_row(stretch: StepSpan, of: Summary) -> Row:
    """A row of the steps of a run without epochs: `101–200`."""
    first = stretch.first + 1
    return named_row(f"{first}–{stretch.last}" if stretch.last > first else str(first), stretch, of)


def ledger_row(title: str, of: EpochSummary, *, seconds: float, begin: float, devices: int, finished: bool) -> Row:
    """A row beside the epochs, as the ledger has it: the whole run, all between epochs, or (indented) a phase of that.

    `seconds`: its length until now; `begin`: NaN of what has several. `devices` are those of the run.
    """
    style = theme.DIM if title.startswith(" ") else theme.PLAIN if finished else theme.GOOD
    power = of.value("power_mean") / devices if devices else NAN
    quiet = theme.DIM if title.startswith(" ") else theme.PLAIN
    return (
        Cell(safe(title.strip()), style),
        Cell(units.clock(begin) if is_known(begin) else "", theme.DIM),
        Cell(units.span(seconds), style),
        Cell(units.percent(of.value("utilization_mean")), quiet),
        Cell(units.metric(of.value("memory_used_peak"), BY_NAME["gpu.memory_used"]), quiet),
        Cell(units.metric(power, BY_NAME["gpu.power"]), quiet),
        Cell(""),
    )


def named_row(name: str, stretch: Stretch | StepSpan, of: Summary) -> Row:
    """A row for what has a `name`; one that goes on stands out."""
    return (
        Cell(name, theme.PLAIN if stretch.finished else theme.GOOD),
        Cell(units.clock(stretch.begin), theme.DIM),
        Cell(units.span(stretch.end - stretch.begin), theme.PLAIN if stretch.finished else theme.GOOD),
        Cell(units.percent(of.utilization)),
        Cell(units.metric(of.memory_peak, BY_NAME["gpu.memory_used"])),
        Cell(units.metric(of.power, BY_NAME["gpu.power"])),
        Cell(""),
    )


def _mean(found: Sequence[Series]) -> float:
    means = _known(one.mean[0] for one in found)
    return sum(means) / len(means) if means else NAN


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if is_known(value)]
