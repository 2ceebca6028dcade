"""The document of the events page: events of a window, and the holders of each GPU. Runs in the worker process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.errors import GpumonError
from gpumon.model.events import EVENT_GROUPS, EventGroup
from gpumon.reports.events import LastedEvent, with_restarts
from gpumon.storage.events.query import ALL as ANY
from gpumon.storage.events.query import LoggedEvent, count_events, read_events
from gpumon.storage.history.tiers import HOUR
from gpumon_web.components.page import Cells
from gpumon_web.stored.holder_strips import Strip, read_strips

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


class EventChoice(NamedTuple):
    """What a viewer wants to see; an empty field is the usual choice."""

    window: str = ""
    group: str = ""
    gpu: str = ""
    user: str = ""
    q: str = ""
    """Search text."""


@dataclass(frozen=True, slots=True)
class WindowEvents:
    """Events of a window, and the holders of each GPU in it."""

    choice: EventChoice
    now: float
    begin: float
    end: float
    has_history: bool
    strips: Sequence[Strip] = ()
    events: Sequence[LastedEvent] = ()
    """The newest first."""
    older: int = 0
    """Number of events of the window that were not read."""
    problem: str = ""
    """Why the history cannot be read."""
    missing: str | Cells = ""
    """Why there is no history."""
    running: frozenset[str] | None = None
    """Ids of the running runs; None if unknown."""


def read_window(
    paths: Sequence[str], choice: EventChoice, now: float, missing: str | Cells = "",
    running: frozenset[str] | None = None,
) -> WindowEvents:  # fmt: skip
    """Return the events of the chosen window, from the most recently written history."""
    choice = choice._replace(window=choice.window if choice.window in HOURS else DEFAULT_HOURS)
    end = (now // HOUR + 1) * HOUR
    begin = end - HOURS[choice.window] * HOUR
    found = WindowEvents(choice, now, begin, end, bool(paths), missing=missing, running=running)
    if not paths:
        return found
    try:
        strips = read_strips(paths[0], begin, end, now)
        events = read_events(paths[0], begin, now + 1, limit=MAX_EVENTS)
        older = count_events(paths[0], begin, events[0].time_ns / SECOND, ANY) if len(events) == MAX_EVENTS else 0
    except GpumonError as error:
        return replace(found, begin=now, end=now, problem=str(error))
    return replace(found, strips=strips, events=with_restarts(events)[::-1], older=older)


def count_new_events(paths: Sequence[str], since: float, now: float) -> int:
    """Count the events after `since` that need attention, up to `MAX_NEW_EVENTS`; 0 if no history can be read."""
    try:
        events = read_events(paths[0], since, now + 1, limit=MAX_EVENTS) if paths else []
    except GpumonError:
        return 0
    return min(MAX_NEW_EVENTS, sum(event.event.severity != "info" for event in with_restarts(events)))
