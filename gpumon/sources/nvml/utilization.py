"""Finds dips of the utilization that are shorter than a tick, in the driver's own samples.

The driver returns its samples with a delay of seconds, when the frame of their time is already in the ring. So each
frame contains a summary of the most recent read, and a dip appears in all frames until the next read.
"""

from __future__ import annotations

import ctypes
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from ctypes import byref, c_uint, c_ulonglong
from functools import cache
from math import isfinite
from operator import itemgetter
from typing import Any

import pynvml

from gpumon.common.clock import SECOND, Clock
from gpumon.model.metrics import IDLE, Availability
from gpumon.sources.nvml.fields import VALUE_TYPES
from gpumon.sources.nvml.library import Library
from gpumon.sources.nvml.return_codes import NOT_FOUND, SUCCESS, availability
from gpumon.sources.nvml.values import RETRY, RETRY_UNSUPPORTED, SLACK, CallCost, DeviceValues

RawSamples = list[tuple[int, float]]
"""Pairs of the driver's timestamp (µs) and a percentage, oldest first."""
UtilizationSamples = Sequence[tuple[int, float]]
"""Pairs of time (ns, CLOCK_MONOTONIC) and ratio (0 to 1), oldest first."""

SAMPLES_EVERY = 8.0
"""Seconds between two reads. This is half of the time that the driver's buffer covers."""
_RETRY_FAILED = 30.0
_TYPE = c_uint(pynvml.NVML_GPU_UTILIZATION_SAMPLES)
_SIZE = 16
"""Layout of an nvmlSample_t: timestamp (µs), and a value of 8 bytes whose type the call returns."""
_LEAST_ROOM, _MOST_ROOM = 128, 4096
_APART = SECOND // 100
"""Two samples that are less than this many ns apart are the same sample, converted to this machine's clock twice."""
_AHEAD = SECOND
_OLD = 60 * SECOND
"""Maximum age of a timestamp in ns. A timestamp that is older, or more than `_AHEAD` in the future, comes from another
clock or was never written.
"""
_NEVER = float("inf")
_PERCENT = itemgetter(1)


class SampleBuffer:
    """Reads the utilization samples of one device from the driver, and returns each sample once."""

    def __init__(self, library: Library, turn: float = 1.0, after: int = 0) -> None:
        """`turn`: the second read is made after this fraction (0 to 1) of the period, so that devices are read at
        different ticks.

        `after`: return only samples that are later than this time (ns, CLOCK_MONOTONIC).
        """
        self._function = library.find("nvmlDeviceGetSamples")
        self.state = Availability.NOT_SUPPORTED if self._function is None else Availability.OK
        """Reason why there are no samples. OK if there are samples, or if the driver has no new ones."""
        self.cost = CallCost("nvmlDeviceGetSamples")
        self.length = 0
        """Number of samples that the driver keeps; 0 before the first read."""
        self.was_read = False
        """Whether the last `read` made a driver call."""
        self.newest = after
        """Time of the last sample that was returned (ns, CLOCK_MONOTONIC)."""
        self._due = _NEVER if self._function is None else 0.0
        self._has_succeeded = False
        self._turn = turn
        self._period = SAMPLES_EVERY
        self._since = 0
        self._is_wall_clock = True
        self._room = 0

    def read(self, handle: Any, now: float, clock: Clock) -> UtilizationSamples:
        """Return the new samples; empty if it is not yet time to read them.

        `now`: seconds, by the clock of the ticks.
        """
        self.was_read = now >= self._due
        if not self.was_read:
            return ()
        wait = self._period * (1.0 if self._due else self._turn)
        self._due = now + wait - SLACK
        code, raw = self.cost.measure(clock, self._read_raw, handle, clock)
        # No new samples are not a failure, because some cards write no samples while nothing runs.
        self.state = Availability.OK if code == NOT_FOUND else availability(code)
        if self.state is Availability.OK:
            self._has_succeeded = True
        elif self._has_succeeded:
            self._due = now + RETRY
        else:
            # Not supported now. The GPU may be in MIG mode, which may be switched off.
            self._due = now + (RETRY_UNSUPPORTED if self.state is Availability.NOT_SUPPORTED else _RETRY_FAILED)
        return self._convert(raw, clock) if raw else ()

    def read_soon(self) -> None:
        """Schedule a read at the next tick. Called after the device did not answer for a while."""
        self._due = min(self._due, 0.0) if self._function is not None else _NEVER

    def _read_raw(self, handle: Any, clock: Clock) -> tuple[int, RawSamples]:
        """Return the NVML return code, and the driver's samples sorted by time."""
        assert self._function is not None
        count, kind = c_uint(self._room), c_uint()
        if not self._room:
            code = self._function(handle, _TYPE, c_ulonglong(0), byref(kind), byref(count), None)
            if code != SUCCESS:
                return code, []
            self.length = count.value
            self._room = count.value = min(max(count.value, _LEAST_ROOM), _MOST_ROOM)
            self._buffer = ctypes.create_string_buffer(self._room * _SIZE)
        monotonic, offset = self._clocks(clock, self._is_wall_clock)
        if self._since * 1000 + offset > monotonic + _AHEAD:
            self._since = 0  # the wall clock was set back; otherwise, no sample would be new until it has caught up
        code = self._function(handle, _TYPE, c_ulonglong(self._since), byref(kind), byref(count), self._buffer)
        if code != SUCCESS:
            return code, []
        used = min(count.value, self._room) * _SIZE
        samples: RawSamples = sorted(_record(kind.value).iter_unpack(memoryview(self._buffer)[:used]))
        if not _are_percents(list(map(_PERCENT, samples))):
            samples = [sample for sample in samples if 0 <= sample[1] <= 100]
        return code, samples

    def _convert(self, raw: RawSamples, clock: Clock) -> UtilizationSamples:
        """Convert the samples to CLOCK_MONOTONIC. Leave out invalid samples, and samples that were returned before."""
        for is_wall_clock in (True, False):
            monotonic, offset = self._clocks(clock, is_wall_clock)
            first, last = monotonic - _OLD, monotonic + _AHEAD
            # Most drivers use the wall clock. Some newer drivers use the time since boot.
            begin = bisect_left(raw, first - offset, key=_timestamp)
            end = bisect_right(raw, last - offset, key=_timestamp)
            if begin < end:
                break
        else:
            return ()
        self._is_wall_clock, self._since = is_wall_clock, raw[end - 1][0]
        samples: list[tuple[int, float]] = []
        newest = self.newest
        for stamp, percent in raw[begin:end]:
            when = stamp * 1000 + offset
            if when >= newest + _APART:
                samples.append((when, percent / 100))
                newest = when
        self.newest = newest
        if len(samples) > 1:
            # Read twice in the time that the buffer covers, even if a card samples faster than expected.
            distance = (samples[-1][0] - samples[0][0]) / (len(samples) - 1) / SECOND
            self._period = min(SAMPLES_EVERY, max(1.0, distance * self.length / 2))
        return samples

    @staticmethod
    def _clocks(clock: Clock, is_wall_clock: bool) -> tuple[int, int]:
        """Return the current CLOCK_MONOTONIC, and the ns to add to the driver's clock to get CLOCK_MONOTONIC."""
        monotonic = clock.monotonic()
        return monotonic, monotonic - clock.time() if is_wall_clock else 0


def _are_percents(numbers: Sequence[float]) -> bool:
    """Return whether all numbers are between 0 and 100. If any is NaN, the sum is NaN."""
    return not numbers or (min(numbers) >= 0 and max(numbers) <= 100 and isfinite(sum(numbers)))


def _timestamp(sample: tuple[int, float]) -> int:
    """Return the driver's time of a sample in ns."""
    return sample[0] * 1000


@cache
def _record(kind: int) -> struct.Struct:
    """Return the layout of an nvmlSample_t with a value of this type."""
    value = VALUE_TYPES.get(kind, "=I")
    return struct.Struct(f"=Q{value[1:]}{_SIZE - 8 - struct.calcsize(value)}x")


_LOW, _IDLE_SHARE = METRICS = ("gpu.utilization_low", "gpu.idle_share")
_WINDOW = round(SAMPLES_EVERY * SECOND)


def set_dips(device: DeviceValues, samples: UtilizationSamples, state: Availability) -> None:
    """Store a summary of the samples of one read. `state`: why there are no samples; OK if there are no new ones."""
    if not samples:
        why = Availability.UNRELIABLE if state is Availability.OK else state
        for metric in METRICS:
            device.set_missing(metric, why)
        return
    begin = samples[-1][0] - _WINDOW  # the first read returns more samples than later reads
    ratios = sorted([ratio for when, ratio in samples if when > begin])
    device.set(_LOW, ratios[0])
    device.set(_IDLE_SHARE, bisect_left(ratios, IDLE) / len(ratios))
