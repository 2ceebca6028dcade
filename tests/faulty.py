"""A daemon at 10 Hz on a stub driver with eight GPUs, to which faults are done: its frames, and what must hold of them.

A busy machine delays a daemon too: what its threads waited for a processor is neither the driver's fault nor ours.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

from gpumon.common.clock import SECOND
from gpumon.common.paths import Places
from gpumon.live import Live, follow
from gpumon.model.frame import Frame, Sample
from gpumon.model.metrics import BY_NAME, GPU_INDEX, Availability, Kind
from gpumon.sources.nvml.readings import CALLS
from gpumon.sources.nvml.values import EVERY_TICK
from tests.nvml import METRICS, Process, Stub
from tests.programs import daemon, environment, until, waited

GPUS = 8
EACH = range(GPUS)
INTERVAL = 0.1
RECOVERY = 3.0
"""Seconds within which all is well after a fault is over."""
LATE = 0.05
"""Seconds that the threads of a daemon wait for a processor, at least, where a tick is late for that."""
FAST = [name for call in CALLS if call.period == EVERY_TICK for name in call.metrics if name in METRICS]
GAUGES = [name for name in FAST if BY_NAME[name].kind is Kind.GAUGE]
COUNTERS = [name for name in FAST if BY_NAME[name].kind is Kind.COUNTER]
OF_THE_BUFFER = {"gpu.utilization_low", "gpu.idle_share"}
"""Of samples that the driver keeps: known when it has new ones."""
OF_INSTANCES = {"gpu.memory_total", "gpu.memory_used", "gpu.memory_reserved", "gpu.memory_unattributed"}
"""Metrics that a MIG instance has without GPM."""
OK, STALE = Availability.OK, Availability.STALE
NOTHING: Mapping[str, float] = {}


class Machine:
    """A daemon on a stub driver, and its frames as they come."""

    def __init__(self, stub: Stub, process: Popen[str], live: Live) -> None:
        self.stub, self.process = stub, process
        self.frames: list[Frame] = []
        """All since the last `begin`."""
        self.missing: set[str] = set()
        """Metrics that GPUs lack while all is well."""
        self._live = live
        self._number = 0
        self._queued = 0.0

    def begin(self) -> None:
        """Look at what comes from now on."""
        newest = until(self._live.latest)
        self._number, self.frames = newest.number, [newest]
        self._queued = waited(self.process)

    def until(self, true: Callable[[Frame], bool]) -> Frame:
        """Return the first new frame of which it is true, when it has come."""
        seen = len(self.frames)

        def found() -> Frame | None:
            nonlocal seen
            assert self.process.poll() is None, "the daemon has ended"
            new = self._live.since(self._number)
            if new:
                assert new[0].number == self._number + 1, "a frame is lost"
                self._number = new[-1].number
                self.frames += new
            unseen, seen = self.frames[seen:], len(self.frames)
            return next((frame for frame in unseen if true(frame)), None)

        return until(found)

    def take(self, count: int) -> list[Frame]:
        """Return so many frames more."""
        last = self.frames[-1].number
        self.until(lambda frame: frame.number >= last + count)
        return [frame for frame in self.frames if frame.number > last]

    def queued(self) -> float:
        """Seconds that its threads waited for a processor since `begin`."""
        return waited(self.process) - self._queued

    def is_well(self, frame: Frame) -> bool:
        """Whether each GPU is there with all that it has."""
        return (
            [sample.device.uuid for sample in frame.samples] == [self.stub.uuid(gpu) for gpu in EACH]
            and all(sample.state is OK for sample in frame.samples)
            and all({*sample.device.missing} <= self.missing | OF_THE_BUFFER for sample in frame.samples)
            and {process.uuid for process in frame.processes} == {self.stub.uuid(gpu) for gpu in EACH}
        )

    def mend(self) -> int:
        """End each fault; return when: ns, CLOCK_MONOTONIC."""
        self.stub.clear_faults()
        self.stub.gpus = GPUS
        for gpu in EACH:
            self.stub.set_mig(gpu, None)
        set_processes(self.stub)
        return time.monotonic_ns()

    def recover(self) -> float:
        """End each fault, and return the seconds until all is well, less those that the machine was busy."""
        ended = self.mend()
        queued = self.queued()
        well = self.until(
            lambda frame: self.is_well(frame) and all(sample.monotonic_ns > ended for sample in frame.samples)
        )
        return (well.monotonic_ns - ended) / SECOND - (self.queued() - queued)


def whole_gpus(frame: Frame) -> dict[int, Sample]:
    """The samples of GPUs by index, without those of MIG instances."""
    return {sample.device.index: sample for sample in frame.samples if not sample.device.is_instance}


_OF_A_BUSY_MACHINE = (" is called only every ", "cannot write the last history to ")
"""Lines of a daemon whose calls take long, and whose last writes do: it waits a few seconds for them when it stops."""


@contextmanager
def machine(stub: Stub, live_dir: Path) -> Iterator[Machine]:
    """A machine that is well; at its end its daemon stops by itself, and has logged nothing but what is slow."""
    stub.constant = True
    set_processes(stub)
    with daemon("--interval", str(INTERVAL), env=environment(live_dir, stub.env())) as process:
        served = Machine(stub, process, follow(Places(explicit=str(live_dir))))
        served.begin()
        served.until(lambda frame: all("gpu.xid" not in sample.device.missing for sample in frame.samples))
        first = served.take(12)[-1]  # GPUs take turns with what is read seldom, and all of them read all at first
        served.missing = {metric for sample in first.samples for metric in sample.device.missing} - OF_THE_BUFFER
        assert served.is_well(first)
        yield served
        served.mend()
        process.terminate()
        assert process.wait() == 0
        assert process.stderr is not None
        said = process.stderr.read().splitlines()
        assert [line for line in said if not any(one in line for one in _OF_A_BUSY_MACHINE)] == [], said


def set_processes(stub: Stub) -> None:
    """One process on each GPU, which is there."""
    for gpu in EACH:
        stub.set_processes(gpu, [Process(os.getpid(), sm=40)])


def assert_others_kept(served: Machine, faulty: Collection[int]) -> None:
    """Each other GPU is in each frame, OK and read since the frame before, but for ticks that the machine made late."""
    before = {sample.device.uuid: sample.monotonic_ns for sample in served.frames[0].samples}
    late = served.frames[-1].skipped_ticks - served.frames[0].skipped_ticks
    for frame in served.frames[1:]:
        found = whole_gpus(frame)
        kept = True
        for gpu in EACH:
            if gpu not in faulty:
                sample = found[gpu]
                assert sample.device.uuid == served.stub.uuid(gpu)
                assert sample.state in (OK, STALE)
                kept = kept and sample.state is OK and sample.monotonic_ns > before[sample.device.uuid]
                before[sample.device.uuid] = sample.monotonic_ns
        late += not kept
    assert late <= served.queued() / LATE, f"{late} of {len(served.frames)} ticks"


def assert_nothing_is_made_up(served: Machine, changed: Mapping[str, float] = NOTHING) -> None:
    """Each value is one that the driver gave, at a time when it did; a GPU that is not read has none.

    `changed`: what a fault makes of gauges.
    """
    stub = served.stub
    last: dict[str, Sample] = {}
    shown: dict[str, Sample] = {}
    """Of the frame before, whatever its state: a GPU that was gone and has not answered since has no last values."""
    for frame in served.frames:
        over = (frame.monotonic_ns / SECOND) + frame.sample_duration + 1e-3
        assert len(whole_gpus(frame)) == GPUS
        assert {process.uuid for process in frame.processes} <= {sample.device.uuid for sample in frame.samples}
        for sample in frame.samples:
            uuid, gpu = sample.device.uuid, sample.device.index
            if sample.device.is_instance:
                given = {name for name, value in zip(GPU_INDEX, sample.values, strict=True) if math.isfinite(value)}
                assert given <= OF_INSTANCES
                continue
            previous, shown[uuid] = shown.get(uuid), sample
            if sample.state not in (OK, STALE):
                assert all(math.isnan(value) for value in sample.values), f"{sample.state.name} with values"
                continue
            if sample.state is STALE:
                assert sample.age >= 0
                same = previous is None or list(map(str, sample.values)) == list(map(str, previous.values))
                assert same, f"it is stale, and new: {sample} after {previous}"
            for metric in GAUGES:
                value, true = sample.value(metric), stub.truth(metric, gpu)
                if metric == "gpu.memory_used" and "gpu.memory_reserved" in served.missing:
                    true += stub.truth("gpu.memory_reserved", gpu)  # older drivers count it as used
                near = [math.isclose(value, one, rel_tol=1e-6) for one in (true, changed.get(metric, true))]
                assert math.isnan(value) or any(near), metric
            for metric in COUNTERS:
                value = sample.value(metric)
                if math.isfinite(value):
                    assert value <= stub.truth(metric, gpu, over), f"{metric} is ahead"
                    if uuid in last and math.isfinite(before := last[uuid].value(metric)):
                        assert value >= before, f"{metric} fell"
            last[uuid] = sample
