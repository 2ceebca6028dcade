"""All NVIDIA GPUs of this machine as one source."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from gpumon.clock import SECOND, Clock
from gpumon.errors import SourceError
from gpumon.frame import NAN, Device, Driver, Origin, Process, Sample
from gpumon.metrics import FROM_DRIVERS, GPU_METRICS, PROCESSES, Availability
from gpumon.origin import HARDWARE
from gpumon.sources.base import Describe, Reading
from gpumon.sources.nvml.device import NvmlDevice
from gpumon.sources.nvml.library import NOT_SUPPORTED, SUCCESS, VERSION_MISMATCH, Library, advice, availability
from gpumon.sources.nvml.processes import Held
from gpumon.sources.nvml.utilization_samples import UtilizationSamples

_LOOK_AGAIN = 5.0
"""Seconds between looks for a driver that was not there, and for GPUs that were plugged in or lost."""
NOTHING = [NAN] * len(GPU_METRICS)
NAMELESS = "NVIDIA GPU"


class NvmlSource:
    """Reads every GPU through NVML.

    Works without a driver too: it then gives no samples, says why in `origin().problem`, and looks
    again every few seconds, so a driver that is loaded or reloaded is found without a restart.
    """

    capabilities = HARDWARE
    pace = 0.0

    def __init__(self, clock: Clock, describe: Describe, open_library: Callable[[], Library] = Library) -> None:
        self._clock = clock
        self._describe = describe
        self._open = open_library
        self._library: Library | None = None
        self._devices: list[NvmlDevice] = []
        self._gone: dict[str, Device] = {}
        self._refused: dict[int, int] = {}
        self._driver = Driver()
        self._problem = ""
        self._silent = ""
        self._look_at = 0.0
        self._held: dict[str, tuple[Process, ...]] = {}
        self._processes: tuple[Process, ...] = ()
        self._samples_until: dict[str, int] = {}

    def origin(self) -> Origin:
        return Origin("nvml", "", self._problem or self._silent, capabilities=self.capabilities)

    def driver(self) -> Driver:
        return self._driver

    def read(self) -> Sequence[Reading]:
        monotonic, time = self._clock.monotonic(), self._clock.time()
        now = monotonic / SECOND
        if now >= self._look_at:
            self._look_at = now + _LOOK_AGAIN
            self._look()
        samples = [device.read(now) for device in self._devices]
        if any(sample.state is Availability.NO_DRIVER for sample in samples):
            mismatch = any(device.failure == VERSION_MISMATCH for device in self._devices)
            self._shut(advice(VERSION_MISMATCH) if mismatch else "the NVIDIA driver went away (it may be reloading)")
            samples = [Sample(sample.device, Availability.NO_DRIVER, NOTHING) for sample in samples]
            utilization_samples: dict[str, UtilizationSamples] = {}
        else:
            self._read_processes(now)
            for i, device in enumerate(self._devices):
                if samples[i].device is not device.device:  # only now is known whether its processes are
                    samples[i] = samples[i]._replace(device=device.device)
            utilization_samples = self._read_utilization_samples(now)
            self._silent = self._why_silent()
        if self._gone or self._refused:
            samples += self._absent({sample.device.uuid for sample in samples})
        return [Reading(monotonic, time, samples, self._processes, utilization_samples=utilization_samples)]

    def _absent(self, present: Set[str]) -> list[Sample]:
        """Rows of GPUs that cannot be read: those that were there, and those that nobody has seen yet."""
        otherwise = Availability.LOST if self._library else Availability.NO_DRIVER
        gone = [device for uuid, device in self._gone.items() if uuid not in present]
        known = {device.index for device in (*gone, *(device.device for device in self._devices))}
        why = {index: availability(code) for index, code in self._refused.items()}
        rows = [Sample(device, why.get(device.index, otherwise), NOTHING) for device in gone]
        return rows + [Sample(unknown(index, why[index]), why[index], NOTHING) for index in why if index not in known]

    def _why_silent(self) -> str:
        """What to do where the driver answers, and no GPU does."""
        if any(device.failure == SUCCESS for device in self._devices):
            return ""
        codes = [device.failure for device in self._devices] + list(self._refused.values())
        return advice(codes[0]) if codes else ""

    def close(self) -> None:
        if self._library is not None:
            self._library.close()
            self._library = None

    def _look(self) -> None:
        """Find the driver and its GPUs; keep the devices that are known already."""
        if self._library is None:
            try:
                self._library = self._open()
            except SourceError as error:
                self._problem = str(error)
                return
            self._driver = self._library.driver
        library = self._library
        code, count = library.count()
        if code != SUCCESS:
            self._problem = "" if self._devices else advice(code)
            if availability(code) is Availability.NO_DRIVER:
                self._shut(advice(code))
            return
        self._problem = "" if count else "the NVIDIA driver runs but finds no GPU: check 'nvidia-smi'"
        if count == len(self._devices) and all(device.state is Availability.OK for device in self._devices):
            return  # as before: asking for each handle again would be a call for each GPU
        known = {device.uuid: device for device in self._devices}
        self._refused.clear()
        found = [device for index in range(count) if (device := self._find(library, index, known))]
        for device in self._devices:
            if device not in found:
                # It keeps its row, so that people see that it was there and is lost.
                self._gone[device.uuid] = device.device
                self._held.pop(device.uuid, None)
        for device in found:
            self._gone.pop(device.uuid, None)
        self._devices = found
        self._processes = self._all_processes()

    def _find(self, library: Library, index: int, known: dict[str, NvmlDevice]) -> NvmlDevice | None:
        """The device with this index; None where the driver refuses it, which is then noted."""
        code, handle = library.handle(index)
        if code != SUCCESS:
            return self._refuse(index, code, known)
        # Looking up one GPU costs two driver calls; those with the same handle are known.
        for device in known.values():
            if device.handle.value == handle.value and device.device.index == index:
                return device
        code, uuid = library.text("nvmlDeviceGetUUID", handle)
        if code == NOT_SUPPORTED and (address := library.bus_address(handle)):
            uuid = f"PCI-{address}"  # a card that has no UUID
        if not uuid:
            return self._refuse(index, code, known)
        name = library.text("nvmlDeviceGetName", handle)[1] or NAMELESS
        return NvmlDevice(library, handle, index, uuid, name, self._clock, self._samples_until.get(uuid, 0))

    def _refuse(self, index: int, code: int, known: dict[str, NvmlDevice]) -> NvmlDevice | None:
        """The device that was there before, whose own calls then tell; else note why there is none."""
        before = next((device for device in known.values() if device.device.index == index), None)
        if before is None:
            self._refused[index] = code
        return before

    def _shut(self, problem: str) -> None:
        """Forget the driver; the devices keep their rows until it is back."""
        self._problem = problem
        for device in self._devices:
            self._gone[device.uuid] = device.device
        self._devices = []
        self._refused.clear()
        self._silent = ""
        self._held = {}
        self._processes = ()
        self.close()

    def _read_processes(self, now: float) -> None:
        changed = False
        for device in self._devices:
            held = device.processes(now)
            if held is not None and (held or self._held.get(device.uuid)):
                changed = True
                self._held[device.uuid] = tuple(self._process(device.uuid, process) for process in held)
        if not changed:
            return  # the same object: who gets it can tell that nothing is new
        self._processes = self._all_processes()

    def _all_processes(self) -> tuple[Process, ...]:
        return tuple(process for device in self._devices for process in self._held.get(device.uuid, ()))

    def _read_utilization_samples(self, now: float) -> dict[str, UtilizationSamples]:
        given = ((device.uuid, device.utilization_samples(now, self._clock)) for device in self._devices)
        utilization_samples = {uuid: new for uuid, new in given if new}
        # A driver that went away for a moment may come back with samples that were given before.
        self._samples_until.update((uuid, new[-1][0]) for uuid, new in utilization_samples.items())
        return utilization_samples

    def _process(self, uuid: str, held: Held) -> Process:
        name, user, started, cpu, resident = self._describe(held.pid)
        return Process(
            held.pid, uuid, held.kind, name, user, started, held.memory_used, held.sm_utilization,
            held.memory_utilization, cpu, resident,
        )  # fmt: skip


def unknown(index: int, why: Availability) -> Device:
    """A GPU that the driver counts and does not hand out: until it does, its place among the others is its name."""
    return Device(f"index-{index}", index, NAMELESS, dict.fromkeys((*FROM_DRIVERS, PROCESSES), why))
