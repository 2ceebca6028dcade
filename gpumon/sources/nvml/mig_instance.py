"""One MIG instance: a device by itself, of which its GPU keeps what is not divided."""

from __future__ import annotations

from ctypes import byref, c_uint, c_void_p
from functools import partial
from typing import Any, NamedTuple

from gpumon.common.clock import SECOND, Clock
from gpumon.common.numbers import NAN, is_known
from gpumon.model.device import Device
from gpumon.model.frame import Sample
from gpumon.model.metrics import FROM_DRIVERS, GPU_METRICS, Availability
from gpumon.sources.nvml import unattributed
from gpumon.sources.nvml.answers import AnswerRow, DeviceAnswers, Read
from gpumon.sources.nvml.costs import CallCost
from gpumon.sources.nvml.device_calls import DeviceCalls
from gpumon.sources.nvml.device_processes import DeviceProcesses
from gpumon.sources.nvml.device_reading import DeviceReading
from gpumon.sources.nvml.gpm import GPM_EVERY, GPM_METRICS, GpmReading
from gpumon.sources.nvml.lanes import AnyInquiry
from gpumon.sources.nvml.library import FUNCTION_NOT_FOUND, SUCCESS, Library
from gpumon.sources.nvml.mig import UNTOLD
from gpumon.sources.nvml.readings import MEMORY, Call

_NAMES = tuple(metric.name for metric in GPU_METRICS)
_OWN = frozenset((*MEMORY.metrics, *GPM_METRICS, unattributed.METRIC))
_LACKS = {
    **dict.fromkeys(FROM_DRIVERS, Availability.OF_WHOLE_GPU),
    **dict.fromkeys(UNTOLD, Availability.IN_MIG_MODE),
    **dict.fromkeys(_OWN, Availability.NOT_SUPPORTED),
}
_SURE_FOR = 30.0
"""Seconds until an instance that answers is asked again who it is: another one may have come in its place."""
_OK = Availability.OK


class InstanceIdentity(NamedTuple):
    """Answers of the driver about one instance; it is another one where any of them differs."""

    place: int
    handle: int
    uuid: str
    name: str
    gpu_instance: int


class Parent(NamedTuple):
    """The GPU of an instance."""

    handle: Any
    uuid: str
    number: int
    """Its index."""


def identify_instance(library: Library, place: int, handle: int) -> InstanceIdentity | None:
    """Ask for the identity of an instance; None of one that does not say it, or is gone meanwhile."""
    pointer, number = c_void_p(handle), c_uint()
    _, uuid = library.text("nvmlDeviceGetUUID", pointer)
    _, name = library.text("nvmlDeviceGetName", pointer)
    function = library.find("nvmlDeviceGetGpuInstanceId")
    code = function(pointer, byref(number)) if function else FUNCTION_NOT_FOUND
    return InstanceIdentity(place, handle, uuid, name, number.value) if uuid and code == SUCCESS else None


class MigInstance:
    """Reads one instance: its memory, its processes and, where there is GPM, what its part of the GPU does."""

    instances: tuple[MigInstance, ...] = ()
    """None: an instance is not divided further."""
    asking: tuple[AnyInquiry, ...] = ()
    """None: all that it asks is asked by `read`."""

    def __init__(self, library: Library, parent: Parent, identity: InstanceIdentity, clock: Clock) -> None:
        self._library = library
        self.identity = identity
        self.uuid = identity.uuid
        self.handle = c_void_p(identity.handle)
        self._clock = clock
        self._answers = DeviceAnswers(clock, {**_LACKS, **library.withheld})
        self._row = AnswerRow(_NAMES)
        self.device = Device(
            identity.uuid, parent.number, identity.name, dict(self._answers.missing), parent=parent.uuid,
            instance=identity.place,
        )  # fmt: skip
        gpm = Call(GPM_METRICS, GPM_EVERY, partial(_gpm, parent.handle, identity.gpu_instance), "nvmlGpmMigSampleGet")
        self._calls = DeviceCalls(
            library, self.handle, parent.number + identity.place, self._answers, library.withheld.keys(),
            table=(MEMORY, gpm), fallbacks=(),
        )  # fmt: skip
        self._processes = DeviceProcesses(
            library, self._answers, parent.number + identity.place, clock, has_shares=False
        )
        self._told: dict[str, Availability] = {}
        self._size = NAN
        self._sure_until = clock.monotonic() / SECOND + _SURE_FOR
        self.successor: InstanceIdentity | None = None
        """The one that has come in its place; None while there is none. Any thread may read it."""

    @property
    def state(self) -> Availability:
        """Whether it answers, and if not, why; may be asked from any thread."""
        return self._calls.state

    @property
    def failure(self) -> int:
        """The driver's code where the state is not OK; may be asked from any thread."""
        return self._calls.failure

    def costs(self) -> list[CallCost]:
        """Return what each call has cost here so far; may be called from any thread."""
        return [*self._calls.costs(), *self._processes.costs]

    def read(self, now: float) -> DeviceReading:
        """All that is due; metrics that are not keep their last value. `now` in seconds."""
        answers = self._answers
        self._calls.ask(now)
        if self.state is _OK:
            self._see_another(answers.values.get("gpu.memory_total", NAN), now)
            processes = self._processes.read(self.handle, now)
        else:
            processes = self._processes.unknown(self.state)
            self._sure_until = 0.0  # what answers next may be another one
        if answers.missing != self._told:
            self._told = answers.missing.copy()
            missing = {name: why for name, why in self._told.items() if name not in answers.values}
            self.device = self.device._replace(missing=missing)
        sample = Sample(
            device=self.device,
            state=self.state,
            values=self._row.of(answers),
            monotonic_ns=answers.read_at_ns,
            counters_monotonic_ns=answers.counters_at_ns,
        )
        return DeviceReading(sample, processes)

    def _see_another(self, size: float, now: float) -> None:
        """Ask who it is, where its size in bytes is not that of before, and now and then: here, where it may hang."""
        is_resized = is_known(size) and is_known(self._size) and size != self._size
        if not is_known(self._size):
            self._size = size
        if not is_resized and now < self._sure_until:
            return
        identity = identify_instance(self._library, self.identity.place, self.identity.handle)
        if identity is not None:
            self._sure_until = now + _SURE_FOR
            if is_resized or identity != self.identity:
                self.successor = identity


def _gpm(parent: Any, gpu_instance: int, library: Library) -> Read | None:
    """GPM of an instance: the driver takes a sample of it by its GPU and its number there."""
    names = ("nvmlGpmQueryDeviceSupport", "nvmlGpmMigSampleGet", "nvmlGpmMetricsGet")
    support, sample, calculate = (library.find(name) for name in names)
    if support is None or sample is None or calculate is None:
        return None
    number = c_uint(gpu_instance)
    return GpmReading(
        library,
        (lambda _, answer: support(parent, answer), lambda _, buffer: sample(parent, number, buffer), calculate),
    )
