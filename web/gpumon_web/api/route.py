"""All that routes of the interface for programs read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from gpumon_web.api.live_status import LiveStatus
from gpumon_web.api.parameters import Asked, QueryParameter
from gpumon_web.feed import Feed
from gpumon_web.jobs import AnswerCache, Packed, Work
from gpumon_web.live.runs import Runs

MOST = 4 * 2**20
"""Bytes of lines that are kept: each is good for one tick."""


class ApiData:
    """The data of a server. Safe to use from several threads."""

    def __init__(self, feed: Feed, runs: Runs, work: Work) -> None:
        self.feed = feed
        self.runs = runs
        self.work = work
        """Does what takes longer than a tick may wait, in this process."""
        self.answers = AnswerCache(most=MOST)
        self.status = LiveStatus(feed)


def done(answer: Packed) -> Future[Packed]:
    """Return an answer that is there."""
    found: Future[Packed] = Future()
    found.set_result(answer)
    return found


class ApiRoute(NamedTuple):
    """A route; it answers GET and HEAD."""

    name: str
    """Its path below `/api/v1/`."""
    title: str
    meaning: str
    """Sentences for the documentation."""
    answer: str
    """Name of the schema of its answer."""
    start: Callable[[ApiData, Asked], Future[Packed]]
    """Begins to make the answer, or has it. Raises BadParameter for values that do not go together, SourceError for a
    thing that is not there."""
    parameters: Sequence[QueryParameter] = ()
    of: str = "this"
    """The thing of which there may be no record."""
    has_missing: bool = False
    """Whether it answers 404 for a thing that is not there."""
