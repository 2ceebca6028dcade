"""Runs for the pages: past ones from the ledger, and live ones from the ring.

The ring is read here, at the time of the request. The ledger is read in a worker (`stored.run_page`, `stored_values`),
whose answers are cached for `CACHE_SECONDS`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from gpumon.analysis.ranks import ranks_of
from gpumon.common.config import Prices
from gpumon.reports.figures.run_gpus import EACH, MEAN
from gpumon_web.components.page import Args, Page, StoredSubject
from gpumon_web.feed import Feed
from gpumon_web.fleet import run_row
from gpumon_web.jobs import AnswerCache, Inline, Packed, Task, Work
from gpumon_web.live import stored_values
from gpumon_web.live.stored_values import why_no_runs, why_none_listed
from gpumon_web.stored import run_page, run_zoom
from gpumon_web.stored.run_course import COURSE
from gpumon_web.stored.run_list import Live, RunFilter
from gpumon_web.stored.run_page import Ring

CACHE_SECONDS = 2.0
"""Seconds for which a cached answer is reused; a page requests a running run every five."""


class Runs:
    """Past and present runs. `ledgers` returns the paths of the ledgers, which may come and go."""

    def __init__(
        self, feed: Feed, ledgers: Callable[[], Sequence[str]], now: Callable[[], float] = time.time,
        work: Work | None = None, answers: AnswerCache | None = None, missing: str = "",
        prices: Prices | None = None, *, is_own: bool = False, played: Callable[[], str] = str,
    ) -> None:  # fmt: skip
        """`missing` explains why there are no past runs.

        `is_own`: this process samples or plays by itself, and stores the runs. `played`: returns the ledger in which
        the daemon stores the runs of a source that it plays instead of sampling this machine; empty if there is none.
        """
        self._played = played
        self._is_own = is_own
        self._prices = prices
        self._feed = feed
        self._ledgers = ledgers
        self._now = now
        self._work = work or Inline()
        self._answers = answers or AnswerCache()
        self._missing = missing
        self._fresh = CACHE_SECONDS if work else 0.0

    def kept(self, page: Page, args: Args) -> Future[Packed]:
        """Return the stored values of a page that shows runs."""
        reasons, origin = (self._missing, self.missing_reason()), self._feed.live.origin()
        if page.kept_of is StoredSubject.RUNS:
            choice = RunFilter(*(args.get(name, "") for name in RunFilter._fields))
            empty_text = why_none_listed(origin, is_moment=bool(self._missing))
            return self.ask(
                ("kept", page.name, empty_text, *choice), stored_values.list_values, page.name, *reasons, origin.label,
                empty_text, choice, read=lambda: (self._live(),),
            )  # fmt: skip
        run, device = args.get("id", ""), args.get("gpu", "")
        return self.ask(
            ("kept", run, device, page.name), stored_values.run_values, page.name, run, device, *reasons, origin.label,
            self._prices, read=lambda: (self._live().get(run), self._ring(run, device), self._is_awaited()),
        )  # fmt: skip

    def compared(self, ids: str, by: str) -> Future[Packed]:
        """Return the comparison of the runs in `ids`, which are separated by commas, on the axis `by`."""
        reason = self._missing or self.missing_reason()
        return self.ask(("compared", ids, by), stored_values.comparison_answer, ids, by, reason)

    def zoomed(
        self, run: str, device: str, begin: float | None, end: float | None, figure_of: tuple[str, ...] | None = None
    ) -> Future[Packed]:
        """Return the chart of a run on a device (a UUID) at full resolution from `begin` to `end` (s since 1970).

        Without a valid range it covers the whole run. With `figure_of`, return these panels as a figure of Plotly.
        """

        def read() -> tuple[Any, ...]:
            with self._feed.lock:
                self._feed.refresh()
                recent = self._feed.history.only(*self._devices_of(run, device), metrics=COURSE)
            live = self._live().get(run) if figure_of is not None else None
            return live, self._ring(run, device), recent

        arguments = (run, device, begin, end, figure_of)
        return self.ask(("zoom", *arguments), run_zoom.zoomed_figure, *arguments, read=read)

    def rest(self, page: Page, args: Args) -> Future[Packed]:
        """Return all rows of the tables for which `kept` returns only the newest."""
        run = args.get("id", "")
        return self.ask(("rest", run, page.name), stored_values.remaining_run_values, page.name, run, self._prices)

    def table(self, run: str) -> Future[Packed]:
        """Return the epochs of a run as CSV."""
        return self.ask(("table", run), run_page.csv_answer, run)

    def ask(
        self, key: tuple[Any, ...], task: Task, *arguments: Any, read: Callable[[], tuple[Any, ...]] = tuple
    ) -> Future[Packed]:
        """Return the answer of a task.

        The task is called with the ledgers' paths, now, the cached version, `arguments`, and what `read` returns from
        the ring.
        """

        def start(known: Any) -> Future[Any]:
            from_ring = read()
            return self._work.ask(task, lambda: (self.ledger_paths(), self._now(), known, *arguments, *from_ring))

        return self._answers.get(key, self._fresh, start)

    def missing_reason(self) -> str:
        """Return why the runs of the played source are not stored; empty if they are."""
        with self._feed.lock:
            return "" if self._is_own or self._played() else why_no_runs(self._feed.live.origin())

    def ledger_paths(self) -> list[str]:
        """Return the paths of the ledgers, first the one for the played source."""
        with self._feed.lock:
            played = self._played()
        return [*([played] if played else ()), *self._ledgers()]

    def _live(self) -> dict[str, Live]:
        """Return the runs in the ring, by id."""
        with self._feed.lock:
            self._feed.refresh()
            frame = self._feed.frame
            if frame is None:
                return {}
            return {
                ranks.first.id: {
                    **run_row(ranks, frame, self._feed.epochs),
                    "label": self._feed.live.origin().label,
                }
                for ranks in ranks_of(frame.runs)
            }

    def _is_awaited(self) -> bool:
        """Whether no frame has arrived yet."""
        with self._feed.lock:
            self._feed.refresh()
            return self._feed.frame is None

    def _ring(self, run: str, device: str) -> Ring | None:
        """Copy a run's data out of the ring, so that the lock is not held while drawing.

        Return None if the ring has no data of the run.
        """
        with self._feed.lock:
            feed, frame = self._feed, self._feed.frame
            if frame is None:
                return None
            ranks = next((ranks for ranks in ranks_of(frame.runs) if ranks.first.id == run), None)
            if ranks is None:
                return None
            keys = [rank.key for rank in ranks.all]
            return Ring(
                feed.history.only(*self._devices_of(run, device), metrics=COURSE), feed.logged.copy_for(keys),
                {key: feed.epochs.epoch_spans(key, frame.time) for key in keys[:1]},
                {key: feed.epochs.chart_marks([key]).spans_within(-math.inf, math.inf) for key in keys[:1]},
            )  # fmt: skip

    def _devices_of(self, run: str, device: str) -> Sequence[str]:
        """Return the UUIDs that `device` stands for: itself, or all GPUs of the run. The caller holds the feed's lock.

        For a run that is over, the ring does not know its GPUs; all GPUs are returned.
        """
        frame = self._feed.frame
        if device not in ("", MEAN, EACH) or frame is None:
            return (device,)
        ranks = next((ranks for ranks in ranks_of(frame.runs) if ranks.first.id == run), None)
        uuids = set(ranks.gpus) if ranks else None
        return [sample.device.uuid for sample in frame.samples if uuids is None or sample.device.uuid in uuids]
