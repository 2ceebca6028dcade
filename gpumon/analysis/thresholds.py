"""The one table of thresholds of states and of rules. Those of single metrics stand in the metric table."""

from __future__ import annotations

from gpumon.model.run import NEWS_FOR

PAUSE = 60.0
"""Seconds: a pause between two epochs, or a validation on the CPU, is not idleness."""
GAP = 3.0
"""Intervals without a frame after which nobody knows what happened between."""
WATCHED = 1.0
"""Seconds between frames by which work and idleness are told well enough: of faster ones a gap is no shorter than of
these, because ticks of 100 ms are late by some of them again and again."""
SILENT = 5.0
"""Seconds for which a driver may not answer for a GPU before that is worth a finding: a busy machine delays it too."""
GONE_AFTER = 60
"""Seconds after which a run that no tick shows any more has died, and so has one that no daemon wrote for so long."""
CONTEXT = 128 * 2.0**20
"""Bytes in use from which some process holds memory: a CUDA context takes more, an idle driver less."""
RESERVED_SHARE, RESERVED_MOST = 0.03, 2.0**30
"""Memory that the driver keeps for itself, where it counts that as used (before branch 510, and where
`nvmlDeviceGetMemoryInfo_v2` is missing): up to this share of the memory, and never more than this."""
UNATTRIBUTED = 2.0**30
"""Bytes in use that belong to no listed process, from which on that is worth a finding: the driver and its daemons take
less."""
LIGHT = 0.2
"""Utilization below which a GPU that works is said to have a light load: it is busy, and has room for more."""
NO_KERNEL = 0.005
"""Utilization below which it is 0 % for people."""
LETS_UP = 3.0
"""Seconds of less work after which a GPU that was busy is no longer said to be, and of none after which any pauses: one
sample may fall between two steps."""
STEADY = 10.0
"""Seconds for which all samples of a GPU that pauses must say that it has a light load, or the reverse: those of a
pause with some kernels lie on both sides of `IDLE`."""
OVERDUE = 3.0
"""Times the usual length of an epoch after which the one that is open tells nothing of those to come: it may hang."""
PACE_FROM = 5.0
"""Seconds of training from which on a stretch that goes on has steps per second: a board is a step ahead of its time,
or behind, which counts in a shorter one."""
LONG_IDLE = 300.0
"""Seconds without work after which allocated memory, or a free GPU, is worth a finding."""
RECENT = NEWS_FOR
"""Seconds for which a run that ended badly, or ran out of memory, is news."""
JUDGED_FROM = 300.0
"""Seconds of a live run that must have been watched before shares of its time are judged."""
JUDGED_OVER = 600.0
"""Seconds of a live run whose shares are judged: the last ones."""
INPUT_BOUND = 0.2
"""Share of its time that a training may wait for data: xprof calls 20 % high."""
WHOLE = 1.02
"""Times the time in which waits are measured, up to which that is the whole time for people."""
THROTTLED = 0.1
"""Share of the time in which the driver may lower the clocks."""
MOSTLY_IDLE = 0.5
"""Share of the time in which no kernel may run."""
LOADED, LOADED_FOR = 0.2, 40.0
"""Utilization that a GPU must have had in all parts of so many seconds before its PCIe link is judged: idle links step
down, and the link is read every 30 s. In a pause the last such time counts, if it lies within `JUDGED_OVER`."""
START_APART = 10.0
"""°C between the temperatures at which two runs began, from which on one was hot and one cold."""
OTHERS_HOLD = 2.0**30
"""Bytes that other processes may hold on a GPU of a run that is compared."""
SAMPLED = 0.95
"""Share of the time of a compared epoch that must have been sampled."""
