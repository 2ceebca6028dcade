"""MIG: whether a GPU is divided, and the handles of its instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import byref, c_uint, c_void_p
from functools import partial
from math import inf
from typing import Any, NamedTuple

from gpumon.common.clock import SECOND, Clock
from gpumon.common.numbers import NAN, is_known
from gpumon.model.device import Device
from gpumon.model.frame import Sample
from gpumon.model.metrics import FROM_DRIVERS, GPU_METRICS, Availability
from gpumon.sources.nvml import processes
from gpumon.sources.nvml.calls import DeviceCalls
from gpumon.sources.nvml.executor import AnyInquiry, Inquiry, Lanes
from gpumon.sources.nvml.gpm import GPM_EVERY, GPM_METRICS, GpmReading
from gpumon.sources.nvml.library import FUNCTION_NOT_FOUND, NOT_FOUND, SUCCESS, Library, availability
from gpumon.sources.nvml.processes import DeviceProcesses, Held
from gpumon.sources.nvml.readings import MEMORY_CALL, Call
from gpumon.sources.nvml.utilization import UtilizationSamples
from gpumon.sources.nvml.values import AGAIN, UNSUPPORTED, AnswerRow, CallCost, DeviceAnswers, Read


class DeviceReading(NamedTuple):
    """All that one device gives at one tick."""

    sample: Sample
    processes: Sequence[Held] | None = None
    """Those that are known; None where none were asked for. Where they are not all, the device's `missing` says why."""
    utilization_samples: UtilizationSamples = ()
    """The driver's own that are new; mostly none, as they come several seconds at once."""
    is_divided_anew: bool = False
    """Whether it has other MIG instances than before."""


INSTANCES = "gpu.mig_instances"
UTILIZATION = "gpu.utilization"
MODE_EVERY = 30.0
"""Seconds between two looks at a GPU that is whole. One that is divided meanwhile is seen at once: it has no
utilization any more. One that is divided is looked at every 2 s."""
_SOON = 0.5
"""Seconds between two looks at least."""
SEARCH_EVERY = 30.0
"""Seconds between two looks at all its places."""
UNTOLD = (
    "gpu.utilization", "gpu.memory_utilization", "gpu.encoder_utilization", "gpu.decoder_utilization",
    "gpu.jpeg_utilization", "gpu.optical_flow_utilization", "gpu.utilization_low", "gpu.idle_share",
)  # fmt: skip
"""Metrics of the work of a GPU: nvml.h says of each that it is not supported where MIG is on."""
_MOST = 64
"""Places that are looked at: a GPU of today has 7."""


def explained(missing: Mapping[str, Availability]) -> dict[str, Availability]:
    """The reasons of a GPU that MIG divides."""
    unspoken = Availability.NOT_SUPPORTED
    return {
        name: Availability.IN_MIG_MODE if why is unspoken and name in UNTOLD else why for name, why in missing.items()
    }


class Mig:
    """MIG of one GPU, as its driver told last."""

    def __init__(self, library: Library, answers: DeviceAnswers) -> None:
        self._answers = answers
        self._mode = library.find("nvmlDeviceGetMigMode")
        self._places = library.find("nvmlDeviceGetMaxMigDeviceCount")
        self._by_index = library.find("nvmlDeviceGetMigDeviceHandleByIndex")
        self._is_told = False
        """Whether this GPU has ever answered."""
        self._looked_at = self._searched_at = -inf
        self._was_busy_known = False
        """Whether the GPU had a utilization at the last look: that it has none is then news."""
        self._most = 0
        self.cost = CallCost("nvmlDeviceGetMigMode")
        self.is_on = False
        self.handles: Mapping[int, int] = {}
        """Of the instances, by their place on the GPU."""
        self.due = inf if self._mode is None else 0.0
        """Seconds: when it is to be asked again."""

    @property
    def is_known(self) -> bool:
        """Whether the last look was answered."""
        return INSTANCES in self._answers.values

    def is_due(self, now: float) -> bool:
        """Whether a GPU that has no utilization may have been divided since the last look."""
        return not self.is_on and self._is_told and (self._was_busy_known or now - self._looked_at >= AGAIN)

    def look(self, handle: Any, now: float) -> None:
        """Ask again. What was known stays where the driver answers with an error."""
        self._looked_at, self._was_busy_known = now, UTILIZATION in self._answers.values
        code = self.cost.timed(self._answers.clock, self._ask, handle, now)
        why = availability(code)
        if why is Availability.OK:
            self._is_told = True
            self._answers.give(INSTANCES, float(len(self.handles)))
            self.due = now + (AGAIN if self.is_on else MODE_EVERY)
        else:
            self._answers.lack(INSTANCES, why)
            self.due = now + (UNSUPPORTED if why is Availability.NOT_SUPPORTED and not self._is_told else AGAIN)

    def look_soon(self, now: float) -> None:
        """Look again soon: an instance does not answer, and may be gone."""
        self.due = min(self.due, max(now, self._looked_at + _SOON))

    def _ask(self, handle: Any, now: float) -> int:
        """Ask for the mode, and where it is on for the instances; return the driver's code."""
        current, pending = c_uint(), c_uint()
        code = self._mode(handle, byref(current), byref(pending)) if self._mode else FUNCTION_NOT_FOUND
        if code == SUCCESS:
            self.is_on = current.value != 0
            if self.is_on:
                return self._find(handle, now)
            self.handles, self._most = {}, 0
        return code

    def _find(self, handle: Any, now: float) -> int:
        """Ask for the handle at each place; what was known stays where one fails.

        Drivers fill the places in their order, so mostly no place is asked for but those and the one behind them.
        """
        if self._places is None or self._by_index is None:
            return FUNCTION_NOT_FOUND
        number, instance, found = c_uint(), c_void_p(), dict[int, int]()
        is_search = now - self._searched_at >= SEARCH_EVERY or not self._most
        if is_search:
            code = self._places(handle, byref(number))
            if code != SUCCESS:
                return code
            self._most = min(number.value, _MOST)
        last = max(self.handles, default=-1)
        for place in range(self._most):
            code = self._by_index(handle, c_uint(place), byref(instance))
            if code == SUCCESS and instance.value:
                found[place] = instance.value
            elif code not in (SUCCESS, NOT_FOUND):
                return code
            elif place > last and not is_search:
                break
        self.handles = found
        if is_search:
            self._searched_at = now
        return SUCCESS


_NAMES = tuple(metric.name for metric in GPU_METRICS)
_OWN = frozenset((*MEMORY_CALL.metrics, *GPM_METRICS, processes.METRIC))
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
            table=(MEMORY_CALL, gpm), fallbacks=(),
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


_PATIENCE = round(0.3 * SECOND)
"""ns that a look waits for new instances to say who they are: those that take longer are there with a later look."""
_Asked = Inquiry[InstanceIdentity | None]


class MigInstances:
    """Looks for the instances of a GPU; one thread at a time may ask it."""

    def __init__(self, library: Library, parent: Parent, answers: DeviceAnswers, clock: Clock) -> None:
        self._library = library
        self._parent = parent
        self._clock = clock
        self._mig = Mig(library, answers)
        self._asked: dict[tuple[int, int], _Asked] = {}
        """Inquiries of instances that have not said yet who they are, by place and handle."""
        self._silent: set[str] = set()
        """UUIDs of those that did not answer at the last tick, or are others by now."""
        self.due = self._mig.due
        """Seconds: when to look next."""
        self.is_on = False
        """Whether the GPU is in MIG mode, with instances or without."""
        self.is_divided = False
        """Whether its instances, of which there may be none, have what runs on it. Not where they may not be seen."""
        self.all: tuple[MigInstance, ...] = ()
        """In the order of their places; set as a whole, so any thread may read it."""

    @property
    def cost(self) -> CallCost:
        """Of all that a look asks."""
        return self._mig.cost

    @property
    def asking(self) -> tuple[AnyInquiry, ...]:
        """Inquiries that have let a look go by; may be asked from any thread."""
        return tuple(self._asked.values())

    def may_be_due(self, now: float) -> bool:
        """Whether a GPU of which the utilization is not known may have been divided since the last look."""
        return self._mig.is_due(now)

    def watch(self, now: float) -> None:
        """Look soon where an instance does not answer any more, as it may be gone, or is another one."""
        silent = {one.uuid for one in self.all if one.state is not _OK or one.successor}
        if silent - self._silent:
            self._mig.look_soon(now)
            self.due = self._mig.due
        self._silent = silent

    def look(self, now: float) -> bool:
        """Ask the driver, and return whether anything is other than before."""
        mig, before = self._mig, (self.is_on, self.all)
        mig.look(self._parent.handle, now)
        places = sorted(mig.handles.items())
        known = {(one.identity.place, one.identity.handle): one for one in self.all}
        identities = self._identify([place for place in places if place not in known])
        found: dict[str, MigInstance] = {}
        for place in places:
            one = known.get(place)
            identity = one.successor if one else identities.get(place)
            if identity is not None:
                one = MigInstance(self._library, self._parent, identity, self._clock)
            if one is None:
                mig.look_soon(now)
            else:
                found.setdefault(one.uuid, one)
        self.is_on, self.all, self.due = mig.is_on, tuple(found.values()), mig.due
        self.is_divided = mig.is_on and (mig.is_known or bool(found))
        return (self.is_on, self.all) != before

    def _identify(self, new: Sequence[tuple[int, int]]) -> dict[tuple[int, int], InstanceIdentity]:
        """Ask new instances who they are, by place and handle; one whose calls hang must not hold up its GPU."""
        late = {place: one for place, one in self._asked.items() if one.is_under_way or place in new}
        asked = {place: _Asked(partial(identify_instance, self._library, *place)) for place in new if place not in late}
        if asked:
            asker = Lanes(self._clock)  # of this look alone: the next one that finds something may be days away
            asker.ask([*asked.values()], _PATIENCE)
            asker.close()
        self._asked = {**late, **asked}
        ended = [place for place, one in self._asked.items() if not one.is_under_way]
        answers = {place: self._asked.pop(place).take() for place in ended}
        return {place: identity for place, identity in answers.items() if identity is not None}
