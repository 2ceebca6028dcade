"""The interface of loggers. The module of each logger implements it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
