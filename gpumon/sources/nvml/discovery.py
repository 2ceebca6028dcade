"""Finds the driver and its GPUs. Both may be missing, and may appear and disappear at any time."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gpumon.common.clock import SECOND, Clock
from gpumon.common.errors import NoCardError, SourceError
from gpumon.common.numbers import NAN
from gpumon.model.device import Device
from gpumon.model.frame import Sample, XidEvent
from gpumon.model.metrics import FROM_DRIVERS, GPU_INDEX, PROCESSES, Availability
from gpumon.model.origin import Driver
from gpumon.sources.base import NO_VALUES
from gpumon.sources.executor import Executor, PendingCall, WorkerPool
from gpumon.sources.nvml.device import XID, NvmlDevice
from gpumon.sources.nvml.library import Library
from gpumon.sources.nvml.return_codes import GPU_IS_LOST, NOT_SUPPORTED, SUCCESS, UNKNOWN, advice, availability
from gpumon.sources.nvml.sysfs import PCI_DEVICES, RuntimePower, sleeping_gpus
from gpumon.sources.nvml.xid import MOST, UnfreedSet, XidWatcher

NAMELESS = "NVIDIA GPU"


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of one GPU according to the driver."""

    code: int
    """SUCCESS, or the return code that says why the identity could not be read."""
    handle: Any = None
    uuid: str = ""
    name: str = ""
    address: str = ""
    """PCI address; empty if the driver does not return it."""
    minor: int = -1
    """Minor number of the device file, such as 0 for /dev/nvidia0; -1 if the driver does not return it."""
    is_known: bool = False
    """True if the handle equals the parameter `known_handle` of `identify`. In this case, nothing else was read."""


def identify(library: Library, index: int, known_handle: int | None) -> Identity:
    """Read which GPU has this index.

    `known_handle`: handle of the GPU that had this index before; None if there was none.
    """
    code, handle = library.handle(index)
    if code != SUCCESS:
        return Identity(code)
    if handle.value == known_handle:
        return Identity(code, is_known=True)
    code, uuid = library.text("nvmlDeviceGetUUID", handle)
    address = library.bus_address(handle)
    if code in (SUCCESS, NOT_SUPPORTED) and not uuid:  # a card without a UUID
        uuid, code = (_nameless_uuid(address), SUCCESS) if address else ("", NOT_SUPPORTED)
    name = library.text("nvmlDeviceGetName", handle)[1] if uuid else ""
    minor = library.minor(handle) if uuid else -1
    return Identity(code, handle, uuid, name or NAMELESS, address, minor)


SCAN_EVERY = 2.0
"""Seconds between scans. Scans look for a missing driver, and for GPUs that were plugged in or lost."""
PENDING = -1
"""Stands in place of a return code while the call for the identity of a GPU has not returned."""
_TIMEOUT = round(0.6 * SECOND)
"""A scan waits at most this many ns for the identities of GPUs. Slower GPUs appear with a later scan."""
_MAX_GPUS = 256
"""Maximum plausible number of GPUs. A larger count is an error."""
_PRESENT = (Availability.OK, Availability.ASLEEP)
"""States that prove that a device is still present."""


@dataclass(frozen=True, slots=True)
class DeviceScan:
    """The GPUs of this machine at the time of a scan."""

    devices: tuple[NvmlDevice, ...] = ()
    absent: tuple[Sample, ...] = ()
    """Results of `absent_sample` for GPUs that cannot be read: lost GPUs, and GPUs that have never been read."""
    started_at: Mapping[int, int] = field(default_factory=dict)
    """Start times of pending identity calls, by GPU index (ns, CLOCK_MONOTONIC)."""
    codes: tuple[int, ...] = ()
    """Return codes for GPUs that have never been read."""
    driver: Driver = field(default_factory=Driver)
    problem: str = ""
    """Reason why no GPU was found, and what to do; empty if there is no problem."""
    lacks_card: bool = False
    """Whether there is neither a driver nor a card."""
    is_driver_gone: bool = False
    """Whether the driver must be reopened."""

    def unreadable_reason(self) -> str:
        """Return what to do if the driver answers but none of its GPUs can be read; otherwise an empty string."""
        if any(device.failure == SUCCESS for device in self.devices):
            return ""
        codes = [*(device.failure for device in self.devices), *self.codes]
        return advice(codes[0]) if codes else ""

    def absent_at(self, now: int) -> list[Sample]:
        """Return the samples of absent GPUs at `now` (ns).

        If the identity call for a GPU has not returned yet, the sample's age is the time since that call.
        """
        return [
            sample._replace(age=max(0, now - self.started_at[sample.device.index]) / SECOND)
            if sample.device.index in self.started_at
            else sample
            for sample in self.absent
        ]

    def without_driver(self, problem: str) -> DeviceScan:
        """Return a scan in which all these GPUs are absent. `problem`: why the driver cannot be used."""
        absent = [sample._replace(state=Availability.NO_DRIVER) for sample in self.absent]
        for device in self.devices:
            absent.append(absent_sample(device.device, Availability.NO_DRIVER, device.worst_xid))
            absent += [absent_sample(instance.device, Availability.NO_DRIVER) for instance in device.instances]
        return replace(
            self, devices=(), absent=tuple(absent), started_at={}, codes=(), problem=problem, is_driver_gone=True
        )


class Discovery:
    """Scans for devices. Creates one `NvmlDevice` per GPU, and keeps it until the driver loses the GPU or goes away.

    Must be used by one thread at a time. Another thread may be reading a device meanwhile, so only the attributes
    `state` and `failure` of devices are used here. They are set atomically.
    """

    def __init__(
        self,
        clock: Clock,
        open_library: Callable[[], Library],
        pci: str = PCI_DEVICES,
        executor: Executor | None = None,
    ) -> None:
        """`pci`: folder of the PCI devices in sysfs. `executor`: makes the identity calls, by default in threads."""
        self._executor = executor
        self._clock = clock
        self._open = open_library
        self._pci = pci
        self._library: Library | None = None
        self._devices: list[NvmlDevice] = []
        self._last = DeviceScan()
        """Result of the last scan in which a driver was open."""
        self._former: dict[str, Sample] = {}
        """Samples of GPUs that are gone, by UUID. They contain the worst XID error, which may be the reason."""
        self._restored: dict[int, Sample] = {}
        """Samples of GPUs that earlier daemons have seen since the last boot, by index."""
        self._refused: dict[int, int] = {}
        """Return codes (or `PENDING`) of GPUs that could not be identified, by index."""
        self._shared: set[str] = set()
        """UUIDs that the driver returned for several GPUs. These GPUs are identified by their addresses."""
        self._samples_until: dict[str, int] = {}
        self._driver = Driver()
        self._xids: XidWatcher | None = None
        self._new_xids: deque[XidEvent] = deque(maxlen=MOST)
        self._unfreed: deque[UnfreedSet] = deque()
        self._has_scanned = False
        """Whether a scan was made before. XID errors are watched from the second scan on, so that a process that reads
        only once starts no thread.
        """
        self._pending: dict[int, PendingCall[Identity]] = {}
        """Identity calls that had not returned when the last scan ended, by index."""
        self._watched: set[str] = set()
        """UUIDs of GPUs whose XID errors are watched."""

    def restore(self, samples: Sequence[Sample]) -> None:
        """Set the GPUs that earlier daemons have seen since the last boot, as they last saw them.

        If several GPUs had the same index, the GPU that was not lost is used, because it has replaced the others.
        """
        by_index: dict[int, list[Sample]] = {}
        for sample in samples:
            if not sample.device.is_instance:
                by_index.setdefault(sample.device.index, []).append(sample)
        for index, candidates in by_index.items():
            present = [sample for sample in candidates if sample.state is not Availability.LOST] or candidates
            if len(present) == 1:
                self._restored[index] = present[0]

    def scan(self) -> DeviceScan:
        """Open the driver if it is not open, and find its GPUs.

        If nothing has changed, the same object is returned again.
        """
        has_scanned, self._has_scanned = self._has_scanned, True
        before = self._last
        if self._library is None:
            if not self._former and (asleep := sleeping_gpus(self._pci)):
                return DeviceScan(absent=tuple(map(_sleeping_gpu, range(len(asleep)), asleep)))
            try:
                self._library = self._open()
            except SourceError as error:
                return replace(self._build_scan(str(error)), lacks_card=isinstance(error, NoCardError))
            self._driver = self._library.driver
            self._xids = XidWatcher(self._library, self._clock, self._new_xids, self._unfreed)
            self._watched.clear()
        is_asleep = self._is_all_asleep()
        if self._xids is not None:
            self._xids.set_paused(is_asleep)
        if is_asleep:
            return before
        self._last = scan = self._scan_devices(self._library)
        is_all_watched = scan is before and len(self._watched) == len(self._devices)
        if has_scanned and self._xids is not None and not is_all_watched and not scan.is_driver_gone:
            self._xids.watch(self._awake_handles())
        return scan

    def reopen(self) -> DeviceScan:
        """Open the driver again after it went away. Must not be called while a driver call is in progress."""
        for device in self._devices:
            self._retire(device)
        self._devices, self._last = [], DeviceScan()
        self._refused.clear()
        self._shared.clear()
        self._pending.clear()
        self.close()
        return self.scan()

    @property
    def is_idle(self) -> bool:
        """Whether no driver call of a scan is in progress."""
        return not any(call.is_running for call in self._pending.values())

    def close(self) -> None:
        """Close the driver.

        Must not be called while a driver call is in progress, except for the wait for XID errors. The driver is then
        closed when this wait ends.
        """
        if self._library is not None:
            if self._xids is not None:
                self._xids.stop(self._library.close)
            self._library = self._xids = None

    def pop_xids(self) -> Sequence[XidEvent]:
        """Return the XID errors since the last call, oldest first. Must be used by one thread at a time."""
        new = self._new_xids
        return [new.popleft() for _ in range(len(new))] if new else ()

    def stop_xids(self) -> None:
        """Stop waiting for XID errors of a driver that went away, so that it can be opened again.

        May be called from any thread.
        """
        xids = self._xids
        if xids is not None:
            xids.stop()

    def _awake_handles(self) -> dict[str, Any]:
        """Return the handles by UUID of GPUs that have been awake. Registering a GPU that sleeps would wake it."""
        now = self._clock.monotonic() / SECOND
        unwatched = [device for device in self._devices if device.uuid not in self._watched]
        self._watched |= {device.uuid for device in unwatched if device.is_awake(now)}
        return {device.uuid: device.handle for device in self._devices if device.uuid in self._watched}

    def _is_all_asleep(self) -> bool:
        """Return whether all GPUs are powered down. GPUs that no scan has found yet are looked up in sysfs."""
        known = self._last.devices
        is_all_known_asleep = bool(known) and all(device.state is Availability.ASLEEP for device in known)
        return is_all_known_asleep and bool(sleeping_gpus(self._pci))

    def _scan_devices(self, library: Library) -> DeviceScan:
        code, count = library.count()
        if count > _MAX_GPUS:
            code = UNKNOWN
        if code != SUCCESS:
            scan = self._build_scan("" if self._devices else advice(code))
            return scan.without_driver(advice(code)) if availability(code) is Availability.NO_DRIVER else scan
        # If nothing has changed, handles are not read again, because this would cost a call per GPU.
        if count != len(self._devices) or any(device.state not in _PRESENT for device in self._devices):
            self._update_devices(library, count)
        elif self._last.devices and not self._last.absent:
            return self._last
        none = advice(GPU_IS_LOST) if self._former else "the NVIDIA driver runs but finds no GPU: check 'nvidia-smi'"
        return self._build_scan("" if count else none)

    def _update_devices(self, library: Library, count: int) -> None:
        known = {device.device.index: device for device in self._devices}
        self._refused.clear()
        identities = self._identify_all(library, count, known)
        uuids_of_cards = Counter(
            known[index].uuid if identity.is_known and index in known else identity.uuid
            for index, identity in enumerate(identities)
            if identity is not None
        )
        self._shared |= {uuid for uuid, cards in uuids_of_cards.items() if uuid and cards > 1}
        devices: list[NvmlDevice] = []
        for index in range(count):
            uuids = {device.uuid for device in devices}
            device = self._device_at(library, index, identities[index], known.get(index), uuids)
            if device is not None:
                devices.append(device)
        for device in self._devices:
            if device not in devices:
                self._retire(device)
        self._former = {
            uuid: sample
            for uuid, sample in self._former.items()
            if not any(_is_same_card(sample.device, device.device) for device in devices)
        }
        self._devices = devices

    def _identify_all(self, library: Library, count: int, known: Mapping[int, NvmlDevice]) -> list[Identity | None]:
        """Return the identities of GPUs by index.

        None stands for a GPU that sleeps, or whose calls have not returned.
        """
        new: dict[int, PendingCall[Identity]] = {}
        for index in range(count):
            device = known.get(index)
            if index not in self._pending and (device is None or device.state is not Availability.ASLEEP):
                handle = device.handle.value if device else None
                new[index] = PendingCall(partial(identify, library, index, handle))
        self._pending.update(new)
        # The threads end with this scan, because days may pass before the next change.
        executor = self._executor or WorkerPool(self._clock)
        executor.run([*new.values()], _TIMEOUT)
        executor.close()
        # If one of these calls returns later, the next scan uses its result instead of repeating the call.
        late = {index: call for index, call in self._pending.items() if call.is_running}
        identities = [
            self._pending[index].pop() if index in self._pending and index not in late else None
            for index in range(count)
        ]
        self._pending = late
        for call in new.values():
            if call.failure is not None:
                raise call.failure
        return identities

    def _build_scan(self, problem: str) -> DeviceScan:
        return DeviceScan(
            devices=tuple(self._devices),
            absent=self._absent(),
            started_at={
                index: self._pending[index].started_at
                for index, code in self._refused.items()
                if code == PENDING and index in self._pending
            },
            codes=tuple(code for code in self._refused.values() if code != PENDING),
            driver=self._driver,
            problem=problem,
        )

    def _absent(self) -> tuple[Sample, ...]:
        default = Availability.LOST if self._library else Availability.NO_DRIVER
        former = list(self._former.values())
        known = {sample.device.index for sample in former} | {device.device.index for device in self._devices}
        why = {
            index: Availability.STALE if code == PENDING else availability(code)
            for index, code in self._refused.items()
        }
        rows = [sample._replace(state=why.get(sample.device.index, default)) for sample in former]
        rows += [self._nameless(index, why[index]) for index in why if index not in known]
        return tuple(rows)

    def _nameless(self, index: int, why: Availability) -> Sample:
        """Return the sample of a GPU that could not be identified. `why`: the reason.

        If every identified GPU still has its earlier index, the sample is of the restored device with this index.
        """
        device, before = unknown_device(index, why), self._restored.get(index)
        others = [other.device for other in self._devices]
        earlier = {place: sample.device for place, sample in self._restored.items()}
        if (
            before is None
            or any(_is_same_card(before.device, other) for other in others)
            or any(earlier.get(other.index, other).uuid != other.uuid for other in others)
        ):
            return absent_sample(device, why)
        return absent_sample(before.device._replace(missing=device.missing), why, before.value(XID))

    def _device_at(
        self, library: Library, index: int, identity: Identity | None, before: NvmlDevice | None, uuids: Set[str]
    ) -> NvmlDevice | None:
        """Return the device with this index.

        If the driver refuses it or its call hangs, store the reason and return None.

        `before`: the device that had this index so far. `uuids`: UUIDs of the devices with lower indexes. They are
        needed because a driver may return the same UUID twice.
        """
        if identity is None or not (identity.uuid or identity.is_known):
            # If the device was present before, its own driver calls show the reason.
            if before is None:
                self._refused[index] = identity.code if identity else PENDING
            return before
        if identity.is_known:
            if before is None or before.uuid not in self._shared:
                return before
            device = before.device
            identity = Identity(SUCCESS, before.handle, before.uuid, device.name, device.address, device.minor)
        uuid = identity.uuid
        if uuid in uuids or uuid in self._shared:
            uuid = _nameless_uuid(identity.address or str(index))
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

    def _retire(self, device: NvmlDevice) -> None:
        """Store the last row of a device that is gone, and the time of its last utilization sample."""
        self._former[device.uuid] = absent_sample(device.device, Availability.LOST, device.worst_xid)
        # A driver that comes back after a moment may return the same samples again.
        self._samples_until[device.uuid] = device.samples_until


def absent_sample(device: Device, why: Availability, xid: float = NAN) -> Sample:
    """Return the sample of a device that cannot be read.

    `xid`: code of its worst XID error, the only value in the sample.
    """
    if not xid > 0:
        return Sample(device, why, NO_VALUES)
    values = list(NO_VALUES)
    values[GPU_INDEX[XID]] = xid
    missing = {name: reason for name, reason in device.missing.items() if name != XID}
    return Sample(device._replace(missing=missing), why, values)


def _nameless_uuid(address: str) -> str:
    """Return the string that replaces the UUID of a card without a UUID of its own."""
    return f"PCI-{address}"


def _is_same_card(one: Device, other: Device) -> bool:
    """Return whether two devices are the same card. A card without a UUID of its own is identified by its address."""
    is_by_address = one.address != "" and _nameless_uuid(one.address) in (one.uuid, other.uuid)
    return one.uuid == other.uuid or (is_by_address and one.address == other.address)


def _sleeping_gpu(index: int, address: str) -> Sample:
    """Return the sample of a GPU that was already asleep when the driver was opened. It has no name until it wakes."""
    device = unknown_device(index, Availability.ASLEEP)._replace(uuid=_nameless_uuid(address))
    return Sample(device, Availability.ASLEEP, NO_VALUES)


def unknown_device(index: int, why: Availability) -> Device:
    """Return a device for a GPU that the driver counts but does not identify. The device is named by its index."""
    return Device(f"index-{index}", index, NAMELESS, dict.fromkeys((*FROM_DRIVERS, PROCESSES), why))
