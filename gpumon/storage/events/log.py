"""Collects events from ticks (`EventBook`) and writes them into the history file (`write_events`).

Each event is written once. If a daemon was killed before an event had ended, the next daemon ends or continues it.
"""

from __future__ import annotations

import json
import sqlite3
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpumon.analysis.holders import HeldDevice
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.common.text import clean
from gpumon.model.events import BY_NAME, TAKEN_BACK, Event, EventSubject, Key, parse_details, unseen_end
from gpumon.model.frame import Tick
from gpumon.storage.events.device_watch import QUIET, ClockWatch, DeviceWatch, XidWatch
from gpumon.storage.events.run_watch import Explain, ProcessWatch, RunWatch
from gpumon.storage.history.buckets import max_interval
from gpumon.storage.sqlite.cells import clean_name, typed_rows

_MAX_PENDING = 10_000
"""Maximum number of events that are kept in memory while the file cannot be written. If there are more, the oldest are
dropped."""
SETTLE_TIME = 30.0
"""Seconds after the first tick within which every run that is still running from the time of an earlier daemon is
detected."""


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events to write, and the list of events that have not ended."""

    events: Sequence[Event]
    open_events: Sequence[Key]
    seen_ns: int
    """Time of the last tick, in ns since 1970."""
    is_settled: bool
    """Whether the runs of an earlier daemon that are not in `open_events` have certainly ended."""
    first_ns: int = 0
    """Time of the first tick, in ns since 1970."""
    interval: float = NAN
    """Seconds between ticks."""


class EventBook:
    """Collects events from ticks until they are written.

    `explain`: finds out why a run is stalled.
    """

    def __init__(self, explain: Explain | None = None) -> None:
        self._devices = DeviceWatch()
        self._runs = RunWatch() if explain is None else RunWatch(explain)
        self._xids = XidWatch()
        self._processes = ProcessWatch()
        self._clock = ClockWatch()
        self._events: deque[Event] = deque(maxlen=_MAX_PENDING)
        self._open_events: dict[Key, None] = {}
        self._first: Tick | None = None
        self._last: Tick | None = None

    def add(self, tick: Tick, judged: Sequence[HeldDevice]) -> None:
        """Add the next tick. `judged`: holders and state of each GPU at this tick."""
        if self._first is None:
            self._first = tick
            self._record([Event(tick.time_ns, "daemon_started", details={"source": tick.origin.source})])
        self._last = tick
        self._record(self._clock.add(tick))
        self._record(self._devices.add(tick, judged))
        self._record(self._runs.add(tick))
        self._record(self._xids.add(tick))
        self._record(self._processes.add(tick))

    def finish(self, time_ns: int) -> None:
        """Record that the daemon stops at `time_ns` (ns since 1970)."""
        if self._first is None or self._last is None:
            return
        self._record(self._devices.finish())
        self._record(self._xids.finish())
        lasted = (self._last.monotonic_ns - self._first.monotonic_ns) / SECOND
        self._record([Event(time_ns, "daemon_stopped", lasted=lasted)])

    @property
    def has_events(self) -> bool:
        """Whether there are events that are not written yet."""
        return bool(self._events)

    def drain(self) -> EventBatch:
        """Return the events to write, and remove them from this book."""
        first, last = self._first, self._last
        settled = (
            first is not None and last is not None and last.monotonic_ns - first.monotonic_ns >= SETTLE_TIME * SECOND
        )
        batch = EventBatch(
            events=tuple(self._events),
            open_events=tuple(self._open_events),
            seen_ns=last.time_ns if last else 0,
            is_settled=settled,
            first_ns=first.time_ns if first else 0,
            interval=first.interval_ns / SECOND if first else NAN,
        )
        self._events.clear()
        return batch

    def restore(self, batch: EventBatch) -> None:
        """Put back events that were returned by `drain` but could not be written."""
        self._events.extendleft(reversed(batch.events))

    def open_events(self) -> Sequence[Key]:
        """Return the kind and subject of each event that has not ended."""
        return tuple(self._open_events)

    def _record(self, events: Iterable[Event]) -> None:
        for event in events:
            self._events.append(event)
            ended = str(event.details.get("of") or BY_NAME[event.kind].ends)
            if ended:
                self._open_events.pop((ended, event.subject), None)
            if BY_NAME[event.kind].unseen:
                self._open_events[event.kind, event.subject] = None


_MAX_TEXT_LENGTH = 600
_MAX_DETAILS_LENGTH = 4000
_SAME_EVENT_NS = 2 * SECOND
"""Two start events of one run are the same event if they are at most this many ns apart. This also applies to two end
events."""
_SUBJECT = "device = ? AND user = ? AND run = ? AND cause = ?"
_PAUSES = {"throttling_began": QUIET}
"""For each kind of event, the maximum ns between the first tick and a start event that continues an event of an earlier
daemon."""
_RUNS = ("run_began", "run_ended", "run_died")
_SAME_RUN_EVENT = (
    "SELECT 1 FROM event WHERE run = ? AND run != '' AND user = ? AND kind IN (?, ?) AND abs(time - ?) <= ?"
)
"""`run != ''` lets SQLite use the partial index of runs."""


def write_events(connection: sqlite3.Connection, batch: EventBatch, boot: str) -> None:
    """Write events, and the time until which open events were observed.

    Needs an open transaction. Raises sqlite3.Error.
    """
    for event in batch.events:
        if not _continue_earlier(connection, event, batch, boot):
            _insert(connection, event, boot)
    _write_seen(connection, batch)


def last_written(connection: sqlite3.Connection, boot: str) -> int:
    """Return the time (ns since 1970) of the last write by a daemon that was killed; 0 if none was killed since the
    last boot.

    `boot`: boot id of the machine. Raises sqlite3.Error.
    """
    query = "SELECT max(until) FROM event WHERE until IS NOT NULL AND kind = 'daemon_started' AND boot = ?"
    return next((until for (until,) in typed_rows(connection.execute(query, (boot,)), int)), 0)


def write_unwritten(connection: sqlite3.Connection, batch: EventBatch, boot: str) -> None:
    """Write events that a killed daemon had detected but not written. Must be called before `close_unseen`.

    If the start of an event is already in the file, it is not written again. Raises sqlite3.Error.
    """
    is_open = f"SELECT 1 FROM event WHERE until IS NOT NULL AND kind = ? AND {_SUBJECT}"
    for event in batch.events:
        if connection.execute(is_open, (event.kind, *_clean_subject(event.subject))).fetchone() is None:
            _insert(connection, event, boot)
    _write_seen(connection, batch)


def _write_seen(connection: sqlite3.Connection, batch: EventBatch) -> None:
    """Write the time until which each open event was observed."""
    connection.executemany(
        f"UPDATE event SET until = ? WHERE until IS NOT NULL AND kind = ? AND {_SUBJECT}",
        [(batch.seen_ns, kind, *_clean_subject(subject)) for kind, subject in batch.open_events],
    )  # fmt: skip


def close_unseen(connection: sqlite3.Connection, open_events: Iterable[Key], boot: str, *, runs: bool) -> None:
    """End the events that earlier daemons left open and that are no longer ongoing. Raises sqlite3.Error.

    `open_events`: kind and subject of the events that are ongoing. `runs`: end events of runs if true, all other events
    if false. An event that is ongoing in the first tick may have started before it. Then its start is not written
    again, and if an end was already written, the end is deleted (`_continue_earlier`).
    """
    known = {(kind, _clean_subject(subject)) for kind, subject in open_events}
    rows = connection.execute(
        "SELECT kind, device, user, run, cause, until FROM event WHERE until IS NOT NULL"
    ).fetchall()  # fmt: skip
    for kind, device, user, run, cause, until in typed_rows(rows, str, str, str, str, str, int):
        subject = EventSubject(device, user, run, cause)
        if (kind in _RUNS) is runs and (kind, subject) not in known and kind in BY_NAME and BY_NAME[kind].unseen:
            _insert(connection, unseen_end(until, kind, subject), boot)


def _continue_earlier(connection: sqlite3.Connection, event: Event, batch: EventBatch, boot: str) -> bool:
    """Continue the event that an earlier daemon observed until just before the first tick, if there is such an event.

    Returns whether there is such an event. A condition that exists in the first tick may have started before it. Then
    its start is not written again, and the event that marked its end is deleted.
    """
    kind, subject, closing = event.kind, _clean_subject(event.subject), BY_NAME[event.kind].unseen
    gap, after = round(max_interval(batch.interval) * SECOND) if batch.first_ns else 0, event.time_ns - batch.first_ns
    is_first_look = bool(event.details.get("at_start") or event.details.get("at_least")) and after <= gap
    if not (gap and closing and (is_first_look or after < _PAUSES.get(kind, 0))):
        return False
    closed = connection.execute(
        f"SELECT time, details FROM event WHERE time BETWEEN ? AND ? AND kind = ? AND {_SUBJECT} ORDER BY time DESC",
        (batch.first_ns - gap, batch.first_ns, closing, *subject),
    ).fetchone()
    begun = connection.execute(
        f"SELECT time, boot, details FROM event WHERE time <= ? AND kind = ? AND {_SUBJECT} ORDER BY time DESC",
        (batch.first_ns, kind, *subject),
    ).fetchone()
    if closed is None or begun is None or parse_details(closed[1]).get("of") != kind or begun[1] != boot:
        return False
    details = parse_details(begun[2])
    restarts = details.get("restarts")
    details["restarts"] = restarts + 1 if isinstance(restarts, int) else 1
    connection.execute(f"DELETE FROM event WHERE time = ? AND kind = ? AND {_SUBJECT}", (closed[0], closing, *subject))
    connection.execute(
        f"UPDATE event SET until = ?, details = ? WHERE time = ? AND kind = ? AND {_SUBJECT}",
        (event.time_ns, _json(details), begun[0], kind, *subject),
    )
    return True


def _insert(connection: sqlite3.Connection, event: Event, boot: str) -> None:
    kind, subject = event.kind, _clean_subject(event.subject)
    if event.details.get(TAKEN_BACK):
        begun = f"DELETE FROM event WHERE until IS NOT NULL AND kind = ? AND {_SUBJECT}"
        connection.execute(begun, (str(event.details["of"]), *subject))
        return
    ended = str(event.details.get("of") or BY_NAME[kind].ends)
    is_lasting = bool(BY_NAME[kind].unseen)
    if kind in _RUNS:
        kinds = ("run_began", "run_began") if is_lasting else ("run_ended", "run_died")
        if connection.execute(
            _SAME_RUN_EVENT, (subject.run, subject.user, *kinds, event.time_ns, _SAME_EVENT_NS)
        ).fetchone():
            return  # an earlier daemon has already written this event
    lasted = event.lasted
    if ended and is_known(lasted):
        begun = connection.execute(
            f"SELECT time, details FROM event WHERE until IS NOT NULL AND kind = ? AND {_SUBJECT}", (ended, *subject)
        ).fetchone()
        if begun is not None and parse_details(begun[1]).get("restarts"):
            lasted = (event.time_ns - begun[0]) / SECOND  # this daemon observed only the last part
    details = _json({key: _limit_length(value) for key, value in event.details.items()})
    connection.execute(
        "INSERT OR IGNORE INTO event (time, kind, device, user, run, cause, boot, lasted, until, details)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            event.time_ns, kind, *subject, boot, lasted if is_known(lasted) else None,
            event.time_ns if is_lasting else None, details if len(details) <= _MAX_DETAILS_LENGTH else "{}",
        ),
    )  # fmt: skip
    if ended:
        connection.execute(
            f"UPDATE event SET until = NULL WHERE until IS NOT NULL AND kind = ? AND {_SUBJECT}", (ended, *subject)
        )  # fmt: skip


def _clean_subject(subject: EventSubject) -> EventSubject:
    """Return a subject whose strings are escaped and shortened for the file."""
    return EventSubject(*map(clean_name, subject))


def _json(details: Mapping[str, object]) -> str:
    return json.dumps(details, separators=(",", ":"))


def _limit_length(value: object) -> object:
    return clean(value, _MAX_TEXT_LENGTH) if isinstance(value, str) else value
