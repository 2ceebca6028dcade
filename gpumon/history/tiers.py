"""The tiers of kept history: how long their cells are, how many make a block, and how long blocks are kept."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.model.metrics import GPU_METRICS, HOST_METRICS, Kind, Metric


class TierShape(NamedTuple):
    """A tier. Cells and blocks are counted from 1970, so that one of a number is always at the same time."""

    number: int
    """Its number in the file."""
    step: int
    """Seconds in a cell."""
    cells: int
    """Cells in a block, which is written and read as a whole."""
    keep: int
    """Seconds after which a block may go."""

    @property
    def block(self) -> int:
        """Seconds in a block."""
        return self.step * self.cells


HOUR, DAY = 3600, 86400
SHAPES = (
    TierShape(1, 1, 300, HOUR + HOUR // 6), TierShape(2, 10, 64, DAY + HOUR), TierShape(3, 300, 64, 32 * DAY),
)  # fmt: skip
"""From the finest to the coarsest; each cell holds whole cells of the tier before.

Each is kept a little longer than the window that it is for, which would begin in the next one else."""
PROCESS_SHAPES = (TierShape(1, 10, 6, DAY + HOUR), TierShape(2, 300, 12, 32 * DAY))
"""The same of processes. A block has all of them: of the finer tier what is written in a minute, of the coarser an
hour."""


class KeptColumns(NamedTuple):
    """The metrics that are kept of a subject, and which of them are counters."""

    names: tuple[str, ...]
    counters: tuple[int, ...]
    """Places of counters among `names`. They are kept as rates, and as the counter's own value at each cell's end."""


def _columns(metrics: tuple[Metric, ...]) -> KeptColumns:
    places = (place for place, metric in enumerate(metrics) if metric.kind is Kind.COUNTER)
    return KeptColumns(tuple(metric.name for metric in metrics), tuple(places))


OF_GPU, OF_HOST = _columns(GPU_METRICS), _columns(HOST_METRICS)


def columns_of(subject: str) -> KeptColumns:
    """The columns that are kept of a subject."""
    return OF_GPU if subject else OF_HOST
