"""The document of the events page: events of a window, and the holders of each GPU. Runs in the worker process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpumon.common.clock import SECOND
from gpumon.common.errors import GpumonError
from gpumon.model.events import EVENT_GROUPS, EventGroup
from gpumon.reports.events import with_restarts
from gpumon.storage.events.query import ALL as ANY
from gpumon.storage.events.query import LoggedEvent, count_events, read_events
from gpumon_web.stored.holder_strips import last_hours

HOURS: Mapping[str, int] = {"24h": 24, "7d": 7 * 24, "31d": 31 * 24}
"""Length of each window in hours, by its name in the address."""
DEFAULT_HOURS = "24h"
MAX_EVENTS = 5000
"""Most events read; older ones in the window are only counted."""
MAX_NEW_EVENTS = 99
"""Upper limit of the count of new events."""
ALL = "all"
GROUPS: Mapping[str, tuple[EventGroup, ...]] = {
    ALL: EVENT_GROUPS,
    "attention": (),
    "runs": ("runs",),
    "health": ("throttling", "gpus"),
    "idle": ("idle",),
    "daemon": ("daemon",),
}
"""Groups of kinds by the filter that shows them. "attention" has none, because it is defined by severity."""


def is_in_group(event: LoggedEvent, name: str) -> bool:
    """Whether the filter `name` of `GROUPS` shows an event."""
    return event.severity != "info" if name == "attention" else event.kind.group in GROUPS[name]


def events_document(paths: Sequence[str], window: str, now: float) -> dict[str, Any]:
    """Return the events of a window, the newest first, from the most recently written history."""
    hours = HOURS.get(window, HOURS[DEFAULT_HOURS])
    document: dict[str, Any] = {
        "window": window if window in HOURS else DEFAULT_HOURS,
        "now": now,
        "has_history": bool(paths),
    }
    try:
        begin, end, strips = last_hours(paths, now, hours)
        events = read_events(paths[0], begin, now + 1, limit=MAX_EVENTS) if paths else []
        older = count_events(paths[0], begin, events[0].time_ns / SECOND, ANY) if len(events) == MAX_EVENTS else 0
    except GpumonError as error:
        return {**document, "older": 0, "begin": now, "end": now, "problem": str(error), "strips": [], "events": []}
    return {
        **document, "older": older, "begin": begin, "end": end, "problem": "", "strips": strips,
        "events": with_restarts(events)[::-1],
    }  # fmt: skip


def count_new_events(paths: Sequence[str], since: float, now: float) -> int:
    """Count the events after `since` that need attention, up to `MAX_NEW_EVENTS`; 0 if no history can be read."""
    try:
        events = read_events(paths[0], since, now + 1, limit=MAX_EVENTS) if paths else []
    except GpumonError:
        return 0
    return min(MAX_NEW_EVENTS, sum(event.event.severity != "info" for event in with_restarts(events)))
