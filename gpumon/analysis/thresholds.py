"""Thresholds for states of GPUs and for findings. Thresholds of single metrics are in `model.metrics`."""

from __future__ import annotations

from gpumon.model.run import NEWS_FOR

PAUSE = 60.0
"""A held GPU counts as idle after this many seconds without kernels. This is longer than a pause between epochs or a
validation on the CPU.
"""
GAP = 3.0
"""If more than this number of sampling intervals passes between two frames, the time between them is a gap."""
WATCHED = 1.0
"""Shortest interval in seconds by which `GAP` is multiplied, because ticks every 100 ms are often late by several
intervals.
"""
SILENT = 5.0
"""A GPU is reported if the driver has not responded for this many seconds. Shorter delays also occur on a busy
machine.
"""
GONE_AFTER = 60
"""A run counts as died if for this many seconds no tick has contained it or no daemon has updated it."""
CONTEXT = 128 * 2.0**20
"""A process holds the GPU if at least this many bytes are in use. A CUDA context needs more, and an idle driver
less."""
RESERVED_SHARE, RESERVED_MOST = 0.03, 2.0**30
"""Upper limits for the memory that the driver reserves for itself but counts as used, as a share of all memory and in
bytes. Drivers before branch 510 count it as used, and drivers without `nvmlDeviceGetMemoryInfo_v2`."""
UNATTRIBUTED = 2.0**30
"""Memory in use that belongs to no listed process is reported if it has at least this many bytes. Driver and system
daemons use less."""
LIGHT = 0.2
"""A working GPU has a light load if its utilization is below this share."""
NO_KERNEL = 0.005
"""A utilization below this share is displayed as 0 %."""
LETS_UP = 3.0
"""A busy GPU gets a lower load after this many seconds of lower utilization. A GPU counts as pausing after this many
seconds without kernels. A single sample is not sufficient, because it may fall between two steps.
"""
STEADY = 10.0
"""Seconds until a pausing GPU gets a light load, or until a GPU with light load counts as pausing. In a pause with a
few kernels, samples are both above and below `IDLE`."""
OVERDUE = 3.0
"""If an open epoch takes longer than this multiple of the usual duration, it is not used for estimates, because it may
hang."""
PACE_FROM = 5.0
"""The steps per second of a running epoch are computed after this many seconds of training. Over a shorter time, the
error is too large, because a step count may be off by one."""
LONG_IDLE = 300.0
"""A GPU is reported if it has been free, or held but idle, for this many seconds."""
RECENT = NEWS_FOR
"""A run that ended badly or ran out of memory is reported for this many seconds."""
JUDGED_FROM = 300.0
"""Findings about shares of a live run's time require at least this many seconds of samples."""
JUDGED_OVER = 600.0
"""Findings about shares of a live run's time use at most this many seconds before the newest frame."""
INPUT_BOUND = 0.2
"""A training that waits for data for this share of its time is reported. xprof calls 20 % high."""
WHOLE = 1.02
"""If the whole time is longer than the measured time by this factor, views say that waits were measured only in part of
the time."""
THROTTLED = 0.1
"""Throttling is reported if it lasts for at least this share of the time."""
MOSTLY_IDLE = 0.5
"""A run is reported if no kernel runs for at least this share of its time."""
JUDGED_SECONDS = 2.0
"""The epochs of a run are judged together if they last at least this many seconds."""
LIMIT_MARGIN, LIMIT_SHARE = 60.0, 0.05
"""A run is reported if its estimated end exceeds its time limit by more than `LIMIT_MARGIN` seconds and by more than
`LIMIT_SHARE` of the estimated time left. Epochs differ by a few percent, and so do estimates."""
HIDDEN_WAIT = 0.05
"""A training that waits for data for less than this share of its time is not limited by its data. xprof calls up to 5 %
fine."""
WORKER_START = 0.05
"""The start of loader workers in each epoch is reported if the training waits for it for this share of the time."""
BUSY_WORKERS, WAITING_WORKERS = 0.7, 0.4
"""Loader workers are limited by the CPU if they compute for at least the first share of the time, and by a disk or a
network if they compute for less than the second share."""
VALIDATION_SHARE = 0.25
"""Validation is reported if it takes at least this share of the time of an epoch."""
CHECKPOINT_SHARE = 0.1
"""Saving checkpoints is reported if it takes at least this share of the time."""
BETWEEN_SHARE = 0.15
"""The time between epochs is reported if it is at least this share of the time, without phases that have a finding."""
EXPLAINED = 0.7
"""Idle time has an explanation if waits for data and phases other than training cover at least this share of it."""
STRAGGLER = 0.1
"""A rank is reported if it waits for data longer than the median of the other ranks by at least this share of the time.
TraceML 0.5 warns from 0.1 of a step and calls 0.2 critical."""
SLOWER_RANK = 0.5
"""A rank is reported if the utilization of its GPUs is below this share of the median of the other ranks."""
TENSOR_IDLE, SM_BUSY = 0.05, 0.5
"""A training does not use tensor cores if its tensor throughput is below the first share although the SM activity is at
least the second one. NVIDIA calls an SM activity below 50 % likely ineffective."""
LOW_UTILIZATION = 0.7
"""A training is reported if the utilization is lower than this for 95 % of the time. SageMaker's rules for low
utilization and for the batch size use 70 %."""
BATCH_MEMORY = 0.7
"""A larger batch is advised if the peak of the device memory is below this share, as in SageMaker's rule."""
OUTLIER, OUTLIER_SHARE = 2.0, 0.05
"""An epoch is reported if it takes at least this many times as long as the median of the others, and if the time above
the median is at least this share of the time of all epochs."""
FIRST_EPOCH, FIRST_EPOCH_SHARE = 3.0, 0.2
"""The first epoch always takes longer. It is reported by the same rule with these limits."""
SLOWER = 0.2
"""Growing epoch times are reported if they grow by at least this share over the judged epochs."""
GROWTH_SHARE, GROWTH = 0.02, 2.0**30
"""Growing device memory is reported if it grows by at least this share of all memory or this many bytes in the judged
epochs. TraceML 0.5 reports 1 GiB."""
RETRIES = 3
"""A run is reported if the framework's allocator had to free its cache at least this many times to find room."""
FRAGMENTED, FRAGMENTED_SHARE = 2.0, 0.3
"""Fragments are reported if the framework holds at least this many times the peak of its tensors, and this share of all
memory. TraceML 0.5 uses the same limits."""
LOADED, LOADED_FOR = 0.2, 40.0
"""The PCIe link of a GPU is judged by its state in a period under load: the utilization was at least `LOADED` for at
least `LOADED_FOR` seconds. The last such period within `JUDGED_OVER` seconds counts. An idle link slows down, and the
link is read only every 30 s.
"""
START_APART = 10.0
"""The start temperatures of compared runs are reported as different if they differ by more than this many °C."""
OTHERS_HOLD = 2.0**30
"""Memory of other processes on the GPUs of a compared run is reported if it exceeds this many bytes."""
SAMPLED = 0.95
"""The measured values of an epoch are judged and compared only if at least this share of its time was sampled."""
