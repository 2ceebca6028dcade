"""The driver of this machine and its GPUs: both may be missing, come and go."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence, Set
from typing import Any, NamedTuple

from gpumon.clock import Clock
from gpumon.errors import SourceError
from gpumon.frame import NAN, Device, Driver, Sample, XidEvent
from gpumon.metrics import FROM_DRIVERS, GPU_METRICS, PROCESSES, Availability
from gpumon.sources.nvml.device import NvmlDevice
from gpumon.sources.nvml.library import NOT_SUPPORTED, SUCCESS, Library, advice, availability
from gpumon.sources.nvml.runtime_power import PCI_DEVICES, RuntimePower, all_asleep
from gpumon.sources.nvml.xid_errors import MOST, XidErrors

LOOK_EVERY = 2.0
"""Seconds between looks for a driver that was not there, and for GPUs that were plugged in or lost."""
NOTHING = [NAN] * len(GPU_METRICS)
NAMELESS = "NVIDIA GPU"
_WELL = (Availability.OK, Availability.ASLEEP)
"""States of devices of which nobody asks whether they are still there."""


class FoundDevices(NamedTuple):
    """The GPUs of this machine, as a look found them."""

    devices: tuple[NvmlDevice, ...] = ()
    absent: tuple[Sample, ...] = ()
    """Rows of GPUs that cannot be read: those that were there, and those that nobody has seen yet."""
    codes: tuple[int, ...] = ()
    """Return codes for the GPUs that nobody has seen yet."""
    driver: Driver = Driver()
    problem: str = ""
    """Why no GPU is found, and what to do; empty when all is well."""
    is_over: bool = False
    """Whether the driver that is open has gone: it must be opened anew."""

    def why_silent(self) -> str:
        """Advice where the driver answers, and no GPU does; else empty."""
        if any(device.failure == SUCCESS for device in self.devices):
            return ""
        codes = [*(device.failure for device in self.devices), *self.codes]
        return advice(codes[0]) if codes else ""

    def without_driver(self, problem: str) -> FoundDevices:
        """The same GPUs, all of them absent."""
        rows = [device.device for device in self.devices] + [sample.device for sample in self.absent]
        absent = tuple(Sample(device, Availability.NO_DRIVER, NOTHING) for device in rows)
        return self._replace(devices=(), absent=absent, codes=(), problem=problem, is_over=True)


class Discovery:
    """Finds devices and keeps those that are known: each is built once, until the driver loses it or goes away.

    One thread at a time may ask it. Of a device it reads `state` and `failure` alone, which are set as a whole: they
    may be another thread's.
    """

    def __init__(self, clock: Clock, open_library: Callable[[], Library], pci: str = PCI_DEVICES) -> None:
        """`pci`: where sysfs has the PCI devices."""
        self._clock = clock
        self._open = open_library
        self._pci = pci
        self._library: Library | None = None
        self._devices: list[NvmlDevice] = []
        self._gone: dict[str, Device] = {}
        self._refused: dict[int, int] = {}
        self._samples_until: dict[str, int] = {}
        self._driver = Driver()
        self._xids: XidErrors | None = None
        self._new_xids: deque[XidEvent] = deque(maxlen=MOST)
        self._watched: set[str] = set()
        """UUIDs of GPUs whose XID errors are waited for."""

    def look(self) -> FoundDevices:
        """Look for the driver, where it is not open, and for its GPUs."""
        if self._library is None:
            if not self._gone and (asleep := all_asleep(self._pci)):
                return FoundDevices(absent=tuple(map(_sleeper, range(len(asleep)), asleep)))
            try:
                self._library = self._open()
            except SourceError as error:
                return self._found(str(error))
            self._driver = self._library.driver
            self._xids = XidErrors(self._library, self._clock, self._new_xids)
            self._watched.clear()
        elif self._xids is not None:  # from the second look on: who reads once needs no thread for it
            self._xids.follow(self._awakened())
        return self._find_all(self._library)

    def reopen(self) -> FoundDevices:
        """Open the driver anew, which went away. No call may be under way."""
        for device in self._devices:
            self._part_with(device)
        self._devices = []
        self._refused.clear()
        self.close()
        return self.look()

    def close(self) -> None:
        """Let go of the driver. No call may be under way, but the wait for XID errors: its end closes the driver."""
        if self._library is not None:
            if self._xids is not None:
                self._xids.stop(self._library.close)
            self._library = self._xids = None

    def take_xids(self) -> Sequence[XidEvent]:
        """Return the XID errors since the last time, in their order. Any one thread may ask."""
        new = self._new_xids
        return [new.popleft() for _ in range(len(new))] if new else ()

    def watch_no_xids(self) -> None:
        """Wait for no XID error of a driver that has gone, so that it can be opened anew. From any thread."""
        xids = self._xids
        if xids is not None:
            xids.stop()

    def _awakened(self) -> dict[str, Any]:
        """Handles, by UUID, of the GPUs that have been awake: to begin to wait for the errors of one would wake it."""
        self._watched |= {device.uuid for device in self._devices if device.state is not Availability.ASLEEP}
        return {device.uuid: device.handle for device in self._devices if device.uuid in self._watched}

    def _find_all(self, library: Library) -> FoundDevices:
        code, count = library.count()
        if code != SUCCESS:
            found = self._found("" if self._devices else advice(code))
            return found.without_driver(advice(code)) if availability(code) is Availability.NO_DRIVER else found
        problem = "" if count else "the NVIDIA driver runs but finds no GPU: check 'nvidia-smi'"
        # Where all is as before, asking for each handle again would be a call for each GPU.
        if count != len(self._devices) or any(device.state not in _WELL for device in self._devices):
            self._find_each(library, count)
        return self._found(problem)

    def _find_each(self, library: Library, count: int) -> None:
        known = {device.uuid: device for device in self._devices}
        self._refused.clear()
        found: list[NvmlDevice] = []
        for index in range(count):
            device = self._find(library, index, known, {one.uuid for one in found})
            if device is not None:
                found.append(device)
        for device in self._devices:
            if device not in found:
                self._part_with(device)
        for device in found:
            self._gone.pop(device.uuid, None)
        self._devices = found

    def _found(self, problem: str) -> FoundDevices:
        return FoundDevices(
            devices=tuple(self._devices),
            absent=self._absent(),
            codes=tuple(self._refused.values()),
            driver=self._driver,
            problem=problem,
        )

    def _absent(self) -> tuple[Sample, ...]:
        otherwise = Availability.LOST if self._library else Availability.NO_DRIVER
        gone = list(self._gone.values())
        known = {device.index for device in (*gone, *(device.device for device in self._devices))}
        why = {index: availability(code) for index, code in self._refused.items()}
        rows = [Sample(device, why.get(device.index, otherwise), NOTHING) for device in gone]
        rows += [Sample(unknown(index, why[index]), why[index], NOTHING) for index in why if index not in known]
        return tuple(rows)

    def _find(self, library: Library, index: int, known: dict[str, NvmlDevice], others: Set[str]) -> NvmlDevice | None:
        """The device with this index; None where the driver refuses it, which is then noted.

        `others`: UUIDs of those before it, for a driver that gives two GPUs the same one.
        """
        for device in known.values():
            if device.device.index == index and device.state is Availability.ASLEEP:
                return device  # to ask for its handle would wake it
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
        if uuid in others:
            uuid = f"PCI-{library.bus_address(handle) or index}"  # its place tells it from the other
        if not uuid:
            return self._refuse(index, code, known)
        name = library.text("nvmlDeviceGetName", handle)[1] or NAMELESS
        return NvmlDevice(
            library=library,
            handle=handle,
            index=index,
            uuid=uuid,
            name=name,
            clock=self._clock,
            after=self._samples_until.get(uuid, 0),
            xids=self._xids,
            power=RuntimePower(library.bus_address(handle), self._pci),
        )

    def _refuse(self, index: int, code: int, known: dict[str, NvmlDevice]) -> NvmlDevice | None:
        """The device that was there before, whose own calls then tell; else note why there is none."""
        before = next((device for device in known.values() if device.device.index == index), None)
        if before is None:
            self._refused[index] = code
        return before

    def _part_with(self, device: NvmlDevice) -> None:
        """Keep its row, so that people see that it was there, and what of its samples is known already."""
        self._gone[device.uuid] = device.device
        # A driver that went away for a moment may come back with samples that were given before.
        self._samples_until[device.uuid] = device.samples_until


def _sleeper(index: int, address: str) -> Sample:
    """A GPU that sleeps since before the driver was opened: it has no name until it wakes."""
    device = unknown(index, Availability.ASLEEP)._replace(uuid=f"PCI-{address}")
    return Sample(device, Availability.ASLEEP, NOTHING)


def unknown(index: int, why: Availability) -> Device:
    """A GPU that the driver counts and does not hand out: until it does, its place among the others is its name."""
    return Device(f"index-{index}", index, NAMELESS, dict.fromkeys((*FROM_DRIVERS, PROCESSES), why))
