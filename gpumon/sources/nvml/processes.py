"""Processes on a GPU: the driver's process lists, the use of the GPU by each process, and memory that belongs to no
process."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence, Set
from ctypes import byref, c_uint
from typing import Any

from gpumon.common.clock import Clock
from gpumon.common.numbers import NAN, is_known
from gpumon.model.metrics import PROCESS_SHARES, PROCESSES, Availability
from gpumon.sources.nvml.library import Function, Library
from gpumon.sources.nvml.return_codes import (
    FUNCTION_NOT_FOUND,
    INSUFFICIENT_SIZE,
    NOT_FOUND,
    SUCCESS,
    availability,
    is_unsupported,
)
from gpumon.sources.nvml.values import MAX_BYTES, RETRY, RETRY_UNSUPPORTED, CallCost, DeviceValues, next_due
from gpumon.sources.process_cache import EngineShares, ListedProcess

_ROOM, _MOST_ROOM = 16, 4096
_SAMPLE = struct.Struct("=IxxxxQIIII")
"""nvmlProcessUtilizationSample_t: pid, time in µs, and the percentages of SM, memory, encoder and decoder."""
_AHEAD = 1_000_000
"""Maximum µs by which the driver's clock may be ahead of this machine's clock."""
_FIRST = 1_000_000
"""The first shares are computed from the samples in the last this many µs before the newest sample."""


class ProcessShares:
    """Reads the engine shares of a device's processes since the last read.

    The driver returns the mean since a timestamp that the caller passes, so the newest timestamp is stored. With a
    timestamp of 0, the driver would return a mean over its whole buffer, so the first call only reads the newest
    timestamp. A process without a sample has no value, which is not the same as 0. Samples above 100 % or without a
    process are wrong (zombies) and are dropped. Samples from the future are also dropped: if their timestamp were
    passed, no later sample would be newer.
    """

    def __init__(self, library: Library, clock: Clock) -> None:
        self._clock = clock
        self._function = library.find("nvmlDeviceGetProcessUtilization")
        self.code = SUCCESS if self._function is not None else FUNCTION_NOT_FOUND
        """NVML return code of the last call. SUCCESS if no process ran."""
        self._since = 0
        self._room = _ROOM
        self._buffer = ctypes.create_string_buffer(self._room * _SAMPLE.size)

    def read(self, handle: Any) -> dict[int, EngineShares]:
        """Return the engine shares of each process since the last read, by pid."""
        # The driver's clock counts from 1970 or from a later time.
        latest = self._clock.time() // 1000 + _AHEAD
        self._since = min(self._since, latest)
        if not self._since:
            newest = max((when for _, when, _ in self._samples(handle, latest)), default=0)
            if not newest:
                return {}
            self._since = max(1, newest - _FIRST)
        newest_of: dict[int, int] = {}
        shares_of: dict[int, EngineShares] = {}
        for pid, when, shares in self._samples(handle, latest):
            if when >= newest_of.get(pid, 0):
                newest_of[pid], shares_of[pid] = when, shares
        self._since = max(self._since, *newest_of.values(), 0)
        return shares_of

    def _samples(self, handle: Any, latest: int) -> list[tuple[int, int, EngineShares]]:
        """Return the valid new samples as tuples of pid, timestamp of the driver (µs) and shares."""
        used = self._read_buffer(handle) * _SAMPLE.size
        return [
            (pid, when, EngineShares(*[percent / 100 for percent in percents]))
            for pid, when, *percents in _SAMPLE.iter_unpack(memoryview(self._buffer)[:used])
            if pid and self._since < when <= latest and max(percents) <= 100
        ]

    def _read_buffer(self, handle: Any) -> int:
        """Fill the buffer, set `code`, and return the number of samples; 0 if the call fails or no process ran."""
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
        self.code = SUCCESS if code == NOT_FOUND else code
        return min(count.value, self._room) if code == SUCCESS else 0


_V1 = struct.Struct("=IxxxxQ")
_V2 = struct.Struct("=IxxxxQII")


class ProcessList:
    """A list of processes from the driver, read with one call into a buffer that grows if necessary."""

    def __init__(self, library: Library, kind: str) -> None:
        name = f"nvmlDeviceGet{kind.capitalize()}RunningProcesses"
        self._kind = kind
        versions = ((f"{name}_v3", _V2), (f"{name}_v2", _V2), (name, _V1))
        self._versions = [(function, record) for name, record in versions if (function := library.find(name))]
        self._at = 0
        self._room = 0
        self._grow(_ROOM)
        self._last: tuple[struct.Struct, bytes, list[ListedProcess]] = _V2, b"", []
        """Struct, bytes and decoded processes of the last read. The processes are returned again if the bytes have not
        changed."""

    def read(self, handle: Any) -> tuple[int, list[ListedProcess]]:
        """Return the NVML return code and the processes. The processes are valid only if the code is SUCCESS.

        While nothing changes, the same list object is returned, so callers must not modify it.
        """
        last_code = FUNCTION_NOT_FOUND
        for at, (function, record) in enumerate(self._versions[self._at :], self._at):
            code, processes = self._call(function, record, handle)
            if code == SUCCESS:
                self._at = at
                return code, processes
            if not is_unsupported(code):
                return code, []
            last_code = code
        self._at = 0  # start with the newest version again next time
        return last_code, []

    def _call(self, function: Function, record: struct.Struct, handle: Any) -> tuple[int, list[ListedProcess]]:
        count = c_uint()
        # Processes may start between two calls, so retry with a larger buffer, but not endlessly.
        for _ in range(4):
            count.value = self._room
            code = function(handle, byref(count), self._buffer)
            if code != INSUFFICIENT_SIZE:
                break
            self._grow(max(count.value, self._room) + _ROOM)
        if code != SUCCESS:
            return code, []
        used = bytes(memoryview(self._buffer)[: min(count.value, self._room) * record.size])
        last_record, last_used, processes = self._last
        if used != last_used or record is not last_record:
            # On WSL2, with WDDM and with some MIG set-ups, all bits of the memory are 1 (NVML_VALUE_NOT_AVAILABLE in
            # nvml.h).
            processes = [
                ListedProcess(pid, self._kind, float(memory) if memory < MAX_BYTES else NAN)
                for pid, memory, *_ in record.iter_unpack(used)
            ]
            self._last = record, used, processes
        return code, processes

    def _grow(self, room: int) -> None:
        self._room = min(room, _MOST_ROOM)
        self._buffer = ctypes.create_string_buffer(self._room * _V2.size)  # V2 has the longest record of all versions


UNATTRIBUTED = "gpu.memory_unattributed"
_SLACK = float(64 << 20)
"""The memory of all processes may exceed the memory in use by this many bytes, because the two are not read at the same
moment."""


def set_unattributed(device: DeviceValues, process_memory: float) -> None:
    """Store how much of the used memory belongs to no process, or why this cannot be determined.

    `process_memory`: total memory of all processes in bytes. The process list must be complete, and the driver must
    report the memory of each process. If the driver does not report the memory that it reserves for itself, this memory
    counts as used.
    """
    why = device.missing.get(PROCESSES)
    used, reserved = (device.values.get(name, NAN) for name in ("gpu.memory_used", "gpu.memory_reserved"))
    rest = used - process_memory
    if why is not None:
        device.set_missing(UNATTRIBUTED, why)
    elif not (is_known(rest) and is_known(reserved)):
        device.set_missing(UNATTRIBUTED, Availability.NOT_SUPPORTED)
    elif rest < -_SLACK:  # shared memory is counted for each of its processes
        device.set_missing(UNATTRIBUTED, Availability.UNRELIABLE)
    else:
        device.set(UNATTRIBUTED, max(0.0, rest))


LISTED_EVERY = 3.0
GRAPHICS_EVERY = 10.0
_FALSE_ALARM_PAUSE = 30.0
"""After an early read that found the same processes, no early reads are made for this many seconds."""
_CONTEXT = 32 << 20
"""If a process starts or ends, the used memory of the device changes by at least this many bytes. A context is
larger."""


_FUNCTIONS = ("ComputeRunningProcesses", "GraphicsRunningProcesses", "ProcessUtilization")


class DeviceProcesses:
    """Reads the driver's process lists for one device, only as often as needed.

    If the lists or the shares are missing, the reason is in `device.missing`.
    """

    def __init__(
        self, library: Library, device: DeviceValues, index: int, clock: Clock, *, has_shares: bool = True
    ) -> None:
        """`has_shares`: whether the driver reports engine shares of processes. It does not for a MIG instance."""
        self._device = device
        self._index = index
        self._compute = ProcessList(library, "compute")
        self._graphics = ProcessList(library, "graphics")
        self._shares = ProcessShares(library, clock) if has_shares else None
        self._clock = clock
        self.costs = tuple(CallCost(f"nvmlDeviceGet{name}") for name in _FUNCTIONS)
        """Costs of the two lists and of the shares."""
        self._compute_list: list[ListedProcess] = []
        self._graphics_list: list[ListedProcess] = []
        self._merged_graphics: list[ListedProcess] = self._graphics_list
        """The graphics list that was merged into `_by_pid`."""
        self._by_pid: dict[int, ListedProcess] = {}
        self._memory = 0.0
        """Total memory of the processes in bytes; NaN if the memory of any process is missing."""
        self._last_shares: dict[int, EngineShares] = {}
        self._last: Sequence[ListedProcess] | None = None
        """The last result of `read`; None if it must be built again."""
        self._graphics_code = SUCCESS
        self._has_listed = self._has_listed_graphics = False
        """Whether the driver has ever returned the list for this device."""
        self._due = 0.0
        self._graphics_due = 0.0
        self._early_from = 0.0
        self._used = NAN
        self._pids: Set[int] = frozenset()

    def read(self, handle: Any, now: float) -> Sequence[ListedProcess] | None:
        """Return the processes; None if it is not yet time to read them. `now` in seconds.

        If nothing has changed, the same object as before is returned.
        """
        used = self._device.values.get("gpu.memory_used", NAN)
        # When a process starts or ends, the used memory changes. The memory is read at each tick anyway.
        is_early = now >= self._early_from and abs(used - self._used) >= _CONTEXT
        if not (is_early or now >= self._due):
            return None
        self._used = used
        self._due = next_due(now, LISTED_EVERY, self._due, self._index)
        self._read_lists(handle, now)
        by_pid = self._by_pid
        if is_early and by_pid.keys() == self._pids:
            # A false alarm. A process has changed its memory use, and may do so again.
            self._early_from = now + _FALSE_ALARM_PAUSE
        self._pids = by_pid.keys()
        set_unattributed(self._device, self._memory)
        shares = self._read_shares(handle)
        if self._last is None or shares != self._last_shares:
            self._last_shares = shares
            self._last = [
                ListedProcess(pid, process.kind, process.memory_used, shares[pid]) if pid in shares else process
                for pid, process in by_pid.items()
            ]
        return self._last

    def _read_shares(self, handle: Any) -> dict[int, EngineShares]:
        """Return the engine shares of processes by pid, and store why they are missing."""
        if self._shares is None:
            self._device.set_reason(PROCESS_SHARES, Availability.IN_MIG_MODE)
            return {}
        shares, why = {}, Availability.OK  # if no process runs, an earlier reason may no longer be true
        if self._by_pid:
            shares = self.costs[2].measure(self._clock, self._shares.read, handle)
            why = availability(self._shares.code)
        if why is Availability.OK:
            self._device.missing.pop(PROCESS_SHARES, None)
        else:
            self._device.set_reason(PROCESS_SHARES, why)
        return shares

    def _read_lists(self, handle: Any, now: float) -> None:
        """Read the compute list, and the graphics list if it is due, and merge them."""
        compute_cost, graphics_cost, _ = self.costs
        code, compute = compute_cost.measure(self._clock, self._compute.read, handle)
        # With some drivers, this call takes milliseconds and holds a driver-wide lock, so it is made less often.
        if now >= self._graphics_due:
            self._graphics_due = next_due(now, GRAPHICS_EVERY, self._graphics_due, self._index)
            self._graphics_code, self._graphics_list = graphics_cost.measure(self._clock, self._graphics.read, handle)
            if self._graphics_code == SUCCESS:
                self._has_listed_graphics = True
            elif self._has_listed_graphics:
                self._graphics_due = now + RETRY
        if self._has_listed_graphics and self._graphics_code != SUCCESS:
            self._due = min(self._due, self._graphics_due)
        self._set_reason(code, now)
        if compute is not self._compute_list or self._graphics_list is not self._merged_graphics:
            self._compute_list, self._merged_graphics = compute, self._graphics_list
            # A process in both lists counts once, as a compute process.
            self._by_pid = {process.pid: process for process in (*self._graphics_list, *compute)}
            self._memory = sum(process.memory_used for process in self._by_pid.values())
            self._last = None

    def set_unknown(self, why: Availability) -> Sequence[ListedProcess] | None:
        """Store why the processes cannot be read. Return an empty list if processes were listed before, else None.

        The next `read` calls the driver again.
        """
        self._due = self._graphics_due = self._early_from = 0.0
        self._device.set_reason(PROCESSES, why)
        if not self._pids:
            return None
        self._pids = frozenset()
        return []

    def _set_reason(self, code: int, now: float) -> None:
        """Store why the lists may be incomplete, and schedule a retry. `code`: return code of the compute list."""
        why = availability(code)
        if why is Availability.OK:
            self._has_listed = True
            # A card without a graphics list has no graphics processes.
            if self._has_listed_graphics or not is_unsupported(self._graphics_code):
                why = availability(self._graphics_code)
        elif self._has_listed:
            self._due = now + RETRY
        elif why is Availability.NOT_SUPPORTED:
            self._due = self._early_from = now + RETRY_UNSUPPORTED
        if why is Availability.OK:
            self._device.missing.pop(PROCESSES, None)
        else:
            self._device.set_reason(PROCESSES, why)
