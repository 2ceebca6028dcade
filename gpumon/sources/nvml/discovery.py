"""The driver of this machine and its GPUs: both may be missing, come and go."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any, NamedTuple

from gpumon.common.clock import SECOND, Clock
from gpumon.common.errors import SourceError
from gpumon.common.numbers import NAN
from gpumon.model.device import Device
from gpumon.model.frame import Sample, XidEvent
from gpumon.model.metrics import FROM_DRIVERS, GPU_METRICS, PROCESSES, Availability
from gpumon.model.origin import Driver
from gpumon.sources.nvml.device import NvmlDevice
from gpumon.sources.nvml.executor import Asker, Inquiry, Lanes
from gpumon.sources.nvml.library import NOT_SUPPORTED, SUCCESS, UNKNOWN, Library, advice, availability
from gpumon.sources.nvml.sysfs import PCI_DEVICES, RuntimePower, all_asleep
from gpumon.sources.nvml.xid import MOST, UnfreedSet, XidErrors

NAMELESS = "NVIDIA GPU"


class Identity(NamedTuple):
    """Answers of the driver about one GPU."""

    code: int
    """SUCCESS, or why it is not known."""
    handle: Any = None
    uuid: str = ""
    name: str = ""
    address: str = ""
    """On the PCI bus; empty where the driver does not give it."""
    minor: int = -1
    """Number of its device file; -1 where the driver does not give it."""
    is_known: bool = False
    """Whether its handle is that of before: nothing else was asked."""


def identify(library: Library, index: int, known: int | None) -> Identity:
    """Ask for the identity of the GPU with an index. `known`: the handle of the one that was there before."""
    code, handle = library.handle(index)
    if code != SUCCESS:
        return Identity(code)
    if handle.value == known:
        return Identity(code, is_known=True)
    code, uuid = library.text("nvmlDeviceGetUUID", handle)
    address = library.bus_address(handle)
    if code in (SUCCESS, NOT_SUPPORTED) and not uuid:  # a card that has no UUID
        uuid, code = (f"PCI-{address}", SUCCESS) if address else ("", NOT_SUPPORTED)
    name = library.text("nvmlDeviceGetName", handle)[1] if uuid else ""
    minor = library.minor(handle) if uuid else -1
    return Identity(code, handle, uuid, name or NAMELESS, address, minor)


LOOK_EVERY = 2.0
"""Seconds between looks for a driver that was not there, and for GPUs that were plugged in or lost."""
NOTHING = [NAN] * len(GPU_METRICS)
SILENT = -1
"""In place of the driver's code for a GPU that has not said yet what it is."""
_PATIENCE = round(0.6 * SECOND)
"""ns that a look waits for GPUs to say what they are: those that take longer are there with a later look."""
_MOST_GPUS = 256
"""More than any machine has: such a number of GPUs is no answer."""
_WELL = (Availability.OK, Availability.ASLEEP)
"""States of devices of which nobody asks whether they are still there."""


class FoundDevices(NamedTuple):
    """The GPUs of this machine, as a look found them."""

    devices: tuple[NvmlDevice, ...] = ()
    absent: tuple[Sample, ...] = ()
    """Rows of GPUs that cannot be read: those that were there, and those that nobody has seen yet."""
    asked_at: Mapping[int, int] = {}
    """When those of them that have not said yet what they are were asked (ns, CLOCK_MONOTONIC), by index."""
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

    def absent_at(self, now: int) -> list[Sample]:
        """`absent` at `now` (ns): those that have not answered yet, with how long ago they were asked."""
        return [
            sample._replace(age=max(0, now - self.asked_at[sample.device.index]) / SECOND)
            if sample.device.index in self.asked_at
            else sample
            for sample in self.absent
        ]

    def without_driver(self, problem: str) -> FoundDevices:
        """The same GPUs, all of them absent."""
        rows = [sample.device for sample in self.absent]
        for device in self.devices:
            rows += [device.device, *(instance.device for instance in device.instances)]
        absent = tuple(Sample(device, Availability.NO_DRIVER, NOTHING) for device in rows)
        return self._replace(devices=(), absent=absent, asked_at={}, codes=(), problem=problem, is_over=True)


class Discovery:
    """Finds devices and keeps those that are known: each is built once, until the driver loses it or goes away.

    One thread at a time may ask it. Of a device it reads `state` and `failure` alone, which are set as a whole: they
    may be another thread's.
    """

    def __init__(
        self,
        clock: Clock,
        open_library: Callable[[], Library],
        pci: str = PCI_DEVICES,
        asker: Asker | None = None,
    ) -> None:
        """`pci`: where sysfs has the PCI devices; `asker` asks each GPU what it is: threads unless it is given."""
        self._asker = asker
        self._clock = clock
        self._open = open_library
        self._pci = pci
        self._library: Library | None = None
        self._devices: list[NvmlDevice] = []
        self._last = FoundDevices()
        """The answer of the last look with a driver."""
        self._gone: dict[str, Device] = {}
        self._earlier: dict[int, Device] = {}
        """GPUs of an earlier daemon of this boot, by index."""
        self._refused: dict[int, int] = {}
        self._samples_until: dict[str, int] = {}
        self._driver = Driver()
        self._xids: XidErrors | None = None
        self._new_xids: deque[XidEvent] = deque(maxlen=MOST)
        self._unfreed: deque[UnfreedSet] = deque()
        self._has_looked = False
        """Whether XID errors are waited for: who reads once needs no thread for it."""
        self._asked: dict[int, Inquiry[Identity]] = {}
        """Inquiries after the identity of GPUs by index, as far as the last look has not had their answers."""
        self._watched: set[str] = set()
        """UUIDs of GPUs whose XID errors are waited for."""

    def remember(self, samples: Sequence[Sample]) -> None:
        """Take the GPUs that an earlier daemon of this boot had last.

        Of several with one index the card is meant that is there: others had it before that was put in their place.
        """
        places: dict[int, list[Sample]] = {}
        for sample in samples:
            if not sample.device.is_instance:
                places.setdefault(sample.device.index, []).append(sample)
        for index, had in places.items():
            known = [sample for sample in had if sample.state is not Availability.LOST] or had
            if len(known) == 1:
                self._earlier[index] = known[0].device

    def look(self) -> FoundDevices:
        """Look for the driver, where it is not open, and for its GPUs."""
        has_looked, self._has_looked = self._has_looked, True
        before = self._last
        if self._library is None:
            if not self._gone and (asleep := all_asleep(self._pci)):
                return FoundDevices(absent=tuple(map(_sleeper, range(len(asleep)), asleep)))
            try:
                self._library = self._open()
            except SourceError as error:
                return self._found(str(error))
            self._driver = self._library.driver
            self._xids = XidErrors(self._library, self._clock, self._new_xids, self._unfreed)
            self._watched.clear()
        is_asleep = self._is_all_asleep()
        if self._xids is not None:
            self._xids.rest(is_asleep)
        if is_asleep:
            return before
        self._last = found = self._find_all(self._library)
        is_all_watched = found is before and len(self._watched) == len(self._devices)
        if has_looked and self._xids is not None and not is_all_watched and not found.is_over:
            self._xids.follow(self._awakened())
        return found

    def reopen(self) -> FoundDevices:
        """Open the driver anew, which went away. No call may be under way."""
        for device in self._devices:
            self._part_with(device)
        self._devices, self._last = [], FoundDevices()
        self._refused.clear()
        self._asked.clear()
        self.close()
        return self.look()

    @property
    def is_quiet(self) -> bool:
        """Whether no call is under way that a look has begun."""
        return not any(one.is_under_way for one in self._asked.values())

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
        now = self._clock.monotonic() / SECOND
        unwatched = [device for device in self._devices if device.uuid not in self._watched]
        self._watched |= {device.uuid for device in unwatched if device.is_awake(now)}
        return {device.uuid: device.handle for device in self._devices if device.uuid in self._watched}

    def _is_all_asleep(self) -> bool:
        """Whether all GPUs are powered down, by sysfs also those that no look has found yet: then there is no news."""
        known = self._last.devices
        return bool(known) and all(one.state is Availability.ASLEEP for one in known) and bool(all_asleep(self._pci))

    def _find_all(self, library: Library) -> FoundDevices:
        code, count = library.count()
        if count > _MOST_GPUS:
            code = UNKNOWN
        if code != SUCCESS:
            found = self._found("" if self._devices else advice(code))
            return found.without_driver(advice(code)) if availability(code) is Availability.NO_DRIVER else found
        problem = "" if count else "the NVIDIA driver runs but finds no GPU: check 'nvidia-smi'"
        # Where all is as before, asking for each handle again would be a call for each GPU.
        if count != len(self._devices) or any(device.state not in _WELL for device in self._devices):
            self._find_each(library, count)
        elif self._last.devices and not self._last.absent:
            return self._last  # who asks can tell that nothing is new
        return self._found(problem)

    def _find_each(self, library: Library, count: int) -> None:
        known = {device.device.index: device for device in self._devices}
        self._refused.clear()
        identities = self._identify_all(library, count, known)
        found: list[NvmlDevice] = []
        for index in range(count):
            device = self._find(library, index, identities[index], known.get(index), {one.uuid for one in found})
            if device is not None:
                found.append(device)
        for device in self._devices:
            if device not in found:
                self._part_with(device)
        for device in found:
            self._gone.pop(device.uuid, None)
        self._devices = found

    def _identify_all(self, library: Library, count: int, known: Mapping[int, NvmlDevice]) -> list[Identity | None]:
        """Return identities by index; None of a GPU whose calls hang, and of one that is not to be asked."""
        new: dict[int, Inquiry[Identity]] = {}
        for index in range(count):
            device = known.get(index)
            if index not in self._asked and (device is None or device.state is not Availability.ASLEEP):
                handle = device.handle.value if device else None
                new[index] = Inquiry(partial(identify, library, index, handle))
        self._asked.update(new)
        # Threads of this round alone: from one look that finds something to the next it may take days.
        asker = self._asker or Lanes(self._clock)
        asker.ask([*new.values()], _PATIENCE)
        asker.close()
        # One that answers from here on is not asked again: the next look has its answer.
        late = {index: one for index, one in self._asked.items() if one.is_under_way}
        answers = [
            self._asked[index].take() if index in self._asked and index not in late else None for index in range(count)
        ]
        self._asked = late
        for one in new.values():
            if one.failure is not None:
                raise one.failure
        return answers

    def _found(self, problem: str) -> FoundDevices:
        return FoundDevices(
            devices=tuple(self._devices),
            absent=self._absent(),
            asked_at={
                index: self._asked[index].asked_at
                for index, code in self._refused.items()
                if code == SILENT and index in self._asked
            },
            codes=tuple(code for code in self._refused.values() if code != SILENT),
            driver=self._driver,
            problem=problem,
        )

    def _absent(self) -> tuple[Sample, ...]:
        otherwise = Availability.LOST if self._library else Availability.NO_DRIVER
        gone = list(self._gone.values())
        known = {device.index for device in (*gone, *(device.device for device in self._devices))}
        why = {
            index: Availability.STALE if code == SILENT else availability(code) for index, code in self._refused.items()
        }
        rows = [Sample(device, why.get(device.index, otherwise), NOTHING) for device in gone]
        rows += [Sample(self._nameless(index, why[index]), why[index], NOTHING) for index in why if index not in known]
        return tuple(rows)

    def _nameless(self, index: int, why: Availability) -> Device:
        """Return a GPU that does not say who it is: that which had its place, where all others have theirs still."""
        found, before = unknown(index, why), self._earlier.get(index)
        others = [device.device for device in self._devices]
        if before is None or any(before.uuid == one.uuid for one in others):
            return found
        is_as_before = all(self._earlier.get(one.index, one).uuid == one.uuid for one in others)
        return before._replace(missing=found.missing) if is_as_before else found

    def _find(
        self, library: Library, index: int, identity: Identity | None, before: NvmlDevice | None, others: Set[str]
    ) -> NvmlDevice | None:
        """The device with this index; None where the driver refuses it or does not answer, which is then noted.

        `before` is the one that was there; `others`: UUIDs of those before it, for a driver that gives two GPUs
        the same one.
        """
        if identity is None or not (identity.uuid or identity.is_known):
            # The calls of a device that was there before tell why themselves.
            if before is None:
                self._refused[index] = identity.code if identity else SILENT
            return before
        if identity.is_known:
            return before
        uuid = identity.uuid
        if uuid in others:
            uuid = f"PCI-{identity.address or index}"  # its place tells it from the other
        return NvmlDevice(
            library=library,
            handle=identity.handle,
            index=index,
            uuid=uuid,
            name=identity.name,
            clock=self._clock,
            after=self._samples_until.get(uuid, 0),
            xids=self._xids,
            power=RuntimePower(identity.address, self._pci),
            address=identity.address,
            minor=identity.minor,
        )

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
