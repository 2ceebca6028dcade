"""The route `events`, as in `gpumon history events --json`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from gpumon.common.errors import GpumonError
from gpumon.common.numbers import is_known
from gpumon.model.events import EVENT_KINDS
from gpumon.reports.events import as_json
from gpumon.reports.missing_history import NO_HISTORY
from gpumon.storage.events.query import EventFilter, read_events
from gpumon_web.api.parameters import ParameterValues, QueryParameter, one_of, text
from gpumon_web.api.route import ApiData
from gpumon_web.api.runs import PAGING
from gpumon_web.api.series import WINDOW, requested_window
from gpumon_web.jobs import Packed, packed

LONGEST = 366 * 86400
"""Longest window in seconds: events are kept for as long."""
USUAL = 86400.0
_KINDS = [kind.name for kind in EVENT_KINDS]

PARAMETERS: Sequence[QueryParameter] = (
    *WINDOW,
    one_of("kind", "only events of these kinds", _KINDS, is_list=True, max_items=len(_KINDS)),
    text("gpu", "only events of this GPU, by index or UUID"),
    text("user", "only events of this user"),
    text("run", "only events of the run with this id"),
    *PAGING,
)


def start(data: ApiData, values: ParameterValues) -> Future[Packed]:
    """Start the job for the events. Raises BadParameter."""
    feed = data.feed
    with feed.lock:
        feed.refresh()
        path, newest = feed.live.history_file(), feed.history.end
    # Include events in the second of the newest sample.
    window = requested_window(values, newest + 1 if is_known(newest) else time.time(), LONGEST, USUAL)
    event_filter = EventFilter(
        tuple(values["kind"] or ()), values["gpu"] or "", values["user"] or "", values["run"] or ""
    )
    arguments = (path, *window, event_filter, values["limit"], values["offset"])
    return data.runs.ask(("api-events", *arguments), events, *arguments)


def events(
    ledgers: Sequence[str], now: float, version: Any, path: str, begin: float, end: float, event_filter: EventFilter,
    limit: int, offset: int,
) -> Packed:  # fmt: skip
    """Return a page of events: the newest page first, each in ascending order. Runs in the worker process."""
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
