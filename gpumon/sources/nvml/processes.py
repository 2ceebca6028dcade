"""Processes that hold memory on a GPU, and the share of its time that each used."""

from __future__ import annotations

import ctypes
import struct
from ctypes import byref, c_uint
from typing import Any, NamedTuple

from gpumon.clock import Clock
from gpumon.sources.nvml.answers import MOST_BYTES
from gpumon.sources.nvml.library import FUNCTION_NOT_FOUND, INSUFFICIENT_SIZE, SUCCESS, Function, Library, unspoken

_MORE = 16
_V1 = struct.Struct("=IxxxxQ")
_V2 = struct.Struct("=IxxxxQII")
_USE = struct.Struct("=IxxxxQIIII")
"""nvmlProcessUtilizationSample_t: pid, time µs, SM, memory, encoder, decoder, in percent."""
_AHEAD = 1_000_000
"""µs that the driver's clock may be ahead of ours."""
_NAN = float("nan")


class Held(NamedTuple):
    """A process on a device, as the driver tells it."""

    pid: int
    kind: str
    memory_used: float
    sm_utilization: float = _NAN
    memory_utilization: float = _NAN


class ProcessList:
    """One of the driver's lists, read with one call into a buffer that grows when it must."""

    def __init__(self, library: Library, kind: str) -> None:
        name = f"nvmlDeviceGet{kind.capitalize()}RunningProcesses"
        self._kind = kind
        versions = ((f"{name}_v3", _V2), (f"{name}_v2", _V2), (name, _V1))
        self._versions = [(found, record) for name, record in versions if (found := library.find(name))]
        self._at = 0
        self._room = 0
        self._grow(_MORE)

    def read(self, handle: Any) -> tuple[int, list[Held]]:
        """The driver's code, and the processes: none are known where it is not SUCCESS."""
        answered = FUNCTION_NOT_FOUND
        for at, (function, record) in enumerate(self._versions[self._at :], self._at):
            code, found = self._ask(function, record, handle)
            if code == SUCCESS:
                self._at = at
                return code, found
            if not unspoken(code):
                return code, []
            answered = code
        self._at = 0  # next time from the newest again
        return answered, []

    def _ask(self, function: Function, record: struct.Struct, handle: Any) -> tuple[int, list[Held]]:
        count = c_uint()
        # Processes may start between two calls, so ask again with more room, but not for ever.
        for _ in range(4):
            count.value = self._room
            code = function(handle, byref(count), self._buffer)
            if code != INSUFFICIENT_SIZE:
                break
            self._grow(max(count.value, self._room) + _MORE)
        if code != SUCCESS:
            return code, []
        found = []
        for i in range(min(count.value, self._room)):
            pid, memory = record.unpack_from(self._buffer, i * record.size)[:2]
            # WSL2, WDDM and some MIG set-ups give only ones: nvml.h, NVML_VALUE_NOT_AVAILABLE.
            found.append(Held(pid, self._kind, float(memory) if memory < MOST_BYTES else _NAN))
        return code, found

    def _grow(self, room: int) -> None:
        self._room = min(room, 4096)
        self._buffer = ctypes.create_string_buffer(self._room * _V2.size)  # the longest record of all versions


class ProcessShares:
    """Share of a device's time for each process, from the driver's sample buffer.

    The driver gives the mean since a time that is handed in, so the newest time seen is kept: with
    0 it would answer with a mean over its whole buffer. A process without a sample has no value;
    that is not 0. Values above 100 % are known to be wrong (zombies) and are left out, and so is what
    the driver has from the future: with its time handed in, nothing would be new any more.
    """

    def __init__(self, library: Library, clock: Clock) -> None:
        self._clock = clock
        self._function = library.find("nvmlDeviceGetProcessUtilization")
        self._since = 0
        self._room = _MORE
        self._buffer = ctypes.create_string_buffer(self._room * _USE.size)

    def read(self, handle: Any) -> dict[int, tuple[float, float]]:
        """SM and memory share by pid, since the last read."""
        if self._function is None:
            return {}
        count = c_uint()
        # Of a clock that counts from 1970, or from some time after it.
        latest = self._clock.time() // 1000 + _AHEAD
        self._since = min(self._since, latest)
        for _ in range(4):
            count.value = self._room
            code = self._function(handle, self._buffer, byref(count), ctypes.c_ulonglong(self._since))
            if code != INSUFFICIENT_SIZE:
                break
            self._room = min(max(count.value, self._room) + _MORE, 4096)
            self._buffer = ctypes.create_string_buffer(self._room * _USE.size)
        if code != SUCCESS:  # NOT_FOUND: nothing ran since
            return {}
        shares = {}
        for i in range(min(count.value, self._room)):
            pid, when, sm, memory, _, _ = _USE.unpack_from(self._buffer, i * _USE.size)
            if pid and sm <= 100 and memory <= 100 and when <= latest:
                self._since = max(self._since, when)
                shares[pid] = sm / 100, memory / 100
        return shares
