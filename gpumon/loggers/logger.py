"""The form of a logger: what each file of one implements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class EpochPlace(NamedTuple):
    """The place of an epoch in its training."""

    epoch: int
    """Its number, as the training counts."""
    step: int
    """Steps of the whole training at its end."""
    ended: float
    """Seconds since 1970."""


class Logger:
    """A place that values of epochs are written to, by the training's own thread. What it raises is only warned of."""

    name = ""
    """For people, in a warning."""

    def epoch_ended(self) -> None:
        """Look for what the values of this epoch belong to, while the training has it open."""

    def write(self, values: Mapping[str, float], at: EpochPlace) -> None:
        """Write the known values of an epoch that ended some time ago."""
        raise NotImplementedError

    def flush(self) -> None:
        """Write what waits: the run is over, unless more follows."""

    def close(self) -> None:
        """Flush, and let go of what this logger has opened: the run is over."""
        self.flush()
