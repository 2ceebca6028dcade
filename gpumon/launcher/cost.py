"""Cost of a command, added up from the frames that were taken while it ran.

A device counts for as long as a process of the command holds it. A frame stands for the time since
the one before; the first and the last stretch are cut to the command's own begin and end, and energy, from the
driver's counter, with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.device import Device
from gpumon.model.energy import FOLLOWS, EnergyReadings
from gpumon.model.frame import Frame, Run, RunState, Sample
from gpumon.model.metrics import IDLE, Availability

_LONGEST = 3
"""Intervals for which a value is believed: beyond it nobody looked."""
_LEAST_ENERGY = 1.0
"""Seconds below which the counter is too coarse."""
_COVERED = 0.98
"""Share of the time on a device from which on a known energy is the whole: as in the ledger."""


class DeviceCost:
    """One device, while the command held it."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.seconds = 0.0
        self.unseen = 0.0
        """Seconds before the first frame, which shows that the command holds the device: it may have done so before."""
        self.seen = 0.0
        """Seconds of which the utilization is known."""
        self.memory_peak = NAN
        """Bytes that the command's processes held together."""
        self.memory_total = NAN
        self._busy = 0.0
        self._idle = 0.0
        self._energy = 0.0
        self._energy_seconds = 0.0

    @property
    def utilization(self) -> float:
        return self._busy / self.seen if self.seen else NAN

    @property
    def idle_share(self) -> float:
        return self._idle / self.seen if self.seen else NAN

    @property
    def energy(self) -> float:
        """Joules of the whole board; NaN where its counter does not tell, and below one second."""
        return self._energy if self._energy_seconds >= _LEAST_ENERGY else NAN

    @property
    def metered(self) -> float:
        """Seconds of which the energy is known."""
        return self._energy_seconds

    @property
    def lacks_time(self) -> bool:
        """Whether the command may have held the device for longer than was seen."""
        return self.seconds < _COVERED * (self.seconds + self.unseen)

    @property
    def lacks_energy(self) -> bool:
        """Whether the energy is that of a part of the time for which the command may have held the device."""
        return self._energy_seconds < _COVERED * (self.seconds + self.unseen)

    def add_energy(self, joules: float, seconds: float) -> None:
        """Add energy of so many seconds; NaN is left out."""
        if is_known(joules):
            self._energy += joules
            self._energy_seconds += seconds

    def add(self, sample: Sample, seconds: float, believed: float) -> None:
        """`seconds` more, of which `sample` tells for `believed`."""
        self.device = sample.device
        self.seconds += seconds
        if sample.state is not Availability.OK:
            return  # what it has is of before
        utilization = sample.value("gpu.utilization")
        if is_known(utilization):
            self.seen += believed
            self._busy += utilization * believed
            self._idle += believed if utilization < IDLE else 0.0
        self.memory_total = sample.value("gpu.memory_total")

    def held(self, memory: float) -> None:
        """The command's processes hold `memory` bytes now."""
        if not memory <= self.memory_peak:
            self.memory_peak = self.memory_peak if not is_known(memory) else memory


class CommandCost:
    """Adds up frames. `is_its` tells whether a process is the command's, `is_its_run` whether a run is.

    `began` is when the command began: ns, CLOCK_MONOTONIC.
    """

    def __init__(self, began: int, is_its: Callable[[int], bool], is_its_run: Callable[[Run], bool]) -> None:
        self.uses: dict[str, DeviceCost] = {}
        self.devices = 0
        """Number of devices in the newest frame."""
        self.hidden = False
        """Whether a device is held by somebody whom nobody here can see: perhaps by the command."""
        self.silent: set[str] = set()
        """UUIDs of devices whose driver calls did not come back in time."""
        self._began = began
        self._is_its = is_its
        self._is_its_run = is_its_run
        self._last: Frame | None = None
        self._readings: dict[str, EnergyReadings] = {}
        """By UUID."""
        self._holding: Mapping[str, float] = {}

    def take(self, frame: Frame, ended: int = 0) -> None:
        """The next frame. `ended` is when the command ended; 0 while it runs."""
        self.devices = sum(not sample.device.is_divided for sample in frame.samples)
        # Of a frame that is not full the processes are not known: what held before is taken to hold still.
        if frame.is_full and frame.monotonic_ns >= self._began and not (ended and frame.monotonic_ns > ended):
            self._holding = self._held_in(frame)
            self.hidden = self.hidden or any(not process.user for process in frame.processes)
        last, self._last = self._last, frame
        if last is None:
            self._note_begin(frame)
        if last is None or frame.monotonic_ns <= last.monotonic_ns or frame.monotonic_ns <= self._began:
            self._read_energy(frame, self._began)
            return
        first, until = max(last.monotonic_ns, self._began), min(frame.monotonic_ns, ended or frame.monotonic_ns)
        seconds = max(0, until - first) / SECOND
        self.silent.update(sample.device.uuid for sample in frame.samples if sample.state is Availability.STALE)
        for sample in frame.samples:
            if sample.device.uuid in self._holding:
                self._add(sample, seconds, frame.interval)
        self._read_energy(frame, until)

    def finish(self, ended: int) -> None:
        """The command ended, perhaps after the last frame: what held then held to the end."""
        last = self._last
        if last is None or last.monotonic_ns >= ended or last.monotonic_ns < self._began:
            return
        seconds = (ended - last.monotonic_ns) / SECOND
        if seconds > _LONGEST * max(last.interval, 1.0):
            return
        for sample in last.samples:
            if sample.device.uuid in self._holding:
                self._add(sample, seconds, last.interval)
                self.uses[sample.device.uuid].add_energy(sample.value("gpu.power") * seconds, seconds)

    @property
    def holding(self) -> tuple[str, ...]:
        """UUIDs of the devices that the command holds now."""
        return tuple(self._holding)

    def _note_begin(self, first: Frame) -> None:
        """Of the devices that the command holds in the first frame nobody knows since when it does."""
        unseen = (first.monotonic_ns - self._began) / SECOND
        for sample in first.samples:
            if unseen > 0 and sample.device.uuid in self._holding:
                use = self.uses.setdefault(sample.device.uuid, DeviceCost(sample.device))
                use.unseen = unseen

    def _read_energy(self, frame: Frame, until: int) -> None:
        """Add what the counters tell of the time of the command, up to `until`."""
        for sample in frame.samples:
            uuid = sample.device.uuid
            if sample.state is not Availability.OK:
                continue
            readings = self._readings.setdefault(uuid, EnergyReadings())
            values = sample.value("gpu.energy"), sample.value("gpu.power_limit")
            for growth in readings.take(frame.monotonic_ns, *values):
                seconds = (min(growth.end, until) - max(growth.begin, self._began)) / SECOND
                length = (growth.end - growth.begin) / SECOND
                if uuid in self._holding and seconds > 0 and length <= FOLLOWS:
                    self.uses[uuid].add_energy(growth.joules * seconds / length, seconds)

    def _add(self, sample: Sample, seconds: float, interval: float) -> None:
        use = self.uses.setdefault(sample.device.uuid, DeviceCost(sample.device))
        use.add(sample, seconds, min(seconds, _LONGEST * interval))
        use.held(self._holding[sample.device.uuid])

    def _held_in(self, frame: Frame) -> dict[str, float]:
        """Bytes that the command holds on each device that it holds; NaN where nobody tells how many."""
        found: dict[str, float] = {}
        for process in frame.processes:
            if self._is_its(process.pid):
                # NaN once is NaN for all: a part is not the whole.
                found[process.uuid] = found.get(process.uuid, 0.0) + process.memory_used
        runs = {run.key: run for run in frame.runs if run.state is RunState.RUNNING and self._is_its_run(run)}
        for sample in frame.samples:
            uuid = sample.device.uuid
            if uuid not in found and any(uuid in run.gpus for run in runs.values()):
                # The driver does not show the process here (a container): the training itself tells.
                found[uuid] = sample.value("gpu.run_reserved") if sample.run in runs else NAN
        return found
