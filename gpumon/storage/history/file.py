"""`HistoryFile`: cached access to the history file for views. A daemon may write to the file at the same time.

If the file is missing, damaged or of another version, results are empty and `problem` says why.
"""

from __future__ import annotations

import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf, nan
from threading import Lock
from typing import TypeVar

from gpumon.common.columnar import DamagedBlock
from gpumon.common.paths import may_exist
from gpumon.storage.history.block import stored_blocks, unpack
from gpumon.storage.history.metric_series import Line
from gpumon.storage.history.read import explain_unreadable, open_file
from gpumon.storage.history.tiers import SHAPES, TierShape
from gpumon.storage.sqlite.cells import typed_rows
from gpumon.storage.sqlite.write import OtherVersion

_REFRESH_INTERVAL = 2.0
"""Seconds between checks for new blocks."""
_RETRY_INTERVAL = 10.0
"""Seconds between attempts to open a file that cannot be read."""
_MAX_LINES = 96
"""Maximum number of decoded lines in the cache. A line has at most 250 kB."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TierRange:
    """The time that the cells of a tier cover (s since 1970); NaN if the tier has no cells."""

    begin: float = nan
    end: float = nan


class HistoryFile:
    """The history file at `path`; an empty path stands for no file. Can be used from several threads.

    No method raises because of the file. While it cannot be read, the data read earlier is returned.
    """

    def __init__(
        self, path: str = "", now: Callable[[], float] | None = None, timeout: float | None = None
    ) -> None:  # fmt: skip
        """`now`: returns the time (s since 1970).

        `timeout`: seconds to wait while the file is locked, None for the default of this process.
        """
        self.path = path
        self.problem = ""
        """Reason why the file cannot be read, as text for users. Empty if it can be read or does not exist yet."""
        self._now = now or time.time
        self._timeout = timeout
        self._lock = Lock()
        self._db: sqlite3.Connection | None = None
        self._refresh_at = self._open_at = -inf
        self._version = -1
        self._ranges: dict[int, TierRange] = {}
        self._metrics_by_subject: dict[tuple[int, str], frozenset[str]] = {}
        self._lines: OrderedDict[tuple[int, str, str], Line] = OrderedDict()
        self._current: set[tuple[int, str, str]] = set()
        """Keys of cached lines that contain everything in the file."""

    def set_path(self, path: str) -> None:
        """Use the file at `path` for all later queries."""
        if path == self.path:
            return
        with self._lock:
            self._disconnect()
            self._lines.clear()
            self._current.clear()
            self._metrics_by_subject.clear()
            self._ranges = {}
            self._refresh_at = self._open_at = -inf
            self.path, self.problem = path, ""

    def time_range(self, shape: TierShape) -> TierRange:
        """Return the time covered by the cells of a tier."""
        with self._lock:
            self._refresh()
            return self._ranges.get(shape.number, TierRange())

    def metrics(self, shape: TierShape, subject: str) -> frozenset[str]:
        """Return the names of the metrics that have values in the newest block of a subject."""
        with self._lock:
            self._refresh()
            key = (shape.number, subject)
            if key in self._metrics_by_subject:
                return self._metrics_by_subject[key]
            result: frozenset[str] = self._query(lambda db: _metrics(db, shape, subject), frozenset())
            if not self.problem:
                self._metrics_by_subject[key] = result
            return result

    def lines(self, shape: TierShape, subject: str, metrics: Sequence[str]) -> dict[str, Line]:
        """Return all cells of these metrics in a tier, by metric. Metrics that the tier does not have are left out."""
        with self._lock:
            self._refresh()
            stale = [name for name in metrics if (shape.number, subject, name) not in self._current]
            if stale:
                self._query(lambda db: self._load(db, shape, subject, stale), None)
            result = {}
            for name in metrics:
                line = self._lines.get((shape.number, subject, name))
                if line is not None:
                    self._lines.move_to_end((shape.number, subject, name))
                    result[name] = line
            return result

    def subjects(self, begin: float, end: float) -> list[str]:
        """Return the UUIDs of the GPUs that have data between two times (s since 1970)."""
        with self._lock:
            return self._query(lambda db: _subjects(db, begin, end), [])

    def close(self) -> None:
        """Close the file. The next query opens it again."""
        with self._lock:
            self._disconnect()

    def _refresh(self) -> None:
        """Check for new blocks, at most every `_REFRESH_INTERVAL` seconds."""
        now = time.monotonic()
        if now < self._refresh_at:
            return
        self._refresh_at = now + _REFRESH_INTERVAL
        version = self._query(lambda db: int(db.execute("PRAGMA data_version").fetchone()[0]), -1)
        if self.problem:
            return
        if version != self._version or version == -1:
            self._version = version
            self._current.clear()
            self._metrics_by_subject.clear()
            self._ranges = self._query(self._read_ranges, self._ranges if version != -1 else {})

    def _read_ranges(self, db: sqlite3.Connection) -> dict[int, TierRange]:
        result = {}
        for shape in SHAPES:
            # Ignore blocks from years ago, which were written with a wrong clock.
            oldest, latest = (self._now() - shape.keep) // shape.block, self._now() // shape.block
            ((begin, end),) = db.execute(
                "SELECT min(number * ?1 + max(first, 0)), max(number * ?1 + min(last, ?1 - 1)) FROM block"
                " WHERE tier = ?2"
                " AND number IN (SELECT min(number) FROM block WHERE tier = ?2 AND number BETWEEN ?3 AND ?4"
                " UNION SELECT max(number) FROM block WHERE tier = ?2 AND number BETWEEN ?3 AND ?4)",
                (shape.cells, shape.number, oldest, latest),
            ).fetchall()
            if isinstance(begin, int) and isinstance(end, int):
                result[shape.number] = TierRange(begin * shape.step, (end + 1) * shape.step)
        return result

    def _load(self, db: sqlite3.Connection, shape: TierShape, subject: str, metrics: Sequence[str]) -> None:
        covered = self._ranges.get(shape.number)
        if covered is None:
            return
        first, end = int(covered.begin // shape.step), int(covered.end // shape.step)
        lines = {}
        for name in metrics:
            cached = self._lines.get((shape.number, subject, name)) or Line(shape.step, first, first)
            # The last block of a cached line may have more cells now.
            refill = (cached.filled - 1) // shape.cells * shape.cells
            lines[name] = cached.resized(first, end, refill)
        since = min(line.filled for line in lines.values()) // shape.cells
        for block in stored_blocks(db, shape, since, end // shape.cells, subject):
            for name, line in lines.items():
                if name in block.names:
                    with suppress(DamagedBlock):  # leaves a gap
                        if (result := unpack(block.block, block.names.index(name), shape.cells)) is not None:
                            line.fill(block.number * shape.cells, result)
        for name, line in lines.items():
            self._lines[shape.number, subject, name] = line
            self._current.add((shape.number, subject, name))
        while len(self._lines) > _MAX_LINES:
            self._current.discard(self._lines.popitem(last=False)[0])

    def _query(self, read: Callable[[sqlite3.Connection], T], default: T) -> T:
        """Return the result of `read`, or `default` if there is no file or it cannot be read. Update `problem`."""
        now = time.monotonic()
        try:
            if self._db is None:
                if now < self._open_at or not self.path:
                    return default
                self._open_at = now + _RETRY_INTERVAL
                if not may_exist(self.path):
                    return default
                self._db, version = open_file(self.path, any_thread=True, timeout=self._timeout)
                if not version:
                    self._disconnect()
                    self.problem = ""
                    return default
            result = read(self._db)
        except OtherVersion as error:
            self.problem = str(error)
            return default
        except (sqlite3.Error, OSError, ValueError) as error:
            self._disconnect()
            self.problem = explain_unreadable(self.path, error)
            return default
        self.problem = ""
        return result

    def _disconnect(self) -> None:
        self._version = -1
        if self._db is not None:
            self._db.close()
            self._db = None


def _metrics(db: sqlite3.Connection, shape: TierShape, subject: str) -> frozenset[str]:
    """Return the metrics in the newest block of a subject."""
    newest = "SELECT number FROM block WHERE tier = ? AND subject = ? ORDER BY number DESC LIMIT 1"
    for (number,) in typed_rows(db.execute(newest, (shape.number, subject)), int):
        for block in stored_blocks(db, shape, number, number, subject):
            return frozenset(name for part, name in enumerate(block.names) if block.block.has(part))
    return frozenset()


def _subjects(db: sqlite3.Connection, begin: float, end: float) -> list[str]:
    """Return the GPUs with cells from `begin` to `end`."""
    query = " UNION ".join(
        f"SELECT DISTINCT subject FROM block WHERE tier = {shape.number} AND subject != ''"
        f" AND number BETWEEN CAST(?1 / {shape.block} AS INTEGER) AND CAST(?2 / {shape.block} AS INTEGER)"
        for shape in SHAPES
    )
    rows = db.execute(f"{query} ORDER BY subject", (begin, end))
    return [subject for (subject,) in typed_rows(rows, str)]
