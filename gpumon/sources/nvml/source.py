"""Combines all NVIDIA GPUs of this machine into one source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from gpumon.common.clock import SECOND, Clock
from gpumon.common.driver_calls import DriverCall
from gpumon.model.frame import Sample
from gpumon.model.metrics import Availability
from gpumon.model.origin import HARDWARE, Driver, Origin
from gpumon.model.process import Process
from gpumon.model.units import duration
from gpumon.sources.base import FIRST_TIMEOUT, TIMEOUT, Describe, Reading, late_sample
from gpumon.sources.executor import AnyCall, Executor, PendingCall, WorkerPool
from gpumon.sources.nvml.device import NvmlDevice
from gpumon.sources.nvml.discovery import SCAN_EVERY, DeviceScan, Discovery
from gpumon.sources.nvml.library import Library
from gpumon.sources.nvml.mig import DeviceReading, MigInstance
from gpumon.sources.nvml.return_codes import VERSION_MISMATCH, advice
from gpumon.sources.nvml.sysfs import PCI_DEVICES
from gpumon.sources.nvml.values import CallCost, sum_calls, sum_costs
from gpumon.sources.process_cache import ProcessCache

_OK, _NO_DRIVER = Availability.OK, Availability.NO_DRIVER
_CLOSE_TIMEOUT = SECOND // 2
_STUCK = "the NVIDIA driver was unloaded, but a call to it still hangs: restart the daemon once the driver is back"
_SILENT = "the NVIDIA driver has not answered for {}: a call to it has not returned (see 'dmesg')"


class _DeviceRow:
    """A device, the call that reads it, and its last sample."""

    def __init__(self, device: NvmlDevice | MigInstance, clock: Clock) -> None:
        self.device = device
        self.call = PendingCall(lambda: device.read(clock.monotonic() / SECOND))
        self.is_late = False
        """True if the last `pop` returned None. The reading may have arrived since."""
        self._last: Sample | None = None
        self._is_new = False

    @property
    def calls(self) -> tuple[AnyCall, ...]:
        """All calls for the device that may be running."""
        return (self.call, *self.device.pending_calls)

    def pop(self) -> DeviceReading | None:
        """Return the reading since the last `pop`; None if there is no new reading."""
        reading = self.call.pop()
        self.is_late = reading is None
        if reading is not None:
            self._last, self._is_new = reading.sample, True
        return reading

    def clear(self) -> None:
        """Discard the last sample and results that arrive later, because they were read before the driver went away."""
        self.call.pop()
        self._last, self._is_new, self.is_late = None, False, False

    def sample(self, now: int) -> Sample:
        """Return the sample for the tick at `now` (ns).

        If there is no new sample, return the last one as STALE, with its age.
        """
        last, is_new, self._is_new = self._last, self._is_new, False
        has_failed = self.call.failure is not None and not self.call.is_running
        if last is not None and not has_failed and (is_new or last.state is not _OK):
            return last
        return late_sample(self.device.device, self.call, last, now)


class NvmlSource:
    """Reads all GPUs through NVML. If the calls of one GPU hang, it becomes STALE and does not delay the others.

    A value that arrives too late for its tick is returned at the next tick, with the time at which it was read. The
    source also works without a driver. In this case, there are no samples, and `origin().problem` says why. A scan
    every few seconds finds the driver when it is loaded or reloaded.
    """

    capabilities = HARDWARE
    tick_period = 0.0

    def __init__(
        self,
        clock: Clock,
        describe: Describe,
        open_library: Callable[[], Library] = Library,
        timeout: float = TIMEOUT,
        executor: Executor | None = None,
        pci: str = PCI_DEVICES,
    ) -> None:
        """`timeout`: maximum seconds that a tick waits for a GPU. `executor`: makes the driver calls, by default in
        threads.

        `pci`: folder of the PCI devices in sysfs.
        """
        self._clock = clock
        self._describe = describe
        self._discovery = Discovery(clock, open_library, pci, executor)
        self._executor = executor or WorkerPool(clock)
        self._timeout = round(timeout * SECOND)
        self._first_timeout = round(FIRST_TIMEOUT * SECOND)
        self._scan = DeviceScan()
        self._rows: list[_DeviceRow] = []
        self._orphaned_calls: list[AnyCall] = []
        """Calls for removed devices that have not returned yet."""
        self._detached: list[_DeviceRow] = []
        """Rows of devices of a driver that went away. They are used again if the driver answers before it could be
        reopened."""
        self._former_costs: list[CallCost] = []
        """Costs of the calls for removed devices."""
        self._is_stuck = False
        """Whether a call that hangs prevents reopening the driver."""
        self._scan_call = PendingCall(self._discovery.scan)
        self._reopen_call = PendingCall(self._discovery.reopen)
        self._scan_at = 0
        self._read_at = self._tick = 0
        self._unreadable_reason = ""
        self._origin = Origin("nvml", capabilities=self.capabilities)
        """Origin after the last read. It stays the same object while nothing changes."""
        self._processes_of: dict[str, tuple[Process, ...]] = {}
        self._caches: dict[str, ProcessCache] = {}
        self._processes: tuple[Process, ...] = ()

    def origin(self) -> Origin:
        unanswered = self._unanswered()
        problem = _SILENT.format(duration(unanswered)) if unanswered else self._scan.problem or self._unreadable_reason
        origin = self._origin._replace(problem=problem, unanswered=unanswered, lacks_card=self._scan.lacks_card)
        if origin != self._origin:
            self._origin = origin
        return self._origin

    def driver(self) -> Driver:
        return self._scan.driver

    def restore(self, samples: Sequence[Sample]) -> None:
        """Set the GPUs that an earlier daemon saw. The driver no longer identifies a GPU that it has lost."""
        self._discovery.restore(samples)

    def read(self) -> Sequence[Reading]:
        monotonic, time = self._clock.monotonic(), self._clock.time()
        self._tick, self._read_at = monotonic - self._read_at if self._read_at else 0, monotonic
        until = monotonic + max(self._timeout, self._first_timeout)
        scan_calls = self._scan_if_due(monotonic, until)
        rows = self._rows
        readings = self._read_rows(until, scan_calls)
        if scan_calls:
            self._apply_scan()
        if any(reading.instances_changed for reading in readings):
            self._set_devices(self._scan.devices)
            self._join_processes()
        if self._rows is not rows:
            readings = self._read_new_rows(rows, readings, until)
        self._first_timeout = 0
        samples = [row.sample(monotonic) for row in self._rows]
        states = [sample.state for sample in samples]
        # The driver is gone only if all GPUs report this. If only some of them do, these GPUs are faulty. A stale,
        # sleeping or lost GPU does not show whether the driver is gone. The next scan will.
        if states and states.count(_NO_DRIVER) == len(states):
            samples, readings = [], []
            self._detach_driver(self._scan.without_driver(self._gone_reason()))
        else:
            self._update_processes(readings)
            self._unreadable_reason = self._scan.unreadable_reason()
        samples += self._scan.absent_at(monotonic)
        utilization_samples: dict[str, list[tuple[int, float]]] = {}
        for reading in readings:
            if reading.utilization_samples:
                utilization_samples.setdefault(reading.sample.device.uuid, []).extend(reading.utilization_samples)
        xids = self._discovery.pop_xids()
        return [Reading(monotonic, time, samples, self._processes, utilization_samples=utilization_samples, xids=xids)]

    def driver_calls(self) -> Sequence[DriverCall]:
        rows = (*self._rows, *self._detached)
        costs = (*self._former_costs, *(cost for row in rows for cost in row.device.costs()))
        return sum_calls(costs, self._tick / SECOND)

    def close(self) -> None:
        """Close the driver. If a call hangs, the driver stays open until the process ends."""
        if self._is_idle():
            self._executor.run([PendingCall(self._discovery.close)], _CLOSE_TIMEOUT)
        self._executor.close()

    def _unanswered(self) -> float:
        """Return how many whole seconds a scan has been running if no device was found before, otherwise 0."""
        started = [call.started_at for call in (self._scan_call, self._reopen_call) if call.is_running]
        if not started or self._rows:
            return 0.0
        # Whole seconds, because each change of the origin is written to the ring.
        return float(max(1, (self._clock.monotonic() - min(started)) // SECOND))

    def _is_idle(self) -> bool:
        """Return whether no driver call is running, so that the library may be closed."""
        self._orphaned_calls = [call for call in self._orphaned_calls if call.is_running]
        calls: list[AnyCall] = [self._scan_call, self._reopen_call, *self._orphaned_calls]
        calls += [call for row in (*self._rows, *self._detached) for call in row.calls]
        return self._discovery.is_idle and not any(call.is_running for call in calls)

    def _scan_if_due(self, now: int, until: int) -> Sequence[AnyCall]:
        """Scan for devices if a scan is due, and apply the result of a scan that missed its tick.

        If there are devices, the scan is not made here. Instead, its call is returned. The caller makes it in one batch
        with the calls for the devices, which wakes fewer threads.
        """
        self._apply_scan()
        if now < self._scan_at or self._scan_call.is_running or self._reopen_call.is_running:
            return ()
        self._scan_at = now + round(SCAN_EVERY * SECOND)
        half = (until - now) // 2  # the other half is for reading the devices that the scan finds
        if not self._scan.is_driver_gone:
            if self._rows:
                return (self._scan_call,)
            self._executor.run([self._scan_call], half)
        elif self._is_idle():
            # This is the only place that closes the library between ticks. No other call is made until it is open
            # again.
            self._executor.run([self._reopen_call], half)
        else:
            # The library cannot be closed during a call, but the driver may start to answer even if it is not reopened.
            self._is_stuck = True
            self._scan = replace(self._scan, problem=_STUCK)
            self._executor.run([self._scan_call], half)
        self._apply_scan()
        return ()

    def _apply_scan(self) -> None:
        """Apply the result of a scan that has ended since this method was last called."""
        for call in (self._scan_call, self._reopen_call):
            scan = call.pop()
            if call.failure is not None and not self._rows:
                self._scan = replace(self._scan, problem=f"the search for GPUs failed: {call.failure}")
            if scan is not None and scan is not self._scan:
                if scan.is_driver_gone:
                    self._detach_driver(scan)
                else:
                    self._scan, self._is_stuck = scan, False
                    self._set_devices(scan.devices)
                    self._join_processes()

    def _set_devices(self, devices: Sequence[NvmlDevice]) -> None:
        """Create rows for these devices and their MIG instances. Devices and instances that have rows keep them."""
        for row in self._detached:
            row.clear()
        known = {id(row.device): row for row in (*self._detached, *self._rows)}
        present: list[NvmlDevice | MigInstance] = []
        for device in devices:
            present += [device, *device.instances]
        self._rows = [
            known.pop(id(device)) if id(device) in known else _DeviceRow(device, self._clock) for device in present
        ]
        self._detached = []
        if known:
            self._orphaned_calls += [call for row in known.values() for call in row.calls if call.is_running]
            costs = [cost for row in known.values() for cost in row.device.costs()]
            self._former_costs = sum_costs((*self._former_costs, *costs))

    def _read_rows(self, until: int, scan_calls: Sequence[AnyCall]) -> list[DeviceReading]:
        """Read all devices. Return the new readings, including late readings of earlier ticks."""
        rows = self._rows
        readings = [reading for row in rows if row.is_late and (reading := row.pop()) is not None]
        self._executor.run([*(row.call for row in rows), *scan_calls], max(0, until - self._clock.monotonic()))
        return readings + [reading for row in rows if (reading := row.pop()) is not None]

    def _read_new_rows(
        self, before: Sequence[_DeviceRow], readings: Sequence[DeviceReading], until: int
    ) -> list[DeviceReading]:
        """Read the rows that are not in `before` immediately, and return the readings of all current rows."""
        known = {id(row) for row in before}
        new = [row for row in self._rows if id(row) not in known]
        self._executor.run([row.call for row in new], max(0, until - self._clock.monotonic()))
        uuids = {row.device.uuid for row in self._rows}
        return [
            *(reading for reading in readings if reading.sample.device.uuid in uuids),
            *(reading for row in new if (reading := row.pop()) is not None),
        ]

    def _gone_reason(self) -> str:
        mismatch = any(row.device.failure == VERSION_MISMATCH for row in self._rows)
        return advice(VERSION_MISMATCH) if mismatch else "the NVIDIA driver was unloaded (it may be reloading)"

    def _detach_driver(self, scan: DeviceScan) -> None:
        """Stop reading the devices of a driver that went away until the driver is open again.

        The devices keep their rows.
        """
        self._scan = replace(scan, problem=_STUCK) if self._is_stuck else scan
        self._discovery.stop_xids()
        self._unreadable_reason = ""
        self._detached += self._rows
        self._rows = []
        self._join_processes()

    def _update_processes(self, readings: Iterable[DeviceReading]) -> None:
        has_changed = False
        for reading in readings:
            listed = reading.processes
            if listed is None:  # not read at this tick
                continue
            uuid = reading.sample.device.uuid
            before = self._processes_of.get(uuid)
            if listed or before:
                cache = self._caches.setdefault(uuid, ProcessCache(uuid, self._describe))
                processes = self._processes_of[uuid] = cache.update(listed)
                has_changed = has_changed or processes is not before
        if has_changed:  # otherwise, the same object shows that nothing is new
            self._join_processes()

    def _join_processes(self) -> None:
        """Concatenate the processes of all current devices, and discard those of other devices."""
        uuids = [row.device.uuid for row in self._rows]
        self._processes_of = {uuid: self._processes_of[uuid] for uuid in uuids if uuid in self._processes_of}
        self._caches = {uuid: self._caches[uuid] for uuid in self._processes_of}
        self._processes = tuple(process for processes in self._processes_of.values() for process in processes)
