"""The peer of the ring: SQLite in WAL mode, one transaction and one blob for each frame."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from struct import Struct

from gpumon.model.frame import Frame
from gpumon.ring.layout import Layout
from gpumon.ring.reader import RingReader

_STAMP = Struct("<QQQ")
"""Number, monotonic and wall clock, as they stand at byte 16 of a slot."""


class Blobs:
    """Frames as the ring packed them, without padding."""

    def __init__(self, path: Path, reader: RingReader) -> None:
        self._path = path
        self._reader = reader
        self._store = sqlite3.connect(path, isolation_level=None)
        self._store.execute("PRAGMA journal_mode=WAL")
        self._store.execute("PRAGMA synchronous=NORMAL")
        self._store.execute("CREATE TABLE frames (number INTEGER PRIMARY KEY, raw BLOB NOT NULL)")

    def packed(self, number: int) -> bytes:
        """The used parts of a frame's slot."""
        raw = self._reader.raw(number)
        assert raw is not None
        return raw[: used(raw)]

    def append(self, number: int, raw: bytes) -> None:
        self._store.execute("INSERT INTO frames VALUES (?, ?)", (number, raw))

    def newest(self) -> Frame:
        return self._decoded(self._store)

    def series(self, metric: str, frames: int) -> tuple[list[int], list[tuple[float, ...]]]:
        """As `RingReader.series`; SQLite cuts the wanted bytes out of each blob."""
        at, column = place_of(metric, self._reader.layout)
        rows = self._store.execute(
            "SELECT substr(raw, 17, 24), substr(raw, ?, ?) FROM frames ORDER BY number DESC LIMIT ?",
            (at + 1, column.size, frames),
        ).fetchall()
        return [_STAMP.unpack(head)[2] for head, _ in rows], [column.unpack(body) for _, body in rows]

    def attach(self) -> Frame:
        """The newest frame for one who comes and goes."""
        store = sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)
        try:
            return self._decoded(store)
        finally:
            store.close()

    def close(self) -> None:
        self._store.close()

    def _decoded(self, store: sqlite3.Connection) -> Frame:
        return self._reader.decode(store.execute("SELECT raw FROM frames ORDER BY number DESC LIMIT 1").fetchone()[0])


def used(raw: bytes) -> int:
    """Number of used bytes of a slot."""
    return 16 + int.from_bytes(raw[12:16], "little")


def place_of(metric: str, layout: Layout) -> tuple[int, Struct]:
    """Where in a slot the values of a metric stand, and what they are."""
    return layout.metrics_at + 8 * layout.rows * layout.gpu.index(metric), Struct(f"<{layout.rows}d")
