"""The newest tick in the format of `gpumon status --json`."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from gpumon.analysis.gpu_status import is_unreadable, no_gpu_reason
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.diagnosis.live_findings import earlier_frames
from gpumon.live import Live, LiveState
from gpumon.model.frame import Frame, empty_frame
from gpumon.model.origin import Capability, Driver, Origin
from gpumon.reports.status_json import aged, document
from gpumon_web.feed import Feed


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
                    frame, origin, driver, hostname, None, live=is_live, before=earlier, epochs=feed.epochs
                )
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
