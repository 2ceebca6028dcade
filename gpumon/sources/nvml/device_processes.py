"""The processes on one GPU: when to look for them, and whether the list is whole."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from gpumon.common.clock import Clock
from gpumon.common.numbers import NAN
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.sources.nvml.answers import DeviceAnswers
from gpumon.sources.nvml.costs import CallCost
from gpumon.sources.nvml.library import SUCCESS, Library, availability, unspoken
from gpumon.sources.nvml.process_shares import EngineShares, ProcessShares
from gpumon.sources.nvml.processes import Held, ProcessList
from gpumon.sources.nvml.schedule import AGAIN, UNSUPPORTED, next_due
from gpumon.sources.nvml.unattributed import give_unattributed

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
