"""The data that API routes read."""

from __future__ import annotations

from concurrent.futures import Future

from gpumon_web.api.live_status import LiveStatus
from gpumon_web.feed import Feed
from gpumon_web.jobs import AnswerCache, Packed, Work
from gpumon_web.live.runs import Runs

MOST = 4 * 2**20
"""Size in bytes of the cache of answers of `series`, each of which is valid for one tick."""


class ApiData:
    """Data of the server for all routes. Thread-safe."""

    def __init__(self, feed: Feed, runs: Runs, work: Work) -> None:
        self.feed = feed
        self.runs = runs
        self.work = work
        """Worker in this process for tasks that would delay a tick."""
        self.answers = AnswerCache(limit=MOST)
        self.status = LiveStatus(feed)


def done(answer: Packed) -> Future[Packed]:
    """Return a finished future with `answer`."""
    future: Future[Packed] = Future()
    future.set_result(answer)
    return future
