"""Checks and bounds the values in rows of a file. SQLite allows any type in any column, and files are untrusted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from types import UnionType
from typing import Any

from gpumon.common.clock import SECOND
from gpumon.common.numbers import LARGEST
from gpumon.common.text import clean

REAL = int | float
"""The type of a number, for `typed_rows`."""

_MAX_NAMES = 1024
_MAX_NAME_LENGTH = 100
_LATEST = 2**62
"""A time in ns since 1970 that is later than any real time and fits in a column."""


def clean_name(name: str) -> str:
    """Return a name of a user, process or device for a file or a view: escaped, and at most 100 characters."""
    return clean(name, _MAX_NAME_LENGTH)


def bounded_ns(seconds: float) -> int:
    """Convert seconds since 1970, which may be infinite, to ns that can be compared with a column."""
    return round(max(-_LATEST, min(_LATEST, seconds * SECOND)))


def typed_rows(rows: Iterable[Sequence[Any]], *types: type | UnionType) -> Iterator[tuple[Any, ...]]:
    """Yield only the rows whose values have the given types and whose floats are below `LARGEST`."""
    for row in rows:
        for cell, kind in zip(row, types, strict=True):
            if not isinstance(cell, kind) or (isinstance(cell, float) and not -LARGEST < cell < LARGEST):
                break
        else:
            yield tuple(row)


def parse_json(cell: object) -> object:
    """Return the parsed value of a cell that contains JSON, or None if it does not contain valid JSON."""
    try:
        return json.loads(cell) if isinstance(cell, str) else None
    except (ValueError, RecursionError):
        return None


def parse_names(cell: object) -> tuple[str, ...]:
    """Return the strings in a cell that contains a JSON list of strings. Return an empty tuple for other cells."""
    names = parse_json(cell)
    if not isinstance(names, list) or len(names) > _MAX_NAMES or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(names)
