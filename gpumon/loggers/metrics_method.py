"""Loggers with a method `log_metrics(values, step=...)`: those of Lightning, and of others such as Comet.

The step is the last of the epoch, counted from 0, where Lightning shows the epoch's loss; the number is under `epoch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpumon.loggers.logger import EpochPlace, Logger


def has_method(thing: object) -> bool:
    """Whether this is such a logger."""
    return callable(getattr(thing, "log_metrics", None))


class MetricsLogger(Logger):
    """Writes to `logger`, which stays its owner's to close."""

    def __init__(self, logger: Any) -> None:
        self.name = type(logger).__name__
        self._logger = logger

    def write(self, values: Mapping[str, float], at: EpochPlace) -> None:
        """Log the values at the last step of the epoch."""
        self._logger.log_metrics({**values, "epoch": at.epoch}, step=max(0, at.step - 1))
