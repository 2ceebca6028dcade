"""What is kept of a process: blocks, queries and reports derive from it."""

from __future__ import annotations

from operator import itemgetter

from gpumon.model.columns import PROCESS_BY_KEY, Column
from gpumon.model.process import Process

MEASURES: tuple[Column, ...] = tuple(
    PROCESS_BY_KEY[key] for key in ("memory_used", "sm_utilization", "cpu_utilization", "host_memory")
)
"""By the fields of `Process`, in the order of the file."""
NAMES = tuple(measure.key for measure in MEASURES)
"""Names of measures, in their order: the file has them so."""
TEXTS = ("name", "user", "container", "pod", "job")
"""Fields of `Process` that say who it is, in the order of the file's columns; empty where that is not known."""
read_texts = itemgetter(*map(Process._fields.index, TEXTS))
"""The texts of a `Process`, in their order."""
read_values = itemgetter(*map(Process._fields.index, NAMES))
"""The measures of a `Process`, in their order; NaN where the driver does not tell."""
