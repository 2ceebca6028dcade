"""The way back from a chart to the run whose epoch it was opened for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon.analysis.epochs import EpochMark


class WayBack(NamedTuple):
    """A page that led to a chart, and the run that it did so for."""

    page: str
    what: str
    """Name of what Escape leads back to, in a word or two."""
    window: tuple[int, float, float]
    """The window that charts showed before, for `ShownTime.restore`."""
    run: str
    """Its id."""
    devices: frozenset[str]
    """UUIDs."""
    marks: Sequence[EpochMark]
    """Begins of its epochs, which frames may not tell of any more."""
    ended: float
    """Where the last of them ended; NaN while it goes on."""
