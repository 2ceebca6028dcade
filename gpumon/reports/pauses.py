"""Pauses of a daemon that lives on, as when it was stopped for a while: what went on over one is told once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpumon.common.clock import SECOND
from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.events import NOT_SEEN, EventSubject
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
            of = str(event.details.get("of")), event.of
            if of in begun:
                paused[of] = begun.pop(of), at
        elif kind.unseen:
            of = kind.name, event.of
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
        elif (place := begun.pop((kind.ends, event.of), at)) < at and _seconds(found[place].details):
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
