"""Share of a GPU's time that each process used, from the driver's sample buffer."""

from __future__ import annotations

import ctypes
import struct
from ctypes import byref, c_uint
from typing import Any, NamedTuple

from gpumon.clock import Clock
from gpumon.sources.nvml.library import INSUFFICIENT_SIZE, SUCCESS, Library

_ROOM, _MOST_ROOM = 16, 4096
_SAMPLE = struct.Struct("=IxxxxQIIII")
"""nvmlProcessUtilizationSample_t: pid, time µs, SM, memory, encoder, decoder, in percent."""
_AHEAD = 1_000_000
"""µs that the driver's clock may be ahead of ours."""
_FIRST = 1_000_000
"""µs before the newest sample over which the first shares are."""
_MOST_KNOWN = 256


class EngineShares(NamedTuple):
    """Use of a device by a process, ratios."""

    sm: float
    memory: float
    encoder: float
    decoder: float


class ProcessShares:
    """Reads the shares of a device's processes since the last read.

    The driver gives the mean since a time that is handed in, so the newest time seen is kept: with 0 it would
    answer with a mean over its whole buffer, so the first answer only tells the driver's time. A process without a
    sample has no value; that is not 0. Samples above 100 % or of no process are known to be wrong (zombies) and are
    left out, and so is what the driver has from the future: with its time handed in, nothing would be new any more.
    """

    def __init__(self, library: Library, clock: Clock) -> None:
        self._clock = clock
        self._function = library.find("nvmlDeviceGetProcessUtilization")
        self._since = 0
        self._room = _ROOM
        self._buffer = ctypes.create_string_buffer(self._room * _SAMPLE.size)
        self._known: dict[tuple[int, ...], EngineShares] = {}
        """Shares by their percents: most processes have those that they had, or that another has."""

    def read(self, handle: Any) -> dict[int, EngineShares]:
        """Shares by pid, since the last read."""
        # Of a clock that counts from 1970, or from some time after it.
        latest = self._clock.time() // 1000 + _AHEAD
        self._since = min(self._since, latest)
        if not self._since:
            newest = max((when for _, when, _ in self._samples(handle, latest)), default=0)
            if not newest:
                return {}
            self._since = max(1, newest - _FIRST)
        newest_of: dict[int, int] = {}
        shares: dict[int, EngineShares] = {}
        known = self._known
        for pid, when, percents in self._samples(handle, latest):
            if when >= newest_of.get(pid, 0):
                newest_of[pid] = when
                found = known.get(percents)
                if found is None:
                    if len(known) >= _MOST_KNOWN:
                        known.clear()
                    found = known[percents] = EngineShares(*[percent / 100 for percent in percents])
                shares[pid] = found
        self._since = max(self._since, *newest_of.values(), 0)
        return shares

    def _samples(self, handle: Any, latest: int) -> list[tuple[int, int, tuple[int, ...]]]:
        """Samples that are right and new: pid, the driver's time (µs), shares in percent."""
        since = self._since
        used = self._ask(handle) * _SAMPLE.size
        return [
            (one[0], one[1], one[2:])
            for one in _SAMPLE.iter_unpack(memoryview(self._buffer)[:used])
            if one[0] and since < one[1] <= latest and max(one[2:]) <= 100
        ]

    def _ask(self, handle: Any) -> int:
        """Count the samples in the buffer now; 0 also where nothing ran, which the driver calls NOT_FOUND."""
        if self._function is None:
            return 0
        count = c_uint()
        for _ in range(4):
            count.value = self._room
            code = self._function(handle, self._buffer, byref(count), ctypes.c_ulonglong(self._since))
            if code != INSUFFICIENT_SIZE:
                break
            self._room = min(max(count.value, self._room) + _ROOM, _MOST_ROOM)
            self._buffer = ctypes.create_string_buffer(self._room * _SAMPLE.size)
        return min(count.value, self._room) if code == SUCCESS else 0
