"""Reads one GPU: makes the driver calls that are due, and stores the latest values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpumon.common.clock import Clock
from gpumon.model.device import Device
from gpumon.model.frame import Sample
from gpumon.model.metrics import FROM_DRIVERS, Availability
from gpumon.sources.executor import AnyCall
from gpumon.sources.nvml import utilization
from gpumon.sources.nvml.calls import DeviceCalls
from gpumon.sources.nvml.library import Library
from gpumon.sources.nvml.mig import (
    INSTANCES,
    UTILIZATION,
    DeviceReading,
    MigInstance,
    MigInstances,
    Parent,
    explain_mig_mode,
)
from gpumon.sources.nvml.processes import UNATTRIBUTED, DeviceProcesses
from gpumon.sources.nvml.readings import CALLS, FALLBACKS, LINK, explain_shared_memory, shares_host_memory
from gpumon.sources.nvml.sysfs import RuntimePower
from gpumon.sources.nvml.utilization import SampleBuffer, UtilizationSamples
from gpumon.sources.nvml.values import TURNS, CallCost, DeviceValues
from gpumon.sources.nvml.xid import XidState, XidWatcher
from gpumon.sources.process_cache import ListedProcess

XID = "gpu.xid"
_FROM_CALLS = (name for call in (*CALLS, *FALLBACKS) for name in call.metrics)
METRICS = frozenset((*_FROM_CALLS, *utilization.METRICS, XID, UNATTRIBUTED, INSTANCES))
"""All metrics that this source can have."""
_OK = Availability.OK
"""Shortcut for the enum member. Looking it up in its class would be the most expensive step for each device at each
tick."""


class NvmlDevice:
    """Reads one device. Devices share no mutable state, so each device may be read by its own thread."""

    def __init__(
        self, library: Library, handle: Any, index: int, uuid: str, name: str, clock: Clock, after: int = 0,
        xids: XidWatcher | None = None, power: RuntimePower | None = None, address: str = "", minor: int = -1,
    ) -> None:  # fmt: skip
        """`after`: return only utilization samples that are later than this time (ns, CLOCK_MONOTONIC)."""
        self.handle = handle
        self.uuid = uuid
        self.device = Device(uuid, index, name, address=address, minor=minor)
        self._clock = clock
        self._xids = xids
        self._xid_state: XidState | None = None
        """The XID state that was last stored in `_latest`. None if it must be stored again."""
        self._power = power or RuntimePower("")
        missing = {**dict.fromkeys(FROM_DRIVERS, Availability.NOT_SUPPORTED), **library.withheld}
        self._latest = DeviceValues(clock, missing)
        self._is_unified = shares_host_memory(name)
        withheld = library.withheld.keys() | (LINK if self._is_unified else frozenset())
        self._calls = DeviceCalls(library, handle, index, self._latest, withheld)
        self._processes = DeviceProcesses(library, self._latest, index, clock)
        self._sample_buffer = SampleBuffer(library, (index % TURNS + 1) / TURNS, after)
        self._mig = MigInstances(library, Parent(handle, uuid, index), self._latest, clock)
        self._published_missing: dict[str, Availability] = {}
        """`DeviceValues.missing` at the last update of `device`."""

    @property
    def state(self) -> Availability:
        """OK, or why the device does not answer. May be read from any thread."""
        return self._calls.state

    def is_awake(self, now: float) -> bool:
        """Return False if the device is certainly powered down at `now` (seconds). May be called from any thread."""
        return self.state is not Availability.ASLEEP and not self._power.is_asleep(now)

    @property
    def failure(self) -> int:
        """Return code of the driver if the state is not OK. May be read from any thread."""
        return self._calls.failure

    def costs(self) -> list[CallCost]:
        """Return the cost of each driver function so far. May be called from any thread."""
        return [*self._calls.costs(), *self._processes.costs, self._sample_buffer.cost, self._mig.cost]

    @property
    def instances(self) -> tuple[MigInstance, ...]:
        """The MIG instances of this GPU. May be read from any thread."""
        return self._mig.instances

    @property
    def pending_calls(self) -> tuple[AnyCall, ...]:
        """Calls outside of `read` that have not returned yet. May be read from any thread."""
        return self._mig.pending_calls

    @property
    def samples_until(self) -> int:
        """Time of the newest utilization sample that `read` has returned (ns, CLOCK_MONOTONIC)."""
        return self._sample_buffer.newest

    @property
    def worst_xid(self) -> float:
        """Code of the worst XID error, even if the GPU was lost afterward; 0 if none. May be read from any thread."""
        return float(self._xids.worst(self.uuid)) if self._xids is not None else 0.0

    def read(self, now: float) -> DeviceReading:
        """Make the calls that are due at `now` (seconds). Other metrics keep their last value.

        No calls are made for a device that is powered down, because they would wake it.
        """
        latest = self._latest
        if self._power.is_asleep(now):
            self._calls.sleep()
            self._xid_state = None
        else:
            self._calls.read(now)
            self._update_xid()
        processes: Sequence[ListedProcess] | None = None
        samples: UtilizationSamples = ()
        instances_changed = False
        state = self._calls.state
        if state is _OK:
            mig = self._mig
            if now >= mig.due or (UTILIZATION not in latest.values and mig.may_be_due(now)):
                instances_changed = self._update_instances(now)
            if mig.is_divided:
                mig.check_instances(now)
                processes = self._processes.set_unknown(Availability.OF_INSTANCES)
                latest.set_missing(UNATTRIBUTED, Availability.OF_INSTANCES)
            else:
                processes = self._processes.read(self.handle, now)
            samples = self._sample_buffer.read(self.handle, now, self._clock)
            if self._sample_buffer.was_read:
                utilization.set_dips(latest, samples, self._sample_buffer.state)
        else:
            processes = self._processes.set_unknown(state)
            self._sample_buffer.read_soon()
        self._update_missing()
        sample = Sample(
            device=self.device,
            state=state,
            values=latest.row(),
            monotonic_ns=latest.read_at_ns,
            counters_monotonic_ns=latest.counters_at_ns,
        )
        return DeviceReading(sample, processes, samples, instances_changed)

    def _update_instances(self, now: float) -> bool:
        """Search for MIG instances, and return whether they have changed."""
        was_on = self._mig.is_on
        has_changed = self._mig.refresh(now)
        if self._mig.is_on != was_on:  # MIG mode changes which metrics are supported
            self._calls.reset()
            self._sample_buffer.read_soon()
            self._published_missing = {}
        return has_changed

    def _update_xid(self) -> None:
        """Store the state of the XID watcher. Makes no driver call, because the watcher has its own thread."""
        if self._xids is None:
            return
        if self._calls.state is not _OK:
            if worst := self.worst_xid:
                self._latest.values[XID] = worst  # the reason why the device is gone
            self._xid_state = None
            return
        state = self._xids.state(self.uuid)
        if state is self._xid_state:
            return
        self._xid_state = state
        if state.why is _OK:
            self._latest.set(XID, state.code)
        else:
            self._latest.set_missing(XID, state.why)

    def _update_missing(self) -> None:
        """Replace `device` if the reasons for missing metrics have changed."""
        if self._latest.missing == self._published_missing:
            return
        self._published_missing = self._latest.missing.copy()
        values = self._latest.values
        missing = {name: why for name, why in self._latest.missing.items() if name not in values}
        if self._is_unified:
            missing = explain_shared_memory(missing)
        if self._mig.is_on:
            missing = explain_mig_mode(missing)
        if missing != self.device.missing:
            self.device = self.device._replace(missing=missing)
