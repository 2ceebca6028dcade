"""Users' time on the GPUs for the pages: what the history keeps of it, and who holds which GPU now."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from gpumon.analysis.gpu_status import gpu_statuses
from gpumon.analysis.holders import devices_by_user
from gpumon.analysis.ranks import ranks_of
from gpumon.common.config import Prices, UserGroups
from gpumon.common.numbers import NAN
from gpumon.model.origin import Capability
from gpumon.storage.usage.period_totals import UserWindow, parse_window
from gpumon_web.components.page import Args, Cells, Kept, Page
from gpumon_web.feed import Feed
from gpumon_web.fleet import named
from gpumon_web.jobs import AnswerCache, Inline, Packed, Task, Work
from gpumon_web.live import stored_values
from gpumon_web.live.stored_values import why_no_history
from gpumon_web.stored.user_hours import Holding

FRESH = 10.0
"""Seconds for which an answer is good for all who ask."""
_WINDOW = ("period", "day", "zone", "user")


class Accounts:
    """Accounts of users. `histories` names the files that may be read, the one that was written last first."""

    def __init__(
        self, feed: Feed, histories: Callable[[], Sequence[str]], now: Callable[[], float] = time.time,
        work: Work | None = None, answers: AnswerCache | None = None, missing: str = "", quick: Work | None = None,
        prices: Prices | None = None, groups: UserGroups | None = None,
    ) -> None:  # fmt: skip
        """`missing` says why there are none, where no history has them; `quick` does what takes a few milliseconds."""
        self._prices, self._groups = prices, groups
        self._feed = feed
        self._histories = histories
        self._now = now
        self._work = work or Inline()
        self._quick = quick or Inline()
        self._answers = answers or AnswerCache()
        self._missing = missing
        self._fresh = FRESH if work else 0.0

    def kept(self, page: Page, args: Args) -> Future[Packed]:
        """The values of a page of accounts."""
        given = tuple(args.get(one, "") for one in page.kept_args)
        if page.kept_of is Kept.DAY:
            return self._asked(page.name, (), stored_values.of_day, page.name, work=self._quick)
        if page.kept_of is Kept.EVENTS:
            return self._asked(page.name, given, stored_values.of_events, page.name, self._why())
        missing = self._why()
        holding = {} if missing else self._holding()  # of a recording or a simulation, now is not now
        priced = self._prices, self._groups
        return self._asked(page.name, given, stored_values.of_accounts, page.name, holding, missing, *priced)

    def table(self, args: Args) -> Future[Packed]:
        """The accounts of a window as CSV."""
        return self._asked(
            "table", tuple(args.get(one, "") for one in _WINDOW), stored_values.table_of_accounts, self._prices
        )

    def window(self, args: Args) -> UserWindow:
        """The window that these arguments name."""
        return parse_window(args.get("period", ""), args.get("day", ""), args.get("zone", ""), self._now())

    def news(self, since: float | None) -> Future[Packed]:
        """The number of events since a moment that need a look."""
        return self._asked("news", ("" if since is None else f"{since:.0f}",), stored_values.news, work=self._quick)

    def _asked(
        self, name: str, given: tuple[str, ...], task: Task, *more: Any, work: Work | None = None
    ) -> Future[Packed]:
        doing = work or self._work
        return self._answers.get(
            (name, *given), self._fresh,
            lambda _: doing.ask(task, lambda: (list(self._histories()), *given, self._now(), *more)),
        )  # fmt: skip

    def _why(self) -> str | Cells:
        """Why no history has them: that none is kept of what is played, else what is so here; empty where one may."""
        with self._feed.lock:
            origin = self._feed.live.origin()
            # Each viewer may be at another place of a recording.
            begun = self._feed.known()["begin"] if Capability.NOW in origin.capabilities else NAN
            return why_no_history(origin, NAN if begun is None else begun) or self._missing

    def _holding(self) -> Holding:
        """The GPUs that each user holds now, and "" those that may have a holder who is not known."""
        with self._feed.lock:
            self._feed.refresh()
            frame = self._feed.frame
        if frame is None:
            return {}
        found = devices_by_user(gpu_statuses(frame, ranks_of(frame.runs)))
        return {user: (named(devices), tuple(device.uuid for device in devices)) for user, devices in found.items()}
