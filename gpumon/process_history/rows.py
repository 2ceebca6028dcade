"""The rows of processes in the file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from gpumon.process_history.identity import ProcessLife
from gpumon.text import clean

RESTARTED = 1.5
"""Seconds by which the start of a process may differ after a restart of the daemon: the kernel's time of its boot is in
whole seconds, and is set with the clock."""
_MOST_NAME, _MOST_UUID = 64, 100
_FIND = (
    "SELECT id FROM process WHERE pid = ? AND device = ? AND boot = ? AND (abs(started - ?) <= ? OR first = ?)"
    " ORDER BY id DESC LIMIT 1"
)
_INSERT = (
    "INSERT INTO process (device, pid, boot, started, kind, name, user, first, last) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPDATE = "UPDATE process SET started = ?, name = ?, user = ?, last = max(last, ?) WHERE id = ?"


class ProcessRows:
    """Writes them, within a transaction that is open; `boot` is that of the machine."""

    def __init__(self, boot: str) -> None:
        self._boot = boot

    def number(self, connection: sqlite3.Connection, life: ProcessLife) -> int:
        """Return the id of a process: the one that it has, as from an earlier daemon, or a new one."""
        device = clean(life.device, _MOST_UUID)
        place = (life.pid, device, self._boot, life.started, RESTARTED, life.first_ns)
        row = connection.execute(_FIND, place).fetchone()
        if row:
            return int(row[0])
        names = (clean(life.kind, 20), clean(life.name, _MOST_NAME), clean(life.user, _MOST_NAME))
        values = (device, life.pid, self._boot, life.started, *names, life.first_ns, life.last_ns)
        return connection.execute(_INSERT, values).lastrowid or 0

    def update(self, connection: sqlite3.Connection, lives: Iterable[ProcessLife]) -> None:
        """Write what is new of some processes."""
        connection.executemany(
            _UPDATE,
            [
                (life.started, clean(life.name, _MOST_NAME), clean(life.user, _MOST_NAME), life.last_ns, life.number)
                for life in lives
            ],
        )
