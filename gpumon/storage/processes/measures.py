"""The one table of what is kept of a process: blocks, queries and reports derive from it."""

from __future__ import annotations

from operator import itemgetter
from typing import NamedTuple

from gpumon.model.metrics import Unit
from gpumon.model.process import Process


class ProcessMeasure(NamedTuple):
    """A row of the table."""

    name: str
    """The field of `Process`."""
    title: str
    unit: Unit


MEASURES: tuple[ProcessMeasure, ...] = (
    ProcessMeasure("memory_used", "GPU memory", Unit.BYTES),
    ProcessMeasure("sm_utilization", "SM", Unit.RATIO),
    ProcessMeasure("cpu_utilization", "CPU", Unit.RATIO),
    ProcessMeasure("host_memory", "host memory", Unit.BYTES),
)
NAMES = tuple(measure.name for measure in MEASURES)
"""Names of measures, in their order: the file has them so."""
TEXTS = ("name", "user", "container", "pod", "job")
"""Fields of `Process` that say who it is, in the order of the file's columns; empty where that is not known."""
read_texts = itemgetter(*map(Process._fields.index, TEXTS))
"""The texts of a `Process`, in their order."""
read_values = itemgetter(*map(Process._fields.index, NAMES))
"""The measures of a `Process`, in their order; NaN where the driver does not tell."""
