"""All NVIDIA GPUs of this machine as one source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gpumon.clock import SECOND, Clock
from gpumon.frame import Driver, Origin, Process, Sample
from gpumon.metrics import Availability
from gpumon.origin import HARDWARE
from gpumon.sources.base import Describe, Reading
from gpumon.sources.nvml.device import DeviceReading
from gpumon.sources.nvml.discovery import NOTHING, Discovery
from gpumon.sources.nvml.library import VERSION_MISMATCH, Library, advice
from gpumon.sources.nvml.processes import Held


class NvmlSource:
    """Reads every GPU through NVML.

    Works without a driver too: it then gives no samples, says why in `origin().problem`, and looks
    again every few seconds, so a driver that is loaded or reloaded is found without a restart.
    """

    capabilities = HARDWARE
    tick_period = 0.0

    def __init__(self, clock: Clock, describe: Describe, open_library: Callable[[], Library] = Library) -> None:
        self._clock = clock
        self._describe = describe
        self._found = Discovery(clock, open_library)
        self._silent = ""
        self._held: dict[str, tuple[Process, ...]] = {}
        self._processes: tuple[Process, ...] = ()

    def origin(self) -> Origin:
        return Origin("nvml", "", self._found.problem or self._silent, capabilities=self.capabilities)

    def driver(self) -> Driver:
        return self._found.driver

    def read(self) -> Sequence[Reading]:
        monotonic, time = self._clock.monotonic(), self._clock.time()
        now = monotonic / SECOND
        if self._found.look(now):
            self._join_processes()
        # A device's reading is whole in itself: that of a thread which hangs could be its last one, as STALE.
        readings = [device.read(now) for device in self._found.devices]
        samples = [reading.sample for reading in readings]
        if Availability.NO_DRIVER in [sample.state for sample in samples]:
            samples = [Sample(sample.device, Availability.NO_DRIVER, NOTHING) for sample in samples]
            readings = []
            self._shut()
        else:
            self._take_processes(readings)
            self._silent = self._found.why_silent()
        samples += self._found.absent(sample.device.uuid for sample in samples)
        new = {one.sample.device.uuid: one.utilization_samples for one in readings if one.utilization_samples}
        return [Reading(monotonic, time, samples, self._processes, utilization_samples=new)]

    def close(self) -> None:
        self._found.close()

    def _shut(self) -> None:
        mismatch = any(device.failure == VERSION_MISMATCH for device in self._found.devices)
        self._found.shut(advice(VERSION_MISMATCH) if mismatch else "the NVIDIA driver went away (it may be reloading)")
        self._silent = ""
        self._join_processes()

    def _take_processes(self, readings: Iterable[DeviceReading]) -> None:
        changed = False
        for reading in readings:
            uuid, held = reading.sample.device.uuid, reading.processes
            if held is not None and (held or self._held.get(uuid)):
                found = tuple([self._process(uuid, process) for process in held])
                if found != self._held.get(uuid):
                    changed = True
                    self._held[uuid] = found
        if changed:  # else the same object: who gets it can tell that nothing is new
            self._join_processes()

    def _join_processes(self) -> None:
        """The processes of all devices that are there, in one list; those of others are forgotten."""
        uuids = [device.uuid for device in self._found.devices]
        self._held = {uuid: self._held[uuid] for uuid in uuids if uuid in self._held}
        self._processes = tuple(process for held in self._held.values() for process in held)

    def _process(self, uuid: str, held: Held) -> Process:
        name, user, started, cpu, resident = self._describe(held.pid)
        return Process(
            pid=held.pid,
            uuid=uuid,
            kind=held.kind,
            name=name,
            user=user,
            started=started,
            memory_used=held.memory_used,
            sm_utilization=held.sm_utilization,
            memory_utilization=held.memory_utilization,
            cpu_utilization=cpu,
            host_memory=resident,
        )
