"""The route `events`, as in `gpumon history events --json`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Annotated, Any

from pydantic import Field

from gpumon.common.errors import GpumonError
from gpumon.common.numbers import is_known
from gpumon.model.events import EVENT_KINDS
from gpumon.reports.events import as_json
from gpumon.reports.history import NO_HISTORY
from gpumon.storage.events.query import EventFilter, read_events
from gpumon_web.api.now import ApiData
from gpumon_web.api.parameters import COMMAS, OneOf, Text
from gpumon_web.api.runs import PageParameters
from gpumon_web.api.series import WindowParameters, requested_window
from gpumon_web.jobs import Packed, packed

LONGEST = 366 * 86400
"""Longest window in seconds: events are kept for as long."""
USUAL = 86400.0
_KINDS = tuple(kind.name for kind in EVENT_KINDS)


class EventsParameters(PageParameters, WindowParameters):
    """Parameters of the route."""

    kind: Annotated[tuple[Annotated[str, OneOf(_KINDS)], ...], Field(min_length=1, max_length=len(_KINDS)), COMMAS] = (
        Field((), description="only events of these kinds")
    )
    gpu: Text = Field("", description="only events of this GPU, by index or UUID")
    user: Text = Field("", description="only events of this user")
    run: Text = Field("", description="only events of the run with this id")


def start(data: ApiData, query: EventsParameters) -> Future[Packed]:
    """Start the job for the events. Raises BadParameter."""
    feed = data.feed
    with feed.lock:
        feed.refresh()
        path, newest = feed.live.history_file(), feed.history.end
    # Include events in the second of the newest sample.
    window = requested_window(query, newest + 1 if is_known(newest) else time.time(), LONGEST, USUAL)
    event_filter = EventFilter(query.kind, query.gpu, query.user, query.run)
    arguments = (path, *window, event_filter, query.limit, query.offset)
    return data.runs.ask(("api-events", *arguments), events, *arguments)


def events(
    ledgers: Sequence[str], now: float, version: Any, path: str, begin: float, end: float, event_filter: EventFilter,
    limit: int, offset: int,
) -> Packed:  # fmt: skip
    """Return one page of events, oldest event first. Offset 0 is the newest page. Runs in the worker process."""
    rows, has_more, problem = list[Any](), False, None if path else NO_HISTORY
    try:
        rows = read_events(path, begin, end, event_filter, offset + limit + 1) if path else []
        has_more = len(rows) > offset + limit
        rows = rows[max(0, len(rows) - offset - limit) : len(rows) - offset]
    except GpumonError as error:
        problem = str(error)
    return packed(
        {**as_json(rows, begin, end), "next_offset": offset + limit if has_more else None, "problem": problem}
    )
