"""Writes epochs as they come from the ledger to the loggers of a training, on the training's own thread.

Few loggers may be called from several threads. So nothing is written until the training comes by, at a step or
where an epoch begins or ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from threading import Lock

from gpumon.common.errors import GpumonError
from gpumon.common.paths import Places
from gpumon.loggers.epoch_reader import EpochReader
from gpumon.loggers.epoch_values import values_of
from gpumon.loggers.logger import EpochPlace, Logger
from gpumon.storage.ledger.schema import STEP_ROWS
from gpumon.tracking.warn import warn_once

MOST_FAILURES = 3
"""Failures in a row after which a logger gets no more: each may have taken as long as its server's timeout."""
_MOST_STEPS = 100_000


class EpochLog:
    """The loggers of a run. `wait`: seconds that its end may wait for the last epochs. Raises nothing."""

    def __init__(self, loggers: Sequence[Logger], where: Callable[[], Places], wait: float) -> None:
        self._loggers = list(loggers)
        self._failures = dict.fromkeys(map(id, loggers), 0)
        self._where = where
        self._reader: EpochReader | None = None
        self._wait = wait
        self._steps: dict[int, int] = {}
        """Steps at the end of each epoch that is not written yet, by its number."""
        self._step = 0
        self._is_due = False
        """Whether an epoch has ended that nobody has waited for."""
        self._rows_to = 0
        self._lock = Lock()

    def start(self, board: str) -> None:
        """Begin to look for the epochs of the rank whose tags are in the file `board`; without one nothing happens."""
        if board and self._loggers:
            try:
                self._reader = EpochReader(os.path.basename(board), self._where()).start()
            except Exception as error:  # no thread, no directory
                warn_once("log_to", f"log_to writes nothing: {type(error).__name__}: {error}")

    def poll(self) -> None:
        """Write what has come."""
        reader = self._reader
        if reader is None or not reader.has_arrived or not self._lock.acquire(blocking=False):
            return
        try:
            for epoch in reader.take():
                values = values_of(epoch)
                if epoch.ordinal <= STEP_ROWS:
                    last = epoch.epoch + (epoch.steps or 0)
                    place = EpochPlace(last, last, epoch.ended)
                else:
                    place = EpochPlace(epoch.epoch, self._steps.pop(epoch.epoch, self._step), epoch.ended)
                if values:
                    self.write(values, place)
        finally:
            self._lock.release()

    def write(self, values: Mapping[str, float], at: EpochPlace) -> None:
        """Write the values of an epoch to each logger."""
        for logger in [*self._loggers]:
            if _guarded(logger, lambda to: to.write(values, at)):
                self._failures[id(logger)] = 0
                continue
            self._failures[id(logger)] += 1
            if self._failures[id(logger)] >= MOST_FAILURES:
                self._loggers.remove(logger)

    def epoch_ended(self, epoch: int, step: int) -> None:
        """An epoch ended now, `step` steps after the training's begin."""
        self._steps[epoch] = self._step = step
        self._is_due = True
        if len(self._steps) > _MOST_STEPS:
            del self._steps[next(iter(self._steps))]
        if self._reader is not None:
            self._reader.epoch_ended(epoch)
            for logger in self._loggers:
                _guarded(logger, lambda to: to.epoch_ended())

    def run_paused(self, rows_to: int) -> None:
        """The run is over unless more follows; its last epochs are waited for, `wait` seconds at most."""
        self._wait_once(rows_to)
        for logger in self._loggers:
            _guarded(logger, lambda to: to.flush())

    def run_ended(self, rows_to: int, *, waits: bool) -> None:
        """The run is over; if `waits`, its last epochs are waited for, `wait` seconds at most."""
        if waits:
            self._wait_once(rows_to)
        self.poll()
        if self._reader is not None:
            self._reader.stop()
        for logger in self._loggers:
            _guarded(logger, lambda to: to.close())

    def _wait_once(self, rows_to: int) -> None:
        """Wait for the epochs that have ended since the last wait, or for rows of steps up to `rows_to`."""
        if self._reader is not None and (self._is_due or rows_to > self._rows_to):
            self._is_due, self._rows_to = False, rows_to
            for logger in self._loggers if rows_to else ():
                _guarded(logger, lambda to: to.epoch_ended())
            self._reader.wait(self._wait, rows_to)
        self.poll()


def _guarded(logger: Logger, call: Callable[[Logger], None]) -> bool:
    """Whether `call` went well: a logger is another program's, such as a server that does not answer."""
    try:
        call(logger)
    except Exception as error:
        why = str(error) if isinstance(error, GpumonError) else f"{type(error).__name__}: {error}"
        warn_once(f"log_to {logger.name}", f"log_to: {logger.name} failed: {why}")
        return False
    return True
