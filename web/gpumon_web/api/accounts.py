"""The route `accounts`: users' GPU time, as in `gpumon history accounts --json`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Annotated, Any

from pydantic import Field

from gpumon.common.errors import GpumonError
from gpumon.common.numbers import is_known
from gpumon.reports.history import NO_HISTORY
from gpumon.reports.usage import as_json
from gpumon.storage.history.tiers import HOUR
from gpumon.storage.usage.period_totals import GROUPINGS, summary
from gpumon.storage.usage.query import read_accounts
from gpumon_web.api.now import ApiData
from gpumon_web.api.parameters import BadParameter, OneOf
from gpumon_web.api.series import WindowParameters, requested_window
from gpumon_web.jobs import Packed, packed

LONGEST = 366 * 86400
USUAL = 7 * 86400.0
BY_HOUR = 31 * 86400
"""Longest window that can be grouped by hours, in seconds."""


class AccountsParameters(WindowParameters):
    """Parameters of the route."""

    by: Annotated[str, OneOf(GROUPINGS)] = Field(
        GROUPINGS[0],
        description="how the users' time is grouped; days, weeks and months are in the server's time zone",
    )


def start(data: ApiData, query: AccountsParameters) -> Future[Packed]:
    """Start the job for the accounts. Raises BadParameter."""
    feed, by = data.feed, query.by
    with feed.lock:
        feed.refresh()
        path, newest = feed.live.history_file(), feed.history.end
    now = newest if is_known(newest) else time.time()
    window = requested_window(query, now, LONGEST, USUAL)
    if by == "hour" and window.end - window.begin > BY_HOUR:
        raise BadParameter(f"the window is too long for hours: at most {BY_HOUR} seconds")
    # Whole hours, none in the future, and the same window for all requests within a minute.
    begin = window.begin // HOUR * HOUR
    end = max(begin, min(-(-window.end // HOUR) * HOUR, now // 60 * 60))
    return data.runs.ask(("api-accounts", path, begin, end, by), accounts, path, begin, end, by)


def accounts(ledgers: Sequence[str], now: float, version: Any, path: str, begin: float, end: float, by: str) -> Packed:
    """Return the accounts in groups. Runs in the worker process."""
    groups, problem = list[Any](), None if path else NO_HISTORY
    try:
        groups = summary(read_accounts(path, begin, end), begin, end, by) if path else []
    except GpumonError as error:
        problem = str(error)
    return packed({**as_json(groups, by, begin, end), "problem": problem})
