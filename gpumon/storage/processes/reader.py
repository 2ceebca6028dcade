"""The processes and cells that the file has, for a reader."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from math import ceil, floor, inf, nan
from typing import Any, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import is_known
from gpumon.common.text import clean
from gpumon.model.frame import Frame
from gpumon.model.process import Process
from gpumon.storage.history.tiers import HOUR, PROCESS_SHAPES, TierShape
from gpumon.storage.processes import cells, spans
from gpumon.storage.processes.cells import Cell, empty, hold
from gpumon.storage.processes.measures import TEXTS, read_values
from gpumon.storage.processes.rows import RESTARTED
from gpumon.storage.processes.snapshot import UNKNOWN, Looks, ProcessLife, ProcessNumbers
from gpumon.storage.processes.spans import BadProcessBlock
from gpumon.storage.sqlite.cells import REAL, typed_rows

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
            found = spans.unpack_spans(data, crc)
            return frozenset(found[-1].numbers if found else ())
    return frozenset()


def _fine(data: bytes, crc: int, wanted: Collection[int] | None) -> Iterator[Piece]:
    for stretch in spans.unpack_spans(data, crc):
        begin, end = stretch.begin_ns / SECOND, stretch.begin_ns / SECOND + stretch.seconds
        for place, number in enumerate(stretch.numbers):
            if wanted is None or number in wanted:
                cell = empty()
                hold(cell, [column[place] for column in stretch.columns], stretch.seconds)
                yield Piece(number, begin, end, cell)


def _coarse(block: int, data: bytes, crc: int, wanted: Collection[int] | None) -> Iterator[Piece]:
    for number, place, cell in cells.unpack_cells(data, crc, wanted):
        begin = block / SECOND + place * _COARSE.step
        yield Piece(number, begin, begin + _COARSE.step, cell)


def _processes(rows: Iterable[Sequence[Any]]) -> list[KnownProcess]:
    return [
        _process_of_row(*row)
        for row in typed_rows(rows, int, str, int, REAL | None, str, int, int, *[str] * len(TEXTS))
    ]


def _process_of_row(
    number: int, device: str, pid: int, started: float | None, kind: str, first: int, last: int, *texts: str
) -> KnownProcess:
    begun = nan if started is None else float(started)
    kind, *names = (clean(text, _MOST_TEXT) for text in (kind, *texts))
    return KnownProcess(number, device, pid, begun, kind, first / SECOND, last / SECOND, *names)


def _seconds(ns: object) -> float:
    return ns / SECOND if isinstance(ns, int) else nan


def _ns(seconds: float) -> int:
    return round(max(-_LATEST, min(_LATEST, seconds * SECOND)))


_AT_ONCE = 1e-6
"""Seconds by which two times are the same."""
_NEXT = 0.5
"""Seconds by which the end of what the file has, a sum by a steady clock, may differ from the time of its frame."""
_LOOK = PROCESS_SHAPES[0].step
"""Seconds after a process came when the file may have it first."""


class RecentProcesses:
    """Processes of `frames`, oldest first, from `since` (s since 1970) on.

    `known` are those of the file, which has all `until` some time, when those of `present` were there. `only`: UUID and
    pid of the one that is asked for.
    """

    def __init__(
        self, frames: Iterable[Frame], since: float, known: Sequence[KnownProcess] = (), present: Iterable[int] = (),
        until: float = -inf, only: tuple[str, int] | None = None,
    ) -> None:  # fmt: skip
        self.new: dict[int, KnownProcess] = {}
        """Those that the file does not have, by number."""
        self.pieces: list[Piece] = []
        self._present = frozenset(present)
        self._until = until
        self._came: dict[tuple[str, int], ProcessLife] = {}
        """The newest of those that are new, by UUID and pid."""
        self._known: dict[tuple[str, int], list[KnownProcess]] = {}
        for one in known:
            self._known.setdefault((one.device, one.pid), []).append(one)
        looks, numbers = Looks(every=0), ProcessNumbers(self._number)
        for frame in frames:
            if frame.is_full and frame.time >= since - _AT_ONCE:
                time_ns = round(frame.time * SECOND)
                there: Sequence[Process] = frame.processes
                if only is not None:
                    there = [process for process in there if (process.uuid, process.pid) == only]
                looks.add(frame.monotonic_ns, time_ns, frame.interval, there, frame.samples)
        looks.finish()
        self.begin = looks.over[0].begin_ns / SECOND if looks.over else nan
        """Seconds since 1970."""
        for look in looks.over:
            begin, seconds = look.begin_ns / SECOND, look.ns / SECOND
            for process, number in zip(look.processes, numbers.of(look), strict=False):
                if number != UNKNOWN:
                    cell = empty()
                    hold(cell, read_values(process), seconds)
                    self.pieces.append(Piece(number, begin, begin + seconds, cell))
        for life in (*numbers.changed, *numbers.lives()):
            came = self.new.get(life.number)
            if came is not None:
                self.new[life.number] = _process_of_life(life)._replace(first=came.first)

    def _number(self, life: ProcessLife) -> int:
        first = life.first_ns / SECOND
        for one in reversed(self._known.get((life.device, life.pid), ())):
            if is_known(life.started) and is_known(one.started):
                if abs(life.started - one.started) <= RESTARTED:
                    return one.number
            elif self._goes_on(one, first):
                return one.number
        came = self._came.setdefault((life.device, life.pid), life)
        if abs(life.started - came.started) <= RESTARTED and came is not life:
            return came.number  # for a while it was gone, or its GPU did not answer
        self._came[life.device, life.pid] = life
        life.number = -1 - len(self.new)
        self.new[life.number] = _process_of_life(life)
        return life.number

    def _goes_on(self, one: KnownProcess, first: float) -> bool:
        """Whether one whose start is not known, and that frames have since `first`, is this one of the file."""
        if first > self._until - _NEXT:  # else it was gone meanwhile, or nobody watched
            return one.number in self._present and first < self._until + _NEXT
        return one.first <= first + _LOOK


def _process_of_life(life: ProcessLife) -> KnownProcess:
    return KnownProcess(
        life.number, life.device, life.pid, life.started, life.kind, life.first_ns / SECOND, life.last_ns / SECOND,
        *life.texts,
    )  # fmt: skip


class _Span(NamedTuple):
    shape: TierShape
    begin: float
    end: float


def tier_spans(reach: FileReach, begin: float, end: float, step: float) -> list[_Span]:
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
