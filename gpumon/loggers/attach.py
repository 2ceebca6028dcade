"""Entry point of `gpumon.run(log_to=...)`."""

from __future__ import annotations

from collections.abc import Callable

from gpumon.common.paths import Places
from gpumon.loggers.epoch_log import EpochLog
from gpumon.loggers.registry import make_loggers


def epoch_log(log_to: object, *, run: str, places: Callable[[], Places], wait: float) -> EpochLog:
    """Return the epoch log for `log_to`. It writes nothing until its method `start` is called.

    `run`: id of the run. `places`: function that returns the directories of the daemon. `wait`: maximum seconds to wait
    at the end of the run for the values of its last epochs. Raises UsageError if `log_to` is not a logger.
    """
    return EpochLog(make_loggers(log_to, run), places, wait)
