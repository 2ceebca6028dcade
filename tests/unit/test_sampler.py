"""Ticks at absolute deadlines, joined with host and tags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import isnan
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.daemon.sampler import Sampler
from gpumon.model.frame import Boundary, Mark, Run, RunState, Tick
from gpumon.model.metrics import HOST_METRICS
from gpumon.model.origin import HARDWARE, RECORDED, Driver, Origin
from gpumon.model.process import Process
from gpumon.sources.base import Reading
from gpumon.sources.processes import CONTAINER, NO_PROC, WSL, Sandbox
from gpumon.tracking.board_directory import BudgetOwners
from gpumon.tracking.matching import Claim, UnprovenClaims
from gpumon.tracking.tag_reader import Poll
from gpumon.tracking.wire_format import Memory, device_mark
from tests import builders
from tests.fakes import FakeClock

KEY = builders.run().key


class FakeSource:
    """Gives one reading a time, and takes as long as it is told to."""

    capabilities = HARDWARE

    def __init__(self, clock: FakeClock, takes: Sequence[float] = ()) -> None:
        self._clock = clock
        self._takes = list(takes)
        self.processes: Sequence[Process] = ()
        self.reads: list[int] = []

    def origin(self) -> Origin:
        return Origin("nvml")

    def driver(self) -> Driver:
        return Driver("570.1", "CUDA 12.8")

    def read(self) -> Sequence[Reading]:
        began = self._clock.monotonic()
        self.reads.append(began)
        self._clock.advance(self._takes.pop(0) if self._takes else 0.0)
        return [Reading(began, self._clock.time(), [builders.sample(0, utilization=0.5)], self.processes)]

    def close(self) -> None:
        """Nothing is open."""


class Recording(FakeSource):
    """Gives what has become due since the last time: here three ticks a read, and at times none."""

    capabilities = RECORDED

    def read(self) -> Sequence[Reading]:
        self.reads.append(self._clock.monotonic())
        if len(self.reads) % 2 == 0:
            return []
        first = 100 * len(self.reads)
        return [Reading((first + i) * SECOND, i * SECOND, [], host=[float(i)] * len(HOST_METRICS)) for i in range(3)]


class FakeTags:
    """Boards that tell what a test lays down for each poll."""

    def __init__(self, runs: Sequence[Run] = (), boundaries: Sequence[Sequence[Boundary]] = ()) -> None:
        self.runs = list(runs)
        self.boundaries = [list(found) for found in boundaries]
        self.memory: dict[str, list[Memory]] = {}
        self.begun: dict[str, int] = {}
        """When each run began (monotonic ns); those that are not named began long ago."""
        self.asked: list[int] = []
        self.uid = 0

    def poll(self) -> Poll:
        fresh = self.boundaries.pop(0) if self.boundaries else []
        claims = {run.key: Claim(run.pid, self.uid, run.user, run.gpus) for run in self.runs}
        return Poll(self.runs, fresh, claims, memory=self.memory)

    def at(self, monotonic: int) -> list[Run]:
        self.asked.append(monotonic)
        return [run for run in self.runs if self.begun.get(run.key, 0) <= monotonic]


def sampled(sampler: Sampler, rounds: int) -> list[Tick]:
    """The ticks of so many rounds of `run`."""
    stop, ticks, done = Event(), [], []

    def after_round() -> None:
        done.append(1)
        if len(done) == rounds:
            stop.set()

    sampler.run(ticks.append, stop, after_round)
    assert len(done) == rounds
    return ticks


def make(source: Any, clock: FakeClock, interval: float = 1.0, tags: Any = None, host: Any = None) -> Sampler:
    return Sampler(source, clock, interval, host, tags)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(start=1000 * SECOND)


def seconds(times: Sequence[int]) -> list[float]:
    return [time / SECOND - 1000 for time in times]


def test_deadlines_are_absolute_however_long_a_sample_takes(clock: FakeClock) -> None:
    source = FakeSource(clock, takes=[0.3, 0.9, 0.01, 0.5])
    sampler = make(source, clock)
    ticks = sampled(sampler, 5)
    assert seconds(source.reads) == [0, 1, 2, 3, 4]
    assert seconds([tick.monotonic_ns for tick in ticks]) == [0, 1, 2, 3, 4], "the time of the sample, not of its end"
    assert [tick.sample_duration_ns / SECOND for tick in ticks] == [0.3, 0.9, 0.01, 0.5, 0.0]
    assert sampler.skipped_ticks == 0


def test_a_slow_sample_skips_whole_periods_and_counts_them(clock: FakeClock) -> None:
    source = FakeSource(clock, takes=[0.1, 2.5, 0.1])
    sampler = make(source, clock)
    ticks = sampled(sampler, 4)
    assert seconds(source.reads) == [0, 1, 4, 5]
    assert sampler.skipped_ticks == 2
    assert [tick.skipped_ticks for tick in ticks] == [0, 0, 2, 2]


@pytest.mark.parametrize("takes", [1.2, 3.0, 7.999, 60.5, 3600.25])
def test_what_was_missed_is_never_made_up_in_a_burst(clock: FakeClock, takes: float) -> None:
    source = FakeSource(clock, takes=[takes])
    sampler = make(source, clock)
    sampled(sampler, 6)
    gaps = [after - before for before, after in pairwise(source.reads)]
    assert all(gap == SECOND for gap in gaps[1:])
    assert gaps[0] % SECOND == 0, "still on the beat"
    assert 0 <= gaps[0] - takes * SECOND <= SECOND
    assert sampler.skipped_ticks == gaps[0] // SECOND - 1


def test_the_interval_is_kept_in_nanoseconds(clock: FakeClock) -> None:
    source = FakeSource(clock)
    ticks = sampled(make(source, clock, interval=0.1), 1001)
    assert source.reads[-1] - source.reads[0] == 100 * SECOND
    assert {tick.interval_ns for tick in ticks} == {SECOND // 10}


def test_a_stop_ends_the_sampling_after_the_round(clock: FakeClock) -> None:
    source = FakeSource(clock)
    assert len(sampled(make(source, clock), 1)) == 1
    assert len(source.reads) == 1


def test_every_tick_of_a_recording_is_stored_and_a_round_without_one_goes_on(clock: FakeClock) -> None:
    source = Recording(clock)
    ticks = sampled(make(source, clock), 3)
    assert [tick.monotonic_ns // SECOND for tick in ticks] == [100, 101, 102, 300, 301, 302]
    assert seconds(source.reads) == [0, 1, 2]
    assert ticks[1].host[0] == 1.0, "its own host"
    assert {tick.sample_duration_ns for tick in ticks} == {0}, "a recording's times are not those of reading it"


def test_the_end_of_a_recording_comes_with_its_last_tick(clock: FakeClock) -> None:
    class EndedRecording(Recording):
        def origin(self) -> Origin:
            return Origin("replay", ended=True)

    assert [tick.origin.ended for tick in sampled(make(EndedRecording(clock), clock), 1)] == [False, False, True]


class Host:
    """A machine."""

    hostname = "node1"

    def __init__(self, surroundings: Sandbox | None = None) -> None:
        self.sandbox = surroundings or Sandbox()

    def read(self) -> list[float]:
        return [7.0] * len(HOST_METRICS)


def test_a_source_without_a_host_of_its_own_gets_that_of_the_machine(clock: FakeClock) -> None:
    (tick,) = make(FakeSource(clock), clock, host=Host()).ticks()
    assert (tick.hostname, set(tick.host)) == ("node1", {7.0})
    (tick,) = make(FakeSource(clock), clock).ticks()
    assert all(isnan(value) for value in tick.host)


def test_a_tick_says_what_cannot_be_seen_where_the_daemon_runs(clock: FakeClock) -> None:
    (tick,) = make(FakeSource(clock), clock, host=Host(Sandbox("a container"))).ticks()
    assert (tick.origin.source, tick.origin.notice) == ("nvml", "a container")
    (tick,) = make(FakeSource(clock), clock, host=Host()).ticks()
    assert tick.origin.notice == ""


@pytest.mark.parametrize(
    ("has_own_pids", "started", "is_its"), [(False, NAN, True), (True, NAN, False), (True, 1e9, True)]
)
def test_in_a_container_a_process_that_nobody_knows_here_is_no_run_of_the_same_pid(
    clock: FakeClock, has_own_pids: bool, started: float, is_its: bool
) -> None:
    """The driver may mean a pid of the machine."""
    source, run = FakeSource(clock), builders.run(gpus=())
    source.processes = [builders.process(run.pid, user="", started=started)]
    host = Host(Sandbox("", has_own_pids))
    (tick,) = make(source, clock, tags=FakeTags([run], [[]]), host=host).ticks()
    assert tick.processes[0].run == (run.key if is_its else "")
    assert tick.runs[0].gpus == ((builders.device(0).uuid,) if is_its else ())


def test_a_tick_carries_driver_and_origin(clock: FakeClock) -> None:
    (tick,) = make(FakeSource(clock), clock).ticks()
    assert (tick.origin.source, tick.driver.version) == ("nvml", "570.1")


def test_samples_and_processes_get_the_run_in_force(clock: FakeClock) -> None:
    source = FakeSource(clock)
    source.processes = (builders.process(4711), builders.process(99, user="bob"))
    tags = FakeTags([builders.run(pid=4711, gpus=(builders.device().uuid,))])
    (tick,) = make(source, clock, tags=tags).ticks()
    assert tick.samples[0].run == KEY
    assert [process.run for process in tick.processes] == [KEY, ""]
    assert tags.asked == [tick.monotonic_ns], "as it was when the sample was taken"


def test_a_claim_alone_takes_no_gpu_for_longer_than_a_minute(clock: FakeClock) -> None:
    source, uuid = FakeSource(clock), builders.device().uuid
    tags = FakeTags([builders.run(pid=4711, gpus=(uuid,))])
    sampler = make(source, clock, tags=tags)
    ticks = sampled(sampler, 63)
    assert (ticks[0].samples[0].run, ticks[60].samples[0].run, ticks[62].samples[0].run) == (KEY, KEY, "")
    assert [tick.runs[0].facts.claimed for tick in (ticks[60], ticks[62])] == [0, 1]
    tags.runs = [builders.run("another", id="another", pid=4712, gpus=(uuid,))]
    (tick,) = sampler.ticks()
    assert (tick.samples[0].run, tick.runs[0].gpus) == ("", ()), "nor one run of the same user after the other"
    source.processes = (builders.process(4712),)
    (tick,) = sampler.ticks()
    assert (tick.samples[0].run, tick.runs[0].facts.claimed) == ("another", 0)


def test_lent_uids_one_after_the_other_take_no_gpu_for_longer_than_a_minute(clock: FakeClock, tmp_path: Path) -> None:
    (tmp_path / "subuid").write_text("4321:200000:65536\n")
    tags = FakeTags([builders.run(pid=4711, gpus=(builders.device().uuid,))])
    sampler = make(FakeSource(clock), clock, tags=tags)
    sampler._unproven = UnprovenClaims(BudgetOwners(str(tmp_path / "subuid")))
    ticks = []
    for second in range(130):
        tags.uid = 200_000 + second // 30
        ticks += sampler.ticks()
        clock.advance(1)
    assert [tick.samples[0].run for tick in ticks] == [KEY] * 62 + [""] * 68
    assert {tick.runs[0].gpus for tick in ticks[62:]} == {()}


@pytest.mark.parametrize("around", [Sandbox(WSL), Sandbox(CONTAINER, True), Sandbox(NO_PROC)])
def test_a_claim_stands_where_processes_cannot_be_seen(clock: FakeClock, around: Sandbox) -> None:
    uuid = builders.device().uuid
    tags = FakeTags([builders.run(pid=4711, gpus=(uuid,))])
    ticks = sampled(make(FakeSource(clock), clock, tags=tags, host=Host(around)), 63)
    assert (ticks[-1].runs[0].gpus, ticks[-1].runs[0].facts.claimed) == ((uuid,), 0)


def test_a_device_that_was_read_after_a_run_had_ended_is_not_that_runs(clock: FakeClock) -> None:
    ended = clock.monotonic() + SECOND

    class SlowSource(FakeSource):
        """Its second device is read two seconds after the first."""

        def read(self) -> Sequence[Reading]:
            (reading,) = super().read()
            now = reading.monotonic_ns
            first, second = builders.sample(0, utilization=0.5), builders.sample(1, utilization=0.5)
            samples = [first._replace(monotonic_ns=now), second._replace(monotonic_ns=now + 2 * SECOND)]
            return [replace(reading, samples=samples)]

    class EndingTags(FakeTags):
        """The run ends while the source is still reading."""

        def at(self, monotonic: int) -> list[Run]:
            state = RunState.FINISHED if monotonic >= ended else RunState.RUNNING
            return [run._replace(state=state) for run in super().at(monotonic)]

    run = builders.run(gpus=(builders.device(0).uuid, builders.device(1).uuid))
    end = builders.boundary(9, mark=Mark.RUN_END)._replace(monotonic_ns=ended)
    (tick,) = make(SlowSource(clock, takes=[2.5]), clock, tags=EndingTags([run], [[end]])).ticks()
    assert [sample.run for sample in tick.samples] == [KEY, ""]


def test_a_sample_gets_what_the_run_on_it_holds_by_framework_and_by_driver(clock: FakeClock) -> None:
    source = FakeSource(clock)
    source.processes = (builders.process(4711, memory_used=9.0), builders.process(99, user="bob", memory_used=5.0))
    uuid = builders.device().uuid
    tags = FakeTags([builders.run(pid=4711, gpus=(uuid,))])
    tags.memory = {KEY: [Memory(0, device_mark(uuid), 3, 7, inactive_split=1)]}
    sampler = make(source, clock, tags=tags)
    (tick,) = sampler.ticks()
    keys = ("allocated", "reserved", "inactive_split", "used")
    assert [tick.samples[0].value(f"gpu.run_{key}") for key in keys] == [3.0, 7.0, 1.0, 9.0]
    assert tick.samples[0].value("gpu.utilization") == 0.5, "the source's own values stay"
    tags.runs.clear()
    (tick,) = sampler.ticks()
    assert all(isnan(tick.samples[0].value(f"gpu.run_{key}")) for key in keys)


def test_boundaries_of_a_run_that_began_after_the_sample_wait_for_the_next_tick(clock: FakeClock) -> None:
    run = builders.run(gpus=(builders.device().uuid,))
    boundaries = [builders.boundary(1, mark=Mark.RUN_BEGIN), builders.boundary(2)]
    tags = FakeTags([run], [boundaries, [builders.boundary(3)]])
    tags.begun[KEY] = clock.monotonic() + SECOND // 2
    ticks = sampled(make(FakeSource(clock), clock, tags=tags), 3)
    assert (ticks[0].runs, ticks[0].boundaries, ticks[0].samples[0].run) == ([], [], "")
    assert [boundary.number for boundary in ticks[1].boundaries] == [1, 2, 3], "none lost, in their order"
    assert ticks[1].samples[0].run == KEY
    assert ticks[2].boundaries == [], "and each only once"


def test_boundaries_of_other_runs_do_not_wait(clock: FakeClock) -> None:
    later = builders.run("tag.1.2.later", pid=5)
    tags = FakeTags([builders.run(), later], [[builders.boundary(1), builders.boundary(1, key=later.key)]])
    tags.begun[later.key] = clock.monotonic() + 1
    ticks = sampled(make(FakeSource(clock), clock, tags=tags), 2)
    assert [[b.run for b in tick.boundaries] for tick in ticks] == [[KEY], [later.key]]


def test_boundaries_of_a_run_that_never_shows_do_not_pile_up(clock: FakeClock) -> None:
    flood = [[builders.boundary(100 * i + j, key="never") for j in range(100)] for i in range(200)]
    sampler = make(FakeSource(clock), clock, tags=FakeTags(boundaries=flood))
    sampled(sampler, 200)
    assert len(sampler._pending_boundaries) == 16384
    assert sampler._pending_boundaries[-1].number == 19999, "the newest are kept"


def test_the_processes_are_the_same_object_while_nothing_changed(clock: FakeClock) -> None:
    source = FakeSource(clock)
    source.processes = (builders.process(4711),)
    tags = FakeTags([builders.run(pid=4711)])
    first, second, third = sampled(make(source, clock, tags=tags), 3)
    assert first.processes[0].run == KEY
    assert first.processes is second.processes is third.processes


def test_the_processes_are_joined_anew_when_the_source_or_a_run_changes(clock: FakeClock) -> None:
    source = FakeSource(clock)
    source.processes = (builders.process(4711), builders.process(4712))
    tags = FakeTags([builders.run(pid=4711)])
    sampler = make(source, clock, tags=tags)
    (first,) = sampler.ticks()
    tags.runs.append(builders.run("tag.1000.4712.ffff", pid=4712))
    (second,) = sampler.ticks()
    assert [process.run for process in second.processes] == [KEY, "tag.1000.4712.ffff"]
    source.processes = (builders.process(4712),)
    (third,) = sampler.ticks()
    assert [process.run for process in third.processes] == ["tag.1000.4712.ffff"]
    tags.runs.clear()
    (fourth,) = sampler.ticks()
    assert [process.run for process in fourth.processes] == [""]
    assert first.processes[1].run == "", "what was given away stays as it was"
