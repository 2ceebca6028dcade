"""The way from `gpumon.run(log_to=...)` to here, for what a training imports."""

from __future__ import annotations

from collections.abc import Callable

from gpumon.common.paths import Places
from gpumon.loggers.epoch_log import EpochLog
from gpumon.loggers.registry import loggers_of


def epoch_log(log_to: object, *, run: str, where: Callable[[], Places], wait: float) -> EpochLog:
    """Return the log of a run by its id; it writes once it is started.

    `where` gives the directories of the daemon; `wait` is how many seconds the end of the run may wait for its last
    epochs. Raises UsageError if `log_to` is no logger.
    """
    return EpochLog(loggers_of(log_to, run), where, wait)
