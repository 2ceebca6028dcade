"""Thresholds for states of GPUs and for findings. Thresholds of single metrics are in `model.metrics`."""

from __future__ import annotations

from gpumon.model.run import NEWS_FOR

PAUSE = 60.0
"""A held GPU counts as idle after this many seconds without kernels. This is longer than a pause between epochs or a
validation on the CPU.
"""
GAP = 3.0
"""If more than this number of sampling intervals passes between two frames, nothing is known about the time between."""
WATCHED = 1.0
"""Shortest interval in seconds that is used with `GAP`, because ticks every 100 ms are often late by several intervals.
"""
SILENT = 5.0
"""A GPU is reported if the driver has not responded for this many seconds. Shorter delays also occur on a busy
machine.
"""
GONE_AFTER = 60
"""A run counts as died if no tick contains it, or no daemon updated it, for this many seconds."""
CONTEXT = 128 * 2.0**20
"""Bytes in use that prove that a process holds the GPU: a CUDA context needs more, an idle driver less."""
RESERVED_SHARE, RESERVED_MOST = 0.03, 2.0**30
"""Upper limits, as share of the memory and in bytes, for the memory that the driver reserves for itself and counts as
used (before branch 510, and if `nvmlDeviceGetMemoryInfo_v2` is missing)."""
UNATTRIBUTED = 2.0**30
"""Memory that is used by no listed process is reported from this size in bytes. Driver and system daemons use less."""
LIGHT = 0.2
"""A working GPU has a light load if its utilization is below this."""
NO_KERNEL = 0.005
"""A utilization below this is displayed as 0 %."""
LETS_UP = 3.0
"""A busy GPU gets a lower load after this many seconds of lower utilization, and a GPU counts as pausing after this
many seconds without kernels. A single sample is not sufficient, because it may fall between two steps.
"""
STEADY = 10.0
"""Seconds after which a pausing GPU gets a light load, or the reverse. In a pause with a few kernels, samples are both
above and below `IDLE`."""
OVERDUE = 3.0
"""If an open epoch takes longer than this multiple of the usual duration, it is not used for estimates, because it may
hang."""
PACE_FROM = 5.0
"""Minimum seconds of training for the steps per second of a running epoch. Over a shorter time, the error is too large,
because boards are read up to one step early or late."""
LONG_IDLE = 300.0
"""A GPU that is held but idle, or that is free, is reported after this many seconds."""
RECENT = NEWS_FOR
"""A run that ended badly or ran out of memory is reported for this many seconds."""
JUDGED_FROM = 300.0
"""Minimum seconds of samples of a live run for findings about shares of its time."""
JUDGED_OVER = 600.0
"""Findings about shares of a live run's time are based on its last seconds, at most this many."""
INPUT_BOUND = 0.2
"""A training that waits for data for this share of its time is reported. xprof calls 20 % high."""
WHOLE = 1.02
"""Views say that waits were measured only in part of the time if the whole time exceeds this part by this factor."""
THROTTLED = 0.1
"""Throttling for this share of the time is reported."""
MOSTLY_IDLE = 0.5
"""A run without kernels for this share of the time is reported."""
LOADED, LOADED_FOR = 0.2, 40.0
"""The PCIe link of a GPU is judged by a period in which the utilization was at least the first value for at least the
second number of seconds. Idle links step down, and the link is read every 30 s. The last such period of the last
`JUDGED_OVER` seconds counts.
"""
START_APART = 10.0
"""The start temperatures of compared runs are reported as different if they differ by more than this many °C."""
OTHERS_HOLD = 2.0**30
"""For a compared run, memory of other processes on its GPUs is reported if it exceeds these bytes."""
SAMPLED = 0.95
"""The measured values of an epoch are judged and compared only if at least this share of its time was sampled."""
