"""Return target of a chart opened from another page for a GPU, an event, or an epoch of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon.analysis.run_epochs import EpochMark
from gpumon.common.numbers import NAN


class WayBack(NamedTuple):
    """The page that opened a chart, and the run it was opened for, if any."""

    page: str
    window: tuple[int, float, float] | None = None
    """Previous window of the charts, for `ShownTime.restore`; None if the chart opened with the page's own window."""
    what: str = ""
    """Short name of the return target for Escape; empty if it is the page itself."""
    run: str = ""
    """Run id."""
    devices: frozenset[str] = frozenset()
    """UUIDs of the run's devices."""
    marks: Sequence[EpochMark] = ()
    """Starts of the run's epochs, oldest first; recent frames may no longer contain them."""
    ended: float = NAN
    """End of the last epoch; NaN while it is running."""
