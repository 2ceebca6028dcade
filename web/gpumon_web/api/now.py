"""The newest tick for programs: the routes `status`, `findings` and `users`, and the data behind all routes."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Annotated, Any, cast

from pydantic import Field

from gpumon.analysis.gpu_status import is_unreadable, no_gpu_reason
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.diagnosis.live_findings import earlier_frames
from gpumon.live import Live, LiveState
from gpumon.model.frame import Frame, empty_frame
from gpumon.model.origin import Capability, Driver, Origin
from gpumon.reports.status_json import aged, document, users_json
from gpumon_web.api.parameters import OneOf, Parameters
from gpumon_web.feed import Feed
from gpumon_web.jobs import AnswerCache, Packed, Work, packed
from gpumon_web.live.runs import Runs


class LiveStatus:
    """The status document, computed once per tick for all requests. Thread-safe."""

    def __init__(
        self, feed: Feed, monotonic_ns: Callable[[], int] = time.monotonic_ns, own_pid: int | None = None
    ) -> None:
        self._feed = feed
        self._monotonic_ns = monotonic_ns
        self._own_pid = os.getpid() if own_pid is None else own_pid
        self._about = Origin(""), Driver(), os.uname().nodename
        """Latest origin, driver and host name of the ring; the origin is empty before the first."""
        self._key: Any = None
        self._known: Mapping[str, Any] = {}

    def document(self) -> dict[str, Any]:
        """Return the document of the newest tick. Parts of it are shared and must not be modified."""
        feed = self._feed
        with feed.lock:
            feed.refresh()
            live, frame = feed.live, feed.frame
            state = live.state()
            if live.origin().source:  # else the ring is gone
                self._about = live.origin(), live.driver(), live.hostname()
            origin, driver, hostname = self._about
            is_live = state.live and not (origin.ended or origin.unanswered)
            age = self._age(feed.frame, live, state) if Capability.NOW in origin.capabilities else NAN
            frame = feed.frame or empty_frame(self._monotonic_ns(), time.time_ns())
            key = feed.boot, feed.newest, is_live, self._about
            if key != self._key:
                earlier = earlier_frames(cast("Live", live), frame) if feed.frame else ()
                self._known = document(
                    frame, origin, driver, hostname, None, live=is_live, before=earlier, epochs=feed.epochs,
                    recorded=feed.recorded_findings(),
                )  # fmt: skip
                self._key = key
            daemon = self._daemon(live, state)
            problem = origin.problem
            if not problem and is_unreadable(frame):
                problem = no_gpu_reason(frame, "") if frame.samples or state.live else state.text
            if not problem and daemon is None and not (state.live or origin.ended):
                problem = state.text
        return {**aged(self._known, age), "problem": problem or None, "daemon": daemon}

    def _age(self, frame: Frame | None, live: Any, state: LiveState) -> float:
        """Return the seconds since the values were read; by the wall clock if they are from before a reboot."""
        if frame is None:
            return NAN
        heartbeat = live.heartbeat() if isinstance(live, Live) else None
        if heartbeat is not None and not math.isfinite(heartbeat.age):
            return state.age
        return max(0.0, (self._monotonic_ns() - frame.monotonic_ns) / SECOND)

    def _daemon(self, live: Any, state: LiveState) -> dict[str, Any] | None:
        """Return the daemon that took the sample; None if this process did, or the daemon is no longer running."""
        heartbeat = live.heartbeat() if isinstance(live, Live) else None
        if heartbeat is None or live.writer_pid() in (0, self._own_pid):
            return None
        if not (state.live or state.stale or (live.origin().ended and live.is_alive())):
            return None
        return {"pid": live.writer_pid(), "interval": live.interval(), "age": round(heartbeat.age, 3)}


MOST = 4 * 2**20
"""Size in bytes of the cache of `series` responses. Each is valid for one tick."""


class ApiData:
    """Data of the server for all routes. Thread-safe."""

    def __init__(self, feed: Feed, runs: Runs, work: Work, caps: Callable[[], Future[Packed]]) -> None:
        """`caps`: function that starts the answer of the route `caps`."""
        self.feed = feed
        self.runs = runs
        self.caps = caps
        self.work = work
        """Worker in this process for tasks that would delay a tick."""
        self.answers = AnswerCache(limit=MOST)
        self.status = LiveStatus(feed)


def done(answer: Packed) -> Future[Packed]:
    """Return a finished future with `answer`."""
    future: Future[Packed] = Future()
    future.set_result(answer)
    return future


SCHEMA = 1
SEVERITIES = ("info", "warning", "critical")
"""In ascending order."""


class FindingsParameters(Parameters):
    """Parameters of the route `findings`."""

    severity: Annotated[str, OneOf(SEVERITIES)] = Field(
        SEVERITIES[0], description="only findings that are at least as severe"
    )
    subject: Annotated[str, OneOf(("gpu", "run"))] = Field("", description="only findings about this kind of thing")


def status(data: ApiData) -> Future[Packed]:
    """Return the document of `gpumon status --json`."""
    return done(packed(data.status.document()))


def findings(data: ApiData, query: FindingsParameters) -> Future[Packed]:
    """Return the findings that match the parameters."""
    document, minimum = data.status.document(), SEVERITIES.index(query.severity)
    matches = [
        finding for finding in document["findings"]
        if SEVERITIES.index(finding["severity"]) >= minimum and query.subject in ("", finding["subject"]["kind"])
    ]  # fmt: skip
    head = {name: document[name] for name in ("time", "live", "age")}
    return done(packed({"schema": SCHEMA, **head, "findings": matches}))


def users(data: ApiData) -> Future[Packed]:
    """Return the users who hold GPUs."""
    return done(packed(users_json(data.status.document())))
