"""Checks the values in rows of an untrusted file. SQLite allows any type in any column."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from types import UnionType
from typing import Any

from gpumon.common.numbers import LARGEST

REAL = int | float
"""The type of a number, for `typed_rows`."""

_MAX_NAMES = 1024


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
