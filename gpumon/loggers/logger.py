"""The interface of a logger, which each logger's module implements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EpochPosition:
    """Position of an epoch in its training."""

    epoch: int
    """Number of the epoch in the training's own numbering."""
    step: int
    """Steps of the whole training at the end of the epoch."""
    ended: float
    """End of the epoch, in seconds since 1970."""


class Logger:
    """A target for the values of epochs.

    All methods are called by the training's own thread. Their exceptions become warnings.
    """

    name = ""
    """Name of the logger in warnings."""

    def epoch_ended(self) -> None:
        """Called when an epoch has ended, some time before `write`.

        A logger can now find the target of the values, such as the active run, while it is still open.
        """

    def write(self, values: Mapping[str, float], at: EpochPosition) -> None:
        """Write the known values of an epoch. Called some seconds after its end."""
        raise NotImplementedError

    def flush(self) -> None:
        """Write buffered values. Called when the training is over, but an evaluation may continue the run."""

    def close(self) -> None:
        """Write buffered values and close what this logger has opened. Called when the run is over."""
        self.flush()
