"""Ticks of a machine on which nothing goes on: fewer of them, no gap between, and all again once something does."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from threading import Event

import pytest

from gpumon.analysis.gpu_state import Activity
from gpumon.common.clock import SECOND
from gpumon.daemon.sampler import Sampler, is_idle
from gpumon.model.frame import RunState, Sample, Tick
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.origin import HARDWARE, Driver, Origin
from gpumon.model.process import Process
from gpumon.sources.base import Reading
from gpumon.storage.history.buckets import is_gap
from gpumon.storage.history.recent import RecentHistory
from tests.builders import device, frame_of, process, run, sample, tick
from tests.fakes import FakeClock

IDLE = [sample(0, utilization=0.0, power=30.0), sample(1, Availability.ASLEEP)]
UNLISTED = sample(0, utilization=0.0)._replace(device=device(0, missing={PROCESSES: Availability.NO_PERMISSION}))


@pytest.mark.parametrize(
    ("of", "idle"),
    [
        (tick(1, IDLE), True),
        (tick(1, IDLE, runs=[run(state=RunState.FINISHED)]), True),
        (tick(1, []), False),
        (tick(1, IDLE, [process()]), False),
        (tick(1, IDLE, runs=[run()]), False),
        (tick(1, [*IDLE, sample(2, utilization=0.01)]), False),
        (tick(1, [sample(0)]), False),
        (tick(1, [UNLISTED]), False),
        (tick(1, [sample(0, Availability.STALE, utilization=0.0)]), False),
        (tick(1, [sample(0, Availability.LOST)]), False),
    ],
)
def test_only_what_is_known_to_do_nothing_is_idle(of: Tick, idle: bool) -> None:
    assert is_idle(of) is idle


class Source:
    """GPUs that are busy in some seconds, and have a process in others."""

    capabilities, tick_period = HARDWARE, 0.0

    def __init__(self, clock: FakeClock, busy: Sequence[int] = (), held: Sequence[int] = ()) -> None:
        self._clock, self._begin, self._busy, self._held = clock, clock.monotonic(), busy, held

    def origin(self) -> Origin:
        return Origin("nvml")

    def driver(self) -> Driver:
        return Driver()

    def read(self) -> Sequence[Reading]:
        now = self._clock.monotonic()
        second = (now - self._begin) // SECOND
        samples: Sequence[Sample] = [sample(0, utilization=0.9)] if second in self._busy else IDLE[:1]
        processes: Sequence[Process] = [process()] if second in self._held else []
        return [Reading(now, self._clock.time(), samples, processes)]

    def close(self) -> None:
        """Nothing is open."""


def ticks_of(source: Source, clock: FakeClock, rounds: int, idle_interval: float = 10.0) -> tuple[list[Tick], int]:
    """The ticks of so many rounds, and how often the daemon showed its life."""
    stop, ticks, beats = Event(), list[Tick](), 0

    def after_round() -> None:
        nonlocal beats
        beats += 1
        if beats == rounds:
            stop.set()

    Sampler(source, clock, 1.0, idle_interval=idle_interval).run(ticks.append, stop, after_round)
    return ticks, beats


def seconds(ticks: Sequence[Tick]) -> list[int]:
    return [(one.monotonic_ns - ticks[0].monotonic_ns) // SECOND for one in ticks]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(start=1000 * SECOND)


def test_while_nothing_goes_on_ticks_are_as_far_apart_as_asked_for_and_say_so(clock: FakeClock) -> None:
    ticks, beats = ticks_of(Source(clock), clock, 41)
    assert seconds(ticks) == [0, 10, 20, 30, 40]
    assert [one.interval_ns // SECOND for one in ticks] == [1, 10, 10, 10, 10]
    assert beats == 41, "readers see that the daemon lives"
    assert {one.skipped_ticks for one in ticks} == {0}


@pytest.mark.parametrize("what", ["busy", "held"])
def test_the_first_tick_that_shows_something_ends_it(clock: FakeClock, what: str) -> None:
    ticks, _ = ticks_of(Source(clock, **{what: range(14, 23)}), clock, 45)
    assert seconds(ticks) == [0, 10, 20, 21, 22, 23, 33, 43]
    assert [one.interval_ns // SECOND for one in ticks] == [1, 10, 10, 1, 1, 1, 10, 10]


@pytest.mark.parametrize("idle_interval", [0.0, 0.5, 1.0])
def test_without_the_option_nothing_changes(clock: FakeClock, idle_interval: float) -> None:
    ticks, _ = ticks_of(Source(clock), clock, 5, idle_interval)
    assert seconds(ticks) == [0, 1, 2, 3, 4]
    assert {one.interval_ns for one in ticks} == {SECOND}


def test_there_is_no_gap_for_whoever_judges_by_the_interval_of_a_frame(clock: FakeClock) -> None:
    ticks, _ = ticks_of(Source(clock, busy=range(14, 23)), clock, 75, 30.0)
    history, activity = RecentHistory(), Activity()
    for one in ticks:
        history.add(frame_of(one))
        activity.add(frame_of(one))
    for before, after in pairwise(ticks):
        apart = (after.monotonic_ns - before.monotonic_ns) / SECOND
        assert not is_gap(apart, apart, after.interval_ns / SECOND)
    assert not history._pauses
    since = activity.idle_since(device(0).uuid)
    assert since is not None
    assert since.seconds == seconds(ticks)[-1], "idle all the time, as far as anybody looked"
