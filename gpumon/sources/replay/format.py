"""The interface of every log format: it gives rows, one GPU at one moment."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.metrics import FROM_DRIVERS, GPU_INDEX, GPU_METRICS, PROCESSES, Availability
from gpumon.sources.base import from_units

_OK = Availability.OK
_NUMBER = re.compile(r"([-+]?[0-9]{1,24}(?:\.[0-9]{0,24})?(?:[eE][-+]?[0-9]{1,2})?)\s*(\S.*)?", re.ASCII)
_TIME = re.compile(
    r"([0-9]{4})[/-]([0-9]{1,2})[/-]([0-9]{1,2})[ T]([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]{1,9})[0-9]*)?",
    re.ASCII,
)
_MISSING = {
    "": Availability.NOT_SUPPORTED,
    "-": Availability.NOT_SUPPORTED,
    "n/a": Availability.NOT_SUPPORTED,
    "not supported": Availability.NOT_SUPPORTED,
    "not found": Availability.NOT_SUPPORTED,
    "requested functionality has been deprecated": Availability.NOT_SUPPORTED,
    "insufficient permissions": Availability.NO_PERMISSION,
    "gpu is lost": Availability.LOST,
    "unknown error": Availability.FAILED,
    "gpu requires reset": Availability.FAILED,
    "err!": Availability.FAILED,
}


class BadLine(Exception):
    """A line cannot be understood; the message says why, without the line number."""


class Value(NamedTuple):
    """A number, or NaN and why."""

    number: float
    availability: Availability = _OK


class Quantity(NamedTuple):
    """The notation of numbers in a column."""

    default: str
    """The unit, lower case, that holds where neither the cell nor the heading names one."""
    units: Mapping[str, float]
    """Base units in one of each unit."""
    lowest: float = 0.0


RATIO = Quantity("%", {"%": 0.01})
# nvidia-smi means 2**20 by MB too: older drivers and dmon write it so.
MEMORY = Quantity("mib", {"b": 1, "kib": 2**10, "mib": 2**20, "mb": 2**20, "gib": 2**30, "tib": 2**40})
POWER = Quantity("w", {"w": 1, "mw": 1e-3, "kw": 1e3})
ENERGY = Quantity("mj", {"mj": 1e-3, "j": 1, "kj": 1e3})
TEMPERATURE = Quantity("c", {"c": 1, "°c": 1}, lowest=-273.15)
CLOCK = Quantity("mhz", {"mhz": 1e6, "ghz": 1e9, "khz": 1e3, "hz": 1})
COUNT = Quantity("", {"": 1})
RATE = Quantity("mb/s", {"mb/s": 1e6, "mib/s": 2**20, "kb/s": 1e3, "gb/s": 1e9})
TIME_US = Quantity("us", {"us": 1e-6, "ms": 1e-3, "s": 1, "ns": 1e-9})


def missing(cell: str) -> Availability | None:
    """Why a cell such as `[N/A]` has no value, or None when it should have one."""
    inner = cell.strip().lower()
    if inner.startswith("[") and inner.endswith("]"):
        return _MISSING.get(inner[1:-1].strip(), Availability.FAILED)
    return _MISSING.get(inner)


def measured(cell: str, quantity: Quantity, unit: str = "") -> Value:
    """`cell` in base units; `unit` is the heading's. Raises BadLine when it is no such quantity."""
    match = _NUMBER.fullmatch(cell.strip())
    if match is None:
        why = missing(cell)
        if why is None:
            raise BadLine(f"{cell.strip()[:40]!r} is not a number")
        return Value(NAN, why)
    own = (match[2] or unit or quantity.default).strip().lower()
    scale = quantity.units.get(own)
    number = float(match[1])
    if scale is None or number < quantity.lowest or not math.isfinite(number):
        raise BadLine(f"{cell.strip()[:40]!r} is out of range or in an unknown unit")
    return Value(from_units(number, scale))


def bits(cell: str, quantity: Quantity, unit: str = "") -> Value:
    """A hexadecimal mask such as `0x0000000000000004`."""
    if re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}", cell.strip()):
        return Value(float(int(cell.strip(), 16)))
    return measured(cell, quantity, unit)


def state(cell: str, quantity: Quantity, unit: str = "") -> Value:
    """A performance state: `P0` to `P15`."""
    text = cell.strip()
    return measured(text[1:] if text[:1] in ("P", "p") else text, quantity, unit)


Reader = Callable[[str, Quantity, str], Value]


def when(text: str, not_before: int) -> int:
    """ns since 1970 of a local time such as `2025/07/27 00:34:45.155`, by this machine's time zone.

    In the hour that the clock goes through twice in autumn, the second pass is meant once the
    first would go back behind `not_before`. Raises BadLine when it is no time.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise BadLine(f"{text.strip()[:40]!r} is not a time")
    try:
        local = datetime(*(int(part) for part in match.groups()[:6]))  # type: ignore[arg-type]
        fraction = int((match[7] or "").ljust(9, "0"))
        first = int(local.timestamp()) * SECOND + fraction
        if first < not_before:
            second = int(local.replace(fold=1).timestamp()) * SECOND + fraction
            first = second if second >= not_before else first
    except (ValueError, OverflowError, OSError):
        raise BadLine(f"{text.strip()[:40]!r} is not a time") from None
    if first < 0:
        raise BadLine(f"{text.strip()[:40]!r} is before 1970")
    return first


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


def is_repeated(row: Row, other: Row, *, follows: bool) -> bool:
    """Whether a row is an earlier one once more: it says the same of the same time.

    Times of whole seconds may stand for several ticks; then only a row that `follows` the other at once is the same.
    """
    if row.time_ns is None or row.time_ns != other.time_ns or row.broken:
        return False
    is_same = row._replace(line=0, first=False) == other._replace(line=0, first=False)
    return is_same and (follows or row.time_ns % SECOND != 0)


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
