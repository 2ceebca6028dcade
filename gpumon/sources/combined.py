"""Several sources as one: a machine with GPUs of two makers, or hardware beside a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from threading import Event, Thread
from typing import NamedTuple

from gpumon.common.clock import SECOND, Clock
from gpumon.common.driver_calls import DriverCall
from gpumon.common.numbers import NAN
from gpumon.model.device import Device, by_number
from gpumon.model.frame import Boundary, Run, Sample, XidEvent
from gpumon.model.metrics import GPU_METRICS, Availability
from gpumon.model.origin import Capability, Driver, Origin, SourceInfo
from gpumon.model.process import Process
from gpumon.model.units import counted
from gpumon.sources.base import AsksDriver, Reading, Source


def found(origin: Origin, driver: Driver, samples: Sequence[Sample]) -> str:
    """One line, such as `nvml: 8 GPUs, driver 580.65.06`, or why there is none; of several sources, each in turn."""
    if origin.parts:
        return "; ".join(
            found(part.origin, part.driver, [one for one in samples if one.device.source == part.origin.source])
            for part in origin.parts
        )
    number = sum(not sample.device.is_instance for sample in samples)
    parts = [counted(number, "GPU") if number else "no GPU"]
    parts += [f"driver {driver.version}"] if driver.version else []
    parts += [origin.label] if origin.label else []
    return ": ".join(text for text in (origin.source, ", ".join(parts), origin.problem) if text)


class SourceRead(NamedTuple):
    """One read of a source, with what it said of itself right after."""

    readings: Sequence[Reading]
    origin: Origin
    driver: Driver
    failure: str = ""
    """The error that the read ended with; empty when it did not."""


class Worker:
    """Reads a source when asked; one read is under way at most."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.under_way = False
        self._answer: SourceRead | None = None
        self._asked = Event()
        self._answered = Event()
        self._over = False
        # A daemon thread: a driver call that hangs must not keep the process from ending.
        self._thread = Thread(target=self._run, name="gpumon-source", daemon=True)

    def ask(self) -> None:
        """Begin a read, unless one is under way."""
        if self.under_way:
            return
        if not self._thread.is_alive():
            self._thread.start()
        self._answered.clear()
        self.under_way = True
        self._asked.set()

    def take(self, clock: Clock, until: int = 0) -> SourceRead | None:
        """The answer to what was asked, waiting for it until then (ns, CLOCK_MONOTONIC); None where it is not there."""
        if not self.under_way or not (self._answered.is_set() or clock.wait(self._answered, until)):
            return None
        self.under_way = False
        answer, self._answer = self._answer, None
        return answer

    def close(self) -> None:
        """Let go of the source, but not under a call that hangs: that ends with the process."""
        self._over = True
        self._asked.set()
        if not self.under_way or self._answered.is_set():
            self.source.close()

    def _run(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            if self._over:
                return
            readings: Sequence[Reading] = ()
            failure = ""
            try:
                readings = self.source.read()
            except Exception as error:  # a fault of one source must not silence the others
                failure = f"{type(error).__name__}: {error}"
            self._answer = SourceRead(readings, self.source.origin(), self.source.driver(), failure)
            self._answered.set()


PATIENCE = 0.6
"""Seconds that a tick waits for a source; one that has let a tick go by is not waited for again until it answers."""
FIRST_PATIENCE = 3.0
"""Seconds for the first answer: a driver may have to wake its GPUs."""
_NOTHING = [NAN] * len(GPU_METRICS)


class _Member:
    """One of the sources: its thread, and what it gave last."""

    def __init__(self, source: Source) -> None:
        self.worker = Worker(source)
        self.reading: Reading | None = None
        self.origin = source.origin()
        self.driver = Driver()
        self.failure = ""
        self.is_late = False
        self.boundaries: list[Boundary] = []
        self.utilization_samples: dict[str, list[tuple[int, float]]] = {}
        self.xids: list[XidEvent] = []

    @property
    def name(self) -> str:
        return self.origin.source

    def put(self, answer: SourceRead) -> None:
        """Keep an answer; what counts up is kept until it was given."""
        self.origin, self.driver, self.failure = answer.origin, answer.driver, answer.failure
        for reading in answer.readings:
            self.reading = reading
            self.boundaries += reading.boundaries
            self.xids += reading.xids
            for uuid, samples in reading.utilization_samples.items():
                self.utilization_samples.setdefault(uuid, []).extend(samples)

    def samples(self, now: int) -> Sequence[Sample]:
        """The samples of its last reading, as old as they are at `now` (ns)."""
        if self.reading is None:
            return ()
        if self.failure:
            return [Sample(sample.device, Availability.FAILED, _NOTHING) for sample in self.reading.samples]
        if not self.is_late:
            return self.reading.samples
        read_at = self.reading.monotonic_ns
        age = (now - read_at) / SECOND
        return [
            sample._replace(state=Availability.STALE, age=age, monotonic_ns=sample.monotonic_ns or read_at)
            if sample.state is Availability.OK
            else sample
            for sample in self.reading.samples
        ]

    def problem(self) -> str:
        """Why it gives nothing now; empty when all is well."""
        if self.failure:
            return f"it failed: {self.failure}"
        return "it has not answered yet" if self.is_late else self.origin.problem


class CombinedSource:
    """Reads its sources at the same time, each in a thread, and joins what they give at one moment.

    A source that hangs leaves its last samples, STALE; one that fails leaves its devices, FAILED. Each device keeps
    the index that its driver gives it, unless another has that already: hardware comes first. Where two sources give
    the same device, the first one counts. Only sources that stamp with this machine's clock can be combined.
    """

    tick_period = 0.0

    def __init__(
        self,
        sources: Sequence[Source],
        clock: Clock,
        patience: float = PATIENCE,
        first_patience: float = FIRST_PATIENCE,
    ) -> None:
        self.capabilities = reduce(or_, (source.capabilities for source in sources))
        self._clock = clock
        self._patience = patience, first_patience
        self._members = [_Member(source) for source in sources]
        # Of those that are equal the order of the user is kept.
        self._by_rank = sorted(self._members, key=lambda one: Capability.LIVE not in one.worker.source.capabilities)
        self._indexes: dict[str, int] = {}
        self._owners: dict[str, _Member] = {}
        self._shown: dict[str, tuple[Device, Device]] = {}
        self._processes: tuple[list[Sequence[Process]], tuple[Process, ...]] = [], ()

    def origin(self) -> Origin:
        """All names and labels; a problem only where every source has one. Its parts have each source's own."""
        parts = tuple(SourceInfo(one.origin._replace(problem=one.problem()), one.driver) for one in self._members)
        origins = [part.origin for part in parts]
        problems = [f"{origin.source}: {origin.problem}" for origin in origins if origin.problem]
        return Origin(
            ",".join(origin.source for origin in origins),
            ", ".join(f"{origin.source}: {origin.label}" for origin in origins if origin.label),
            "; ".join(problems) if len(problems) == len(origins) else "",
            ended=all(origin.ended for origin in origins),
            capabilities=self.capabilities,
            parts=parts,
            unanswered=min((origin.unanswered for origin in origins), default=0.0),
            speed=max((origin.speed for origin in origins), default=1.0),
        )

    def driver(self) -> Driver:
        """The driver, where one source has one; else the versions of all."""
        known = [one for one in self._members if one.driver.version]
        if len(known) == 1:
            return known[0].driver
        runtime = next((one.driver.runtime for one in known if one.driver.runtime), "")
        return Driver(", ".join(f"{one.name} {one.driver.version}" for one in known), runtime)

    def driver_calls(self) -> Sequence[DriverCall]:
        """Costs of the calls of all their drivers."""
        sources = [one.worker.source for one in self._members]
        return [call for source in sources if isinstance(source, AsksDriver) for call in source.driver_calls()]

    def read(self) -> Sequence[Reading]:
        monotonic, time = self._clock.monotonic(), self._clock.time()
        for one in self._members:
            if one.worker.under_way and (answer := one.worker.take(self._clock)):
                one.put(answer)  # to what an earlier tick asked
            one.is_late = one.worker.under_way
            one.worker.ask()
        for one in self._members:
            patience = 0.0 if one.is_late else self._patience[one.reading is None]
            answer = one.worker.take(self._clock, monotonic + round(patience * SECOND))
            if answer is not None:
                one.put(answer)
            one.is_late = answer is None
        return [self._joined(monotonic, time)]

    def close(self) -> None:
        for one in self._members:
            one.worker.close()

    def _joined(self, monotonic_ns: int, time_ns: int) -> Reading:
        samples: list[Sample] = []
        for one in self._by_rank:
            for sample in one.samples(monotonic_ns):
                device = self._device(one, sample.device)
                if device is not None:
                    samples.append(sample._replace(device=device))
        samples.sort(key=lambda sample: by_number(sample.device))
        known = [one.reading for one in self._members if one.reading is not None]
        boundaries = sorted((b for one in self._members for b in one.boundaries), key=lambda boundary: boundary.time_ns)
        new = {uuid: found for one in self._members for uuid, found in one.utilization_samples.items()}
        xids = sorted((xid for one in self._members for xid in one.xids), key=lambda xid: xid.monotonic_ns)
        for one in self._members:
            one.boundaries, one.utilization_samples, one.xids = [], {}, []
        runs: list[Run] = [run for reading in known for run in reading.runs]
        # The host is this machine's where any of the sources is.
        made_up = [] if Capability.LIVE in self.capabilities else [reading for reading in known if reading.host]
        host, hostname = (made_up[0].host, made_up[0].hostname) if made_up else (None, "")
        return Reading(
            monotonic_ns=monotonic_ns,
            time_ns=time_ns,
            samples=samples,
            processes=self._all_processes(known),
            runs=runs,
            boundaries=boundaries,
            host=host,
            hostname=hostname,
            utilization_samples=new,
            xids=xids,
        )

    def _device(self, one: _Member, device: Device) -> Device | None:
        """The device as it is shown: of its source, and with an index of its own; None where it is another source's."""
        uuid = device.uuid
        if self._owners.setdefault(uuid, one) is not one:
            return None
        before, shown = self._shown.get(uuid, (None, device))
        if before is not device:
            gpu = device.parent or uuid  # a MIG instance has the index of its GPU
            if gpu not in self._indexes:
                taken = set(self._indexes.values())
                self._indexes[gpu] = device.index if device.index not in taken else max(taken) + 1
            shown = device._replace(index=self._indexes[gpu], source=one.name)
            self._shown[uuid] = device, shown
        return shown

    def _all_processes(self, known: Sequence[Reading]) -> Sequence[Process]:
        """Processes of all; the same object as long as no source gives another."""
        given = [reading.processes for reading in known]
        before, joined = self._processes
        if len(before) != len(given) or any(a is not b for a, b in zip(before, given, strict=True)):
            joined = tuple(process for processes in given for process in processes)
            self._processes = given, joined
        return joined
