"""Thresholds for states of GPUs and for findings. Thresholds of single metrics are in `model.metrics`."""

from __future__ import annotations

from gpumon.model.run import NEWS_FOR

PAUSE = 60.0
"""Seconds without kernels before a held GPU counts as idle: longer than a pause between epochs or a CPU validation."""
GAP = 3.0
"""Sampling intervals without a frame from which on the time between two frames is unknown."""
WATCHED = 1.0
"""Shortest interval in seconds that `GAP` is applied to: ticks of 100 ms are regularly late by several intervals."""
SILENT = 5.0
"""Seconds without an answer from the driver for a GPU before it is reported: a busy machine delays answers too."""
GONE_AFTER = 60
"""Seconds after which a run that is missing from all ticks, or that no daemon has written, has died."""
CONTEXT = 128 * 2.0**20
"""Bytes in use that prove that a process holds the GPU: a CUDA context needs more, an idle driver less."""
RESERVED_SHARE, RESERVED_MOST = 0.03, 2.0**30
"""Upper limits, as share of the memory and in bytes, for the memory that the driver reserves for itself and counts as
used (before branch 510, and if `nvmlDeviceGetMemoryInfo_v2` is missing)."""
UNATTRIBUTED = 2.0**30
"""Bytes in use by no listed process from which on that is reported: driver and system daemons use less."""
LIGHT = 0.2
"""Utilization below which a working GPU has a light load."""
NO_KERNEL = 0.005
"""Utilization that is displayed as 0 %."""
LETS_UP = 3.0
"""Seconds of lower load before a GPU is no longer called busy, or, without kernels, is called pausing: a single sample
may fall between two steps."""
STEADY = 10.0
"""Seconds of steady samples before a pausing GPU gets a light load, or the reverse: samples of a pause with a few
kernels lie on both sides of `IDLE`."""
OVERDUE = 3.0
"""Multiple of the usual epoch duration from which on an open epoch is no basis for estimates: it may hang."""
PACE_FROM = 5.0
"""Seconds of training before a running epoch has steps per second: boards are read up to a step early or late, which
matters for shorter times."""
LONG_IDLE = 300.0
"""Seconds without work before held memory, or a free GPU, is reported."""
RECENT = NEWS_FOR
"""Seconds for which a run that ended badly or ran out of memory is reported."""
JUDGED_FROM = 300.0
"""Seconds of samples of a live run before shares of its time are judged."""
JUDGED_OVER = 600.0
"""The last seconds of a live run over which shares of its time are judged."""
INPUT_BOUND = 0.2
"""Share of its time that a training may wait for data: xprof calls 20 % high."""
WHOLE = 1.02
"""Ratio of a whole time to the part in which waits were measured up to which both are shown as equal."""
THROTTLED = 0.1
"""Share of the time for which the driver may lower the clocks before it is reported."""
MOSTLY_IDLE = 0.5
"""Share of the time without kernels before it is reported."""
LOADED, LOADED_FOR = 0.2, 40.0
"""Utilization, and seconds for which it must last, before the PCIe link of a GPU is judged: idle links step down, and
the link is read every 30 s. After that, the last such period counts, for up to `JUDGED_OVER` seconds."""
START_APART = 10.0
"""°C between the start temperatures of two compared runs from which on they are reported as different."""
OTHERS_HOLD = 2.0**30
"""Bytes that other processes may hold on a GPU of a compared run before it is reported."""
SAMPLED = 0.95
"""Share of the time of an epoch that must have been sampled for its measured values to be judged or compared."""
