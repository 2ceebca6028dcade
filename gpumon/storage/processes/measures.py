"""Lists of the measures and strings that are stored for a process. Blocks, queries and reports use these lists."""

from __future__ import annotations

from operator import itemgetter

from gpumon.model.columns import PROCESS_BY_KEY, Column
from gpumon.model.process import Process

MEASURES: tuple[Column, ...] = tuple(
    PROCESS_BY_KEY[key] for key in ("memory_used", "sm_utilization", "cpu_utilization", "host_memory")
)
"""Stored columns, named like the fields of `Process`, in the order of the file."""
NAMES = tuple(measure.key for measure in MEASURES)
"""Names of `MEASURES`, in the same order."""
TEXTS = ("name", "user", "container", "pod", "job")
"""Text fields of `Process` that are stored, in the order of the file's columns; empty if unknown."""
read_texts = itemgetter(*map(Process._fields.index, TEXTS))
"""Return the strings of a `Process` in the order of `TEXTS`."""
read_values = itemgetter(*map(Process._fields.index, NAMES))
"""Return the measures of a `Process` in the order of `MEASURES`. A measure that the driver does not report is NaN."""
