"""Sampling in a thread of a view that finds no daemon."""

from __future__ import annotations

from threading import Thread

from gpumon.common.clock import StopSign
from gpumon.daemon.recorder import Recorder


class PrivateSampler:
    """A sampler in a thread of this process, for a view without a daemon."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.failure: Exception | None = None
        """Error that ended sampling early; None if there was none."""
        self._stop = StopSign()
        # A daemon thread: a driver call that hangs must not keep the view from ending.
        self._thread = Thread(target=self._run, name="gpumon-sampler", daemon=True)

    def start(self) -> PrivateSampler:
        self._thread.start()
        return self

    def end_soon(self) -> None:
        """Ask it to end, and wait for nothing."""
        self._stop.set()

    def stop(self) -> None:
        """Ask it to end, and wait a moment."""
        self.end_soon()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        try:
            self.recorder.run(self._stop)
        except Exception as error:
            self.failure = error  # shown by the view, which keeps what it has
