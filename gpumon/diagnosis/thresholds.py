"""The one table of thresholds of the rules. Those of single metrics stand in the metric table."""

from __future__ import annotations

LONG_IDLE = 300.0
"""Seconds without work after which allocated memory, or a free GPU, is worth a finding."""
RECENT = 600.0
"""Seconds for which a run that ended badly, or ran out of memory, is news."""
INPUT_BOUND = 0.2
"""Share of its time that a training may wait for data: xprof calls 20 % high."""
THROTTLED = 0.1
"""Share of the time in which the driver may lower the clocks."""
MOSTLY_IDLE = 0.5
"""Share of the time in which no kernel may run."""
