"""The event log as it is read: of any window, by kind, device, user and run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.common.privacy import SHOWN, SOMEBODY, current_policy
from gpumon.model.events import BY_NAME, XID, EventKind, EventSubject, parse_details
from gpumon.model.vendors import gpu_label, is_part
from gpumon.model.xids import xid_of
from gpumon.storage.history.read import reading
from gpumon.storage.sqlite.cells import REAL, typed_rows

if TYPE_CHECKING:  # a view that reads no file does without
    import sqlite3

_LATEST = 2**62
"""ns since 1970 that no clock shows."""


class LoggedEvent(NamedTuple):
    """An event of the log."""

    time_ns: int
    """ns since 1970."""
    kind: EventKind
    subject: EventSubject
    device: str
    """The GPU for people, such as `GPU 3`; its UUID where its number is not known; empty without one."""
    lasted: float
    """Seconds that what ended here had lasted; NaN where that is not known."""
    until_ns: int
    """Of what has begun and not ended: ns since 1970 when it was last seen so; else 0."""
    details: Mapping[str, Any]

    @property
    def severity(self) -> str:
        """`info`, `warning` or `critical`; of an XID error that of its code, else that of its kind as it is told."""
        code = self.details.get("code") if self.kind.name == XID else None
        return xid_of(code).severity if isinstance(code, int) else self.kind.severity


class EventFilter(NamedTuple):
    """The events that somebody asks for; what is empty leaves none out."""

    kinds: Collection[str] = ()
    device: str = ""
    """Its UUID, or the number that it had last."""
    user: str = ""
    run: str = ""


ALL = EventFilter()
"""Leaves none out."""


def read_events(
    path: str, begin: float = -inf, end: float = inf, wanted: EventFilter = ALL, limit: int = -1
) -> list[LoggedEvent]:
    """Return the newest `limit` events (all if negative) from `begin` until before `end` (s since 1970), oldest first.

    Raises GpumonError.
    """
    with reading(path) as file:
        return _read(file.connection, begin, end, wanted, limit) if file.has_tables else []


def count_events(path: str, begin: float, end: float, wanted: EventFilter) -> int:
    """Count the events of one device in a window; `user` and `run` of the filter are not looked at.

    Raises GpumonError.
    """
    with reading(path) as file:
        if not file.has_tables:
            return 0
        where, values = _condition(file.connection, begin, end, wanted)
        return int(file.connection.execute(f"SELECT count(*) FROM event WHERE {where}", values).fetchone()[0])


def devices_of_events(path: str) -> list[str]:
    """Return the UUIDs of the GPUs that any event is about. Raises GpumonError."""
    with reading(path) as file:
        asked = "SELECT DISTINCT device FROM event WHERE device != ''"
        return [uuid for (uuid,) in typed_rows(file.connection.execute(asked) if file.has_tables else (), str)]


_OURS = frozenset(("state", "gpus", "framework", "version", "before", "meaning", "of"))
"""Details whose texts are gpumon's or a driver's; in others a name or a path may stand."""


def _condition(
    connection: sqlite3.Connection, begin: float, end: float, wanted: EventFilter
) -> tuple[str, list[str | int]]:
    """SQL for the events of a window, a device and some kinds, and its values."""
    where, values = ["time >= ?", "time < ?"], [_ns(begin), _ns(end)]
    chosen: list[str | int] = [*values]
    if wanted.device:
        devices = typed_rows(connection.execute("SELECT uuid, number FROM device"), str, int)
        meant = [uuid for uuid, number in devices if str(number) == wanted.device and not is_part(uuid)]
        where.append(f"device IN (?{', ?' * len(meant)})")
        chosen += [wanted.device, *meant]
    if wanted.kinds:
        where.append(f"kind IN ({', '.join('?' * len(wanted.kinds))})")
        chosen += wanted.kinds
    return " AND ".join(where), chosen


def _read(
    connection: sqlite3.Connection, begin: float, end: float, wanted: EventFilter, limit: int
) -> list[LoggedEvent]:
    people = current_policy()
    is_named = people.way == SHOWN  # else names are compared as they are shown
    where, chosen = _condition(connection, begin, end, wanted)
    for column, value in (("user", wanted.user), ("run", wanted.run)):
        if value and is_named:
            where += f" AND {column} = ?"
            chosen.append(value)
    devices = typed_rows(connection.execute("SELECT uuid, number FROM device"), str, int)
    numbers = {uuid: gpu_label(uuid, number) for uuid, number in devices}
    found_rows = connection.execute(
        "SELECT time, kind, device, user, run, cause, lasted, until, details FROM event"
        f" WHERE {where} ORDER BY time DESC, kind DESC LIMIT ?", (*chosen, limit if is_named else -1),
    )  # fmt: skip
    rows = [*typed_rows(found_rows, int, str, str, str, str, str, REAL | None, int | None, str)]
    found = []
    for time, kind, device, user, run, cause, lasted, until, details in reversed(rows):
        known = BY_NAME.get(kind) or EventKind(kind, kind.replace("_", " "), "info", "")
        plain = parse_details(details)
        if not is_named:
            plain = {
                key: one if key in _OURS or isinstance(one, int | float) else SOMEBODY for key, one in plain.items()
            }
        subject = EventSubject(device, people.name(user), people.run_id(run), cause)
        if not is_named and (wanted.user not in ("", subject.user) or wanted.run not in ("", subject.run)):
            continue
        found.append(
            LoggedEvent(
                time_ns=time,
                kind=known.for_details(plain),
                subject=subject,
                device=numbers.get(subject.device, subject.device),
                lasted=NAN if lasted is None else lasted,
                until_ns=until or 0,
                details=plain,
            )
        )
    return found[-limit:] if limit > 0 and not is_named else found


def _ns(seconds: float) -> int:
    return int(max(-_LATEST, min(_LATEST, seconds * SECOND)))
