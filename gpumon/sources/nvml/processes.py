"""Processes that hold memory on a GPU."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence, Set
from ctypes import byref, c_uint
from operator import is_
from typing import Any, NamedTuple

from gpumon.common.clock import Clock
from gpumon.common.numbers import NAN, is_known
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.process import Process
from gpumon.sources.base import Describe, Described
from gpumon.sources.nvml.library import (
    FUNCTION_NOT_FOUND,
    INSUFFICIENT_SIZE,
    SUCCESS,
    Function,
    Library,
    availability,
    unspoken,
)
from gpumon.sources.nvml.values import AGAIN, MOST_BYTES, UNSUPPORTED, CallCost, DeviceAnswers, next_due

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


METRIC = "gpu.memory_unattributed"
_SLACK = float(64 << 20)
"""Bytes by which the processes may hold more than is in use, because the two were read one after the other."""


def give_unattributed(answers: DeviceAnswers, held: float) -> None:
    """Fill in what is in use beyond `held`, the memory of all processes in bytes, or why that is not known.

    It is known only where the list is whole and the memory of each process is known. A driver that does not tell
    its own reservation counts that as used.
    """
    why = answers.missing.get(PROCESSES)
    used, reserved = (answers.values.get(name, NAN) for name in ("gpu.memory_used", "gpu.memory_reserved"))
    rest = used - held
    if why is not None:
        answers.lack(METRIC, why)
    elif not (is_known(rest) and is_known(reserved)):
        answers.lack(METRIC, Availability.NOT_SUPPORTED)
    elif rest < -_SLACK:  # shared memory, counted for each of its processes
        answers.lack(METRIC, Availability.UNRELIABLE)
    else:
        answers.values[METRIC] = max(0.0, rest)
        answers.missing.pop(METRIC, None)


LISTED_EVERY = 3.0
GRAPHICS_EVERY = 10.0
_IN_VAIN = 30.0
_CONTEXT = 32 << 20
"""Bytes by which the memory of a device changes at least when a process comes or goes: its context takes more."""


_FUNCTIONS = ("ComputeRunningProcesses", "GraphicsRunningProcesses", "ProcessUtilization")


class DeviceProcesses:
    """The driver's lists of one device, read no more often than needed; gaps are noted in its `answers`."""

    def __init__(
        self, library: Library, answers: DeviceAnswers, index: int, clock: Clock, *, has_shares: bool = True
    ) -> None:
        """`has_shares`: whether the driver may be asked how much each process uses."""
        self._answers = answers
        self._index = index
        self._compute = ProcessList(library, "compute")
        self._graphics = ProcessList(library, "graphics")
        self._shares = ProcessShares(library, clock) if has_shares else None
        self._clock = clock
        self.costs = tuple(CallCost(f"nvmlDeviceGet{name}") for name in _FUNCTIONS)
        """Of the lists and the shares."""
        self._compute_held: list[Held] = []
        self._graphics_held: list[Held] = []
        self._joined_with: list[Held] = self._graphics_held
        """The list of what draws that is in `_by_pid`."""
        self._by_pid: dict[int, Held] = {}
        self._memory = 0.0
        """Bytes that they hold; NaN where that of one is not known."""
        self._used_shares: dict[int, EngineShares] = {}
        self._given: Sequence[Held] | None = None
        """The processes with these shares, which `read` gave last; None where they are to be joined anew."""
        self._graphics_code = SUCCESS
        self._has_listed = self._has_listed_graphics = False
        """Whether this device has ever given the list."""
        self._due = 0.0
        self._graphics_due = 0.0
        self._early_from = 0.0
        self._used = NAN
        self._pids: Set[int] = frozenset()

    def read(self, handle: Any, now: float) -> Sequence[Held] | None:
        """The processes that are known, when it is time to look again, else None. `now` in seconds.

        The same object as the last time where nothing has changed.
        """
        used = self._answers.values.get("gpu.memory_used", NAN)
        # Whoever comes or goes moves the memory, which is read at each tick anyway.
        early = now >= self._early_from and abs(used - self._used) >= _CONTEXT
        if not (early or now >= self._due):
            return None
        self._used = used
        self._due = next_due(now, LISTED_EVERY, self._due, self._index)
        compute, graphics, shared = self.costs
        code, held = compute.timed(self._clock, self._compute.read, handle)
        # This call takes milliseconds and holds a driver-wide lock on some drivers: seldom.
        if now >= self._graphics_due:
            self._graphics_due = next_due(now, GRAPHICS_EVERY, self._graphics_due, self._index)
            self._graphics_code, self._graphics_held = graphics.timed(self._clock, self._graphics.read, handle)
            if self._graphics_code == SUCCESS:
                self._has_listed_graphics = True
            elif self._has_listed_graphics:
                self._graphics_due = now + AGAIN
        if self._has_listed_graphics and self._graphics_code != SUCCESS:
            self._due = min(self._due, self._graphics_due)
        self._judge(code, now)
        if held is not self._compute_held or self._graphics_held is not self._joined_with:
            self._compute_held, self._joined_with = held, self._graphics_held
            # A process may be in both lists; it counts once, as one that computes.
            self._by_pid = {process.pid: process for process in (*self._graphics_held, *held)}
            self._memory = sum(process.memory_used for process in self._by_pid.values())
            self._given = None
        by_pid = self._by_pid
        if early and by_pid.keys() == self._pids:
            # In vain: somebody who was there takes more or less than before, and may go on so.
            self._early_from = now + _IN_VAIN
        self._pids = by_pid.keys()
        give_unattributed(self._answers, self._memory)
        shares = shared.timed(self._clock, self._shares.read, handle) if by_pid and self._shares else {}
        if self._given is None or shares != self._used_shares:
            self._used_shares = shares
            self._given = [
                Held(pid, process.kind, process.memory_used, shares[pid]) if pid in shares else process
                for pid, process in by_pid.items()
            ]
        return self._given

    def unknown(self, why: Availability) -> Sequence[Held] | None:
        """Nobody knows who is on a device that does not answer; asked at once when it does."""
        self._due = self._graphics_due = self._early_from = 0.0
        self._answers.note(PROCESSES, why)
        if not self._pids:
            return None
        self._pids = frozenset()
        return []

    def _judge(self, code: int, now: float) -> None:
        """Say that processes may be there which a list did not give."""
        why = availability(code)
        if why is Availability.OK:
            self._has_listed = True
            # A card that has no list of what draws has nothing that draws.
            if self._has_listed_graphics or not unspoken(self._graphics_code):
                why = availability(self._graphics_code)
        elif self._has_listed:
            self._due = now + AGAIN
        elif why is Availability.NOT_SUPPORTED:
            self._due = self._early_from = now + UNSUPPORTED
        if why is Availability.OK:
            self._answers.missing.pop(PROCESSES, None)
        else:
            self._answers.note(PROCESSES, why)
