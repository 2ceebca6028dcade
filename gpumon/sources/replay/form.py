"""The interface of every log format: it gives rows, one GPU at one moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from gpumon.common.numbers import NAN
from gpumon.model.metrics import FROM_DRIVERS, GPU_INDEX, GPU_METRICS, PROCESSES, Availability
from gpumon.sources.replay.parse_value import Quantity, Reader, Value, measured

EMPTY = (NAN,) * len(GPU_METRICS)
NOT_RECORDED: Mapping[str, Availability] = dict.fromkeys((*FROM_DRIVERS, PROCESSES), Availability.NOT_RECORDED)
"""Why a log has no value: of every metric, until one of its columns gives it; no log tells who was there."""


class Row(NamedTuple):
    """A line of a log: one GPU at one moment."""

    line: int
    time_ns: int | None
    """ns since 1970; None where the log has no times."""
    names: tuple[str, ...]
    """Identifiers of the GPU, the most reliable first; empty if the log has none."""
    number: int
    """The GPU's index in the log; -1 where it has none."""
    uuid: str = ""
    model: str = ""
    driver: str = ""
    values: Sequence[float] = EMPTY
    missing: Mapping[str, Availability] = NOT_RECORDED
    rates: tuple[str, ...] = ()
    """Metrics that count, but whose values here are rates per second."""
    lost: bool = False
    first: bool = False
    """The first after a heading: a new start of nvidia-smi."""
    broken: bool = False
    """The line could not be read and only holds its place."""


class LogColumn(NamedTuple):
    """The conversion of a column of a log to a metric."""

    metric: str
    quantity: Quantity
    read: Reader = measured
    rank: int = 0
    """Of several columns for one metric the lowest rank counts."""
    rate: bool = False


class Place(NamedTuple):
    """Where a column stands in the lines of one log."""

    position: int
    column: LogColumn
    unit: str


class Form(Protocol):
    """A log format whose heading has been read."""

    identified: bool
    """Whether rows say which GPU they are of."""
    timed: bool
    """Whether rows have a time."""
    measures: bool
    """Whether any column is a metric of ours."""

    def row(self, line: int, text: str, last: int) -> Row:
        """The row in `text`; `last` is the time before it, ns. Raises BadLine."""

    def holds_place(self, text: str) -> bool:
        """Whether a line that cannot be read was a row once."""


def chosen(found: Sequence[Place]) -> tuple[Place, ...]:
    """One column for each metric: the one of the lowest rank."""
    best: dict[str, Place] = {}
    for place in found:
        other = best.get(place.column.metric)
        if other is None or place.column.rank < other.column.rank:
            best[place.column.metric] = place
    return tuple(best.values())


def fill(cells: Sequence[str], places: Sequence[Place]) -> tuple[list[float], dict[str, Availability], bool]:
    """Values in the order of `GPU_METRICS`, why the others are missing, and whether the GPU is lost."""
    values = list(EMPTY)
    missing = dict(NOT_RECORDED)
    lost = False
    for position, column, unit in places:
        value: Value = column.read(cells[position], column.quantity, unit)
        if value.availability is Availability.OK:
            values[GPU_INDEX[column.metric]] = value.number
            del missing[column.metric]
        else:
            missing[column.metric] = value.availability
            lost = lost or value.availability is Availability.LOST
    return values, missing, lost
