"""All NVIDIA GPUs of this machine as one source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gpumon.common.clock import SECOND, Clock
from gpumon.common.driver_calls import DriverCall
from gpumon.model.frame import Sample
from gpumon.model.metrics import Availability
from gpumon.model.origin import HARDWARE, Driver, Origin
from gpumon.model.process import Process
from gpumon.model.units import duration
from gpumon.sources.base import Describe, Reading
from gpumon.sources.nvml.device import NvmlDevice
from gpumon.sources.nvml.discovery import LOOK_EVERY, NOTHING, Discovery, FoundDevices
from gpumon.sources.nvml.executor import AnyInquiry, Asker, Inquiry, Lanes
from gpumon.sources.nvml.library import VERSION_MISMATCH, Library, advice
from gpumon.sources.nvml.mig import DeviceReading, MigInstance
from gpumon.sources.nvml.processes import ListedProcesses
from gpumon.sources.nvml.sysfs import PCI_DEVICES
from gpumon.sources.nvml.values import CallCost, summed, total_of

# For each device at each tick; to look a member up in its class takes longer than all else that is done with it.
_OK, _STALE, _NO_DRIVER = Availability.OK, Availability.STALE, Availability.NO_DRIVER
PATIENCE = 0.5
"""Seconds that a tick waits for a GPU at most; one that has let a tick go by is not waited for until it answers."""
FIRST_PATIENCE = 1.5
"""Seconds for the first answers: a driver may have to wake its GPUs."""
_LAST_PATIENCE = SECOND // 2
_STUCK = "the NVIDIA driver went away while a call to it hangs: stop and start gpumon's daemon once the driver is back"
_SILENT = "the NVIDIA driver has not answered for {}: a call to it has not come back (see 'dmesg')"


def patience(interval: float) -> float:
    """Seconds that a tick waits for a GPU, where one is due each `interval` seconds."""
    return min(PATIENCE, 0.8 * interval)


class _DeviceRow:
    """A device, what is asked of it, and what it gave last."""

    def __init__(self, device: NvmlDevice | MigInstance, clock: Clock) -> None:
        self.device = device
        self.job = Inquiry(lambda: device.read(clock.monotonic() / SECOND))
        self.is_awaited = False
        """Whether the last `take` found no reading: it may have come since."""
        self._last: Sample | None = None
        self._is_new = False

    @property
    def jobs(self) -> tuple[AnyInquiry, ...]:
        """All that may be under way of it."""
        return (self.job, *self.device.asking)

    def take(self) -> DeviceReading | None:
        """Return its reading since the last time; None where there is none."""
        reading = self.job.take()
        self.is_awaited = reading is None
        if reading is not None:
            self._last, self._is_new = reading.sample, True
        return reading

    def forget(self) -> None:
        """Forget what it gave before its driver went away, and what came meanwhile: that is none of now."""
        self.job.take()
        self._last, self._is_new, self.is_awaited = None, False, False

    def sample(self, now: int) -> Sample:
        """Its sample for the tick at `now` (ns); where it gave none since the last one, STALE, and how old that is."""
        last, is_new, self._is_new = self._last, self._is_new, False
        if self.job.failure is not None and not self.job.is_under_way:
            return Sample(self.device.device, Availability.FAILED, NOTHING)
        if last is not None and (is_new or last.state is not _OK):
            return last
        unanswered = max(0, now - self.job.asked_at) / SECOND
        if last is None:
            return Sample(self.device.device, _STALE, NOTHING, age=unanswered, unanswered=unanswered)
        return last._replace(state=_STALE, age=max(0, now - last.monotonic_ns) / SECOND, unanswered=unanswered)


class NvmlSource:
    """Reads every GPU through NVML, each by itself: one whose calls hang is STALE, and holds up no other.

    A value that comes after its tick is in the next one, with the time at which it was read. Works without a driver
    too: it then gives no samples, says why in `origin().problem`, and looks again every few seconds, so a driver that
    is loaded or reloaded is found without a restart.
    """

    capabilities = HARDWARE
    tick_period = 0.0

    def __init__(
        self,
        clock: Clock,
        describe: Describe,
        open_library: Callable[[], Library] = Library,
        patience: float = PATIENCE,
        asker: Asker | None = None,
        pci: str = PCI_DEVICES,
    ) -> None:
        """`patience` in seconds; `asker` makes the driver's calls: threads unless it is given; `pci` is of sysfs."""
        self._clock = clock
        self._describe = describe
        self._discovery = Discovery(clock, open_library, pci, asker)
        self._asker = asker or Lanes(clock)
        self._patience = round(patience * SECOND)
        self._first_patience = round(FIRST_PATIENCE * SECOND)
        self._found = FoundDevices()
        self._rows: list[_DeviceRow] = []
        self._left: list[AnyInquiry] = []
        """Inquiries still under way of devices that are no longer there."""
        self._let_go: list[_DeviceRow] = []
        """Rows of a driver that went away: theirs again where it answers before it could be opened anew."""
        self._former: list[CallCost] = []
        """Costs of the calls of devices that are no longer there."""
        self._is_stuck = False
        """Whether a call that hangs keeps the driver from being opened anew."""
        self._look = Inquiry(self._discovery.look)
        self._reopen = Inquiry(self._discovery.reopen)
        self._look_at = 0
        self._read_at = self._tick = 0
        self._silent = ""
        self._origin = Origin("nvml", capabilities=self.capabilities)
        """The same object as long as nothing of it changes."""
        self._held: dict[str, tuple[Process, ...]] = {}
        self._listed: dict[str, ListedProcesses] = {}
        self._processes: tuple[Process, ...] = ()

    def origin(self) -> Origin:
        unanswered = self._unanswered()
        problem = _SILENT.format(duration(unanswered)) if unanswered else self._found.problem or self._silent
        if (problem, unanswered) != (self._origin.problem, self._origin.unanswered):
            self._origin = self._origin._replace(problem=problem, unanswered=unanswered)
        return self._origin

    def driver(self) -> Driver:
        return self._found.driver

    def remember(self, samples: Sequence[Sample]) -> None:
        """Take the GPUs of before: one that the driver had lost by the start does not say who it is."""
        self._discovery.remember(samples)

    def read(self) -> Sequence[Reading]:
        monotonic, time = self._clock.monotonic(), self._clock.time()
        self._tick, self._read_at = monotonic - self._read_at if self._read_at else 0, monotonic
        until = monotonic + max(self._patience, self._first_patience)
        look = self._look_for_devices(monotonic, until)
        known = self._rows
        readings = self._ask(until, look)
        if look:
            self._take_found()
        if any(reading.is_divided_anew for reading in readings):
            self._keep(self._found.devices)
            self._join_processes()
        if self._rows is not known:
            readings = self._ask_new(known, readings, until)
        self._first_patience = 0
        samples = [row.sample(monotonic) for row in self._rows]
        states = [sample.state for sample in samples]
        # Each says so: one GPU alone of which it is said is a fault of that one. One that is late, asleep or lost says
        # nothing of the driver; then the next look asks that itself.
        if states and states.count(_NO_DRIVER) == len(states):
            samples, readings = [], []
            self._part_with_driver(self._found.without_driver(self._why_gone()))
        else:
            self._take_processes(readings)
            self._silent = self._found.why_silent()
        samples += self._found.absent_at(monotonic)
        new: dict[str, list[tuple[int, float]]] = {}
        for one in readings:
            if one.utilization_samples:
                new.setdefault(one.sample.device.uuid, []).extend(one.utilization_samples)
        xids = self._discovery.take_xids()
        return [Reading(monotonic, time, samples, self._processes, utilization_samples=new, xids=xids)]

    def driver_calls(self) -> Sequence[DriverCall]:
        """Costs of the driver's calls so far."""
        rows = (*self._rows, *self._let_go)
        return summed((*self._former, *(cost for row in rows for cost in row.device.costs())), self._tick / SECOND)

    def close(self) -> None:
        """Let go of the driver, but not under a call that hangs: that ends with the process."""
        if self._is_quiet():
            self._asker.ask([Inquiry(self._discovery.close)], _LAST_PATIENCE)
        self._asker.close()

    def _unanswered(self) -> float:
        """Whole seconds since the look for devices that has not come back, where none is known; else 0."""
        asked = [job.asked_at for job in (self._look, self._reopen) if job.is_under_way]
        if not asked or self._rows:
            return 0.0
        # At most one change a second: who gets it writes it down.
        return float(max(1, (self._clock.monotonic() - min(asked)) // SECOND))

    def _is_quiet(self) -> bool:
        """Whether no call is under way, so that the library may be closed."""
        self._left = [job for job in self._left if job.is_under_way]
        jobs: list[AnyInquiry] = [self._look, self._reopen]
        jobs += [job for row in (*self._rows, *self._let_go) for job in row.jobs]
        return self._discovery.is_quiet and not (self._left or any(job.is_under_way for job in jobs))

    def _look_for_devices(self, now: int, until: int) -> Sequence[AnyInquiry]:
        """Look where it is time, and take what a look found that let its tick go by.

        Where devices are known, the look is left to be asked with them: it wakes no thread for itself.
        """
        self._take_found()
        if now < self._look_at or self._look.is_under_way or self._reopen.is_under_way:
            return ()
        self._look_at = now + round(LOOK_EVERY * SECOND)
        patience = until - now
        if not self._found.is_over:
            if self._rows:
                return (self._look,)
            self._asker.ask([self._look], patience // 2)  # the rest is for the devices that it finds
        elif self._is_quiet():
            # The one place where the library is closed between ticks: nothing is asked of it until it is open again.
            self._asker.ask([self._reopen], patience // 2)
        else:
            # It cannot be closed under a call; but it may answer again as it is.
            self._is_stuck = True
            self._found = self._found._replace(problem=_STUCK)
            self._asker.ask([self._look], patience // 2)
        self._take_found()
        return ()

    def _take_found(self) -> None:
        for job in (self._look, self._reopen):
            found = job.take()
            if job.failure is not None and not self._rows:
                self._found = self._found._replace(problem=f"looking for GPUs failed: {job.failure}")
            if found is not None and found is not self._found:
                if found.is_over:
                    self._part_with_driver(found)
                else:
                    self._found, self._is_stuck = found, False
                    self._keep(found.devices)
                    self._join_processes()

    def _keep(self, devices: Sequence[NvmlDevice]) -> None:
        """Make rows for these devices and their MIG instances; those that are known keep theirs."""
        for row in self._let_go:
            row.forget()
        known = {id(row.device): row for row in (*self._let_go, *self._rows)}
        there: list[NvmlDevice | MigInstance] = []
        for device in devices:
            there += [device, *device.instances]
        self._rows = [known.pop(id(one)) if id(one) in known else _DeviceRow(one, self._clock) for one in there]
        self._let_go = []
        if known:
            self._left += [job for row in known.values() for job in row.jobs if job.is_under_way]
            self._former = total_of((*self._former, *(cost for row in known.values() for cost in row.device.costs())))

    def _ask(self, until: int, look: Sequence[AnyInquiry]) -> list[DeviceReading]:
        """Ask all devices, and return what came: of now, and of earlier ticks that it came too late for."""
        rows = self._rows
        readings = [reading for row in rows if row.is_awaited and (reading := row.take()) is not None]
        self._asker.ask([*(row.job for row in rows), *look], max(0, until - self._clock.monotonic()))
        return readings + [reading for row in rows if (reading := row.take()) is not None]

    def _ask_new(
        self, known: Sequence[_DeviceRow], readings: Sequence[DeviceReading], until: int
    ) -> list[DeviceReading]:
        """Ask at once what was not among the rows `known`, and return all readings of those that are there."""
        before = {id(row) for row in known}
        new = [row for row in self._rows if id(row) not in before]
        self._asker.ask([row.job for row in new], max(0, until - self._clock.monotonic()))
        there = {row.device.uuid for row in self._rows}
        return [
            *(reading for reading in readings if reading.sample.device.uuid in there),
            *(reading for row in new if (reading := row.take()) is not None),
        ]

    def _why_gone(self) -> str:
        mismatch = any(row.device.failure == VERSION_MISMATCH for row in self._rows)
        return advice(VERSION_MISMATCH) if mismatch else "the NVIDIA driver went away (it may be reloading)"

    def _part_with_driver(self, found: FoundDevices) -> None:
        """The driver went away: ask nothing of its devices, which keep their place, until it is open again."""
        self._found = found._replace(problem=_STUCK) if self._is_stuck else found
        self._discovery.watch_no_xids()
        self._silent = ""
        self._let_go += self._rows
        self._rows = []
        self._join_processes()

    def _take_processes(self, readings: Iterable[DeviceReading]) -> None:
        changed = False
        for reading in readings:
            held = reading.processes
            if held is None:  # not asked for at this tick
                continue
            uuid = reading.sample.device.uuid
            if held or self._held.get(uuid):
                before = self._held.get(uuid)
                listed = self._listed.setdefault(uuid, ListedProcesses(uuid, self._describe))
                found = self._held[uuid] = listed.take(held)
                changed = changed or found is not before
        if changed:  # else the same object: who gets it can tell that nothing is new
            self._join_processes()

    def _join_processes(self) -> None:
        """The processes of all devices that are there, in one list; those of others are forgotten."""
        uuids = [row.device.uuid for row in self._rows]
        self._held = {uuid: self._held[uuid] for uuid in uuids if uuid in self._held}
        self._listed = {uuid: self._listed[uuid] for uuid in self._held}
        self._processes = tuple(process for held in self._held.values() for process in held)
