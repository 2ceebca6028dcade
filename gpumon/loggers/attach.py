"""Entry point of `gpumon.run(log_to=...)`."""

from __future__ import annotations

from collections.abc import Callable

from gpumon.common.paths import Places
from gpumon.loggers.epoch_log import EpochLog
from gpumon.loggers.registry import make_loggers


def epoch_log(log_to: object, *, run: str, places: Callable[[], Places], wait: float) -> EpochLog:
    """Return the log of the run with the id `run`; it writes once it is started.

    `places` returns the directories of the daemon; `wait`: seconds that the end of the run may wait for its last
    epochs. Raises UsageError if `log_to` is not a logger.
    """
    return EpochLog(make_loggers(log_to, run), places, wait)
