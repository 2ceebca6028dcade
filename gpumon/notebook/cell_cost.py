"""Adds up what a cell used of each GPU, from the frames during the cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.launcher.summary import DeviceCost
from gpumon.model.device import Device
from gpumon.model.energy import FOLLOWS, EnergyReadings
from gpumon.model.frame import Frame, Sample
from gpumon.model.metrics import Availability
from gpumon.model.units import AT_LEAST, AT_MOST
from gpumon.tracking.wire_format import NOT_KNOWN, Memory, device_mark

_VALID_INTERVALS = 3
"""The values of a frame are not used for the time since the previous frame if that is more sampling intervals ago."""
_COVERED = 0.98
"""Energy counts as complete if it was measured for at least this share of the cell."""


@dataclass(frozen=True, slots=True)
class GpuCost:
    """What a cell used of one GPU. Unknown numbers are NaN."""

    device: Device
    utilization: float
    """Mean utilization of the GPU. NaN for a cell that is shorter than the sampling interval."""
    memory_peak: float
    """Peak device memory of all processes in bytes, in the samples during the cell."""
    framework_peak: float
    """The framework's peak of live tensors, in bytes."""
    framework_sign: str
    """`≤` if the framework's peak counter already had this value before the cell, `≥` if the cell reset the counter."""
    energy: float
    """Energy of the whole board in joules. NaN for a cell of less than a second."""
    energy_sign: str
    """`≥` if a part of the cell was not measured."""
    is_shared: bool
    """Whether processes that do not belong to this notebook were on the GPU."""


class FrameworkPeaks:
    """The frameworks' peak counters at the start and at the end of a cell."""

    def __init__(self, before: Sequence[Memory]) -> None:
        self._before = {entry.number: entry.peak for entry in before}
        self.after: Sequence[Memory] = before

    def marks(self) -> frozenset[int]:
        """Return the marks of the devices that the frameworks use. See `wire_format.device_mark`."""
        return frozenset(entry.device for entry in self.after if entry.device)

    def of(self, uuid: str, *, is_only: bool) -> tuple[float, str]:
        """Return the peak on a device in bytes, and its sign (see `GpuCost.framework_sign`).

        `is_only`: whether this is the only device of the notebook. Memory for which the framework reports no UUID then
        belongs to this device.
        """
        mark = device_mark(uuid)
        entries = [entry for entry in self.after if entry.device == mark or (is_only and not entry.device)]
        peaks = [entry.peak for entry in entries]
        if not peaks or NOT_KNOWN in peaks:
            return NAN, ""
        before = [self._before.get(entry.number, 0) for entry in entries]
        if NOT_KNOWN in before:
            return float(sum(peaks)), AT_MOST
        has_grown = all(peak > earlier for peak, earlier in zip(peaks, before, strict=True))
        is_reset = any(peak < earlier for peak, earlier in zip(peaks, before, strict=True))
        return float(sum(peaks)), AT_LEAST if is_reset else "" if has_grown or not sum(peaks) else AT_MOST


class CellCost:
    """Adds up what a cell uses of each GPU.

    `began`: start of the cell (ns, CLOCK_MONOTONIC). `is_member`: function that returns whether a process (pid) belongs
    to the notebook.
    """

    def __init__(self, began: int, is_member: Callable[[int], bool]) -> None:
        self.began = began
        self.ended = 0
        """End of the cell (ns, CLOCK_MONOTONIC); 0 while it runs."""
        self.is_unattributed = False
        """Whether an unidentified process uses a GPU. It may belong to the notebook."""
        self._is_member = is_member
        self._own: set[str] = set()
        """UUIDs of the devices on which a process of the notebook was seen."""
        self._shared: set[str] = set()
        """UUIDs of the devices on which another process was seen."""
        self._uses: dict[str, DeviceCost] = {}
        self._readings: dict[str, EnergyReadings] = {}
        self._last: Frame | None = None

    @property
    def last_frame(self) -> int:
        """Number of the last frame that was added; 0 if there is none."""
        return self._last.number if self._last else 0

    @property
    def seconds(self) -> float:
        """Duration of the cell."""
        return (self.ended - self.began) / SECOND

    @property
    def has_frames(self) -> bool:
        """Whether a frame was added."""
        return self._last is not None

    @property
    def has_gpus(self) -> bool:
        """Whether a GPU was sampled."""
        return bool(self._uses)

    @property
    def is_complete(self) -> bool:
        """Whether a frame after the end of the cell was added."""
        return self._last is not None and 0 < self.ended <= self._last.monotonic_ns

    def add(self, frame: Frame) -> None:
        """Add the next frame. The first frame to add is the newest frame before the cell."""
        if self.is_complete:
            return
        self._read_processes(frame)
        last, self._last = self._last, frame
        for sample in frame.samples:
            use = self._uses.setdefault(sample.device.uuid, DeviceCost(sample.device))
            if last is not None and frame.monotonic_ns > last.monotonic_ns:
                seconds = self._overlap(last.monotonic_ns, frame.monotonic_ns)
                use.add(sample, seconds, seconds if seconds <= _VALID_INTERVALS * max(frame.interval, 1.0) else 0.0)
            if sample.state is Availability.OK:
                if self.began <= frame.monotonic_ns <= (self.ended or frame.monotonic_ns):
                    use.add_memory(sample.value("gpu.memory_used"))
                self._read_energy(sample, frame.monotonic_ns, use)

    def costs(self, peaks: FrameworkPeaks, *, show_all: bool) -> list[GpuCost]:
        """Return the cost on each GPU of the notebook, after the end of the cell.

        `show_all`: return all GPUs, because it is unknown which ones the notebook uses.
        """
        marks = peaks.marks()
        own = [uuid for uuid in self._uses if uuid in self._own or device_mark(uuid) in marks]
        if not own and show_all:
            own = [uuid for uuid, use in self._uses.items() if not use.device.is_divided]
        return [self._cost(uuid, peaks, is_only=len(own) == 1) for uuid in own]

    def _cost(self, uuid: str, peaks: FrameworkPeaks, *, is_only: bool) -> GpuCost:
        use = copy(self._uses[uuid])
        if not self.is_complete:
            self._estimate_rest(use)
        interval = self._last.interval if self._last else 0.0
        return GpuCost(
            use.device, use.utilization if self.seconds >= interval else NAN, use.memory_peak,
            *peaks.of(uuid, is_only=is_only), use.energy, "" if use.metered >= _COVERED * self.seconds else AT_LEAST,
            uuid in self._shared,
        )  # fmt: skip

    def _estimate_rest(self, use: DeviceCost) -> None:
        """Estimate the energy since the last reading from the last measured power, and add it to `use`."""
        last = self._last
        samples = last.samples if last else ()
        sample = next((sample for sample in samples if sample.device.uuid == use.device.uuid), None)
        if last is None or sample is None or sample.state is not Availability.OK:
            return
        readings = self._readings.get(use.device.uuid)
        since = max(self.began, round(readings.at) if readings is not None else last.monotonic_ns)
        seconds = (self.ended - since) / SECOND
        if 0 < seconds <= _VALID_INTERVALS * max(last.interval, 1.0):
            use.add_energy(sample.value("gpu.power") * seconds, seconds)

    def _read_energy(self, sample: Sample, at: int, use: DeviceCost) -> None:
        readings = self._readings.setdefault(sample.device.uuid, EnergyReadings())
        values = sample.value("gpu.energy"), sample.value("gpu.power_limit")
        for growth in readings.add(sample.counters_monotonic_ns or at, *values):
            length = (growth.end - growth.begin) / SECOND
            seconds = self._overlap(round(growth.begin), round(growth.end))
            if seconds > 0 and length <= FOLLOWS and is_known(growth.joules):
                use.add_energy(growth.joules * seconds / length, seconds)

    def _read_processes(self, frame: Frame) -> None:
        """Record which devices the notebook uses, and which devices other processes use."""
        for process in frame.processes if frame.is_full else ():
            (self._own if self._is_member(process.pid) else self._shared).add(process.uuid)
            self.is_unattributed = self.is_unattributed or not process.user

    def _overlap(self, begin: int, end: int) -> float:
        """Return how many seconds of a period are within the cell."""
        return max(0, min(end, self.ended or end) - max(begin, self.began)) / SECOND


def costs_by_column(cost: GpuCost, seconds: float) -> Mapping[str, float]:
    """Return the numbers of a row by the keys of `model.columns.EPOCHS`."""
    return {
        "seconds": seconds, "utilization_mean": cost.utilization, "memory_used_peak": cost.memory_peak,
        "framework_peak": cost.framework_peak, "energy": cost.energy,
    }  # fmt: skip
