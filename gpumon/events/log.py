"""Events into the file of history: each once, and nothing left open for ever."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from gpumon.clock import SECOND
from gpumon.events.event import EventSubject, Key, Occurrence, unseen
from gpumon.events.kinds import BY_NAME
from gpumon.missing import is_known
from gpumon.text import clean

_MOST_NAME = 100
_MOST_DETAILS = 4000
_SAME = 2 * SECOND
"""ns within which two begins, or two ends, of one run are the same one."""
_RUNS = ("run_began", "run_ended", "run_died")
_ONCE_MORE = "SELECT 1 FROM event WHERE run = ? AND run != '' AND user = ? AND kind IN (?, ?) AND abs(time - ?) <= ?"
"""`run != ''` names the rows that the index of runs has: without it, every event is looked at."""


def write_events(
    connection: sqlite3.Connection, events: Iterable[Occurrence], going_on: Iterable[Key], seen_ns: int, boot: str
) -> None:
    """Add events to the open transaction, and that `going_on` was so until `seen_ns`. Raises sqlite3.Error."""
    for event in events:
        _insert(connection, event, boot)
    connection.executemany(
        "UPDATE event SET until = ? WHERE until IS NOT NULL AND kind = ? AND device = ? AND user = ? AND run = ?"
        " AND cause = ?", [(seen_ns, kind, *_safe(of)) for kind, of in going_on],
    )  # fmt: skip


def close_unseen(connection: sqlite3.Connection, going_on: Iterable[Key], boot: str, *, runs: bool) -> None:
    """Close what an earlier daemon left open and does not go on: runs, or all else. Raises sqlite3.Error."""
    known = {(kind, _safe(of)) for kind, of in going_on}
    rows = connection.execute(
        "SELECT kind, device, user, run, cause, until FROM event WHERE until IS NOT NULL"
    ).fetchall()  # fmt: skip
    for kind, device, user, run, cause, until in rows:
        of = EventSubject(device, user, run, cause)
        if (kind in _RUNS) is runs and (kind, of) not in known and kind in BY_NAME:
            _insert(connection, unseen(until, kind, of), boot)


def _insert(connection: sqlite3.Connection, event: Occurrence, boot: str) -> None:
    kind, of = event.kind, _safe(event.of)
    ended = str(event.details.get("of") or BY_NAME[kind].ends)
    is_lasting = bool(BY_NAME[kind].unseen)
    if kind in _RUNS:
        kinds = ("run_began", "run_began") if is_lasting else ("run_ended", "run_died")
        if connection.execute(_ONCE_MORE, (of.run, of.user, *kinds, event.time_ns, _SAME)).fetchone():
            return  # an earlier daemon has seen it
    details = json.dumps({key: _bounded(value) for key, value in event.details.items()}, separators=(",", ":"))
    connection.execute(
        "INSERT OR IGNORE INTO event (time, kind, device, user, run, cause, boot, lasted, until, details)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            event.time_ns, kind, *of, boot, event.lasted if is_known(event.lasted) else None,
            event.time_ns if is_lasting else None, details if len(details) <= _MOST_DETAILS else "{}",
        ),
    )  # fmt: skip
    if ended:
        connection.execute(
            "UPDATE event SET until = NULL WHERE until IS NOT NULL AND kind = ? AND device = ? AND user = ?"
            " AND run = ? AND cause = ?", (ended, *of),
        )  # fmt: skip


def _safe(of: EventSubject) -> EventSubject:
    """A subject as the file has it."""
    return EventSubject(*(clean(part, _MOST_NAME) for part in of))


def _bounded(value: object) -> object:
    return clean(value, 200) if isinstance(value, str) else value
