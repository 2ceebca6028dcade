"""Restarts of a daemon, each as one event: what went on before and after it neither ended nor began there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.diagnosis.finding import ranges
from gpumon.model import units
from gpumon.model.events import EventKind, EventSubject
from gpumon.reports.pauses import LONGEST, is_first_look, over_pauses
from gpumon.storage.events.query import LoggedEvent

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
        if event.of.device in labels:
            numbers.add(labels[event.of.device])
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
            again.setdefault((event.kind.name, event.of), at)
    ends: dict[tuple[str, EventSubject], int] = {}
    for at in range(start - 1, -1, -1):
        event = events[at]
        if event.kind.name == "daemon_started":
            break
        if event.kind.name == "not_seen" and at not in gone:
            ends.setdefault((str(event.details.get("of")), event.of), at)
    firsts: dict[tuple[str, EventSubject], int] = {}
    for at in range(start):
        if at not in gone and events[at].kind.unseen:
            firsts[events[at].kind.name, events[at].of] = at
    for key, end in ends.items():
        if key in again and key in firsts and firsts[key] < end and again[key] > end:
            yield firsts[key], end, again[key]
