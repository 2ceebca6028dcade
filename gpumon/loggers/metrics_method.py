"""Loggers with a method `log_metrics(values, step=...)`, as in Lightning and Comet.

Values are logged at the last step of the epoch, where steps are counted from 0. Lightning logs the loss of the epoch at
the same step. The value with the name `epoch` is the number of the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpumon.loggers.logger import EpochPosition, Logger


def has_log_metrics(logger: object) -> bool:
    """Return whether `logger` has a method `log_metrics`."""
    return callable(getattr(logger, "log_metrics", None))


class MetricsLogger(Logger):
    """Writes to `logger`. Does not close it, because its owner does."""

    def __init__(self, logger: Any) -> None:
        self.name = type(logger).__name__
        self._logger = logger

    def write(self, values: Mapping[str, float], at: EpochPosition) -> None:
        """Log the values at the last step of the epoch."""
        self._logger.log_metrics({**values, "epoch": at.epoch}, step=max(0, at.step - 1))
