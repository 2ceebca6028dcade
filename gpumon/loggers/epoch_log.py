"""Writes epochs from the ledger to the loggers of a training process, on the training's own thread.

Few loggers support several threads. So epochs are written only when the training calls `poll`, at a step or at the
start or end of an epoch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from threading import Lock

from gpumon.common.errors import GpumonError
from gpumon.common.paths import Places
from gpumon.loggers.epoch_reader import EpochReader
from gpumon.loggers.epoch_values import values_of
from gpumon.loggers.logger import EpochPosition, Logger
from gpumon.storage.ledger.row_keys import STEP_ROWS
from gpumon.tracking.warn import warn_once

MAX_FAILURES = 3
"""A logger is dropped after this many consecutive failures. Each failure may take as long as the timeout of the
logger's server."""
_MAX_STEPS = 100_000


class EpochLog:
    """Writes the epochs of a run to its loggers. No method raises.

    `wait`: maximum seconds to wait at the end of the run for the values of its last epochs.
    """

    def __init__(self, loggers: Sequence[Logger], places: Callable[[], Places], wait: float) -> None:
        self._loggers = list(loggers)
        self._failures = dict.fromkeys(map(id, loggers), 0)
        self._places = places
        self._reader: EpochReader | None = None
        self._wait = wait
        self._steps: dict[int, int] = {}
        """Number of steps at the end of each epoch that has not been written yet, by epoch number."""
        self._step = 0
        self._is_due = False
        """True if an epoch has ended since the last wait."""
        self._rows_to = 0
        self._lock = Lock()

    def start(self, board: str) -> None:
        """Start reading the epochs of the rank whose board file is `board`. Does nothing if `board` is empty."""
        if board and self._loggers:
            try:
                self._reader = EpochReader(os.path.basename(board), self._places()).start()
            except Exception as error:  # a thread or a directory may not be available
                warn_once("log_to", f"log_to writes nothing: {type(error).__name__}: {error}")

    def poll(self) -> None:
        """Write the epochs that the reader thread has found in the ledger."""
        reader = self._reader
        if reader is None or not reader.has_arrived or not self._lock.acquire(blocking=False):
            return
        try:
            for epoch in reader.pop_arrived():
                values = values_of(epoch)
                if epoch.ordinal <= STEP_ROWS:
                    last = epoch.epoch + (epoch.steps or 0)
                    position = EpochPosition(last, last, epoch.ended)
                else:
                    position = EpochPosition(epoch.epoch, self._steps.pop(epoch.epoch, self._step), epoch.ended)
                if values:
                    self.write(values, position)
        finally:
            self._lock.release()

    def write(self, values: Mapping[str, float], at: EpochPosition) -> None:
        """Write the values of an epoch to each logger."""
        for logger in [*self._loggers]:
            if _try(logger, lambda logger: logger.write(values, at)):
                self._failures[id(logger)] = 0
                continue
            self._failures[id(logger)] += 1
            if self._failures[id(logger)] >= MAX_FAILURES:
                self._loggers.remove(logger)

    def epoch_ended(self, epoch: int, step: int) -> None:
        """Called when an epoch has ended. `step`: number of steps since the start of the training."""
        self._steps[epoch] = self._step = step
        self._is_due = True
        if len(self._steps) > _MAX_STEPS:
            del self._steps[next(iter(self._steps))]
        if self._reader is not None:
            self._reader.epoch_ended(epoch)
            for logger in self._loggers:
                _try(logger, lambda logger: logger.epoch_ended())

    def run_paused(self, rows_to: int) -> None:
        """Called when the training has ended, but an evaluation may continue the run. Waits for the last epochs.

        The maximum time is `wait` of this object. `rows_to`: as for `EpochReader.wait`.
        """
        self._wait_once(rows_to)
        for logger in self._loggers:
            _try(logger, lambda logger: logger.flush())

    def run_ended(self, rows_to: int, *, waits: bool) -> None:
        """Called when the run has ended.

        `waits`: wait for the last epochs, at most as long as `wait` of this object.
        """
        if waits:
            self._wait_once(rows_to)
        self.poll()
        if self._reader is not None:
            self._reader.stop()
        for logger in self._loggers:
            _try(logger, lambda logger: logger.close())

    def _wait_once(self, rows_to: int) -> None:
        """Wait for the epochs that have ended since the last wait, or for the rows of steps up to step `rows_to`."""
        if self._reader is not None and (self._is_due or rows_to > self._rows_to):
            self._is_due, self._rows_to = False, rows_to
            for logger in self._loggers if rows_to else ():
                _try(logger, lambda logger: logger.epoch_ended())
            self._reader.wait(self._wait, rows_to)
        self.poll()


def _try(logger: Logger, call: Callable[[Logger], None]) -> bool:
    """Call `call` with `logger`, and return whether this succeeded. If it raised an exception, print a warning.

    A logger may fail because it depends on other software, such as a server.
    """
    try:
        call(logger)
    except Exception as error:
        reason = str(error) if isinstance(error, GpumonError) else f"{type(error).__name__}: {error}"
        warn_once(f"log_to {logger.name}", f"log_to: {logger.name} failed: {reason}")
        return False
    return True
