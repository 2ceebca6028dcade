"""Definition of an API route, and the data that routes read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from gpumon_web.api.live_status import LiveStatus
from gpumon_web.api.parameters import ParameterValues, QueryParameter
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


class ApiRoute(NamedTuple):
    """An API route for GET and HEAD."""

    name: str
    """Path below `/api/v1/`."""
    title: str
    meaning: str
    """Description for the documentation."""
    answer: str
    """Name of the schema of its answer."""
    start: Callable[[ApiData, ParameterValues], Future[Packed]]
    """Starts the job that makes the answer. Raises BadParameter for parameters that contradict each other, SourceError
    for an item that does not exist."""
    parameters: Sequence[QueryParameter] = ()
    item: str = "this"
    """Name of the requested item in errors."""
    has_missing: bool = False
    """Whether it answers 404 for an item that does not exist."""
