"""The processes and cells that the file has, for a reader."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from math import nan
from typing import Any, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.text import clean
from gpumon.database.cells import REAL, typed_rows
from gpumon.history.tiers import HOUR, PROCESS_SHAPES, TierShape
from gpumon.process_history import cells, stretches
from gpumon.process_history.cell import Cell, empty, hold
from gpumon.process_history.measures import TEXTS
from gpumon.process_history.stretches import BadProcessBlock

_FINE, _COARSE = PROCESS_SHAPES
_BEHIND = 2 * HOUR
"""Seconds by which the end of a process that is still there may be behind in its row."""
_LATEST = 2**62
_MOST_TEXT = 100
_SELECT = f"SELECT id, device, pid, started, kind, first, last, {', '.join(TEXTS)} FROM process"


class KnownProcess(NamedTuple):
    """A process on a GPU."""

    number: int
    """In the file; negative where only the newest frames have it."""
    device: str
    """UUID of the GPU."""
    pid: int
    started: float
    """Seconds since 1970; NaN where it is not known."""
    kind: str
    """`compute` or `graphics`."""
    first: float
    """Seconds since 1970 when it was first seen on the GPU."""
    last: float
    """Until when it was seen, s since 1970."""
    name: str
    user: str
    container: str
    pod: str
    job: str


class Piece(NamedTuple):
    """A process in a stretch of time, from `begin` to `end` (s since 1970)."""

    number: int
    begin: float
    end: float
    cell: Cell


class FileReach(NamedTuple):
    """The time (s since 1970) of which the file has anything; NaN where it has none."""

    fine: float = nan
    """Begin of the finer tier."""
    coarse: float = nan
    """End of the coarser tier."""
    until: float = nan
    """End of all: what is newer only frames have."""


def reach(db: sqlite3.Connection) -> FileReach:
    """Return from when to when the file has processes. Raises sqlite3.Error."""
    until = last_end(db) or None
    # One that a wrong clock has put in another year is not the begin of anything.
    ((fine,),) = db.execute(
        "SELECT min(begin) FROM process_block WHERE tier = ? AND begin >= ? - ?",
        (_FINE.number, until, (_FINE.keep + HOUR) * SECOND),
    )
    ((coarse,),) = db.execute(
        "SELECT max(end) FROM process_block WHERE tier = ? AND end <= ifnull(?, end)", (_COARSE.number, until)
    )
    return FileReach(_seconds(fine), _seconds(coarse), _seconds(until))


def last_end(db: sqlite3.Connection) -> int:
    """Return the end (ns since 1970) of the block that was written last; 0 without any. Raises sqlite3.Error.

    After the clock was set back, an older block may end later.
    """
    ends = db.execute("SELECT end FROM process_block WHERE tier = ? ORDER BY rowid DESC", (_FINE.number,))
    return next((end for (end,) in typed_rows(ends, int)), 0)


def known(db: sqlite3.Connection, begin: float, end: float) -> list[KnownProcess]:
    """Return the processes that may have been there between two times (s since 1970). Raises sqlite3.Error."""
    rows = db.execute(f"{_SELECT} WHERE last >= ? AND first <= ?", (_ns(begin - _BEHIND), _ns(end)))
    return _processes(rows)


def known_of(db: sqlite3.Connection, device: str, pid: int) -> list[KnownProcess]:
    """Return the processes of a pid on a GPU. Raises sqlite3.Error."""
    rows = db.execute(f"{_SELECT} WHERE pid = ? AND device = ? ORDER BY id", (pid, device))
    return _processes(rows)


def pieces(
    db: sqlite3.Connection, shape: TierShape, begin: float, end: float, wanted: Collection[int] | None = None
) -> Iterator[Piece]:
    """Yield the pieces of which the middle is from `begin` to before `end` (s since 1970). Raises sqlite3.Error."""
    rows = db.execute(
        "SELECT begin, crc, data FROM process_block WHERE tier = ? AND begin < ? AND end > ? ORDER BY begin",
        (shape.number, _ns(end), _ns(begin)),
    )
    for block, crc, data in typed_rows(rows, int, int, bytes):
        with suppress(BadProcessBlock):  # a gap
            found = _fine(data, crc, wanted) if shape is _FINE else _coarse(block, data, crc, wanted)
            yield from (piece for piece in found if begin <= (piece.begin + piece.end) / 2 < end)


def newest(db: sqlite3.Connection) -> frozenset[int]:
    """Return the numbers of the processes that were there when the file was written last. Raises sqlite3.Error."""
    rows = db.execute("SELECT data, crc FROM process_block WHERE tier = ? ORDER BY rowid DESC LIMIT 1", (_FINE.number,))
    with suppress(BadProcessBlock):
        for data, crc in typed_rows(rows, bytes, int):
            found = stretches.unpack(data, crc)
            return frozenset(found[-1].numbers if found else ())
    return frozenset()


def _fine(data: bytes, crc: int, wanted: Collection[int] | None) -> Iterator[Piece]:
    for stretch in stretches.unpack(data, crc):
        begin, end = stretch.begin_ns / SECOND, stretch.begin_ns / SECOND + stretch.seconds
        for place, number in enumerate(stretch.numbers):
            if wanted is None or number in wanted:
                cell = empty()
                hold(cell, [column[place] for column in stretch.columns], stretch.seconds)
                yield Piece(number, begin, end, cell)


def _coarse(block: int, data: bytes, crc: int, wanted: Collection[int] | None) -> Iterator[Piece]:
    for number, place, cell in cells.unpack(data, crc, wanted):
        begin = block / SECOND + place * _COARSE.step
        yield Piece(number, begin, begin + _COARSE.step, cell)


def _processes(rows: Iterable[Sequence[Any]]) -> list[KnownProcess]:
    return [_process(*row) for row in typed_rows(rows, int, str, int, REAL | None, str, int, int, *[str] * len(TEXTS))]


def _process(
    number: int, device: str, pid: int, started: float | None, kind: str, first: int, last: int, *texts: str
) -> KnownProcess:
    begun = nan if started is None else float(started)
    kind, *names = (clean(text, _MOST_TEXT) for text in (kind, *texts))
    return KnownProcess(number, device, pid, begun, kind, first / SECOND, last / SECOND, *names)


def _seconds(ns: object) -> float:
    return ns / SECOND if isinstance(ns, int) else nan


def _ns(seconds: float) -> int:
    return round(max(-_LATEST, min(_LATEST, seconds * SECOND)))
