"""Runs for the pages: what the ledger keeps of them, and what the ring tells of those that go on.

What the ring tells is read here, at the moment it is asked for; the ledger is read where work is done (`run_page`), and
what came of it is kept while it is fresh.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from gpumon.analysis.ranks import Ranks, ranks_of
from gpumon.reports import run_json
from gpumon_web import run_page
from gpumon_web.answers import AnswerCache, Packed
from gpumon_web.course import COURSE
from gpumon_web.feed import Feed, said
from gpumon_web.fleet import run_row
from gpumon_web.run_page import Ring
from gpumon_web.work import Inline, Work

FRESH = 2.0
"""Seconds for which an answer is good for all who ask: a page asks for a running one every five."""


class Runs:
    """Past and present runs. `ledgers` names the files that may be read; they may come and go."""

    def __init__(
        self, feed: Feed, ledgers: Callable[[], Sequence[str]], now: Callable[[], float] = time.time,
        work: Work | None = None, answers: AnswerCache | None = None,
    ) -> None:  # fmt: skip
        self._feed = feed
        self._ledgers = ledgers
        self._now = now
        self._work = work or Inline()
        self._answers = answers or AnswerCache()
        self._fresh = FRESH if work else 0.0

    def all(self) -> Future[Packed]:
        """Every run, the newest first."""
        live = self._live()
        return self._answers.get(
            ("runs",), self._fresh,
            lambda known: self._work.ask(run_page.listed, lambda: (self._ledgers(), live, self._now(), known)),
        )  # fmt: skip

    def kept(self, page: str) -> Future[Packed]:
        """The values of a page that come from this list."""
        live = self._live()
        return self._answers.get(
            ("kept", page), self._fresh,
            lambda known: self._work.ask(run_page.kept, lambda: (self._ledgers(), live, self._now(), known, page)),
        )  # fmt: skip

    def one(self, run: str, device: str) -> Future[Packed]:
        """One run with its newest epochs, its figure that of `device` (a UUID; else its first)."""

        def start(known: Any) -> Future[Any]:
            live, ring = self._live().get(run), self._ring(run, device)
            return self._work.ask(run_page.one, lambda: (self._ledgers(), run, device, live, ring, self._now(), known))

        return self._answers.get(("run", run, device), self._fresh, start)

    def epochs(self, run: str) -> Future[Packed]:
        """All its epochs."""
        return self._of_record("epochs", run_page.epochs, run)

    def table(self, run: str) -> Future[Packed]:
        """Its table of epochs as CSV."""
        return self._of_record("table", run_page.table, run)

    def _of_record(self, what: str, task: Callable[..., Any], run: str) -> Future[Packed]:
        return self._answers.get(
            (what, run), self._fresh, lambda known: self._work.ask(task, lambda: (self._ledgers(), run, known))
        )

    def _live(self) -> dict[str, dict[str, Any]]:
        """Runs in the ring, by id, with the values that they logged last."""
        with self._feed.lock:
            self._feed.refresh()
            frame = self._feed.frame
            if frame is None:
                return {}
            return {
                ranks.first.id: {
                    **run_row(ranks, frame, self._feed.epochs),
                    "metrics": {name: said(value) for name, value in ranks.first.metrics.items()},
                    "step": ranks.slowest.step,
                    "wait": run_json.known(ranks.slowest.wait),
                }
                for ranks in ranks_of(frame.runs)
            }

    def _ring(self, run: str, device: str) -> Ring | None:
        """Copy of a run's data in the ring, so that drawing blocks nobody; None if there is none."""
        with self._feed.lock:
            feed, frame = self._feed, self._feed.frame
            ranks = next((one for one in ranks_of(frame.runs) if one.first.id == run), None) if frame else None
            if frame is None or ranks is None:
                return None
            uuid = device or self._first_of(ranks)
            keys = [one.key for one in ranks.all]
            return Ring(
                uuid, feed.history.only(uuid, COURSE), feed.logged.only(keys),
                {key: feed.epochs.stretches(key, frame.time) for key in keys[:1]},
                {key: feed.epochs.drawn([key]).spans for key in keys[:1]},
            )  # fmt: skip

    def _first_of(self, ranks: Ranks) -> str:
        """The device with the lowest number, as the ledger orders them."""
        frame = self._feed.frame
        on = set(ranks.gpus)
        return next((sample.device.uuid for sample in frame.samples if sample.device.uuid in on), "") if frame else ""
