"""Share of a GPU's time that each process used, from the driver's sample buffer."""

from __future__ import annotations

import ctypes
import struct
from ctypes import byref, c_uint
from typing import Any, NamedTuple

from gpumon.common.clock import Clock
from gpumon.sources.nvml.library import INSUFFICIENT_SIZE, SUCCESS, Library

_ROOM, _MOST_ROOM = 16, 4096
_SAMPLE = struct.Struct("=IxxxxQ16s")
"""nvmlProcessUtilizationSample_t: pid, time µs, percents."""
_PERCENTS = struct.Struct("=IIII")
"""SM, memory, encoder, decoder."""
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
        self._known: dict[bytes, EngineShares | None] = {}
        """Shares by the driver's percents, None where these are wrong: most processes have those that they had, or that
        another has."""

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
        for pid, when, found in self._samples(handle, latest):
            if when >= newest_of.get(pid, 0):
                newest_of[pid], shares[pid] = when, found
        self._since = max(self._since, *newest_of.values(), 0)
        return shares

    def _samples(self, handle: Any, latest: int) -> list[tuple[int, int, EngineShares]]:
        """Samples that are right and new: pid, the driver's time (µs), shares."""
        since, known = self._since, self._known
        used = self._ask(handle) * _SAMPLE.size
        samples = []
        for pid, when, percents in _SAMPLE.iter_unpack(memoryview(self._buffer)[:used]):
            if percents not in known:
                self._learn(percents)
            shares = known[percents]
            if shares is not None and pid and since < when <= latest:
                samples.append((pid, when, shares))
        return samples

    def _learn(self, percents: bytes) -> None:
        """Note the shares that these percents are."""
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        numbers = _PERCENTS.unpack(percents)
        self._known[percents] = EngineShares(*[one / 100 for one in numbers]) if max(numbers) <= 100 else None

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
