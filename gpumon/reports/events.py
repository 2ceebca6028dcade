"""The event log as text and JSON: `gpumon history events`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.common.text import clean
from gpumon.diagnosis.finding import ranges
from gpumon.model import units
from gpumon.model.events import BY_NAME, CLOCK_SET, LEFT_OUT, NOT_SEEN, XID, EventKind, EventSubject
from gpumon.model.metrics import BY_NAME as METRICS
from gpumon.model.metrics import Unit
from gpumon.model.xids import xid_of
from gpumon.reports.text_table import TextColumn, distinct, draw, fitting
from gpumon.storage.events.query import LoggedEvent

LONGEST = 300.0
"""Seconds in which nobody watched up to which what was so before and after them is told as one."""
_UNWATCHED = "unwatched"
"""Among the details of a begin: seconds since it in which nobody watched."""
_DAEMONS = ("daemon_started", "daemon_stopped")


def over_pauses(events: Sequence[LoggedEvent]) -> list[LoggedEvent]:
    """Return events, oldest first, without ends that nobody saw and begins at the first look after a short pause.

    The begin before it says for how long nobody watched, and an end how long it has lasted since then. What lies
    around the end of a daemon is left as it is: that is a restart.
    """
    found, gone = list(events), set[int]()
    begun: dict[tuple[str, EventSubject], int] = {}
    paused: dict[tuple[str, EventSubject], tuple[int, int]] = {}
    for at, event in enumerate(events):
        kind = event.kind
        if kind.name in _DAEMONS:
            paused.clear()
        elif kind.name == NOT_SEEN:
            of = str(event.details.get("of")), event.subject
            if of in begun:
                paused[of] = begun.pop(of), at
        elif kind.unseen:
            of = kind.name, event.subject
            first, end = paused.pop(of, (at, at))
            unwatched = (event.time_ns - events[end].time_ns) / SECOND
            if first < at and is_first_look(event.details) and unwatched <= LONGEST:
                before = found[first]
                details = {**before.details, _UNWATCHED: _seconds(before.details) + unwatched}
                found[first] = before._replace(until_ns=event.until_ns, details=details)
                gone |= {end, at}
            else:
                first = at
            begun[of] = first
        elif (place := begun.pop((kind.ends, event.subject), at)) < at and _seconds(found[place].details):
            found[at] = event._replace(lasted=(event.time_ns - events[place].time_ns) / SECOND)
    return [one for at, one in enumerate(found) if at not in gone]


def is_first_look(details: Mapping[str, Any]) -> bool:
    """Whether an event that begins something was so already when somebody looked first."""
    return bool(details.get("at_start") or details.get("at_least"))


def pause_words(details: Mapping[str, Any]) -> str:
    """Return for how long nobody watched since a begin; empty where somebody always did."""
    seconds = _seconds(details)
    return f"nobody watched for {units.words(seconds)} of it" if seconds else ""


def _seconds(details: Mapping[str, Any]) -> float:
    found = details.get(_UNWATCHED)
    return float(found) if isinstance(found, int | float) and is_known(found) else 0.0


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
            units.moment(event.time_ns / SECOND), event.kind.label, event.device.removeprefix("GPU "),
            event.subject.user, event.subject.run, details(event),
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
                "severity": event.severity, "uuid": event.subject.device or None, "user": event.subject.user or None,
                "run": event.subject.run or None, "cause": event.subject.cause or None,
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
    found, metric = event.details, METRICS.get(event.subject.cause)
    before = BY_NAME.get(_text(event, "of"))
    if event.kind.name == NOT_SEEN and before is not None:
        yield before.label
    if event.kind.name.startswith("run_") or event.kind.name == "out_of_memory":
        name, state = _text(event, "name"), _text(event, "state")
        told = "" if state in event.kind.states else state  # its label says so
        yield from (part for part in (name if name not in event.subject.run else "", told) if part)
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


RESTARTED = EventKind("daemon_restarted", "daemon restarted", "info", "First sample of the one after.")
_NAMES = {"idle_began": "allocated but idle", "throttling_began": "throttling"}


class LastedEvent(NamedTuple):
    """An event, for how long nobody watched behind it, and what was so before a restart and after it."""

    event: LoggedEvent
    unwatched: float | None = None
    """Seconds; None where that is not so, or not known."""
    went_on: Sequence[LoggedEvent] = ()
    """Begins that were seen anew after a restart."""


def with_restarts(events: Sequence[LoggedEvent]) -> list[LastedEvent]:
    """Return events, oldest first, with the time from a daemon's end to the begin of the next one.

    A short one is a restart. What was so until it and again from the first look on is told with it, in place of its
    end, which nobody saw, and of its second begin: nobody watched in between, and nobody knows more. So are pauses of
    one daemon, as `over_pauses` has them.
    """
    events = over_pauses(events)
    found = [LastedEvent(event) for event in events]
    gone: set[int] = set()
    for stop, start in _absences(events):
        seconds = max(0.0, (events[start].time_ns - events[stop].time_ns) / SECOND)
        found[stop] = LastedEvent(events[stop], seconds)
        if seconds > LONGEST:
            continue
        pairs = [*_pairs(events, stop, start, gone)]
        for first, end, begin in pairs:
            found[first] = found[first]._replace(event=found[first].event._replace(until_ns=events[begin].until_ns))
            gone |= {end, begin}
        kept = events[stop]._replace(kind=RESTARTED, time_ns=events[start].time_ns)
        found[start] = LastedEvent(kept, seconds, tuple(events[begin] for _, _, begin in pairs))
        gone.add(stop)
    return [one for at, one in enumerate(found) if at not in gone]


def unwatched_words(one: LastedEvent) -> tuple[str, float]:
    """Return `nobody watched for 12 s`, and NaN; of a restart `…, from`, and from when on (s since 1970).

    What tells the end of a daemon alone is of that moment itself. Both are nothing where somebody watched.
    """
    if one.unwatched is None:
        return "", NAN
    words = f"nobody watched for {units.words(one.unwatched)}"
    if one.event.kind is not RESTARTED:
        return words, NAN
    return f"{words}, from", one.event.time_ns / SECOND - one.unwatched


def went_on_words(one: LastedEvent, labels: Mapping[str, str]) -> str:
    """Return how the daemon before a restart ended, and `before and after it: throttling on GPU 0–7`."""
    groups: dict[str, set[str]] = {}
    for event in one.went_on:
        name = _NAMES.get(event.kind.name, event.kind.label)
        numbers = groups.setdefault(name, set())
        if event.subject.device in labels:
            numbers.add(labels[event.subject.device])
    told = [f"{name} on GPU {_listed(numbers)}" if numbers else name for name, numbers in groups.items()]
    killed = "the one before was killed, or the machine went down"
    is_killed = one.event.kind is RESTARTED and one.event.details.get("unseen")
    return "; ".join([*([killed] if is_killed else []), *([f"before and after it: {', '.join(told)}"] if told else [])])


def _listed(labels: Collection[str]) -> str:
    """`0–3, 5`; MIG instances, such as `3:0`, behind whole GPUs."""
    whole = sorted(int(label) for label in labels if label.isdecimal())
    return ", ".join([*([ranges(whole)] if whole else []), *sorted(one for one in labels if not one.isdecimal())])


def _absences(events: Sequence[LoggedEvent]) -> Iterator[tuple[int, int]]:
    """Yield places of each daemon's end and of the begin of the next one."""
    stopped: int | None = None
    for at, event in enumerate(events):
        if event.kind.name == "daemon_started" and stopped is not None:
            yield stopped, at
            stopped = None
        elif event.kind.name == "daemon_stopped":
            stopped = at


def _pairs(events: Sequence[LoggedEvent], stop: int, start: int, gone: set[int]) -> Iterator[tuple[int, int, int]]:
    """Yield places of what went on: its begin, its end that nobody saw, and its begin as the next daemon saw it."""
    again: dict[tuple[str, EventSubject], int] = {}
    for at in range(stop, len(events)):
        event = events[at]
        if at > start and event.kind.name == "daemon_stopped":
            break
        if event.kind.unseen and (is_first_look(event.details) or event.time_ns <= events[start].time_ns):
            again.setdefault((event.kind.name, event.subject), at)
    ends: dict[tuple[str, EventSubject], int] = {}
    for at in range(start - 1, -1, -1):
        event = events[at]
        if event.kind.name == "daemon_started":
            break
        if event.kind.name == "not_seen" and at not in gone:
            ends.setdefault((str(event.details.get("of")), event.subject), at)
    firsts: dict[tuple[str, EventSubject], int] = {}
    for at in range(start):
        if at not in gone and events[at].kind.unseen:
            firsts[events[at].kind.name, events[at].subject] = at
    for key, end in ends.items():
        if key in again and key in firsts and firsts[key] < end and again[key] > end:
            yield firsts[key], end, again[key]
