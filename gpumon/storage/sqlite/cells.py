"""Check the cells of rows from an untrusted file: SQLite stores values of any type in any column."""

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
    """Yield the rows whose cells have the given types and whose floats are below `LARGEST`; leave out the others."""
    for row in rows:
        for cell, kind in zip(row, types, strict=True):
            if not isinstance(cell, kind) or (isinstance(cell, float) and not -LARGEST < cell < LARGEST):
                break
        else:
            yield tuple(row)


def parse_json(cell: object) -> object:
    """Return the JSON value of a cell; None if it is not JSON."""
    try:
        return json.loads(cell) if isinstance(cell, str) else None
    except (ValueError, RecursionError):
        return None


def parse_names(cell: object) -> tuple[str, ...]:
    """Return the names in a cell that is a JSON list of strings; empty if it is not one."""
    names = parse_json(cell)
    if not isinstance(names, list) or len(names) > _MAX_NAMES or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(names)
