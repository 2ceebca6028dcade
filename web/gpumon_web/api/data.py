"""All that routes of the interface for programs read."""

from __future__ import annotations

from concurrent.futures import Future

from gpumon_web.answers import AnswerCache, Packed
from gpumon_web.api.live_status import LiveStatus
from gpumon_web.feed import Feed
from gpumon_web.runs import Runs
from gpumon_web.work import Work

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
