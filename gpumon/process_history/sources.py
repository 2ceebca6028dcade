"""A window in the file and in the newest frames: which of them answers which stretch of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from math import ceil, floor, inf
from typing import NamedTuple

from gpumon.common.numbers import is_known
from gpumon.history.tiers import PROCESS_SHAPES, TierShape
from gpumon.process_history.kept import FileReach, Piece, pieces

_FINE, _COARSE = PROCESS_SHAPES


class _Span(NamedTuple):
    shape: TierShape
    begin: float
    end: float


def spans(reach: FileReach, begin: float, end: float, step: float) -> list[_Span]:
    """Return the tier of each stretch from `begin` to `end` (s since 1970) that is fine enough for `step` seconds.

    Cells that an end of the window would cut come from the finer tier, as far as that goes back.
    """
    fine = reach.fine if is_known(reach.fine) else inf
    if reach.coarse > fine:  # the coarser one has what lies before a whole cell
        fine = ceil(fine / _COARSE.step) * _COARSE.step
    if step < _COARSE.step or not is_known(reach.coarse):
        first, last = begin, min(max(fine, begin), end)
    else:
        first = ceil(begin / _COARSE.step) * _COARSE.step if begin >= fine else begin
        last = max(floor(end / _COARSE.step) * _COARSE.step if end >= fine else end, first)
        last = min(last, max(reach.coarse, first))
    found = [_Span(_FINE, begin, first), _Span(_COARSE, first, last), _Span(_FINE, last, end)]
    return [span for span in found if span.begin < span.end]


def kept_pieces(
    db: sqlite3.Connection, parts: Sequence[_Span], wanted: Collection[int] | None = None
) -> Iterator[Piece]:
    """Yield the pieces of these stretches. Raises sqlite3.Error."""
    for shape, begin, end in parts:
        yield from pieces(db, shape, begin, end, wanted)
