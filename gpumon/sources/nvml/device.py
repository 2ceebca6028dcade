"""One GPU: what it supports, what is due, and its last values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpumon.common.clock import Clock
from gpumon.model.device import Device
from gpumon.model.frame import Sample
from gpumon.model.metrics import FROM_DRIVERS, GPU_METRICS, Availability
from gpumon.sources.nvml import utilization
from gpumon.sources.nvml.calls import DeviceCalls
from gpumon.sources.nvml.executor import AnyInquiry
from gpumon.sources.nvml.library import Library
from gpumon.sources.nvml.mig import INSTANCES, UTILIZATION, DeviceReading, MigInstance, MigInstances, Parent
from gpumon.sources.nvml.mig import explained as of_divided
from gpumon.sources.nvml.processes import METRIC as UNATTRIBUTED
from gpumon.sources.nvml.processes import DeviceProcesses, Held
from gpumon.sources.nvml.readings import CALLS, FALLBACKS, LINK, explained, shares_host_memory
from gpumon.sources.nvml.sysfs import RuntimePower
from gpumon.sources.nvml.utilization import SampleBuffer, UtilizationSamples
from gpumon.sources.nvml.values import TURNS, AnswerRow, CallCost, DeviceAnswers
from gpumon.sources.nvml.xid import XidErrors, XidState

_NAMES = tuple(metric.name for metric in GPU_METRICS)
XID = "gpu.xid"
_CALLED = (name for call in (*CALLS, *FALLBACKS) for name in call.metrics)
ASKED = frozenset((*_CALLED, *utilization.METRICS, XID, UNATTRIBUTED, INSTANCES))
"""Metrics that are asked for, or waited for: all that this source can give."""
_OK = Availability.OK
"""To look it up in its class takes longer than all else that is done with it, for each device at each tick."""


class NvmlDevice:
    """Reads one device. Nothing that changes is shared with another device, so each may have its own thread."""

    def __init__(
        self, library: Library, handle: Any, index: int, uuid: str, name: str, clock: Clock, after: int = 0,
        xids: XidErrors | None = None, power: RuntimePower | None = None, address: str = "", minor: int = -1,
    ) -> None:  # fmt: skip
        """`after` (ns, CLOCK_MONOTONIC): utilization samples up to then were given before."""
        self.handle = handle
        self.uuid = uuid
        self.device = Device(uuid, index, name, address=address, minor=minor)
        self._clock = clock
        self._xids = xids
        self._xid: XidState | None = None
        """Its state by them that the answers have."""
        self._power = power or RuntimePower("")
        missing = {**dict.fromkeys(FROM_DRIVERS, Availability.NOT_SUPPORTED), **library.withheld}
        self._answers = DeviceAnswers(clock, missing)
        self._row = AnswerRow(_NAMES)
        self._is_unified = shares_host_memory(name)
        withheld = library.withheld.keys() | (LINK if self._is_unified else frozenset())
        self._calls = DeviceCalls(library, handle, index, self._answers, withheld)
        self._processes = DeviceProcesses(library, self._answers, index, clock)
        self._sample_buffer = SampleBuffer(library, (index % TURNS + 1) / TURNS, after)
        self._mig = MigInstances(library, Parent(handle, uuid, index), self._answers, clock)
        self._told: dict[str, Availability] = {}
        """Reasons that the device has been given."""
        self._told_at = (0, 0)
        """Number of reasons that had come then, and how many held."""

    @property
    def state(self) -> Availability:
        """Whether it answers, and if not, why; may be asked from any thread."""
        return self._calls.state

    def is_awake(self, now: float) -> bool:
        """Whether it is not powered down, as far as is known; any thread may ask. `now` in seconds."""
        return self.state is not Availability.ASLEEP and not self._power.is_asleep(now)

    @property
    def failure(self) -> int:
        """The driver's code where the state is not OK; may be asked from any thread."""
        return self._calls.failure

    def costs(self) -> list[CallCost]:
        """Return what each call has cost here so far; may be called from any thread."""
        return [*self._calls.costs(), *self._processes.costs, self._sample_buffer.cost, self._mig.cost]

    @property
    def instances(self) -> tuple[MigInstance, ...]:
        """MIG instances that it is divided into; may be asked from any thread."""
        return self._mig.all

    @property
    def asking(self) -> tuple[AnyInquiry, ...]:
        """Inquiries besides `read` that have not come back; may be asked from any thread."""
        return self._mig.asking

    @property
    def samples_until(self) -> int:
        """The time of the last utilization sample that was given: ns, CLOCK_MONOTONIC."""
        return self._sample_buffer.newest

    def read(self, now: float) -> DeviceReading:
        """All that is due; metrics that are not keep their last value. `now` in seconds.

        A device that is powered down is asked nothing: that would wake it.
        """
        answers = self._answers
        if self._power.is_asleep(now):
            self._calls.sleep()
            self._xid = None
        else:
            self._calls.ask(now)
            self._take_xid()
        processes: Sequence[Held] | None = None
        samples: UtilizationSamples = ()
        is_divided_anew = False
        state = self._calls.state
        if state is _OK:
            mig = self._mig
            if now >= mig.due or (UTILIZATION not in answers.values and mig.may_be_due(now)):
                is_divided_anew = self._look_at_instances(now)
            if mig.is_divided:
                mig.watch(now)
                processes = self._processes.unknown(Availability.OF_INSTANCES)
                answers.lack(UNATTRIBUTED, Availability.OF_INSTANCES)
            else:
                processes = self._processes.read(self.handle, now)
            samples = self._sample_buffer.read(self.handle, now, self._clock)
            if self._sample_buffer.was_read:
                utilization.give_dips(answers, samples, self._sample_buffer.state)
        else:
            processes = self._processes.unknown(state)
            self._sample_buffer.read_soon()
        if (answers.reasons, len(answers.missing)) != self._told_at:  # one that came is counted; one that went is fewer
            self._tell_missing()
        values = self._row.of(answers)
        sample = Sample(self.device, state, values, "", 0.0, answers.read_at_ns, answers.counters_at_ns)
        return DeviceReading(sample, processes, samples, is_divided_anew)

    def _look_at_instances(self, now: float) -> bool:
        """Look for MIG instances, and return whether they are others than before."""
        was_on = self._mig.is_on
        changed = self._mig.look(now)
        if self._mig.is_on != was_on:  # another device now, in what it gives
            self._calls.ask_anew()
            self._sample_buffer.read_soon()
            self._told, self._told_at = {}, (0, 0)
        return changed

    def _take_xid(self) -> None:
        """The state by its XID errors, which another thread waits for: no call."""
        if self._xids is None:
            return
        if self._calls.state is not _OK:
            if worst := self._xids.worst(self.uuid):
                self._answers.values[XID] = float(worst)  # why it is gone
            self._xid = None
            return
        found = self._xids.state(self.uuid)
        if found is self._xid:  # the same object: nothing of it has changed
            return
        self._xid = found
        code, why = found
        if why is _OK:
            self._answers.give(XID, code)
        else:
            self._answers.lack(XID, why)

    def _tell_missing(self) -> None:
        self._told_at = (self._answers.reasons, len(self._answers.missing))
        if self._answers.missing == self._told:
            return
        self._told = self._answers.missing.copy()
        values = self._answers.values
        missing = {name: why for name, why in self._answers.missing.items() if name not in values}
        if self._is_unified:
            missing = explained(missing)
        if self._mig.is_on:
            missing = of_divided(missing)
        if missing != self.device.missing:
            self.device = self.device._replace(missing=missing)
