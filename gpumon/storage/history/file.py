"""The file of kept history as readers see it: columns of one metric, decoded once, while a daemon may be writing.

Who asks is a view: a file that is missing, damaged or of another version answers nothing, and `problem` says why.
"""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from math import inf, nan
from threading import Lock
from typing import NamedTuple, TypeVar

from gpumon.common.paths import may_exist
from gpumon.storage.history.block import BadBlock, present, unpack
from gpumon.storage.history.line import Line
from gpumon.storage.history.read import open_file, why_unreadable
from gpumon.storage.history.tiers import SHAPES, TierShape
from gpumon.storage.sqlite.cells import parse_names, typed_rows
from gpumon.storage.sqlite.write import OtherVersion

_LOOK = 2.0
"""Seconds between looks for new blocks."""
_RETRY = 10.0
"""Seconds between attempts to open a file that cannot be read."""
_MOST = 96
"""Lines that are kept decoded: 250 kB each at most."""
T = TypeVar("T")


class Reach(NamedTuple):
    """The stretch of time of which a tier has cells (s since 1970); NaN where it has none."""

    begin: float = nan
    end: float = nan


class KeptFile:
    """The history at `path`, or none while that is empty. Safe to use from several threads.

    Never raises for what the file is. While it cannot be read, it answers with what it has read before.
    """

    def __init__(
        self, path: str = "", now: Callable[[], float] | None = None, timeout: float | None = None
    ) -> None:  # fmt: skip
        """`timeout` is how many seconds to wait for a locked file; by default the timeout of this process."""
        self.path = path
        self.problem = ""
        """Why nothing can be read, for people; empty while all is well, or where there is no file yet."""
        self._now = now or time.time
        self._timeout = timeout
        self._lock = Lock()
        self._db: sqlite3.Connection | None = None
        self._look_at = self._open_at = -inf
        self._version = -1
        self._reach: dict[int, Reach] = {}
        self._known: dict[tuple[int, str], frozenset[str]] = {}
        self._lines: OrderedDict[tuple[int, str, str], Line] = OrderedDict()
        self._fresh: set[tuple[int, str, str]] = set()
        """Lines that have all that the file has."""

    def look_in(self, path: str) -> None:
        """Answer from the file at `path` from now on."""
        if path == self.path:
            return
        with self._lock:
            self._shut()
            self._lines.clear()
            self._fresh.clear()
            self._known.clear()
            self._reach = {}
            self._look_at = self._open_at = -inf
            self.path, self.problem = path, ""

    def reach(self, shape: TierShape) -> Reach:
        """From when to when there are cells."""
        with self._lock:
            self._look()
            return self._reach.get(shape.number, Reach())

    def metrics(self, shape: TierShape, subject: str) -> frozenset[str]:
        """The metrics that the newest block of a subject has."""
        with self._lock:
            self._look()
            key = (shape.number, subject)
            if key in self._known:
                return self._known[key]
            found: frozenset[str] = self._ask(lambda db: _metrics(db, shape, subject), frozenset())
            if not self.problem:
                self._known[key] = found
            return found

    def lines(self, shape: TierShape, subject: str, metrics: Sequence[str]) -> dict[str, Line]:
        """Everything that a tier has of some metrics; one that it does not have is missing."""
        with self._lock:
            self._look()
            stale = [name for name in metrics if (shape.number, subject, name) not in self._fresh]
            if stale:
                self._ask(lambda db: self._load(db, shape, subject, stale), None)
            found = {}
            for name in metrics:
                line = self._lines.get((shape.number, subject, name))
                if line is not None:
                    self._lines.move_to_end((shape.number, subject, name))
                    found[name] = line
            return found

    def subjects(self, begin: float, end: float) -> list[str]:
        """UUIDs of the GPUs that have cells between two times (s since 1970)."""
        with self._lock:
            return self._ask(lambda db: _subjects(db, begin, end), [])

    def close(self) -> None:
        """Let the file go."""
        with self._lock:
            self._shut()

    def _look(self) -> None:
        """See every now and then whether there is something new."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK
        version = self._ask(lambda db: int(db.execute("PRAGMA data_version").fetchone()[0]), -1)
        if self.problem:
            return
        if version != self._version or version == -1:
            self._version = version
            self._fresh.clear()
            self._known.clear()
            self._reach = self._ask(self._reaches, self._reach if version != -1 else {})

    def _reaches(self, db: sqlite3.Connection) -> dict[int, Reach]:
        found = {}
        for shape in SHAPES:
            # One that a wrong clock has put in another year is not the begin of anything.
            oldest, latest = (self._now() - shape.keep) // shape.block, self._now() // shape.block
            ((begin, end),) = db.execute(
                "SELECT min(number * ?1 + max(first, 0)), max(number * ?1 + min(last, ?1 - 1)) FROM block"
                " WHERE tier = ?2"
                " AND number IN (SELECT min(number) FROM block WHERE tier = ?2 AND number BETWEEN ?3 AND ?4"
                " UNION SELECT max(number) FROM block WHERE tier = ?2 AND number BETWEEN ?3 AND ?4)",
                (shape.cells, shape.number, oldest, latest),
            ).fetchall()
            if isinstance(begin, int) and isinstance(end, int):
                found[shape.number] = Reach(begin * shape.step, (end + 1) * shape.step)
        return found

    def _load(self, db: sqlite3.Connection, shape: TierShape, subject: str, metrics: Sequence[str]) -> None:
        reach = self._reach.get(shape.number)
        if reach is None:
            return
        first, end = int(reach.begin // shape.step), int(reach.end // shape.step)
        lines = {}
        for name in metrics:
            before = self._lines.get((shape.number, subject, name)) or Line(shape.step, first, first)
            # The last block of a line may have been a part of what it is now.
            again = (before.filled - 1) // shape.cells * shape.cells
            lines[name] = before.moved(first, end, again)
        since = min(line.filled for line in lines.values()) // shape.cells
        rows = db.execute(
            "SELECT number, metrics, crc, data FROM block JOIN schema ON schema.id = block.schema"
            " WHERE tier = ? AND number BETWEEN ? AND ? AND subject = ? ORDER BY number",
            (shape.number, since, end // shape.cells, subject),
        )
        names: dict[str, Sequence[str]] = {}
        for number, named, crc, data in typed_rows(rows, int, str, int, bytes):
            if zlib.crc32(data) != crc:
                continue  # a gap
            if named not in names:
                names[named] = parse_names(named)
            _fill(lines, number * shape.cells, shape.cells, data, names[named])
        for name, line in lines.items():
            self._lines[shape.number, subject, name] = line
            self._fresh.add((shape.number, subject, name))
        while len(self._lines) > _MOST:
            self._fresh.discard(self._lines.popitem(last=False)[0])

    def _ask(self, read: Callable[[sqlite3.Connection], T], nothing: T) -> T:
        now = time.monotonic()
        try:
            if self._db is None:
                if now < self._open_at or not self.path:
                    return nothing
                self._open_at = now + _RETRY
                if not may_exist(self.path):
                    return nothing
                self._db, version = open_file(self.path, any_thread=True, timeout=self._timeout)
                if not version:
                    self._shut()
                    self.problem = ""
                    return nothing
            found = read(self._db)
        except OtherVersion as error:
            self.problem = str(error)
            return nothing
        except (sqlite3.Error, OSError, ValueError) as error:
            self._shut()
            self.problem = why_unreadable(self.path, error)
            return nothing
        self.problem = ""
        return found

    def _shut(self) -> None:
        self._version = -1
        if self._db is not None:
            self._db.close()
            self._db = None


def _metrics(db: sqlite3.Connection, shape: TierShape, subject: str) -> frozenset[str]:
    """The metrics of the newest block of a subject."""
    rows = db.execute(
        "SELECT metrics, data FROM block JOIN schema ON schema.id = block.schema"
        " WHERE tier = ? AND subject = ? ORDER BY number DESC LIMIT 1",
        (shape.number, subject),
    )
    for named, data in typed_rows(rows, str, bytes):
        names = parse_names(named)
        return frozenset(name for name, there in zip(names, present(data, len(names)), strict=False) if there)
    return frozenset()


def _subjects(db: sqlite3.Connection, begin: float, end: float) -> list[str]:
    """GPUs that have cells from `begin` to `end`."""
    asked = " UNION ".join(
        f"SELECT DISTINCT subject FROM block WHERE tier = {shape.number} AND subject != ''"
        f" AND number BETWEEN CAST(?1 / {shape.block} AS INTEGER) AND CAST(?2 / {shape.block} AS INTEGER)"
        for shape in SHAPES
    )
    rows = db.execute(f"{asked} ORDER BY subject", (begin, end))
    return [subject for (subject,) in typed_rows(rows, str)]


def _fill(lines: dict[str, Line], first: int, cells: int, data: bytes, names: Sequence[str]) -> None:
    for name, line in lines.items():
        if name in names:
            try:
                found = unpack(data, len(names), names.index(name), cells)
            except BadBlock:
                continue  # a gap
            if found is not None:
                line.fill(first, found)
