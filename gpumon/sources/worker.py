"""A source in a thread of its own, so that one that hangs or fails holds up no other."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event, Thread
from typing import NamedTuple

from gpumon.common.clock import Clock
from gpumon.model.origin import Driver, Origin
from gpumon.sources.base import Reading, Source


class SourceRead(NamedTuple):
    """One read of a source, with what it said of itself right after."""

    readings: Sequence[Reading]
    origin: Origin
    driver: Driver
    failure: str = ""
    """The error that the read ended with; empty when it did not."""


class Worker:
    """Reads a source when asked; one read is under way at most."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.under_way = False
        self._answer: SourceRead | None = None
        self._asked = Event()
        self._answered = Event()
        self._over = False
        # A daemon thread: a driver call that hangs must not keep the process from ending.
        self._thread = Thread(target=self._run, name="gpumon-source", daemon=True)

    def ask(self) -> None:
        """Begin a read, unless one is under way."""
        if self.under_way:
            return
        if not self._thread.is_alive():
            self._thread.start()
        self._answered.clear()
        self.under_way = True
        self._asked.set()

    def take(self, clock: Clock, until: int = 0) -> SourceRead | None:
        """The answer to what was asked, waiting for it until then (ns, CLOCK_MONOTONIC); None where it is not there."""
        if not self.under_way or not (self._answered.is_set() or clock.wait(self._answered, until)):
            return None
        self.under_way = False
        answer, self._answer = self._answer, None
        return answer

    def close(self) -> None:
        """Let go of the source, but not under a call that hangs: that ends with the process."""
        self._over = True
        self._asked.set()
        if not self.under_way or self._answered.is_set():
            self.source.close()

    def _run(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            if self._over:
                return
            readings: Sequence[Reading] = ()
            failure = ""
            try:
                readings = self.source.read()
            except Exception as error:  # a fault of one source must not silence the others
                failure = f"{type(error).__name__}: {error}"
            self._answer = SourceRead(readings, self.source.origin(), self.source.driver(), failure)
            self._answered.set()
