"""Combines several sources into one, such as GPUs of two vendors, or hardware and a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from gpumon.common.clock import SECOND, Clock
from gpumon.common.driver_calls import DriverCall
from gpumon.model.device import Device, by_number
from gpumon.model.frame import Boundary, Run, Sample, XidEvent
from gpumon.model.metrics import Availability
from gpumon.model.origin import Capability, Driver, Origin, SourceInfo
from gpumon.model.process import Process
from gpumon.model.units import counted
from gpumon.sources.base import NO_VALUES, HasDriverCalls, Reading, Source
from gpumon.sources.executor import Executor, PendingCall, WorkerPool


def describe_devices(origin: Origin, driver: Driver, samples: Sequence[Sample]) -> str:
    """Return one line about the devices, such as `nvml: 8 GPUs, driver 580.65.06`, or why there is no GPU."""
    if origin.parts:
        return "; ".join(
            describe_devices(
                part.origin, part.driver, [sample for sample in samples if sample.device.source == part.origin.source]
            )
            for part in origin.parts
        )
    count = sum(not sample.device.is_instance for sample in samples)
    parts = [counted(count, "GPU") if count else "no GPU"]
    parts += [f"driver {driver.version}"] if driver.version else []
    parts += [origin.label] if origin.label else []
    return ": ".join(text for text in (origin.source, ", ".join(parts), origin.problem) if text)


@dataclass(frozen=True, slots=True)
class _Result:
    """Result of one read of a source, with the source's origin and driver after the read."""

    readings: Sequence[Reading]
    origin: Origin
    driver: Driver


TIMEOUT = 0.6
"""A tick waits at most this many seconds for a source. After a source was late, ticks do not wait for it until it has
answered."""
FIRST_TIMEOUT = 3.0
"""The first read waits at most this many seconds, because a driver may have to wake its GPUs."""


class _Member:
    """A source of the combination: the call that reads it, and its last reading."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.call = PendingCall(self._read)
        self.reading: Reading | None = None
        self.origin = source.origin()
        self.driver = Driver()
        self.is_late = False
        """Whether the last read has not ended yet."""
        self.boundaries: list[Boundary] = []
        self.utilization_samples: dict[str, list[tuple[int, float]]] = {}
        self.xids: list[XidEvent] = []

    def _read(self) -> _Result:
        return _Result(self.source.read(), self.source.origin(), self.source.driver())

    @property
    def name(self) -> str:
        return self.origin.source

    @property
    def failure(self) -> str:
        """The error that the last read raised; empty if it succeeded."""
        error = self.call.failure
        return f"{type(error).__name__}: {error}" if error else ""

    def update(self) -> None:
        """Store the result of a read that has ended. Events and utilization samples accumulate until they are used."""
        self.is_late = self.call.is_running
        result = None if self.is_late else self.call.pop()
        if result is None:
            return
        self.origin, self.driver = result.origin, result.driver
        for reading in result.readings:
            self.reading = reading
            self.boundaries += reading.boundaries
            self.xids += reading.xids
            for uuid, samples in reading.utilization_samples.items():
                self.utilization_samples.setdefault(uuid, []).extend(samples)

    def samples(self, now: int) -> Sequence[Sample]:
        """Return the samples of the last reading, with their age at `now` (ns)."""
        if self.reading is None:
            return ()
        if self.failure:
            return [Sample(sample.device, Availability.FAILED, NO_VALUES) for sample in self.reading.samples]
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
        """Return why the source currently has no values; empty if it has values."""
        if self.failure:
            return f"the source failed: {self.failure}"
        return "the source has not answered yet" if self.is_late else self.origin.problem


class CombinedSource:
    """Reads several sources in threads, and combines their readings.

    If a source hangs, its last samples become STALE. If it fails, its devices become FAILED. Each device keeps the
    index that its driver assigns, unless another device already has this index. Devices of hardware sources get their
    index first. If two sources have the same device, the first source is used. Sources that do not use this machine's
    clock cannot be combined.
    """

    tick_period = 0.0

    def __init__(
        self,
        sources: Sequence[Source],
        clock: Clock,
        timeout: float = TIMEOUT,
        executor: Executor | None = None,
    ) -> None:
        """`timeout`: maximum seconds that a tick waits for a source. `executor`: reads the sources, by default in
        threads.
        """
        self.capabilities = reduce(or_, (source.capabilities for source in sources))
        self._clock = clock
        self._timeout = timeout
        self._executor = executor or WorkerPool(clock)
        self._members = [_Member(source) for source in sources]
        # The sort is stable, so the user's order is otherwise preserved.
        self._by_rank = sorted(self._members, key=lambda member: Capability.LIVE not in member.source.capabilities)
        self._indexes: dict[str, int] = {}
        self._owners: dict[str, _Member] = {}
        self._published: dict[str, tuple[Device, Device]] = {}
        """By UUID: the device as its source returned it, and the device as published."""
        self._processes: tuple[list[Sequence[Process]], tuple[Process, ...]] = [], ()

    def origin(self) -> Origin:
        """Return the names and labels of all sources. It reports a problem only if every source has one.

        Its `parts` are the origins of the sources.
        """
        parts = tuple(
            SourceInfo(member.origin._replace(problem=member.problem()), member.driver) for member in self._members
        )
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
            lacks_card=all(origin.lacks_card for origin in origins),
        )

    def driver(self) -> Driver:
        """Return the driver if only one source has a driver; otherwise the versions of all drivers."""
        members = [member for member in self._members if member.driver.version]
        if len(members) == 1:
            return members[0].driver
        runtime = next((member.driver.runtime for member in members if member.driver.runtime), "")
        return Driver(", ".join(f"{member.name} {member.driver.version}" for member in members), runtime)

    def driver_calls(self) -> Sequence[DriverCall]:
        sources = [member.source for member in self._members]
        return [call for source in sources if isinstance(source, HasDriverCalls) for call in source.driver_calls()]

    def read(self) -> Sequence[Reading]:
        monotonic, time = self._clock.monotonic(), self._clock.time()
        for member in self._members:
            member.update()  # the result of an earlier tick
        is_first = any(member.reading is None and not member.call.is_running for member in self._members)
        timeout = FIRST_TIMEOUT if is_first else self._timeout
        self._executor.run([member.call for member in self._members], round(timeout * SECOND))
        for member in self._members:
            member.update()
        return [self._join(monotonic, time)]

    def close(self) -> None:
        """Close the sources. If a call of a source hangs, this source stays open until the process ends."""
        self._executor.close()
        for member in self._members:
            if not member.call.is_running:
                member.source.close()

    def _join(self, monotonic_ns: int, time_ns: int) -> Reading:
        samples: list[Sample] = []
        for member in self._by_rank:
            for sample in member.samples(monotonic_ns):
                device = self._publish(member, sample.device)
                if device is not None:
                    samples.append(sample._replace(device=device))
        samples.sort(key=lambda sample: by_number(sample.device))
        readings = [member.reading for member in self._members if member.reading is not None]
        boundaries = [boundary for member in self._members for boundary in member.boundaries]
        utilization_samples = {
            uuid: ratios for member in self._members for uuid, ratios in member.utilization_samples.items()
        }
        xids = sorted((xid for member in self._members for xid in member.xids), key=lambda xid: xid.monotonic_ns)
        for member in self._members:
            member.boundaries, member.utilization_samples, member.xids = [], {}, []
        runs: list[Run] = [run for reading in readings for run in reading.runs]
        # If any source is live, the host metrics are of this machine.
        simulated = [] if Capability.LIVE in self.capabilities else [reading for reading in readings if reading.host]
        host, hostname = (simulated[0].host, simulated[0].hostname) if simulated else (None, "")
        return Reading(
            monotonic_ns=monotonic_ns,
            time_ns=time_ns,
            samples=samples,
            processes=self._join_processes(readings),
            runs=runs,
            boundaries=sorted(boundaries, key=lambda boundary: boundary.time_ns),
            host=host,
            hostname=hostname,
            utilization_samples=utilization_samples,
            xids=xids,
        )

    def _publish(self, member: _Member, device: Device) -> Device | None:
        """Return the device with its source and a unique index; None if another source already has the same device."""
        uuid = device.uuid
        if self._owners.setdefault(uuid, member) is not member:
            return None
        before, published = self._published.get(uuid, (None, device))
        if before is not device:
            gpu = device.parent or uuid  # a MIG instance has the index of its GPU
            if gpu not in self._indexes:
                used = set(self._indexes.values())
                self._indexes[gpu] = device.index if device.index not in used else max(used) + 1
            published = device._replace(index=self._indexes[gpu], source=member.name)
            self._published[uuid] = device, published
        return published

    def _join_processes(self, readings: Sequence[Reading]) -> Sequence[Process]:
        """Concatenate the processes of all sources. Return the same object while no source has a new list."""
        parts = [reading.processes for reading in readings]
        before, joined = self._processes
        if len(before) != len(parts) or any(a is not b for a, b in zip(before, parts, strict=True)):
            joined = tuple(process for processes in parts for process in processes)
            self._processes = parts, joined
        return joined
