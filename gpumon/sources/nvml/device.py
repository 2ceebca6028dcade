"""One GPU: what it supports, what is due, and its last values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gpumon.clock import Clock
from gpumon.frame import NAN, Device, Sample
from gpumon.metrics import FROM_DRIVERS, GPU_METRICS, Availability
from gpumon.sources.nvml import dips, unattributed
from gpumon.sources.nvml.answers import DeviceAnswers
from gpumon.sources.nvml.costs import CallCost
from gpumon.sources.nvml.device_calls import DeviceCalls
from gpumon.sources.nvml.device_processes import DeviceProcesses
from gpumon.sources.nvml.library import Library
from gpumon.sources.nvml.processes import Held
from gpumon.sources.nvml.readings import CALLS, FALLBACKS
from gpumon.sources.nvml.runtime_power import RuntimePower
from gpumon.sources.nvml.schedule import TURNS
from gpumon.sources.nvml.unified import LINK, explained, shares_host_memory
from gpumon.sources.nvml.utilization_samples import SampleBuffer, UtilizationSamples
from gpumon.sources.nvml.xid_errors import XidErrors

_NAMES = tuple(metric.name for metric in GPU_METRICS)
XID = "gpu.xid"
_CALLED = (name for call in (*CALLS, *FALLBACKS) for name in call.metrics)
ASKED = frozenset((*_CALLED, *dips.METRICS, XID, unattributed.METRIC))
"""Metrics that are asked for, or waited for: all that this source can give."""
_NANS = (NAN,) * len(_NAMES)
_DOUBTED_EVERY = 30.0
_OK = Availability.OK
"""To look it up in its class takes longer than all else that is done with it, for each device at each tick."""


class DeviceReading(NamedTuple):
    """All that one device gives at one tick."""

    sample: Sample
    processes: Sequence[Held] | None = None
    """Those that are known; None where none were asked for. Where they are not all, the device's `missing` says why."""
    utilization_samples: UtilizationSamples = ()
    """The driver's own that are new; mostly none, as they come several seconds at once."""


class NvmlDevice:
    """Reads one device. Nothing that changes is shared with another device, so each may have its own thread."""

    def __init__(
        self, library: Library, handle: Any, index: int, uuid: str, name: str, clock: Clock, after: int = 0,
        xids: XidErrors | None = None, power: RuntimePower | None = None,
    ) -> None:  # fmt: skip
        """`after` (ns, CLOCK_MONOTONIC): utilization samples up to then were given before."""
        self.handle = handle
        self.uuid = uuid
        self.device = Device(uuid, index, name)
        self._clock = clock
        self._xids = xids
        self._power = power or RuntimePower("")
        missing = {**dict.fromkeys(FROM_DRIVERS, Availability.NOT_SUPPORTED), **library.withheld}
        self._answers = DeviceAnswers(clock, missing)
        self._is_unified = shares_host_memory(name)
        withheld = library.withheld.keys() | (LINK if self._is_unified else frozenset())
        self._calls = DeviceCalls(library, handle, index, self._answers, withheld)
        self._processes = DeviceProcesses(library, self._answers, index, clock)
        self._sample_buffer = SampleBuffer(library, (index % TURNS + 1) / TURNS, after)
        self._told: dict[str, Availability] = {}
        """Reasons that the device has been given."""

    @property
    def state(self) -> Availability:
        """Whether it answers, and if not, why; may be asked from any thread."""
        return self._calls.state

    @property
    def failure(self) -> int:
        """The driver's code where the state is not OK; may be asked from any thread."""
        return self._calls.failure

    def costs(self) -> list[CallCost]:
        """Return what each call has cost here so far; may be called from any thread."""
        return [*self._calls.costs(), *self._processes.costs, self._sample_buffer.cost]

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
        else:
            self._calls.ask(now)
            self._take_xid()
        processes: Sequence[Held] | None = None
        samples: UtilizationSamples = ()
        if self.state is _OK:
            processes = self._processes.read(self.handle, now)
            samples = self._sample_buffer.read(self.handle, now, self._clock)
            if self._sample_buffer.was_read:
                dips.give_dips(answers, samples, self._sample_buffer.state)
        else:
            processes = self._processes.unknown(self.state)
            self._sample_buffer.read_soon()
        self._tell_missing()
        values = list(map(answers.values.get, _NAMES, _NANS))
        sample = Sample(
            device=self.device,
            state=self.state,
            values=values,
            run="",
            age=0.0,
            monotonic_ns=answers.read_at_ns,
            counters_monotonic_ns=answers.counters_at_ns,
        )
        return DeviceReading(sample, processes, samples)

    def _take_xid(self) -> None:
        """The state by its XID errors, which another thread waits for: no call."""
        if self._xids is None:
            return
        if self.state is not _OK:
            if worst := self._xids.worst(self.uuid):
                self._answers.values[XID] = float(worst)  # why it is gone
            return
        code, why = self._xids.state(self.uuid)
        if why is _OK:
            self._answers.give(XID, code)
        else:
            self._answers.lack(XID, why)

    def _tell_missing(self) -> None:
        if self._answers.missing == self._told:
            return
        self._told = self._answers.missing.copy()
        values = self._answers.values
        missing = {name: why for name, why in self._answers.missing.items() if name not in values}
        if self._is_unified:
            missing = explained(missing)
        if missing != self.device.missing:
            self.device = self.device._replace(missing=missing)
