"""The part of kept history that is about processes."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Sequence

from gpumon.common.clock import SECOND
from gpumon.common.procfs import boot_id
from gpumon.database.write import transaction
from gpumon.history.tiers import PROCESS_SHAPES
from gpumon.model.frame import Tick
from gpumon.process_history.coarse import PUT, coarsen
from gpumon.process_history.identity import ProcessLife, ProcessNumbers
from gpumon.process_history.kept import last_end
from gpumon.process_history.look import Look, Looks
from gpumon.process_history.rows import ProcessRows
from gpumon.process_history.stretches import MOST_ROWS, SeenStretch, pack
from gpumon.process_history.values import stretch_of

_FINE, _COARSE = PROCESS_SHAPES
_HOUR = _COARSE.block * SECOND


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

    def opened(self, connection: sqlite3.Connection) -> None:
        """Find the processes in a file that was just opened when they are next written."""
        self._numbers.forget()
        self._hour = -1
        self._until_ns = last_end(connection)

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
        data = pack(stretches)
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
