"""Hours of the finer tier into blocks of the coarser one, once they are over: also those that a killed daemon left."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, groupby
from math import inf
from operator import mul

from gpumon.common.clock import SECOND
from gpumon.common.procfs import boot_id
from gpumon.model.frame import Tick
from gpumon.storage.history.tiers import PROCESS_SHAPES
from gpumon.storage.processes.cells import Cell, PlacedCell, fold, pack_cells
from gpumon.storage.processes.measures import MEASURES, read_values
from gpumon.storage.processes.reader import last_end
from gpumon.storage.processes.rows import ProcessRows
from gpumon.storage.processes.snapshot import UNKNOWN, Look, Looks, ProcessLife, ProcessNumbers
from gpumon.storage.processes.spans import MOST_ROWS, BadProcessBlock, SeenStretch, pack_spans, unpack_spans
from gpumon.storage.sqlite.cells import typed_rows
from gpumon.storage.sqlite.write import transaction

_FINE, _COARSE = PROCESS_SHAPES
_HOUR = _COARSE.block * SECOND
_MOST = 2**62
"""More processes than any file has."""
_IS_EXHAUSTED = (
    "SELECT max(ifnull((SELECT max(id) FROM process), 0),"
    " ifnull((SELECT max(seq) FROM sqlite_sequence WHERE name = 'process'), 0)) >= ?"
)
_COUNT_ON = "UPDATE sqlite_sequence SET seq = (SELECT ifnull(max(id), 0) FROM process) WHERE name = 'process'"
PUT = "INSERT OR REPLACE INTO process_block (tier, begin, end, crc, data) VALUES (?, ?, ?, ?, ?)"
_DUE = (
    "SELECT DISTINCT begin / ?1 FROM process_block WHERE tier = ?2 AND begin < ?4 AND begin >= ?3"
    " UNION SELECT DISTINCT end / ?1 FROM process_block WHERE tier = ?2 AND end < ?4 AND end >= ?3 ORDER BY 1"
)


def coarsen(connection: sqlite3.Connection, until_ns: int) -> None:
    """Write the hours that are over before `until_ns` (ns since 1970) and not written, within an open transaction."""
    (newest,) = connection.execute(
        "SELECT max(end) FROM process_block WHERE tier = ? AND end <= ?", (_COARSE.number, until_ns)
    ).fetchone()
    due = connection.execute(_DUE, (_HOUR, _FINE.number, newest or 0, until_ns // _HOUR * _HOUR)).fetchall()
    for (hour,) in due:
        cells = _cells(_within(connection, hour * _HOUR, (hour + 1) * _HOUR))
        if cells:
            data = pack_cells(cells)
            connection.execute(PUT, (_COARSE.number, hour * _HOUR, (hour + 1) * _HOUR, zlib.crc32(data), data))


def _within(connection: sqlite3.Connection, begin: int, end: int) -> Iterator[SeenStretch]:
    """The stretches of which the middle is within some time, in their order."""
    rows = connection.execute(
        "SELECT data, crc FROM process_block WHERE tier = ? AND begin < ? AND end > ? ORDER BY begin",
        (_FINE.number, end, begin),
    )
    for data, crc in typed_rows(rows, bytes, int):
        with suppress(BadProcessBlock):  # a gap
            yield from (stretch for stretch in unpack_spans(data, crc) if begin <= stretch.middle_ns < end)


def _cells(stretches: Iterable[SeenStretch]) -> list[PlacedCell]:
    found: dict[tuple[int, int], Cell] = {}
    for (place, numbers), run in groupby(stretches, lambda one: (_place(one), one.numbers)):
        for number, cell in zip(numbers, _folded(list(run), len(numbers)), strict=True):
            known = found.get((number, place))
            if known is None:
                found[number, place] = cell
            else:
                fold(known, cell)
    return [PlacedCell(number, place, cell) for (number, place), cell in found.items()]


def _place(stretch: SeenStretch) -> int:
    return stretch.middle_ns // (_COARSE.step * SECOND) % _COARSE.cells


def _folded(run: Sequence[SeenStretch], count: int) -> list[Cell]:
    """The cells of `count` processes over stretches that all have the same ones; by column, which is faster."""
    seconds = [stretch.seconds for stretch in run]
    whole = sum(seconds)
    cells = [[whole] for _ in range(count)]
    for measure in range(len(MEASURES)):
        values = list(chain.from_iterable(stretch.columns[measure] for stretch in run))
        for place, cell in enumerate(cells):
            column = values[place::count]
            total = sum(map(mul, column, seconds))
            # NaN is not itself; in place, because this is done for each process and measure.
            if total == total:
                cell += (whole, total, min(column), max(column))
                continue
            known = [(value, length) for value, length in zip(column, seconds, strict=True) if value == value]
            cell += (
                sum(length for _, length in known), sum(value * length for value, length in known),
                min((value for value, _ in known), default=inf), max((value for value, _ in known), default=-inf),
            )  # fmt: skip
    return cells


_NOTHING: Sequence[Sequence[float]] = ((),) * len(MEASURES)


def stretch_of(look: Look, numbers: Sequence[int]) -> SeenStretch:
    """Return the values of a look of the processes with these numbers; others, and those without one, are left out."""
    values = list(map(read_values, look.processes[: len(numbers)]))
    if UNKNOWN in numbers:
        values = [row for row, number in zip(values, numbers, strict=True) if number != UNKNOWN]
        numbers = [number for number in numbers if number != UNKNOWN]
    return SeenStretch(look.begin_ns, look.ns / SECOND, numbers, tuple(zip(*values, strict=True)) or _NOTHING)


class ProcessPart:
    """Keeps processes; a part of the history that a daemon keeps.

    The thread that samples only notes which lists of processes were seen when; all else is done when they are written.
    """

    def __init__(self) -> None:
        self._looks = Looks()
        self._rows = ProcessRows(boot_id().hex())
        self._numbers = ProcessNumbers(self._resolve)
        self._connection: sqlite3.Connection | None = None
        self._hour = -1
        """Up to which all is in the coarser tier."""
        self._is_ending = False
        self._until_ns = 0
        """End of the block that was written last, ns since 1970."""

    def add(self, tick: Tick) -> None:
        """Take a tick; they come in order."""
        self._looks.add(tick.monotonic_ns, tick.time_ns, tick.interval_ns / SECOND, tick.processes, tick.samples)

    def on_open(self, connection: sqlite3.Connection) -> None:
        """Find the processes in a file that was just opened when they are next written."""
        self._numbers.forget()
        self._hour = -1
        self._until_ns = last_end(connection)
        if connection.execute(_IS_EXHAUSTED, (_MOST,)).fetchone()[0]:  # a damaged row: no new process would get an id
            with transaction(connection):
                connection.execute("DELETE FROM process WHERE id >= ?", (_MOST,))
                connection.execute(_COUNT_ON)

    def write(self, connection: sqlite3.Connection) -> None:
        """Write what has been seen since the last time. Raises sqlite3.Error."""
        looks = list(self._looks.over)
        if not looks:
            return
        self._connection = connection
        try:
            with transaction(connection):
                self._write(connection, looks)
        except BaseException:
            self._numbers.forget()
            self._hour = -1
            raise
        finally:
            self._connection = None
        taken = set(map(id, looks))
        while self._looks.over and id(self._looks.over[0]) in taken:
            self._looks.over.popleft()

    def finish(self) -> None:
        """Note that no tick comes any more."""
        self._looks.finish()
        self._is_ending = True

    def _write(self, connection: sqlite3.Connection, looks: Sequence[Look]) -> None:
        stretches, rows = [], 0
        for look in looks:
            stretch = stretch_of(look, self._numbers.of(look))
            if stretch.numbers and rows + len(stretch.numbers) <= MOST_ROWS:
                rows += len(stretch.numbers)
                stretches.append(stretch)
        until_ns = looks[-1].end_ns
        for group in _by_clock(stretches):
            last = group[-1]
            end = last.begin_ns + round(last.seconds * SECOND)
            if group[-1] is stretches[-1] and 0 <= until_ns - end < _HOUR:
                end = until_ns
            self._put(connection, group, group[0].begin_ns, end)
        if self._until_ns > until_ns + SECOND:
            # The clock was set back, and nothing was there since: readers take the end of the last block for theirs.
            self._put(connection, (), looks[-1].begin_ns, until_ns)
        changed, self._numbers.changed = self._numbers.changed, []
        hour = until_ns // _HOUR
        if hour != self._hour or self._is_ending:
            changed += self._numbers.lives()
        self._rows.update(connection, changed)
        if hour != self._hour:
            coarsen(connection, until_ns)
            self._hour = hour

    def _put(
        self, connection: sqlite3.Connection, stretches: Sequence[SeenStretch], begin_ns: int, end_ns: int
    ) -> None:  # fmt: skip
        data = pack_spans(stretches)
        connection.execute(PUT, (_FINE.number, begin_ns, end_ns, zlib.crc32(data), data))
        self._until_ns = end_ns

    def _resolve(self, life: ProcessLife) -> int:
        assert self._connection is not None
        return self._rows.number(self._connection, life)


def _by_clock(stretches: Sequence[SeenStretch]) -> Iterator[list[SeenStretch]]:
    """Split stretches where the clock was set between two of them: a block has one begin and one end."""
    group: list[SeenStretch] = []
    for stretch in stretches:
        if group and not 0 <= stretch.begin_ns - group[-1].begin_ns < _HOUR:
            yield group
            group = []
        group.append(stretch)
    if group:
        yield group
