"""The event log as text and JSON, for `gpumon history events`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.common.text import clean
from gpumon.diagnosis.finding import ranges
from gpumon.model import units
from gpumon.model.events import BY_NAME, CLOCK_SET, LEFT_OUT, NOT_SEEN, XID, EventKind, EventSubject
from gpumon.model.metrics import BY_NAME as METRICS
from gpumon.model.metrics import Unit
from gpumon.model.run import exit_text, read_facts
from gpumon.model.xids import xid_of
from gpumon.reports.text_table import TextColumn, distinct, draw, fitting
from gpumon.storage.events.query import LoggedEvent

LONGEST = 300.0
"""If a state was seen before and after a pause of sampling of at most this many seconds, it counts as one event."""
_UNWATCHED = "unwatched"
"""Key in the details of an event that starts a state. Its value is the seconds without sampling while the state
lasted."""
_DAEMONS = ("daemon_started", "daemon_stopped")


def over_pauses(events: Sequence[LoggedEvent]) -> list[LoggedEvent]:
    """Merge states that continued over a short pause of sampling, and return the events, oldest first.

    For such a state, the log contains an assumed end before the pause and a second start after it. Both are removed.
    The length of the pause is added to the details of the first start. The duration in the final end counts from the
    first start. States that continued over a restart of the daemon are handled by `with_restarts`.
    """
    merged, removed = list(events), set[int]()
    begins: dict[tuple[str, EventSubject], int] = {}
    paused: dict[tuple[str, EventSubject], tuple[int, int]] = {}
    for index, event in enumerate(events):
        kind = event.kind
        if kind.name in _DAEMONS:
            paused.clear()
        elif kind.name == NOT_SEEN:
            key = str(event.details.get("of")), event.subject
            if key in begins:
                paused[key] = begins.pop(key), index
        elif kind.unseen:
            key = kind.name, event.subject
            first, end = paused.pop(key, (index, index))
            unwatched = (event.time_ns - events[end].time_ns) / SECOND
            if first < index and is_first_look(event.details) and unwatched <= LONGEST:
                previous = merged[first]
                details = {**previous.details, _UNWATCHED: _seconds(previous.details) + unwatched}
                merged[first] = replace(previous, until_ns=event.until_ns, details=details)
                removed |= {end, index}
            else:
                first = index
            begins[key] = first
        elif (first := begins.pop((kind.ends, event.subject), index)) < index and _seconds(merged[first].details):
            merged[index] = replace(event, lasted=(event.time_ns - events[first].time_ns) / SECOND)
    return [event for index, event in enumerate(merged) if index not in removed]


def is_first_look(details: Mapping[str, Any]) -> bool:
    """Return True if the state was already present in the first sample. When it started is then not recorded."""
    return bool(details.get("at_start") or details.get("at_least"))


def pause_words(details: Mapping[str, Any]) -> str:
    """Return text that says how long sampling paused while a state lasted. Empty if there was no pause."""
    seconds = _seconds(details)
    return f"not sampled for {units.long_duration(seconds)} of it" if seconds else ""


def _seconds(details: Mapping[str, Any]) -> float:
    seconds = details.get(_UNWATCHED)
    return float(seconds) if isinstance(seconds, int | float) and is_known(seconds) else 0.0


SCHEMA = 1
_COLUMNS = (
    TextColumn("TIME", 100, right=False),
    TextColumn("EVENT", 95, right=False),
    TextColumn("GPU", 90, right=False, max_width=13),
    TextColumn("USER", 80, right=False, max_width=16, min_width=6),
    TextColumn("RUN", 70, right=False, max_width=32, min_width=12),
    TextColumn("DETAILS", 85, right=False, max_width=80, min_width=20),
)
_EVENT, _GPU = 1, 2
"""Indexes of the columns EVENT and GPU in `_COLUMNS`."""
_SHORT = 8
"""Width of a UUID on a narrow terminal."""
_NARROW = tuple(
    replace(column, min_width={_EVENT: 14, _GPU: _SHORT}.get(index, column.min_width))
    for index, column in enumerate(_COLUMNS)
)
_THROTTLED = "Throttled by "
_AT_LEAST = {"idle_began": "idle since the first sample", "throttling_began": "throttled since the first sample"}
"""Texts for a state that may have started before the first sample, by the kind of the event."""


def lines(events: Sequence[LoggedEvent], width: int = 0) -> Iterator[str]:
    """Yield the events as a table, oldest first."""
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
        rows = [(time.partition("-")[2], *others) for time, *others in rows]  # the GPU is more important than the year
    if any(gpus) and _GPU not in fitting(columns, rows, width)[0]:
        columns, short = _NARROW, dict(zip(gpus, distinct(gpus, _SHORT), strict=True))
        rows = [(*row[:_GPU], short[row[_GPU]], *row[_GPU + 1 :]) for row in rows]
    yield from draw(columns, rows, width)


def as_json(events: Sequence[LoggedEvent], begin: float, end: float) -> dict[str, Any]:
    """Return the events as JSON, oldest first.

    Times are in seconds since 1970, except for `time_ns`, which is in ns since 1970. Missing values are null.
    """
    return {
        "schema": SCHEMA, "begin": begin, "end": end,
        "events": [
            {
                "time": event.time_ns / SECOND, "time_ns": event.time_ns, "kind": event.kind.name,
                "severity": event.severity, "uuid": event.subject.device or None, "user": event.subject.user or None,
                "run": event.subject.run or None, "cause": event.subject.cause or None,
                "lasted": event.lasted if is_known(event.lasted) else None,
                "last_seen": event.until_ns / SECOND if event.until_ns else None, "details": _json_value(event.details),
            }
            for event in events
        ],
    }  # fmt: skip


def details(event: LoggedEvent, *, timed: bool = True) -> str:
    """Return the details of an event as text, separated by commas. Empty if there are no details.

    `timed`: include how long the state lasted, or that it is still going on.
    """
    clauses = [*_kind_clauses(event)]
    if event.kind.name == "daemon_stopped" and event.details.get("unseen"):
        clauses.append("killed, or the machine went down")
    if timed and is_known(event.lasted):
        clauses.append(f"after {units.fine_duration(event.lasted)}")
    if isinstance(restarts := event.details.get("restarts"), int):
        clauses.append(f"across {units.counted(restarts, 'restart')} of the daemon")
    if timed and event.until_ns:
        clauses.append(f"continues, last seen {_later(event.until_ns / SECOND, event.time_ns / SECOND)}")
    if event.details.get("at_start"):
        clauses.append("already before the first sample")  # first sample of a daemon, or of a view without a daemon
    if unwatched := pause_words(event.details):
        clauses.append(unwatched)
    return ", ".join(clauses)


def _kind_clauses(event: LoggedEvent) -> Iterator[str]:
    """Yield the clauses that only events of this kind have."""
    details, metric = event.details, METRICS.get(event.subject.cause)
    paused = BY_NAME.get(_text(event, "of"))
    if event.kind.name == NOT_SEEN and paused is not None:
        yield paused.label
    if event.kind.name.startswith("run_") or event.kind.name == "out_of_memory":
        name, state = _text(event, "name"), _text(event, "state")
        state = "" if state in event.kind.states else state  # the label of the kind already contains the state
        ending = exit_text(_fact(event, "exit_code"), _fact(event, "exit_signal"))
        yield from (part for part in (name if name not in event.subject.run else "", state, ending) if part)
    if event.kind.name.startswith("stall_"):
        yield from (part for part in (_text(event, "name"), _text(event, "phase")) if part not in event.subject.run)
        yield from (f"step {units.count(step)}",) if isinstance(step := details.get("step"), int) and step else ()
        yield from filter(None, (_text(event, "sentence"),))
    if event.kind.name == XID and isinstance(code := details.get("code"), int):
        times = details.get("times")
        yield f"{code}: {xid_of(code).meaning}"
        yield from (f"{units.counted(times, 'more report')} within a minute",) if isinstance(times, int) else ()
    left_out, count = details.get("left_out"), details.get("count")
    if event.kind.name == LEFT_OUT and isinstance(left_out, int) and isinstance(count, int):
        yield f"{left_out} of {count}"
    if event.kind.name == CLOCK_SET and isinstance(seconds := details.get("seconds"), int | float):
        set_by = _number(seconds)
        if is_known(set_by):
            yield f"{units.long_duration(abs(set_by))} {'ahead' if set_by > 0 else 'back'}"
    if metric is not None:
        yield metric.title.removeprefix(_THROTTLED)
    for key, words in (("asked", "requested {}"), ("free", "{} free")):
        if isinstance(details.get(key), int | float) and is_known(_number(details[key])):
            yield words.format(units.number(_number(details[key]), Unit.BYTES))
    version, older = _text(event, "version"), _text(event, "before")
    if version or older:
        yield f"{older} → {version}" if older and version and older != version else version or older
    yield from (part for part in (_text(event, "reason"), _text(event, "source")) if part)
    if details.get("at_least") and event.kind.name in _AT_LEAST:
        yield _AT_LEAST[event.kind.name]


def _later(time: float, than: float) -> str:
    """Return a time as text. The date is omitted if `than` is on the same day."""
    text = units.moment(time)
    return text[11:] if text[:10] == units.moment(than)[:10] else text


def _text(event: LoggedEvent, key: str) -> str:
    """Return the value with this key from the details, on one line. Empty if there is none."""
    text = event.details.get(key)
    return clean(text, 100) if isinstance(text, str) else ""


def _fact(event: LoggedEvent, name: str) -> float:
    """Return a fact about the run from the details; its default if there is none."""
    return float(getattr(read_facts(event.details), name))


def _number(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer too large for a float
        return NAN


def _json_value(value: Any) -> Any:
    """Convert a value for JSON. NaN and infinity become None."""
    if isinstance(value, dict):
        return {str(key): _json_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    if isinstance(value, float) and not is_known(value - value):
        return None
    return value


RESTARTED = EventKind("daemon_restarted", "daemon", "daemon restarted", "info", "First sample of the new daemon.")
_NAMES = {"idle_began": "allocated but idle", "throttling_began": "throttling"}


@dataclass(frozen=True, slots=True)
class LastedEvent:
    """An event, with the length of the pause in sampling and the states that continued over a restart of the daemon."""

    event: LoggedEvent
    unwatched: float | None = None
    """Seconds without sampling after a daemon stopped, or during a restart. None for other events, or if not
    recorded."""
    went_on: Sequence[LoggedEvent] = ()
    """Events with which the new daemon recorded states that had started before the restart. Empty for other events."""


def with_restarts(events: Sequence[LoggedEvent]) -> list[LastedEvent]:
    """Return the events, oldest first. The end of a daemon contains the time until the next daemon started.

    If a daemon starts shortly after another daemon ended, the two events become one restart. States that continued are
    then listed with the restart, and their assumed ends and second starts are removed. Pauses of a single daemon are
    handled by `over_pauses`.
    """
    events = over_pauses(events)
    rows = [LastedEvent(event) for event in events]
    removed: set[int] = set()
    for stop, start in _absences(events):
        seconds = max(0.0, (events[start].time_ns - events[stop].time_ns) / SECOND)
        rows[stop] = LastedEvent(events[stop], seconds)
        if seconds > LONGEST:
            continue
        continued = [*_continued(events, stop, start, removed)]
        for first, end, begin in continued:
            rows[first] = replace(rows[first], event=replace(rows[first].event, until_ns=events[begin].until_ns))
            removed |= {end, begin}
        restart = replace(events[stop], kind=RESTARTED, time_ns=events[start].time_ns)
        rows[start] = LastedEvent(restart, seconds, tuple(events[begin] for _, _, begin in continued))
        removed.add(stop)
    return [row for index, row in enumerate(rows) if index not in removed]


def unwatched_words(row: LastedEvent) -> tuple[str, float]:
    """Return text that says how long sampling paused, such as `not sampled for 12 s`, and the start of the pause.

    The text is empty if there was no pause. For a restart, it ends with `, from`, and the caller must append the second
    value, the start of the pause (s since 1970). Otherwise the second value is NaN.
    """
    if row.unwatched is None:
        return "", NAN
    words = f"not sampled for {units.long_duration(row.unwatched)}"
    if row.event.kind is not RESTARTED:
        return words, NAN
    return f"{words}, from", row.event.time_ns / SECOND - row.unwatched


def went_on_words(row: LastedEvent, labels: Mapping[str, str]) -> str:
    """Return text that says whether the previous daemon was killed and which states continued over the restart.

    The text is, for example, `continued across the restart: throttling on GPU 0–7`. Empty if the previous daemon was
    not killed and no state continued. `labels`: label of each GPU by UUID.
    """
    groups: dict[str, set[str]] = {}
    for event in row.went_on:
        name = _NAMES.get(event.kind.name, event.kind.label)
        numbers = groups.setdefault(name, set())
        if event.subject.device in labels:
            numbers.add(labels[event.subject.device])
    states = [f"{name} on GPU {_join_labels(numbers)}" if numbers else name for name, numbers in groups.items()]
    killed = "the previous daemon was killed, or the machine went down"
    is_killed = row.event.kind is RESTARTED and row.event.details.get("unseen")
    return "; ".join(
        [*([killed] if is_killed else []), *([f"continued across the restart: {', '.join(states)}"] if states else [])]
    )


def _join_labels(labels: Collection[str]) -> str:
    """Return labels as `0–3, 5`, with MIG instances such as `3:0` after whole GPUs."""
    whole = sorted(int(label) for label in labels if label.isdecimal())
    return ", ".join([*([ranges(whole)] if whole else []), *sorted(label for label in labels if not label.isdecimal())])


def _absences(events: Sequence[LoggedEvent]) -> Iterator[tuple[int, int]]:
    """For each daemon that was followed by another one, yield the indexes of its end and of the next daemon's start."""
    stopped: int | None = None
    for index, event in enumerate(events):
        if event.kind.name == "daemon_started" and stopped is not None:
            yield stopped, index
            stopped = None
        elif event.kind.name == "daemon_stopped":
            stopped = index


def _continued(
    events: Sequence[LoggedEvent], stop: int, start: int, removed: set[int]
) -> Iterator[tuple[int, int, int]]:
    """Yield the states that continued over a restart.

    Each state is a tuple of indexes: of its start, of its assumed end, and of its start in the next daemon. `stop`,
    `start`: indexes of the end of one daemon and of the start of the next. `removed`: indexes of events to ignore.
    """
    again: dict[tuple[str, EventSubject], int] = {}
    for index in range(stop, len(events)):
        event = events[index]
        if index > start and event.kind.name == "daemon_stopped":
            break
        if event.kind.unseen and (is_first_look(event.details) or event.time_ns <= events[start].time_ns):
            again.setdefault((event.kind.name, event.subject), index)
    ends: dict[tuple[str, EventSubject], int] = {}
    for index in range(start - 1, -1, -1):
        event = events[index]
        if event.kind.name == "daemon_started":
            break
        if event.kind.name == NOT_SEEN and index not in removed:
            ends.setdefault((str(event.details.get("of")), event.subject), index)
    firsts: dict[tuple[str, EventSubject], int] = {}
    for index in range(start):
        if index not in removed and events[index].kind.unseen:
            firsts[events[index].kind.name, events[index].subject] = index
    for key, end in ends.items():
        if key in again and key in firsts and firsts[key] < end and again[key] > end:
            yield firsts[key], end, again[key]
