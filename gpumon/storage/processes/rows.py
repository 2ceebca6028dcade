"""The rows of processes in the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from gpumon.common.text import clean
from gpumon.storage.processes.measures import TEXTS
from gpumon.storage.processes.snapshot import ProcessLife

RESTARTED = 1.5
"""Seconds by which the start of a process may differ after a restart of the daemon: the kernel's time of its boot is in
whole seconds, and is set with the clock."""
_MOST_TEXT = 100
_FIND = (
    "SELECT id FROM process WHERE pid = ? AND device = ? AND boot = ? AND (abs(started - ?) <= ? OR first = ?)"
    " ORDER BY id DESC LIMIT 1"
)
_INSERT = (
    f"INSERT INTO process (device, pid, boot, started, kind, first, last, {', '.join(TEXTS)})"
    f" VALUES (?, ?, ?, ?, ?, ?, ?{', ?' * len(TEXTS)})"
)
_RENAMED = ", ".join(f"{text} = ?" for text in TEXTS)
# Of a clock that was ahead: looks are written in their order, so that the newest one is the last.
_UPDATE = f"UPDATE process SET started = ?, first = min(first, ?), last = ?, {_RENAMED} WHERE id = ?"


class ProcessRows:
    """Writes them, within a transaction that is open; `boot` is that of the machine."""

    def __init__(self, boot: str) -> None:
        self._boot = boot

    def number(self, connection: sqlite3.Connection, life: ProcessLife) -> int:
        """Return the id of a process: the one that it has, as from an earlier daemon, or a new one."""
        device = clean(life.device, _MOST_TEXT)
        place = (life.pid, device, self._boot, life.started, RESTARTED, life.first_ns)
        row = connection.execute(_FIND, place).fetchone()
        if row:
            return int(row[0])
        kind = clean(life.kind, _MOST_TEXT)
        values = (device, life.pid, self._boot, life.started, kind, life.first_ns, life.last_ns, *_texts(life))
        return connection.execute(_INSERT, values).lastrowid or 0

    def update(self, connection: sqlite3.Connection, lives: Iterable[ProcessLife]) -> None:
        """Write what is new of some processes."""
        rows = [(life.started, life.first_ns, life.last_ns, *_texts(life), life.number) for life in lives]
        connection.executemany(_UPDATE, rows)


def _texts(life: ProcessLife) -> list[str]:
    return [clean(text, _MOST_TEXT) for text in life.texts]
