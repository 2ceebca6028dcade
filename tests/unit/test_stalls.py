"""When a training process counts as stalled: by its own step times, and by the history of its long phases."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest

import gpumon
from gpumon.analysis.ranks import Ranks
from gpumon.common.clock import SECOND, SystemClock
from gpumon.common.paths import Places
from gpumon.diagnosis.context import RunContext
from gpumon.diagnosis.finding import Subject
from gpumon.diagnosis.runs import stalled
from gpumon.model.frame import RunState
from gpumon.model.run import PAUSED, RunFacts
from gpumon.tracking.stalls import LIMITS, Progress, StallDetector
from gpumon.tracking.tag_reader import TagReader
from tests.builders import TIME, run

TRAIN, VALIDATE, CHECKPOINT = "train", "validate", "checkpoint"
MINUTE = 60.0


class Training:
    """A process that is polled once a second."""

    def __init__(self) -> None:
        self.detector = StallDetector()
        self.now = 1000.0
        self.progress = Progress(round(self.now * SECOND), 0, "")
        self.alarms = 0
        """Number of polls in which the process was stalled."""

    def wait(self, seconds: float) -> bool:
        """Let time pass without progress, and return whether the process is stalled at the end of it."""
        until, since = self.now + seconds, 0
        while self.now < until:
            self.now += 1
            since = self.detector.update(self.progress, round(self.now * SECOND))
            self.alarms += since > 0
        return since > 0

    def write(self, step: int | None = None, phase: str | None = None, *, is_between: bool = False) -> None:
        step = self.progress.step if step is None else step
        phase = self.progress.phase if phase is None else phase
        self.progress = Progress(round(self.now * SECOND), step, phase, is_between)

    def steps(self, count: int, seconds: float) -> None:
        for _ in range(count):
            self.write(self.progress.step + 1, TRAIN)
            self.wait(seconds)

    def phase(self, name: str, seconds: float) -> None:
        self.write(phase=name)
        self.wait(seconds)
        self.write(phase=TRAIN)
        self.wait(1)


@pytest.fixture
def training() -> Training:
    started = Training()
    started.write(phase=TRAIN)
    return started


class TestStep:
    @pytest.mark.parametrize(("seconds", "limit"), [(1.0, MINUTE), (5.0, MINUTE), (20.0, 200.0)])
    def test_may_take_a_minute_and_ten_times_the_median(self, training: Training, seconds: float, limit: float) -> None:
        training.steps(20, seconds)
        assert not training.wait(limit - seconds - 1)
        assert training.wait(3)

    def test_stalls_since_the_last_one_began(self, training: Training) -> None:
        training.steps(20, 1.0)
        begun = training.progress.written_ns
        training.wait(2 * MINUTE)
        assert training.detector.update(training.progress, round(training.now * SECOND)) == begun

    def test_clears_when_steps_come_again(self, training: Training) -> None:
        training.steps(20, 1.0)
        assert training.wait(5 * MINUTE)
        training.write(training.progress.step + 1)
        assert not training.wait(2)

    def test_of_a_start_that_compiles_may_take_longer(self, training: Training) -> None:
        training.write(1)
        assert not training.wait(LIMITS.start - 5)
        assert training.wait(10)

    def test_pauses_that_come_again_and_again_are_usual(self, training: Training) -> None:
        alarms = []
        for _ in range(4):  # validates at the end of each epoch, without reporting it
            training.steps(30, 1.0)
            before = training.alarms
            training.wait(20 * MINUTE)
            alarms.append(training.alarms > before)
        assert alarms == [True, True, False, False]

    def test_one_long_pause_does_not_hide_the_next(self, training: Training) -> None:
        training.steps(30, 1.0)
        training.wait(20 * MINUTE)
        training.steps(30, 1.0)
        assert training.wait(2 * MINUTE)


class TestPhase:
    def test_validation_of_20_minutes_raises_nothing(self, training: Training) -> None:
        for _ in range(3):
            training.steps(30, 1.0)
            training.phase(VALIDATE, 20 * MINUTE)
        assert not training.alarms

    def test_checkpoint_of_5_minutes_raises_nothing(self, training: Training) -> None:
        for _ in range(3):
            training.steps(30, 1.0)
            training.phase(CHECKPOINT, 5 * MINUTE)
        assert not training.alarms

    def test_endless_validation_is_judged_by_earlier_ones(self, training: Training) -> None:
        training.steps(30, 1.0)
        training.phase(VALIDATE, 40.0)
        training.steps(30, 1.0)
        training.write(phase=VALIDATE)
        assert not training.wait(115)
        assert training.wait(10)

    def test_first_endless_validation_is_found(self, training: Training) -> None:
        training.steps(30, 1.0)
        training.write(phase=VALIDATE)
        assert not training.wait(LIMITS.phase - 5)
        assert training.wait(10)

    def test_endless_validation_that_makes_steps_is_found(self, training: Training) -> None:
        training.steps(30, 1.0)
        training.phase(VALIDATE, 40.0)
        training.write(phase=VALIDATE)
        for _ in range(round(LIMITS.phase) + 10):
            training.write(training.progress.step + 1)
            training.wait(1)
        assert training.wait(1)

    def test_validation_after_the_last_batch_needs_no_phase(self, training: Training) -> None:
        for _ in range(3):
            training.steps(30, 1.0)
            training.write(is_between=True)
            training.wait(20 * MINUTE)
        assert not training.alarms

    def test_a_paused_run_is_never_stalled(self, training: Training) -> None:
        training.steps(30, 1.0)
        training.write(phase=PAUSED)
        training.wait(3600)
        assert not training.alarms


def test_waiting_before_the_first_epoch_has_a_limit() -> None:
    training = Training()
    assert not training.wait(LIMITS.start - 5)
    assert training.wait(10)


class TestRun:
    def stalled_since(self, *ranks: tuple[RunState, str, float]) -> float:
        return Ranks(
            tuple(
                run(key=f"tag.1.{rank}.a", rank=rank, state=state, phase=phase, facts=RunFacts(stalled_since=since))
                for rank, (state, phase, since) in enumerate(ranks)
            )
        ).stalled_since

    def test_stalls_with_the_last_of_its_ranks(self) -> None:
        running = RunState.RUNNING
        assert self.stalled_since((running, TRAIN, 100.0), (running, TRAIN, 103.0)) == 103.0
        assert self.stalled_since((running, TRAIN, 100.0), (RunState.FAILED, TRAIN, 0.0)) == 100.0
        assert self.stalled_since((running, TRAIN, 100.0), (running, PAUSED, 0.0)) == 100.0

    def test_does_not_stall_while_one_rank_validates(self) -> None:
        running = RunState.RUNNING
        assert isnan(self.stalled_since((running, VALIDATE, 0.0), (running, TRAIN, 100.0)))
        assert isnan(self.stalled_since((RunState.FINISHED, "", 0.0)))


def test_a_stalled_run_is_a_finding_with_its_age() -> None:
    subject = Subject("run", "net-1", "net")
    (finding,) = stalled(RunContext(subject, epoch="3", silent=240.0, phase=TRAIN))
    assert (finding.kind, finding.evidence) == ("stalled", {"silent": 240.0})
    assert not [*stalled(RunContext(subject, epoch="3"))]


class Clock(SystemClock):
    """The system's clock, ahead by some seconds."""

    ahead = 0.0

    def monotonic(self) -> int:
        return super().monotonic() + round(self.ahead * SECOND)

    def time(self) -> int:
        return super().time() + round(self.ahead * SECOND)


class TestBoard:
    @pytest.fixture
    def clock(self) -> Clock:
        return Clock()

    @pytest.fixture
    def reader(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Iterator[TagReader]:
        monkeypatch.setenv("GPUMON_DIR", str(tmp_path))
        limits = replace(LIMITS, start=100.0)
        reader = TagReader(Places(explicit=str(tmp_path), uid=os.getuid()), clock=clock, limits=limits)
        yield reader
        reader.close()

    def stalled_since(self, reader: TagReader) -> float:
        (polled,) = reader.poll().runs
        return polled.facts.stalled_since

    def test_tells_when_its_process_stalls(self, reader: TagReader, clock: Clock) -> None:
        active = gpumon.run("net")
        for _ in active.steps(range(2)):
            assert not self.stalled_since(reader)
            clock.ahead += 101
            assert self.stalled_since(reader) == pytest.approx(clock.time() / SECOND - 101, abs=2)
            clock.ahead = 0
        active.finish()
        assert not self.stalled_since(reader)

    def test_tells_that_a_loop_over_batches_is_over(self, reader: TagReader, clock: Clock) -> None:
        active = gpumon.run("net")
        with active.epoch(0):
            assert [*active.steps(range(2))]
            clock.ahead = 101
            assert not self.stalled_since(reader)
            clock.ahead = LIMITS.phase + 1
            assert self.stalled_since(reader)
        active.finish()

    def test_a_training_cannot_set_it(self, reader: TagReader) -> None:
        active = gpumon.run("net")
        active.describe(facts=RunFacts(stalled_since=TIME / SECOND))
        assert not self.stalled_since(reader)
        active.finish()
