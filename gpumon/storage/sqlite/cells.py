"""Cells of a file that a stranger may have written: SQLite keeps values of any type in any column."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from types import UnionType
from typing import Any

from gpumon.common.numbers import LARGEST

REAL = int | float
"""The type of a number, for `typed_rows`."""

_MOST_NAMES = 1024


def typed_rows(rows: Iterable[Sequence[Any]], *types: type | UnionType) -> Iterator[tuple[Any, ...]]:
    """Yield the rows in which each cell is of its type, and no number beyond reason; the others are missing."""
    for row in rows:
        for cell, kind in zip(row, types, strict=True):
            if not isinstance(cell, kind) or (isinstance(cell, float) and not -LARGEST < cell < LARGEST):
                break
        else:
            yield tuple(row)


def parse_json(cell: object) -> object:
    """Return a cell as JSON; None for what is none."""
    try:
        return json.loads(cell) if isinstance(cell, str) else None
    except (ValueError, RecursionError):
        return None


def parse_names(cell: object) -> tuple[str, ...]:
    """Return a cell as a JSON list of names; empty for what is none."""
    found = parse_json(cell)
    if not isinstance(found, list) or len(found) > _MOST_NAMES or not all(isinstance(name, str) for name in found):
        return ()
    return tuple(found)
