"""Dips of the utilization that are shorter than a tick, from the driver's own samples.

The driver hands its samples out seconds later, when the frame that they belong to is in the ring. So a frame has what
the samples of the last read came to: a dip shows in all frames until the next read, and in none that could not know it.
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
from gpumon.sources.nvml.library import NOT_FOUND, SUCCESS, Library, availability
from gpumon.sources.nvml.values import AGAIN, SLACK, UNSUPPORTED, CallCost, DeviceAnswers

Stamped = list[tuple[int, float]]
"""The driver's own times (µs) and percents, oldest first."""
UtilizationSamples = Sequence[tuple[int, float]]
"""ns of CLOCK_MONOTONIC and ratio, oldest first."""

SAMPLES_EVERY = 8.0
"""Seconds between two reads: half of what a buffer holds."""
_FAILED = 30.0
_TYPE = c_uint(pynvml.NVML_GPU_UTILIZATION_SAMPLES)
_SIZE = 16
"""Bytes of an nvmlSample_t: the stamp (µs), and a value of 8 bytes whose type the call tells."""
_LEAST_ROOM, _MOST_ROOM = 128, 4096
_APART = SECOND // 100
"""Two samples are never as close as this: the same one, converted twice, is."""
_AHEAD = SECOND
_OLD = 60 * SECOND
"""A stamp further in the future or in the past than these is of another clock, or never written."""
_NEVER = float("inf")
_PERCENT = itemgetter(1)


class SampleBuffer:
    """Utilization samples of one device, each given once."""

    def __init__(self, library: Library, turn: float = 1.0, after: int = 0) -> None:
        """`turn`, above 0 up to 1, is the part of the first period to wait for the second read, so
        that devices do not read on the same tick. `after` (ns, CLOCK_MONOTONIC): only samples later than it.
        """
        self._function = library.find("nvmlDeviceGetSamples")
        self.state = Availability.NOT_SUPPORTED if self._function is None else Availability.OK
        """Why there are no samples; OK also when the driver has nothing new."""
        self.cost = CallCost("nvmlDeviceGetSamples")
        self.length = 0
        """Number of samples that the driver keeps; 0 while unknown."""
        self.was_read = False
        """Whether the last `read` asked the driver."""
        self._due = _NEVER if self._function is None else 0.0
        self._has_answered = False
        self._turn = turn
        self._period = SAMPLES_EVERY
        self._newest = after
        self._since = 0
        self._wall = True
        self._room = 0

    def read(self, handle: Any, now: float, clock: Clock) -> UtilizationSamples:
        """Return the new samples, if it is time to ask again. `now` in seconds, as for the ticks."""
        self.was_read = now >= self._due
        if not self.was_read:
            return ()
        wait = self._period * (1.0 if self._due else self._turn)
        self._due = now + wait - SLACK
        code, stamped = self.cost.timed(clock, self._ask, handle, clock)
        # Nothing new is no failure: some cards write no samples while nothing runs.
        self.state = Availability.OK if code == NOT_FOUND else availability(code)
        if self.state is Availability.OK:
            self._has_answered = True
        elif self._has_answered:
            self._due = now + AGAIN
        else:
            # Not supported, such as with MIG, which can be switched off.
            self._due = now + (UNSUPPORTED if self.state is Availability.NOT_SUPPORTED else _FAILED)
        return self._new(stamped, clock) if stamped else ()

    def read_soon(self) -> None:
        """Ask again at the next read, as of a device that did not answer for a while."""
        self._due = min(self._due, 0.0) if self._function is not None else _NEVER

    def _ask(self, handle: Any, clock: Clock) -> tuple[int, Stamped]:
        """The driver's code, and (stamp in µs, percent) as it wrote them, sorted."""
        assert self._function is not None
        count, kind = c_uint(self._room), c_uint()
        if not self._room:
            code = self._function(handle, _TYPE, c_ulonglong(0), byref(kind), byref(count), None)
            if code != SUCCESS:
                return code, []
            self.length = count.value
            self._room = count.value = min(max(count.value, _LEAST_ROOM), _MOST_ROOM)
            self._buffer = ctypes.create_string_buffer(self._room * _SIZE)
        monotonic, offset = self._clocks(clock, self._wall)
        if self._since * 1000 + offset > monotonic + _AHEAD:
            self._since = 0  # the wall clock was set back: nothing would be new until it has caught up
        code = self._function(handle, _TYPE, c_ulonglong(self._since), byref(kind), byref(count), self._buffer)
        if code != SUCCESS:
            return code, []
        used = min(count.value, self._room) * _SIZE
        found: Stamped = sorted(_record(kind.value).iter_unpack(memoryview(self._buffer)[:used]))
        if not _are_percents(list(map(_PERCENT, found))):
            found = [one for one in found if 0 <= one[1] <= 100]
        return code, found

    def _new(self, stamped: Stamped, clock: Clock) -> UtilizationSamples:
        """The samples in our time, without those that cannot be and those given before."""
        for wall in (True, False):
            monotonic, offset = self._clocks(clock, wall)
            first, last = monotonic - _OLD, monotonic + _AHEAD
            # Most drivers stamp with the wall clock, some newer ones with the time since boot.
            begin, end = (
                bisect_left(stamped, first - offset, key=_time),
                bisect_right(stamped, last - offset, key=_time),
            )
            if begin < end:
                break
        else:
            return ()
        self._wall, self._since = wall, stamped[end - 1][0]
        given: list[tuple[int, float]] = []
        newest = self._newest
        for stamp, percent in stamped[begin:end]:
            when = stamp * 1000 + offset
            if when >= newest + _APART:
                given.append((when, percent / 100))
                newest = when
        self._newest = newest
        if len(given) > 1:
            # Twice within what the buffer holds, on a card that is faster than those known.
            apart = (given[-1][0] - given[0][0]) / (len(given) - 1) / SECOND
            self._period = min(SAMPLES_EVERY, max(1.0, apart * self.length / 2))
        return given

    @property
    def newest(self) -> int:
        """The time of the last sample that was given: ns, CLOCK_MONOTONIC."""
        return self._newest

    @staticmethod
    def _clocks(clock: Clock, wall: bool) -> tuple[int, int]:
        """CLOCK_MONOTONIC now, and what to add to the driver's clock to get it."""
        monotonic = clock.monotonic()
        return monotonic, monotonic - clock.time() if wall else 0


def _are_percents(numbers: Sequence[float]) -> bool:
    """Return whether all numbers are of 0 to 100; where one is NaN, so is the sum."""
    return not numbers or (min(numbers) >= 0 and max(numbers) <= 100 and isfinite(sum(numbers)))


def _time(stamped: tuple[int, float]) -> int:
    """The driver's time of a sample in ns."""
    return stamped[0] * 1000


@cache
def _record(kind: int) -> struct.Struct:
    """An nvmlSample_t with a value of this type."""
    value = VALUE_TYPES.get(kind, "=I")
    return struct.Struct(f"=Q{value[1:]}{_SIZE - 8 - struct.calcsize(value)}x")


_LOW, _IDLE_SHARE = METRICS = ("gpu.utilization_low", "gpu.idle_share")
_WINDOW = round(SAMPLES_EVERY * SECOND)


def give_dips(answers: DeviceAnswers, samples: UtilizationSamples, state: Availability) -> None:
    """Fill in what the samples of one read come to; `state` says why there are none, and is OK if nothing was new."""
    if not samples:
        why = Availability.UNRELIABLE if state is Availability.OK else state
        for metric in METRICS:
            answers.lack(metric, why)
        return
    begin = samples[-1][0] - _WINDOW  # the first read brings more than the later ones
    ratios = sorted([ratio for when, ratio in samples if when > begin])
    answers.values[_LOW] = ratios[0]
    answers.values[_IDLE_SHARE] = bisect_left(ratios, IDLE) / len(ratios)
    for metric in METRICS:
        answers.missing.pop(metric, None)
