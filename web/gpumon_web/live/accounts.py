"""Users' GPU time for the pages: stored accounts from the history, and the GPUs each user holds now."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from gpumon.analysis.gpu_status import gpu_statuses
from gpumon.analysis.holders import devices_by_user
from gpumon.analysis.ranks import ranks_of
from gpumon.common.caps import Caps
from gpumon.common.config import Prices, UserGroups
from gpumon.common.numbers import NAN
from gpumon.model.frame import RunState
from gpumon.model.origin import Capability
from gpumon.storage.usage.period_totals import UserWindow, parse_window
from gpumon_web.components.page import Args, Cells, Page, StoredSubject
from gpumon_web.feed import Feed
from gpumon_web.fleet import gpu_ranges
from gpumon_web.jobs import AnswerCache, Inline, Packed, Task, Work
from gpumon_web.live import stored_values
from gpumon_web.live.stored_values import why_no_history
from gpumon_web.stored.events import EventChoice
from gpumon_web.stored.user_hours import Holding

CACHE_SECONDS = 10.0
"""Seconds for which a cached answer is reused."""
EVENTS_CACHE_SECONDS = 1.0
"""Seconds for which an answer with events is reused: the daemon writes them within a second or two."""
_WINDOW = ("period", "day", "zone", "user")


class Accounts:
    """Accounts of users. `histories` returns the paths of the history files, the most recently written first."""

    def __init__(
        self, feed: Feed, histories: Callable[[], Sequence[str]], now: Callable[[], float] = time.time,
        work: Work | None = None, answers: AnswerCache | None = None, missing: str = "", quick: Work | None = None,
        prices: Prices | None = None, groups: UserGroups | None = None, caps: Caps | None = None,
    ) -> None:  # fmt: skip
        """`missing` explains why there is no history; `quick` runs tasks of a few milliseconds."""
        self._prices, self._groups, self._caps = prices, groups, caps
        self._feed = feed
        self._histories = histories
        self._now = now
        self._work = work or Inline()
        self._quick = quick or Inline()
        self._answers = answers or AnswerCache()
        self._missing = missing
        self._fresh = CACHE_SECONDS if work else 0.0

    def kept(self, page: Page, args: Args) -> Future[Packed]:
        """Return the stored values of a page that shows accounts or events."""
        selection = tuple(args.get(name, "") for name in page.kept_args)
        key = (page.name, *selection)
        if page.kept_of is StoredSubject.DAY:
            return self._ask(key, stored_values.day_values, page.name, work=self._quick)
        missing = self._missing_reason()
        if page.kept_of is StoredSubject.EVENTS:
            choice, fresh = EventChoice(*selection), min(self._fresh, EVENTS_CACHE_SECONDS)
            return self._ask(key, stored_values.event_values, page.name, choice, missing, self._running(), fresh=fresh)
        holding = {} if missing else self._holding()  # a recording or a simulation has no holders of now
        settings = self._prices, self._groups, self._caps
        return self._ask(key, stored_values.account_values, page.name, selection, holding, missing, *settings)

    def table(self, args: Args) -> Future[Packed]:
        """Return the accounts of a window as CSV."""
        selection = tuple(args.get(name, "") for name in _WINDOW)
        return self._ask(("table", *selection), stored_values.accounts_csv, selection, self._prices)

    def caps(self) -> Future[Packed]:
        """Return the state of each cap on usage, as `gpumon history caps --json` prints it."""
        return self._ask(("caps",), stored_values.caps_answer, self._caps, self._groups, self._prices)

    def window(self, args: Args) -> UserWindow:
        """Return the time window given by the arguments."""
        return parse_window(args.get("period", ""), args.get("day", ""), args.get("zone", ""), self._now())

    def news(self, since: float | None) -> Future[Packed]:
        """Return the number of events since `since` (s since 1970) that need attention."""
        whole = None if since is None else round(since)
        return self._ask(("news", whole), stored_values.new_events, whole, work=self._quick)

    def _ask(
        self, key: tuple[Any, ...], task: Task, *arguments: Any, work: Work | None = None, fresh: float | None = None
    ) -> Future[Packed]:
        """Return the answer of a task, called with the paths of the histories, now, and `arguments`."""
        worker = work or self._work
        return self._answers.get(
            key, self._fresh if fresh is None else fresh,
            lambda _: worker.ask(task, lambda: (list(self._histories()), self._now(), *arguments)),
        )  # fmt: skip

    def _missing_reason(self) -> str | Cells:
        """Return why there is no history: the source is not hardware, or `missing`; empty if there may be one."""
        with self._feed.lock:
            origin = self._feed.live.origin()
            # Viewers of a recording may be at different positions, so it has no common begin.
            begun = self._feed.known()["begin"] if Capability.NOW in origin.capabilities else NAN
            return why_no_history(origin, NAN if begun is None else begun) or self._missing

    def _running(self) -> frozenset[str] | None:
        """Return the ids of the running runs; None if no sample is known."""
        with self._feed.lock:
            self._feed.refresh()
            frame = self._feed.frame
        if frame is None:
            return None
        return frozenset(run.id or run.key for run in frame.runs if run.state is RunState.RUNNING)

    def _holding(self) -> Holding:
        """Return the GPUs held now, by user; the user "" has GPUs that may have an unknown holder."""
        with self._feed.lock:
            self._feed.refresh()
            frame = self._feed.frame
        if frame is None:
            return {}
        devices_of = devices_by_user(gpu_statuses(frame, ranks_of(frame.runs)))
        return {
            user: (gpu_ranges(devices), tuple(device.uuid for device in devices))
            for user, devices in devices_of.items()
        }
