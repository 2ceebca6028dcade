"""Processes that hold memory on a GPU."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from ctypes import byref, c_uint
from operator import is_
from typing import Any, NamedTuple

from gpumon.common.numbers import NAN
from gpumon.model.process import Process
from gpumon.sources.base import Describe, Described
from gpumon.sources.nvml.answers import MOST_BYTES
from gpumon.sources.nvml.library import FUNCTION_NOT_FOUND, INSUFFICIENT_SIZE, SUCCESS, Function, Library, unspoken
from gpumon.sources.nvml.process_shares import EngineShares

_MORE = 16
_V1 = struct.Struct("=IxxxxQ")
_V2 = struct.Struct("=IxxxxQII")
NO_SHARES = EngineShares(NAN, NAN, NAN, NAN)
"""Of a process of which the driver has no sample: that is not 0."""


class Held(NamedTuple):
    """A process on a device, as the driver tells it."""

    pid: int
    kind: str
    memory_used: float
    shares: EngineShares = NO_SHARES


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
        self._last: tuple[struct.Struct, bytes, list[Held]] = _V2, b"", []
        """The driver's records of the last time, and what they say: mostly nobody comes, goes or takes more."""

    def read(self, handle: Any) -> tuple[int, list[Held]]:
        """The driver's code, and the processes: none are known where it is not SUCCESS.

        The same list as the last time where nothing has changed; nobody may change it.
        """
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
        used = bytes(memoryview(self._buffer)[: min(count.value, self._room) * record.size])
        form, before, found = self._last
        if used != before or record is not form:
            # WSL2, WDDM and some MIG set-ups give only ones: nvml.h, NVML_VALUE_NOT_AVAILABLE.
            found = [
                Held(pid, self._kind, float(memory) if memory < MOST_BYTES else NAN)
                for pid, memory, *_ in record.iter_unpack(used)
            ]
            self._last = record, used, found
        return code, found

    def _grow(self, room: int) -> None:
        self._room = min(room, 4096)
        self._buffer = ctypes.create_string_buffer(self._room * _V2.size)  # the longest record of all versions


class ListedProcesses:
    """The processes on a device: those of which nothing has changed are the same objects as before."""

    def __init__(self, uuid: str, describe: Describe) -> None:
        self._uuid = uuid
        self._describe = describe
        self._known: dict[int, tuple[Held, Described, Process]] = {}
        self._held: Sequence[Held] = ()
        """Taken last, with its pids and their descriptions."""
        self._pids: list[int] = []
        self._described: list[Described] = []
        self._all: tuple[Process, ...] = ()

    def take(self, held: Sequence[Held]) -> tuple[Process, ...]:
        """Return the processes that the driver lists; the same object as the last time where nothing has changed."""
        is_same = held is self._held
        pids = self._pids if is_same else [one.pid for one in held]
        described_now = list(map(self._describe, pids))
        if is_same and all(map(is_, described_now, self._described)):
            return self._all
        self._held, self._pids, self._described = held, pids, described_now
        before, known = self._known, dict[int, tuple[Held, Described, Process]]()
        is_new = False
        for one, described in zip(held, described_now, strict=True):
            pid = one.pid
            last = before.get(pid)
            if last is None or last[0] is not one or last[1] is not described:
                if last is None or last[0] != one or last[1] is not described:
                    is_new = True
                    last = (one, described, process_of(self._uuid, one, described))
                else:
                    last = (one, described, last[2])
            known[pid] = last
        self._known = known
        # Those that stayed are in another order where the driver lists them so.
        if is_new or len(known) != len(before) or list(known) != list(before):
            found = tuple([last[2] for last in known.values()])
            if found != self._all:
                self._all = found
        return self._all


def process_of(uuid: str, held: Held, described: Described) -> Process:
    """Return a process on the device `uuid`, as the driver lists it and the machine describes it."""
    name, user, started, cpu, resident, around = described
    return Process(
        pid=held.pid,
        uuid=uuid,
        kind=held.kind,
        name=name,
        user=user,
        started=started,
        memory_used=held.memory_used,
        sm_utilization=held.shares.sm,
        memory_utilization=held.shares.memory,
        cpu_utilization=cpu,
        host_memory=resident,
        encoder_utilization=held.shares.encoder,
        decoder_utilization=held.shares.decoder,
        container=around.container,
        pod=around.pod,
        job=around.job,
    )
