"""Reads the event log for a window of time, filtered by kind, device, user and run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from gpumon.common.numbers import NAN
from gpumon.common.privacy import SHOWN, SOMEBODY, current_policy
from gpumon.model.events import BY_NAME, XID, EventKind, EventSubject, parse_details
from gpumon.model.vendors import gpu_label, is_part
from gpumon.model.xids import xid_of
from gpumon.storage.history.read import read_tables
from gpumon.storage.sqlite.cells import REAL, bounded_ns, typed_rows

if TYPE_CHECKING:  # views that read no file do not need SQLite
    import sqlite3


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event of the event log, with the label of its GPU."""

    time_ns: int
    """Time of the event, in ns since 1970."""
    kind: EventKind
    subject: EventSubject
    device: str
    """Label of the GPU, such as `GPU 3`, or the UUID of the GPU if its number is not recorded. Empty if the event does
    not concern a GPU."""
    lasted: float
    """If the event is the end of a condition, the duration of the condition in seconds; otherwise, or if not recorded,
    NaN."""
    until_ns: int
    """If the event is the start of a condition that has not ended, the time at which the condition was last observed
    (ns since 1970); else 0."""
    details: Mapping[str, Any]

    @property
    def severity(self) -> str:
        """`info`, `warning` or `critical`. For an XID error, it depends on the code."""
        code = self.details.get("code") if self.kind.name == XID else None
        return xid_of(code).severity if isinstance(code, int) else self.kind.severity


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Selects events by kind, device, user and run. An empty field selects all."""

    kinds: Collection[str] = ()
    device: str = ""
    """UUID of the GPU, or the last index of the GPU as a number."""
    user: str = ""
    run: str = ""


ALL = EventFilter()


def read_events(
    path: str, begin: float = -inf, end: float = inf, wanted: EventFilter = ALL, limit: int = -1
) -> list[LoggedEvent]:
    """Return the events from `begin` up to, but not including, `end` (s since 1970), oldest first.

    `limit`: maximum number of events, or -1 for all. If there are more, the newest are returned. Raises GpumonError if
    the file cannot be read.
    """
    return read_tables(path, lambda db: _read(db, begin, end, wanted, limit), [])


def count_events(path: str, begin: float, end: float, wanted: EventFilter) -> int:
    """Return the number of events from `begin` to `end` (s since 1970).

    Of `wanted`, only the fields `kinds` and `device` are used. Raises GpumonError if the file cannot be read.
    """

    def count(db: sqlite3.Connection) -> int:
        where, values = _condition(db, begin, end, wanted)
        return int(db.execute(f"SELECT count(*) FROM event WHERE {where}", values).fetchone()[0])

    return read_tables(path, count, 0)


def devices_with_events(path: str) -> list[str]:
    """Return the UUIDs of the GPUs that have events in the log. Raises GpumonError."""
    query = "SELECT DISTINCT device FROM event WHERE device != ''"
    return read_tables(path, lambda db: [uuid for (uuid,) in typed_rows(db.execute(query), str)], [])


_IMPERSONAL_DETAILS = frozenset(("state", "gpus", "framework", "version", "before", "meaning", "of"))
"""Keys of details whose values come from gpumon or a driver. Other details may contain user names or paths."""


def _condition(
    connection: sqlite3.Connection, begin: float, end: float, wanted: EventFilter
) -> tuple[str, list[str | int]]:
    """Return the SQL condition for window, device and kinds, and its values."""
    where = ["time >= ?", "time < ?"]
    values: list[str | int] = [bounded_ns(begin), bounded_ns(end)]
    if wanted.device:
        devices = typed_rows(connection.execute("SELECT uuid, number FROM device"), str, int)
        uuids = [uuid for uuid, number in devices if str(number) == wanted.device and not is_part(uuid)]
        where.append(f"device IN (?{', ?' * len(uuids)})")
        values += [wanted.device, *uuids]
    if wanted.kinds:
        where.append(f"kind IN ({', '.join('?' * len(wanted.kinds))})")
        values += wanted.kinds
    return " AND ".join(where), values


def _read(
    connection: sqlite3.Connection, begin: float, end: float, wanted: EventFilter, limit: int
) -> list[LoggedEvent]:
    people = current_policy()
    is_named = people.way == SHOWN  # otherwise the filter compares redacted names, after reading
    where, values = _condition(connection, begin, end, wanted)
    for column, value in (("user", wanted.user), ("run", wanted.run)):
        if value and is_named:
            where += f" AND {column} = ?"
            values.append(value)
    devices = typed_rows(connection.execute("SELECT uuid, number FROM device"), str, int)
    labels = {uuid: gpu_label(uuid, number) for uuid, number in devices}
    untyped = connection.execute(
        "SELECT time, kind, device, user, run, cause, lasted, until, details FROM event"
        f" WHERE {where} ORDER BY time DESC, kind DESC LIMIT ?", (*values, limit if is_named else -1),
    )  # fmt: skip
    rows = [*typed_rows(untyped, int, str, str, str, str, str, REAL | None, int | None, str)]
    events = []
    for time, kind_name, device, user, run, cause, lasted, until, details_json in reversed(rows):
        kind = BY_NAME.get(kind_name) or EventKind(kind_name, "daemon", kind_name.replace("_", " "), "info", "")
        details = parse_details(details_json)
        if not is_named:
            details = {
                key: value if key in _IMPERSONAL_DETAILS or isinstance(value, int | float) else SOMEBODY
                for key, value in details.items()
            }
        subject = EventSubject(device, people.name(user), people.run_id(run), cause)
        if not is_named and (wanted.user not in ("", subject.user) or wanted.run not in ("", subject.run)):
            continue
        events.append(
            LoggedEvent(
                time_ns=time,
                kind=kind.for_details(details),
                subject=subject,
                device=labels.get(device, device),
                lasted=NAN if lasted is None else lasted,
                until_ns=until or 0,
                details=details,
            )
        )
    return events[-limit:] if limit > 0 and not is_named else events
