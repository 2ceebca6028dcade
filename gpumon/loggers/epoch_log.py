"""Writes epochs from the ledger to the loggers of a training, on the training's own thread.

Few loggers support several threads. So epochs are written only when the training calls `poll`, at a step or at the
begin or end of an epoch.
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
"""Failures in a row after which a logger is dropped: each may have taken as long as its server's timeout."""
_MAX_STEPS = 100_000


class EpochLog:
    """The loggers of a run. `wait`: seconds that its end may wait for the last epochs. Raises nothing."""

    def __init__(self, loggers: Sequence[Logger], places: Callable[[], Places], wait: float) -> None:
        self._loggers = list(loggers)
        self._failures = dict.fromkeys(map(id, loggers), 0)
        self._places = places
        self._reader: EpochReader | None = None
        self._wait = wait
        self._steps: dict[int, int] = {}
        """Steps at the end of each epoch that is not yet written, by its number."""
        self._step = 0
        self._is_due = False
        """Whether an epoch has ended since the last wait."""
        self._rows_to = 0
        self._lock = Lock()

    def start(self, board: str) -> None:
        """Start reading the epochs of the rank with the board file `board`, unless that is empty."""
        if board and self._loggers:
            try:
                self._reader = EpochReader(os.path.basename(board), self._places()).start()
            except Exception as error:  # no thread, no directory
                warn_once("log_to", f"log_to writes nothing: {type(error).__name__}: {error}")

    def poll(self) -> None:
        """Write the epochs that have arrived."""
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
        """Called when an epoch has ended, `step` steps after the training's begin."""
        self._steps[epoch] = self._step = step
        self._is_due = True
        if len(self._steps) > _MAX_STEPS:
            del self._steps[next(iter(self._steps))]
        if self._reader is not None:
            self._reader.epoch_ended(epoch)
            for logger in self._loggers:
                _try(logger, lambda logger: logger.epoch_ended())

    def run_paused(self, rows_to: int) -> None:
        """Called when the run is over unless more follows. Waits for the last epochs, `wait` seconds at most."""
        self._wait_once(rows_to)
        for logger in self._loggers:
            _try(logger, lambda logger: logger.flush())

    def run_ended(self, rows_to: int, *, waits: bool) -> None:
        """Called when the run is over. If `waits`, waits for the last epochs, `wait` seconds at most."""
        if waits:
            self._wait_once(rows_to)
        self.poll()
        if self._reader is not None:
            self._reader.stop()
        for logger in self._loggers:
            _try(logger, lambda logger: logger.close())

    def _wait_once(self, rows_to: int) -> None:
        """Wait for the epochs that have ended since the last wait, or for rows of steps up to `rows_to`."""
        if self._reader is not None and (self._is_due or rows_to > self._rows_to):
            self._is_due, self._rows_to = False, rows_to
            for logger in self._loggers if rows_to else ():
                _try(logger, lambda logger: logger.epoch_ended())
            self._reader.wait(self._wait, rows_to)
        self.poll()


def _try(logger: Logger, call: Callable[[Logger], None]) -> bool:
    """Return whether `call` succeeded, and warn if not: a logger depends on other software, such as a server."""
    try:
        call(logger)
    except Exception as error:
        reason = str(error) if isinstance(error, GpumonError) else f"{type(error).__name__}: {error}"
        warn_once(f"log_to {logger.name}", f"log_to: {logger.name} failed: {reason}")
        return False
    return True
