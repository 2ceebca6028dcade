"""MIG: detects whether a GPU is divided, finds its instances, and reads each instance like a device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import byref, c_uint, c_void_p
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any

from gpumon.common.clock import SECOND, Clock
from gpumon.common.numbers import NAN, is_known
from gpumon.model.device import Device
from gpumon.model.frame import Sample
from gpumon.model.metrics import FROM_DRIVERS, Availability
from gpumon.sources.executor import AnyCall, PendingCall, WorkerPool
from gpumon.sources.nvml.calls import DeviceCalls
from gpumon.sources.nvml.gpm import GPM_EVERY, GPM_METRICS, GpmReader
from gpumon.sources.nvml.library import Library
from gpumon.sources.nvml.processes import UNATTRIBUTED, DeviceProcesses
from gpumon.sources.nvml.readings import MEMORY_CALL, Call
from gpumon.sources.nvml.return_codes import FUNCTION_NOT_FOUND, NOT_FOUND, SUCCESS, availability
from gpumon.sources.nvml.utilization import UtilizationSamples
from gpumon.sources.nvml.values import RETRY, RETRY_UNSUPPORTED, CallCost, DeviceValues, Read
from gpumon.sources.process_cache import ListedProcess


@dataclass(frozen=True, slots=True)
class DeviceReading:
    """Everything read from one device at one tick."""

    sample: Sample
    processes: Sequence[ListedProcess] | None = None
    """Processes on the device; None if they were not read. If the list is incomplete, `missing` of the device has the
    reason."""
    utilization_samples: UtilizationSamples = ()
    """New samples from the driver's buffer. Usually empty, because the buffer is read only every few seconds."""
    instances_changed: bool = False
    """Whether the MIG instances have changed."""


INSTANCES = "gpu.mig_instances"
UTILIZATION = "gpu.utilization"
MODE_EVERY = 30.0
"""Seconds between two checks of an undivided GPU. If the GPU is divided between two checks, gpumon notices this
immediately, because the utilization of the GPU is then missing. The instances of a divided GPU are checked every 2 s.
"""
_SOON = 0.5
"""Minimum seconds between two checks."""
SEARCH_EVERY = 30.0
"""Seconds between two searches of all MIG device indexes."""
UNSUPPORTED_WITH_MIG = (
    "gpu.utilization", "gpu.memory_utilization", "gpu.encoder_utilization", "gpu.decoder_utilization",
    "gpu.jpeg_utilization", "gpu.optical_flow_utilization", "gpu.utilization_low", "gpu.idle_share",
)  # fmt: skip
"""Metrics that are not supported in MIG mode according to nvml.h."""
_MAX_INDEXES = 64
"""Maximum number of MIG device indexes that are searched. Current GPUs have 7."""


def explain_mig_mode(missing: Mapping[str, Availability]) -> dict[str, Availability]:
    """Return the reasons for missing metrics of a GPU in MIG mode.

    For metrics that the driver does not support in MIG mode, the reason becomes IN_MIG_MODE.
    """
    return {
        name: Availability.IN_MIG_MODE if why is Availability.NOT_SUPPORTED and name in UNSUPPORTED_WITH_MIG else why
        for name, why in missing.items()
    }


class MigMode:
    """Whether a GPU is in MIG mode, and the handles of its instances. Both are results of the last `refresh`."""

    def __init__(self, library: Library, device: DeviceValues) -> None:
        self._device = device
        self._get_mode = library.find("nvmlDeviceGetMigMode")
        self._get_count = library.find("nvmlDeviceGetMaxMigDeviceCount")
        self._get_handle = library.find("nvmlDeviceGetMigDeviceHandleByIndex")
        self._has_succeeded = False
        self._refreshed_at = self._searched_at = -inf
        self._had_utilization = False
        """Whether the GPU had a utilization at the last refresh. If the utilization is missing now, the GPU may have
        been divided."""
        self._index_count = 0
        self.cost = CallCost("nvmlDeviceGetMigMode")
        self.is_on = False
        self.handles: Mapping[int, int] = {}
        """Handles of the instances by MIG device index."""
        self.due = inf if self._get_mode is None else 0.0
        """Time of the next refresh of the mode, in seconds."""

    @property
    def is_known(self) -> bool:
        """Whether the last refresh succeeded."""
        return INSTANCES in self._device.values

    def may_be_due(self, now: float) -> bool:
        """Return whether a refresh may be due, because this GPU may have been divided by MIG since the last refresh.

        A GPU without utilization may have been divided. `now`: current time in seconds.
        """
        return not self.is_on and self._has_succeeded and (self._had_utilization or now - self._refreshed_at >= RETRY)

    def refresh(self, handle: Any, now: float) -> None:
        """Read the mode and the handles from the driver.

        If this fails, keep the previous mode and handles. `now` in seconds.
        """
        self._refreshed_at, self._had_utilization = now, UTILIZATION in self._device.values
        code = self.cost.measure(self._device.clock, self._read, handle, now)
        why = availability(code)
        if why is Availability.OK:
            self._has_succeeded = True
            self._device.set(INSTANCES, float(len(self.handles)))
            self.due = now + (RETRY if self.is_on else MODE_EVERY)
        else:
            self._device.set_missing(INSTANCES, why)
            is_unsupported = why is Availability.NOT_SUPPORTED and not self._has_succeeded
            self.due = now + (RETRY_UNSUPPORTED if is_unsupported else RETRY)

    def refresh_soon(self, now: float) -> None:
        """Schedule a refresh. Called if an instance does not answer and may be gone."""
        self.due = min(self.due, max(now, self._refreshed_at + _SOON))

    def _read(self, handle: Any, now: float) -> int:
        """Read the mode and, if MIG is on, the handles. Return the NVML return code."""
        current, pending = c_uint(), c_uint()
        code = self._get_mode(handle, byref(current), byref(pending)) if self._get_mode else FUNCTION_NOT_FOUND
        if code == SUCCESS:
            self.is_on = current.value != 0
            if self.is_on:
                return self._read_handles(handle, now)
            self.handles, self._index_count = {}, 0
        return code

    def _read_handles(self, handle: Any, now: float) -> int:
        """Read the handle of each MIG device index. If a read fails, keep the previous handles.

        Drivers assign the indexes in order, so usually only the indexes in use and the next one are read.
        """
        if self._get_count is None or self._get_handle is None:
            return FUNCTION_NOT_FOUND
        count, instance, handles = c_uint(), c_void_p(), dict[int, int]()
        is_search = now - self._searched_at >= SEARCH_EVERY or not self._index_count
        if is_search:
            code = self._get_count(handle, byref(count))
            if code != SUCCESS:
                return code
            self._index_count = min(count.value, _MAX_INDEXES)
        last = max(self.handles, default=-1)
        for mig_index in range(self._index_count):
            code = self._get_handle(handle, c_uint(mig_index), byref(instance))
            if code == SUCCESS and instance.value:
                handles[mig_index] = instance.value
            elif code not in (SUCCESS, NOT_FOUND):
                return code
            elif mig_index > last and not is_search:
                break
        self.handles = handles
        if is_search:
            self._searched_at = now
        return SUCCESS


_OWN_METRICS = frozenset((*MEMORY_CALL.metrics, *GPM_METRICS, UNATTRIBUTED))
_MISSING = {
    **dict.fromkeys(FROM_DRIVERS, Availability.OF_WHOLE_GPU),
    **dict.fromkeys(UNSUPPORTED_WITH_MIG, Availability.IN_MIG_MODE),
    **dict.fromkeys(_OWN_METRICS, Availability.NOT_SUPPORTED),
}
_IDENTITY_VALID_FOR = 30.0
"""The identity of an instance is checked again after this many seconds, because another instance may have replaced
it."""
_OK = Availability.OK


@dataclass(frozen=True, slots=True)
class InstanceIdentity:
    """Identity of an instance. Two instances are different if any field differs."""

    mig_index: int
    handle: int
    uuid: str
    name: str
    gpu_instance: int


@dataclass(frozen=True, slots=True)
class Parent:
    """The GPU of an instance."""

    handle: Any
    uuid: str
    index: int


def identify_instance(library: Library, mig_index: int, handle: int) -> InstanceIdentity | None:
    """Return the identity of an instance; None if it cannot be read. The instance may have been removed."""
    pointer, number = c_void_p(handle), c_uint()
    _, uuid = library.text("nvmlDeviceGetUUID", pointer)
    _, name = library.text("nvmlDeviceGetName", pointer)
    function = library.find("nvmlDeviceGetGpuInstanceId")
    code = function(pointer, byref(number)) if function else FUNCTION_NOT_FOUND
    return InstanceIdentity(mig_index, handle, uuid, name, number.value) if uuid and code == SUCCESS else None


class MigInstance:
    """Reads one instance: memory, processes and, with GPM, the activity of the instance."""

    instances: tuple[MigInstance, ...] = ()
    """Always empty, because an instance is not divided further."""
    pending_calls: tuple[AnyCall, ...] = ()
    """Always empty, because `read` makes all calls."""

    def __init__(self, library: Library, parent: Parent, identity: InstanceIdentity, clock: Clock) -> None:
        self._library = library
        self.identity = identity
        self.uuid = identity.uuid
        self.handle = c_void_p(identity.handle)
        self._clock = clock
        self._latest = DeviceValues(clock, {**_MISSING, **library.withheld})
        self.device = Device(
            identity.uuid, parent.index, identity.name, dict(self._latest.missing), parent=parent.uuid,
            instance=identity.mig_index,
        )  # fmt: skip
        gpm = Call(
            GPM_METRICS, GPM_EVERY, partial(_bind_gpm, parent.handle, identity.gpu_instance), "nvmlGpmMigSampleGet"
        )
        self._calls = DeviceCalls(
            library, self.handle, parent.index + identity.mig_index, self._latest, library.withheld.keys(),
            table=(MEMORY_CALL, gpm), fallbacks=(),
        )  # fmt: skip
        order = parent.index + identity.mig_index
        self._processes = DeviceProcesses(library, self._latest, order, clock, has_shares=False)
        self._published_missing: dict[str, Availability] = {}
        self._size = NAN
        self._identity_valid_until = clock.monotonic() / SECOND + _IDENTITY_VALID_FOR
        self.successor: InstanceIdentity | None = None
        """The instance that has replaced this one; None if it was not replaced. May be read from any thread."""

    @property
    def state(self) -> Availability:
        """OK, or why the instance does not answer. May be read from any thread."""
        return self._calls.state

    @property
    def failure(self) -> int:
        """Return code of the driver if the state is not OK. May be read from any thread."""
        return self._calls.failure

    def costs(self) -> list[CallCost]:
        """Return the cost of each driver function so far. May be called from any thread."""
        return [*self._calls.costs(), *self._processes.costs]

    def read(self, now: float) -> DeviceReading:
        """Make the calls that are due at `now` (seconds). Other metrics keep their last value.

        This runs in the thread of the instance, because the calls may hang.
        """
        latest = self._latest
        self._calls.read(now)
        if self.state is _OK:
            self._check_identity(latest.values.get("gpu.memory_total", NAN), now)
            processes = self._processes.read(self.handle, now)
        else:
            processes = self._processes.set_unknown(self.state)
            self._identity_valid_until = 0.0  # if it answers again, it may be another instance
        if latest.missing != self._published_missing:
            self._published_missing = latest.missing.copy()
            missing = {name: why for name, why in self._published_missing.items() if name not in latest.values}
            self.device = self.device._replace(missing=missing)
        sample = Sample(
            device=self.device,
            state=self.state,
            values=latest.row(),
            monotonic_ns=latest.read_at_ns,
            counters_monotonic_ns=latest.counters_at_ns,
        )
        return DeviceReading(sample, processes)

    def _check_identity(self, size: float, now: float) -> None:
        """Check the identity every 30 s, and immediately if the memory size `size` (bytes) has changed.

        This runs in the thread of the instance, because the calls may hang.
        """
        is_resized = is_known(size) and is_known(self._size) and size != self._size
        if not is_known(self._size):
            self._size = size
        if not is_resized and now < self._identity_valid_until:
            return
        identity = identify_instance(self._library, self.identity.mig_index, self.identity.handle)
        if identity is not None:
            self._identity_valid_until = now + _IDENTITY_VALID_FOR
            if is_resized or identity != self.identity:
                self.successor = identity


def _bind_gpm(parent: Any, gpu_instance: int, library: Library) -> Read | None:
    """Return a GPM reader for an instance; None if the driver has no GPM.

    The driver identifies the instance by the handle `parent` of its GPU and the id `gpu_instance` on that GPU.
    """
    names = ("nvmlGpmQueryDeviceSupport", "nvmlGpmMigSampleGet", "nvmlGpmMetricsGet")
    support, sample, compute = (library.find(name) for name in names)
    if support is None or sample is None or compute is None:
        return None
    number = c_uint(gpu_instance)
    return GpmReader(
        library,
        (lambda _, result: support(parent, result), lambda _, buffer: sample(parent, number, buffer), compute),
    )


_TIMEOUT = round(0.3 * SECOND)
"""A refresh waits this many ns for the identities of new instances. Slower instances appear with a later refresh."""
_IdentityCall = PendingCall[InstanceIdentity | None]


class MigInstances:
    """Finds the instances of a GPU. Must be used by one thread at a time."""

    def __init__(self, library: Library, parent: Parent, device: DeviceValues, clock: Clock) -> None:
        self._library = library
        self._parent = parent
        self._clock = clock
        self._mode = MigMode(library, device)
        self._pending: dict[tuple[int, int], _IdentityCall] = {}
        """Pending identity calls for new instances, by index and handle."""
        self._failing: set[str] = set()
        """UUIDs of the instances that did not answer at the last tick, or have been replaced."""
        self.due = self._mode.due
        """Time of the next refresh, in seconds."""
        self.is_on = False
        """Whether the GPU is in MIG mode, with or without instances."""
        self.is_divided = False
        """True if processes on this GPU can run only on its instances. False if the instances are not visible."""
        self.instances: tuple[MigInstance, ...] = ()
        """Instances of the GPU, sorted by MIG device index. The sequence is only replaced as a whole, so any thread may
        read it."""

    @property
    def cost(self) -> CallCost:
        """Durations of all calls of refreshes."""
        return self._mode.cost

    @property
    def pending_calls(self) -> tuple[AnyCall, ...]:
        """Identity calls that had not returned when the last refresh ended. May be read from any thread."""
        return tuple(self._pending.values())

    def may_be_due(self, now: float) -> bool:
        """Return whether this GPU, if it has no utilization, may have been divided since the last refresh."""
        return self._mode.may_be_due(now)

    def check_instances(self, now: float) -> None:
        """Schedule a refresh if an instance has stopped answering, because it may have been removed or replaced."""
        failing = {instance.uuid for instance in self.instances if instance.state is not _OK or instance.successor}
        if failing - self._failing:
            self._mode.refresh_soon(now)
            self.due = self._mode.due
        self._failing = failing

    def refresh(self, now: float) -> bool:
        """Read mode and instances from the driver, and return whether anything has changed."""
        mode, before = self._mode, (self.is_on, self.instances)
        mode.refresh(self._parent.handle, now)
        keys = sorted(mode.handles.items())
        known = {(instance.identity.mig_index, instance.identity.handle): instance for instance in self.instances}
        identities = self._identify([key for key in keys if key not in known])
        instances: dict[str, MigInstance] = {}
        for key in keys:
            instance = known.get(key)
            identity = instance.successor if instance else identities.get(key)
            if identity is not None:
                instance = MigInstance(self._library, self._parent, identity, self._clock)
            if instance is None:
                mode.refresh_soon(now)
            else:
                instances.setdefault(instance.uuid, instance)
        self.is_on, self.instances, self.due = mode.is_on, tuple(instances.values()), mode.due
        self.is_divided = mode.is_on and (mode.is_known or bool(instances))
        return (self.is_on, self.instances) != before

    def _identify(self, new: Sequence[tuple[int, int]]) -> dict[tuple[int, int], InstanceIdentity]:
        """Read the identities of new instances, by index and handle. A call that hangs does not block the GPU."""
        late = {key: call for key, call in self._pending.items() if call.is_running or key in new}
        started = {
            key: _IdentityCall(partial(identify_instance, self._library, *key)) for key in new if key not in late
        }
        if started:
            executor = WorkerPool(self._clock)  # only for this refresh: the next one may be days away
            executor.run([*started.values()], _TIMEOUT)
            executor.close()
        self._pending = {**late, **started}
        ended = [key for key, call in self._pending.items() if not call.is_running]
        results = {key: self._pending.pop(key).pop() for key in ended}
        return {key: identity for key, identity in results.items() if identity is not None}
