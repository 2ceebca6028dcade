"""The values of a look as columns of numbers."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.common.clock import SECOND
from gpumon.process_history.identity import UNKNOWN
from gpumon.process_history.look import Look
from gpumon.process_history.measures import MEASURES, read_values
from gpumon.process_history.stretches import SeenStretch

_NOTHING: Sequence[Sequence[float]] = ((),) * len(MEASURES)


def stretch_of(look: Look, numbers: Sequence[int]) -> SeenStretch:
    """Return the values of a look of the processes with these numbers; others, and those without one, are left out."""
    values = list(map(read_values, look.processes[: len(numbers)]))
    if UNKNOWN in numbers:
        values = [row for row, number in zip(values, numbers, strict=True) if number != UNKNOWN]
        numbers = [number for number in numbers if number != UNKNOWN]
    return SeenStretch(look.begin_ns, look.ns / SECOND, numbers, tuple(zip(*values, strict=True)) or _NOTHING)
