"""The interface of log formats, and code that they share: rows, units, and parsing of cells."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from gpumon.common.clock import SECOND
from gpumon.common.errors import UsageError
from gpumon.common.numbers import NAN
from gpumon.model.metrics import FROM_DRIVERS, GPU_INDEX, PROCESSES, Availability
from gpumon.sources.base import NO_VALUES, to_base_units

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
    "gpu requires reset": Availability.RESET_REQUIRED,
    "err!": Availability.FAILED,
}


BURST = 2000
"""Maximum number of readings per `read`, so that a high speed does not block the sampler."""


def check_speed(speed: float) -> None:
    """Raise UsageError if nothing can be played at this speed."""
    if not (math.isfinite(speed) and speed > 0):
        raise UsageError(f"invalid speed {speed:g}: give a number greater than 0, such as 10")


class BadLine(Exception):
    """Raised if a line cannot be parsed. The message has the reason, but not the line number."""


class Value(NamedTuple):
    """A number, or NaN with the reason why it is missing."""

    number: float
    availability: Availability = _OK


@dataclass(frozen=True, slots=True)
class Quantity:
    """The kind of quantity in a column, with its possible units."""

    default: str
    """Unit (in lower case) that is assumed if neither the cell nor the heading has a unit."""
    units: Mapping[str, float]
    """Size of each unit in base units."""
    lowest: float = 0.0


RATIO = Quantity("%", {"%": 0.01})
# nvidia-smi of older drivers and dmon write MB for 2**20.
MEMORY = Quantity("mib", {"b": 1, "kib": 2**10, "mib": 2**20, "mb": 2**20, "gib": 2**30, "tib": 2**40})
POWER = Quantity("w", {"w": 1, "mw": 1e-3, "kw": 1e3})
ENERGY = Quantity("mj", {"mj": 1e-3, "j": 1, "kj": 1e3})
TEMPERATURE = Quantity("c", {"c": 1, "°c": 1}, lowest=-273.15)
CLOCK = Quantity("mhz", {"mhz": 1e6, "ghz": 1e9, "khz": 1e3, "hz": 1})
COUNT = Quantity("", {"": 1})
RATE = Quantity("mb/s", {"mb/s": 1e6, "mib/s": 2**20, "kb/s": 1e3, "gb/s": 1e9})
TIME_US = Quantity("us", {"us": 1e-6, "ms": 1e-3, "s": 1, "ns": 1e-9})


def missing_reason(cell: str) -> Availability | None:
    """Return why a cell such as `[N/A]` has no value; None if the cell is not such a text."""
    text = cell.strip().lower()
    if text.startswith("[") and text.endswith("]"):
        return _MISSING.get(text[1:-1].strip(), Availability.FAILED)
    return _MISSING.get(text)


def parse_number(cell: str, quantity: Quantity, heading_unit: str = "") -> Value:
    """Parse a cell, and convert its number to base units.

    Raises BadLine if it is not a number in one of these units.
    """
    match = _NUMBER.fullmatch(cell.strip())
    if match is None:
        why = missing_reason(cell)
        if why is None:
            raise BadLine(f"{cell.strip()[:40]!r} is not a number")
        return Value(NAN, why)
    unit = (match[2] or heading_unit or quantity.default).strip().lower()
    scale = quantity.units.get(unit)
    number = float(match[1])
    if scale is None or number < quantity.lowest or not math.isfinite(number):
        raise BadLine(f"{cell.strip()[:40]!r} is out of range or in an unknown unit")
    return Value(to_base_units(number, scale))


def parse_bitmask(cell: str, quantity: Quantity, heading_unit: str = "") -> Value:
    """Parse a hexadecimal mask such as `0x0000000000000004`."""
    if re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}", cell.strip()):
        return Value(float(int(cell.strip(), 16)))
    return parse_number(cell, quantity, heading_unit)


def parse_performance_state(cell: str, quantity: Quantity, heading_unit: str = "") -> Value:
    """Parse a performance state, `P0` to `P15`, as a number."""
    text = cell.strip()
    return parse_number(text[1:] if text[:1] in ("P", "p") else text, quantity, heading_unit)


Parse = Callable[[str, Quantity, str], Value]


def parse_time(text: str, not_before: int) -> int:
    """Parse a local time such as `2025/07/27 00:34:45.155` in this machine's time zone. Return ns since 1970.

    When daylight saving time ends, one hour occurs twice. The second occurrence is used if the first one would be
    before `not_before` (ns since 1970). Raises BadLine if the text is not a time.
    """
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise BadLine(f"{text.strip()[:40]!r} is not a time")
    try:
        local = datetime(*(int(part) for part in match.groups()[:6]))  # type: ignore[arg-type]
        fraction = int((match[7] or "").ljust(9, "0"))
        time_ns = int(local.timestamp()) * SECOND + fraction
        if time_ns < not_before:
            second_pass = int(local.replace(fold=1).timestamp()) * SECOND + fraction
            time_ns = second_pass if second_pass >= not_before else time_ns
    except (ValueError, OverflowError, OSError):
        raise BadLine(f"{text.strip()[:40]!r} is not a time") from None
    if time_ns < 0:
        raise BadLine(f"{text.strip()[:40]!r} is before 1970")
    return time_ns


NOT_RECORDED: Mapping[str, Availability] = dict.fromkeys((*FROM_DRIVERS, PROCESSES), Availability.NOT_RECORDED)
"""Reasons why values are not in a log: metrics without a column, and processes, which no log contains."""


class Row(NamedTuple):
    """The values of one GPU at one time: a line of a log."""

    line: int
    time_ns: int | None
    """Time of the line, in ns since 1970; None if the log has no times."""
    names: tuple[str, ...]
    """Identifiers of the GPU, most reliable first; empty if the log has none."""
    gpu_index: int
    """Index of the GPU in the log; -1 if it has none."""
    uuid: str = ""
    model: str = ""
    driver: str = ""
    values: Sequence[float] = NO_VALUES
    missing: Mapping[str, Availability] = NOT_RECORDED
    rates: tuple[str, ...] = ()
    """Counter metrics for which the log has rates per second instead of totals."""
    is_lost: bool = False
    is_first: bool = False
    """True for the first row after a heading, which nvidia-smi writes when it starts."""
    is_broken: bool = False
    """True for a line that could not be parsed. The row has no values. It only preserves the order of the GPUs."""


def is_duplicate(row: Row, other: Row, *, follows: bool) -> bool:
    """Return whether a row repeats `other`, an earlier row with the same time.

    If times are whole seconds, several ticks may have the same time. In this case, the row is a duplicate only if it
    comes directly after `other`. `follows`: whether it does.
    """
    if row.time_ns is None or row.time_ns != other.time_ns or row.is_broken:
        return False
    is_same = row._replace(line=0, is_first=False) == other._replace(line=0, is_first=False)
    return is_same and (follows or row.time_ns % SECOND != 0)


@dataclass(frozen=True, slots=True)
class LogColumn:
    """The metric in a column of a log, and how to parse it."""

    metric: str
    quantity: Quantity
    parse: Parse = parse_number
    rank: int = 0
    """If several columns have the same metric, the one with the lowest rank is used."""
    is_rate: bool = False


class ColumnPosition(NamedTuple):
    """A column of one log, with its position in the lines."""

    position: int
    column: LogColumn
    unit: str
    """Unit in the heading of the column; empty if the heading has no unit."""


class LogFormat(Protocol):
    """The format of a log, after its heading has been read."""

    has_ids: bool
    """Whether rows identify their GPU."""
    has_times: bool
    has_metrics: bool
    """Whether any column has a metric of gpumon."""

    def parse_row(self, line: int, text: str, last: int) -> Row:
        """Parse the line `text`. `line`: number of the line. `last`: time of the previous row in ns. Raises BadLine."""

    def looks_like_row(self, text: str) -> bool:
        """Return whether a line that cannot be parsed looks like a damaged row, and not like other text."""


def select_columns(columns: Sequence[ColumnPosition]) -> tuple[ColumnPosition, ...]:
    """Return the columns to use: for each metric, the column with the lowest rank."""
    best: dict[str, ColumnPosition] = {}
    for candidate in columns:
        other = best.get(candidate.column.metric)
        if other is None or candidate.column.rank < other.column.rank:
            best[candidate.column.metric] = candidate
    return tuple(best.values())


def parse_cells(
    cells: Sequence[str], columns: Sequence[ColumnPosition]
) -> tuple[list[float], dict[str, Availability], bool]:
    """Return the values in the order of `GPU_METRICS`, the reasons for missing values, and whether the GPU is lost."""
    values = list(NO_VALUES)
    missing = dict(NOT_RECORDED)
    is_lost = False
    for position, column, unit in columns:
        value = column.parse(cells[position], column.quantity, unit)
        if value.availability is Availability.OK:
            values[GPU_INDEX[column.metric]] = value.number
            del missing[column.metric]
        else:
            missing[column.metric] = value.availability
            is_lost = is_lost or value.availability is Availability.LOST
    return values, missing, is_lost
