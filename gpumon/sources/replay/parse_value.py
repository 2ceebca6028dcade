"""A cell of a log into a number in base units, or into why there is none."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.metrics import Availability
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
