"""The event log as text and JSON: `gpumon history events`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.common.text import clean
from gpumon.model import units
from gpumon.model.events import BY_NAME, CLOCK_SET, LEFT_OUT, NOT_SEEN, XID
from gpumon.model.metrics import BY_NAME as METRICS
from gpumon.model.metrics import Unit
from gpumon.model.xids import xid_of
from gpumon.reports.pauses import pause_words
from gpumon.reports.text_table import TextColumn, distinct, draw, fitting
from gpumon.storage.events.query import LoggedEvent

SCHEMA = 1
_COLUMNS = (
    TextColumn("TIME", 100, right=False),
    TextColumn("EVENT", 95, right=False),
    TextColumn("GPU", 90, right=False, most=13),
    TextColumn("USER", 80, right=False, most=16, least=6),
    TextColumn("RUN", 70, right=False, most=32, least=12),
    TextColumn("DETAILS", 85, right=False, most=80, least=20),
)
_EVENT, _GPU = 1, 2
"""Places of columns."""
_SHORT = 8
"""Cells of a UUID where there is little room."""
_NARROW = tuple(
    column._replace(least={_EVENT: 14, _GPU: _SHORT}.get(place, column.least)) for place, column in enumerate(_COLUMNS)
)
_THROTTLED = "Throttled by "
_AT_LEAST = {"idle_began": "idle since it was first seen", "throttling_began": "throttled since it was first seen"}
"""Of what may have begun before, by kind."""


def lines(events: Sequence[LoggedEvent], width: int = 0) -> Iterator[str]:
    """Yield a table, the oldest event first."""
    rows: list[Sequence[str]] = [
        (
            units.moment(event.time_ns / SECOND), event.kind.label, event.device.removeprefix("GPU "), event.of.user,
            event.of.run, details(event),
        )
        for event in events
    ]  # fmt: skip
    columns: Sequence[TextColumn] = _COLUMNS
    gpus = list(dict.fromkeys(row[_GPU] for row in rows))
    if any(gpus) and _GPU not in fitting(columns, rows, width)[0]:
        rows = [(time.partition("-")[2], *others) for time, *others in rows]  # the year matters less than which GPU
    if any(gpus) and _GPU not in fitting(columns, rows, width)[0]:
        columns, short = _NARROW, dict(zip(gpus, distinct(gpus, _SHORT), strict=True))
        rows = [(*row[:_GPU], short[row[_GPU]], *row[_GPU + 1 :]) for row in rows]
    yield from draw(columns, rows, width)


def as_json(events: Sequence[LoggedEvent], begin: float, end: float) -> dict[str, Any]:
    """Return the events as JSON, the oldest first: times in s since 1970, `time_ns` in ns; null is not known."""
    return {
        "schema": SCHEMA, "begin": begin, "end": end,
        "events": [
            {
                "time": event.time_ns / SECOND, "time_ns": event.time_ns, "kind": event.kind.name,
                "severity": event.severity, "uuid": event.of.device or None, "user": event.of.user or None,
                "run": event.of.run or None, "cause": event.of.cause or None,
                "lasted": event.lasted if is_known(event.lasted) else None,
                "last_seen": event.until_ns / SECOND if event.until_ns else None, "details": _plain(event.details),
            }
            for event in events
        ],
    }  # fmt: skip


def details(event: LoggedEvent, *, timed: bool = True) -> str:
    """Return the details of an event for people, as a list of clauses; empty if there are none.

    `timed` is false where it is told elsewhere how long it lasted, or that it goes on.
    """
    told = [*_about(event)]
    if event.kind.name == "daemon_stopped" and event.details.get("unseen"):
        told.append("killed, or the machine went down")
    if timed and is_known(event.lasted):
        told.append(f"after {units.words(event.lasted)}")
    if isinstance(restarts := event.details.get("restarts"), int):
        told.append(f"over {units.counted(restarts, 'restart')} of the daemon")
    if timed and event.until_ns:
        told.append(f"goes on, last seen {_later(event.until_ns / SECOND, event.time_ns / SECOND)}")
    if event.details.get("at_start"):
        told.append("before the first sample")  # a view may sample by itself, too
    if unwatched := pause_words(event.details):
        told.append(unwatched)
    return ", ".join(told)


def _about(event: LoggedEvent) -> Iterator[str]:
    """Clauses that are of one kind of event."""
    found, metric = event.details, METRICS.get(event.of.cause)
    before = BY_NAME.get(_text(event, "of"))
    if event.kind.name == NOT_SEEN and before is not None:
        yield before.label
    if event.kind.name.startswith("run_") or event.kind.name == "out_of_memory":
        name, state = _text(event, "name"), _text(event, "state")
        told = "" if state in event.kind.states else state  # its label says so
        yield from (part for part in (name if name not in event.of.run else "", told) if part)
    if event.kind.name == XID and isinstance(code := found.get("code"), int):
        times = found.get("times")
        yield f"{code}: {xid_of(code).meaning}"
        yield from (f"{units.counted(times, 'more report')} within a minute",) if isinstance(times, int) else ()
    if event.kind.name == LEFT_OUT and isinstance(found.get("count"), int) and isinstance(found.get("left_out"), int):
        yield f"{found['left_out']} of {found['count']}"
    if event.kind.name == CLOCK_SET and isinstance(seconds := found.get("seconds"), int | float):
        set_by = _number(seconds)
        yield from (f"{units.words(abs(set_by))} {'ahead' if set_by > 0 else 'back'}",) if is_known(set_by) else ()
    if metric is not None:
        yield metric.title.removeprefix(_THROTTLED)
    for key, words in (("asked", "asked for {}"), ("free", "{} free")):
        if isinstance(found.get(key), int | float) and is_known(_number(found[key])):
            yield words.format(units.number(_number(found[key]), Unit.BYTES))
    version, older = _text(event, "version"), _text(event, "before")
    if version or older:
        yield f"{older} → {version}" if older and version and older != version else version or older
    yield from (part for part in (_text(event, "reason"), _text(event, "source")) if part)
    if found.get("at_least") and event.kind.name in _AT_LEAST:
        yield _AT_LEAST[event.kind.name]


def _later(time: float, than: float) -> str:
    """A time, without its day where that is the one of `than`."""
    text = units.moment(time)
    return text[11:] if text[:10] == units.moment(than)[:10] else text


def _text(event: LoggedEvent, key: str) -> str:
    """A text of the details, on one line; empty where there is none."""
    found = event.details.get(key)
    return clean(found, 100) if isinstance(found, str) else ""


def _number(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number beyond every float
        return NAN


def _plain(value: Any) -> Any:
    """JSON without what JSON has no word for: a NaN is null."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not is_known(value - value):
        return None
    return value
