"""The interface of loggers, and the loggers that call a function or a method of the user's object.

Each other logger has its own module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class EpochPosition:
    """Position of an epoch in its training."""

    epoch: int
    """Number of the epoch in the training's own numbering."""
    step: int
    """Number of steps of the whole training at the end of the epoch."""
    ended: float
    """End of the epoch, in seconds since 1970."""


class Logger:
    """A target for the values of epochs.

    All methods are called in the training's own thread. Exceptions that they raise become warnings.
    """

    name = ""
    """Name of the logger in warnings."""

    def epoch_ended(self) -> None:
        """Called when an epoch has ended, some time before `write`.

        At this time, a logger can find the target of the values, such as the active run, while the target is still
        open.
        """

    def write(self, values: Mapping[str, float], at: EpochPosition) -> None:
        """Write the values of an epoch. Called several seconds after its end. Missing values are not in `values`."""
        raise NotImplementedError

    def flush(self) -> None:
        """Write buffered values. Called when the training has ended, but an evaluation may continue the run."""

    def close(self) -> None:
        """Write buffered values, and close everything that this logger has opened. Called when the run has ended."""
        self.flush()


class FunctionLogger(Logger):
    """Calls `function(values, epoch)` with a dict of values by name and the number of the epoch."""

    def __init__(self, function: Callable[[dict[str, float], int], object]) -> None:
        self.name = getattr(function, "__qualname__", type(function).__qualname__)
        self._function = function

    def write(self, values: Mapping[str, float], at: EpochPosition) -> None:
        """Call the function. Its exceptions are not caught."""
        self._function(dict(values), at.epoch)


def has_log_metrics(logger: object) -> bool:
    """Return whether `logger` has a method `log_metrics`."""
    return callable(getattr(logger, "log_metrics", None))


class MetricsLogger(Logger):
    """Calls `log_metrics(values, step=...)` of `logger`, as in Lightning and Comet. Does not close the logger.

    Values are logged at the last step of the epoch, where steps are counted from 0. Lightning logs the loss of the
    epoch at the same step. The value with the name `epoch` is the number of the epoch.
    """

    def __init__(self, logger: Any) -> None:
        self.name = type(logger).__name__
        self._logger = logger

    def write(self, values: Mapping[str, float], at: EpochPosition) -> None:
        """Log the values at the last step of the epoch."""
        self._logger.log_metrics({**values, "epoch": at.epoch}, step=max(0, at.step - 1))
