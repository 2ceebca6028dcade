"""The way back from a chart to the page that led there: for a GPU, an event, or an epoch of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon.analysis.epochs import EpochMark
from gpumon.common.numbers import NAN


class WayBack(NamedTuple):
    """A page that led to a chart, and the run that it did so for, if any."""

    page: str
    window: tuple[int, float, float] | None = None
    """The window that charts showed before, for `ShownTime.restore`; None where the chart has the page's own."""
    what: str = ""
    """Name of what Escape leads back to, in a word or two; empty where that is the page."""
    run: str = ""
    """Its id."""
    devices: frozenset[str] = frozenset()
    """UUIDs."""
    marks: Sequence[EpochMark] = ()
    """Begins of its epochs, oldest first, which frames may not tell of any more."""
    ended: float = NAN
    """Where the last of them ended; NaN while it goes on."""
