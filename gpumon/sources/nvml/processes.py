"""Which processes hold memory on a GPU, and how much of its time each used."""

from __future__ import annotations

import ctypes
import struct
from ctypes import byref, c_uint
from typing import Any, NamedTuple

import pynvml

from gpumon.sources.nvml.library import INSUFFICIENT_SIZE, SUCCESS, Function, Library

_UNKNOWN_MEMORY = 0xFFFF_FFFF_FFFF_FFFF
"""What WSL2, WDDM and some MIG set-ups give for a process's memory: nvml.h, NVML_VALUE_NOT_AVAILABLE."""
_MORE = 16
_V1 = struct.Struct("=IxxxxQ")
_V2 = struct.Struct("=IxxxxQII")
_USE = struct.Struct("=IxxxxQIIII")
"""nvmlProcessUtilizationSample_t: pid, time µs, SM, memory, encoder, decoder, in percent."""
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
        newer = library.find(f"{name}_v3", f"{name}_v2")
        self._record = _V2 if newer else _V1
        self._function: Function | None = newer or library.find(name)
        self._room = 0
        self._grow(_MORE)

    def read(self, handle: Any) -> tuple[int, list[Held]]:
        """The driver's code, and the processes."""
        if self._function is None:
            return int(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND), []
        count = c_uint()
        # Processes may start between two calls, so ask again with more room, but not for ever.
        for _ in range(4):
            count.value = self._room
            code = self._function(handle, byref(count), self._buffer)
            if code != INSUFFICIENT_SIZE:
                break
            self._grow(max(count.value, self._room) + _MORE)
        if code != SUCCESS:
            return code, []
        size, unpack = self._record.size, self._record.unpack_from
        found = []
        for i in range(min(count.value, self._room)):
            pid, memory = unpack(self._buffer, i * size)[:2]
            found.append(Held(pid, self._kind, _NAN if memory == _UNKNOWN_MEMORY else float(memory)))
        return code, found

    def _grow(self, room: int) -> None:
        self._room = min(room, 4096)
        self._buffer = ctypes.create_string_buffer(self._room * self._record.size)


class ProcessShares:
    """Share of a device's time for each process, from the driver's sample buffer.

    The driver gives the mean since a time that is handed in, so the newest time seen is kept: with
    0 it would answer with a mean over its whole buffer. A process without a sample has no value;
    that is not 0. Values above 100 % are known to be wrong (zombies) and are left out.
    """

    def __init__(self, library: Library) -> None:
        self._function = library.find("nvmlDeviceGetProcessUtilization")
        self._since = 0
        self._room = _MORE
        self._buffer = ctypes.create_string_buffer(self._room * _USE.size)

    def read(self, handle: Any) -> dict[int, tuple[float, float]]:
        """SM and memory share by pid, since the last read."""
        if self._function is None:
            return {}
        count = c_uint()
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
            self._since = max(self._since, when)
            if pid and sm <= 100 and memory <= 100:
                shares[pid] = sm / 100, memory / 100
        return shares
