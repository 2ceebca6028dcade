"""Frames for as long as a command runs: of the daemon that runs, else of a sampler in this process.

When nobody samples this machine, this process does what a daemon does, in the same directory, so that
`gpumon tui` beside it shows everything. When another one samples, it is followed, and when that one ends,
its place is taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event, Thread

from gpumon.common.clock import SECOND, SHORTEST
from gpumon.common.errors import AlreadyRunning, GpumonError
from gpumon.daemon.recorder import Recorder
from gpumon.live import Live
from gpumon.model.frame import Frame

_AGAIN = 2.0
"""Seconds between two tries to become the sampler."""
_LOOK = 0.05
"""Seconds between two looks for a frame that is about to come."""


class Sampling:
    """Follows whoever samples; `begin` opens a recorder for this process, and may raise GpumonError or OSError.

    It is given a function that it tells what goes wrong later.
    """

    def __init__(
        self, live: Live, begin: Callable[[Callable[[str], None]], Recorder], now: Callable[[], float] = time.monotonic
    ) -> None:
        self.problem = ""
        """Why there is no sampler, in one line; empty when there is one."""
        self._live = live
        self._begin = begin
        self._now = now
        self._try_at = 0.0
        self._seen = 0
        self._stop = Event()
        self._recorder: Recorder | None = None
        self._thread: Thread | None = None

    def frames(self, since: int) -> list[Frame]:
        """Return new frames, oldest first; at first from the last one before `since` (ns, CLOCK_MONOTONIC) on."""
        if self._thread is not None and not self._thread.is_alive():
            self._close()  # it failed, or another one took the directory over
        if self._recorder is None and not self._live.is_alive():
            self._become_sampler()
        if not self._seen:
            newest = self._live.latest() if self._live.is_alive() else None
            if newest is None:
                return []
            before = max(0, newest.monotonic_ns - since) / SECOND / max(newest.interval, SHORTEST)
            self._seen = max(0, newest.number - int(before) - 2)
        return self._new()

    @property
    def is_own(self) -> bool:
        """Whether this process samples, and no other."""
        return self._recorder is not None

    def interval(self) -> float:
        """Seconds between frames."""
        return self._live.interval()

    def unreadable(self) -> str:
        """Why no GPU can be read; empty when all is well."""
        return self._live.origin().problem

    def last(self, ended: int, wait: float) -> list[Frame]:
        """The last frames: with one more sample of ours; another sampler gets `wait` seconds for one past `ended`."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._sample_once()
        found = self._new() if self._seen else []
        until = self._now() + wait
        while self._recorder is None and not (found and found[-1].monotonic_ns >= ended) and self._now() < until:
            time.sleep(_LOOK)
            found += self._new()
        return found

    def close(self) -> None:
        """End a sampler of our own, after one more sample for what was published since the last."""
        self._sample_once()
        self._close()

    def _new(self) -> list[Frame]:
        new = self._live.since(self._seen)
        if new:
            self._seen = new[-1].number
        return new

    def _become_sampler(self) -> None:
        if self._now() < self._try_at:
            return
        self._try_at = self._now() + _AGAIN
        try:
            self._recorder = self._begin(self._note)
        except AlreadyRunning:
            return  # it has no frame yet, or its last was long ago: one of both changes soon
        except (GpumonError, OSError) as error:
            self.problem = str(error)
            return
        self.problem = ""
        # A daemon thread: a driver call that hangs must not keep the process from ending.
        self._thread = Thread(target=self._sample, args=(self._recorder,), name="gpumon-sampler", daemon=True)
        self._thread.start()

    def _note(self, problem: str) -> None:
        self.problem = problem

    def _sample(self, recorder: Recorder) -> None:
        try:
            recorder.sampler.run(recorder.store, self._stop, recorder.heartbeat)
        except Exception as error:  # the command continues without it
            self.problem = f"sampling ended: {error}"

    def _sample_once(self) -> None:
        if self._recorder is not None:
            try:
                self._recorder.take_one()
            except Exception as error:
                self.problem = f"sampling ended: {error}"

    def _close(self) -> None:
        recorder, self._recorder, self._thread = self._recorder, None, None
        if recorder is not None:
            try:
                recorder.close()
            except Exception as error:  # what was seen is worth telling all the same
                self.problem = f"sampling ended: {error}"
