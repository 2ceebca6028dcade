"""Writes one row for each process into the history file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from gpumon.common.text import clean
from gpumon.storage.processes.measures import TEXTS
from gpumon.storage.processes.snapshot import TrackedProcess

RESTARTED = 1.5
"""Maximum seconds by which the start time of a process may differ after a daemon restart. It may differ because the
kernel reports its boot time in whole seconds, and the boot time changes when the clock is set."""
_MAX_TEXT_LENGTH = 100
_FIND = (
    "SELECT id FROM process WHERE pid = ? AND device = ? AND boot = ? AND (abs(started - ?) <= ? OR first = ?)"
    " ORDER BY id DESC LIMIT 1"
)
_INSERT = (
    f"INSERT INTO process (device, pid, boot, started, kind, first, last, {', '.join(TEXTS)})"
    f" VALUES (?, ?, ?, ?, ?, ?, ?{', ?' * len(TEXTS)})"
)
_RENAMED = ", ".join(f"{text} = ?" for text in TEXTS)
# `first` becomes earlier if the clock had been ahead. Snapshots are written in order, so the newest one sets `last`.
_UPDATE = f"UPDATE process SET started = ?, first = min(first, ?), last = ?, {_RENAMED} WHERE id = ?"


class ProcessRows:
    """Finds, inserts and updates the rows of processes. Needs an open transaction. `boot`: boot id of the machine."""

    def __init__(self, boot: str) -> None:
        self._boot = boot

    def number(self, connection: sqlite3.Connection, tracked: TrackedProcess) -> int:
        """Return the id of a process in the file. Insert the process if it is not in the file yet."""
        device = clean(tracked.device, _MAX_TEXT_LENGTH)
        key = (tracked.pid, device, self._boot, tracked.started, RESTARTED, tracked.first_ns)
        row = connection.execute(_FIND, key).fetchone()
        if row:
            return int(row[0])
        kind = clean(tracked.kind, _MAX_TEXT_LENGTH)
        values = (
            device,
            tracked.pid,
            self._boot,
            tracked.started,
            kind,
            tracked.first_ns,
            tracked.last_ns,
            *_texts(tracked),
        )
        return connection.execute(_INSERT, values).lastrowid or 0

    def update(self, connection: sqlite3.Connection, processes: Iterable[TrackedProcess]) -> None:
        """Update the rows of these processes with their current fields."""
        rows = [
            (tracked.started, tracked.first_ns, tracked.last_ns, *_texts(tracked), tracked.number)
            for tracked in processes
        ]
        connection.executemany(_UPDATE, rows)


def _texts(tracked: TrackedProcess) -> list[str]:
    return [clean(text, _MAX_TEXT_LENGTH) for text in tracked.texts]
