"""The interface of a logger, which each logger's module implements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EpochPosition:
    """Position of an epoch in its training."""

    epoch: int
    """Its number, as the training counts."""
    step: int
    """Steps of the whole training at the end of the epoch."""
    ended: float
    """Seconds since 1970."""


class Logger:
    """A target for the values of epochs. Called by the training's own thread; its exceptions become warnings."""

    name = ""
    """For warnings."""

    def epoch_ended(self) -> None:
        """Called when an epoch has ended, to find the target of its values (such as an active run) while it is open."""

    def write(self, values: Mapping[str, float], at: EpochPosition) -> None:
        """Write the known values of an epoch that ended some time ago."""
        raise NotImplementedError

    def flush(self) -> None:
        """Write buffered values: the run is over, unless more follows."""

    def close(self) -> None:
        """Flush and close what this logger has opened: the run is over."""
        self.flush()
