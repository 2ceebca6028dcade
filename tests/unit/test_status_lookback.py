"""`gpumon status` with a daemon: how far it looks back, and what it knows from that."""

from __future__ import annotations

from typing import cast

import pytest

from gpumon.analysis.gpu_state import GpuState
from gpumon.common.clock import SECOND
from gpumon.diagnosis.live_findings import LOOK_BACK, JudgedFrame, earlier_frames, epochs_from_boundaries, findings
from gpumon.live import Live
from gpumon.model.frame import Boundary, Frame, RunState
from gpumon.storage.history.recent import RecentHistory
from tests.builders import TIME, boundary, frame_of, process, run, sample, tick

GIB = 2.0**30
KNOWN = {"memory_used": 40 * GIB, "memory_total": 80 * GIB}
MINUTE = 63
ALL = LOOK_BACK


def frame_time(second: float) -> float:
    """The time of the frame of a second, s since 1970."""
    return TIME / SECOND + second


class Kept:
    """The ring of a daemon that has sampled for 15 minutes, and how many frames were read of it."""

    def __init__(self, worked_until: int, interval: float = 1.0, state: RunState | None = None) -> None:
        self.frames = []
        runs = [] if state is None else [run(state=state, gpus=())]
        for number in range(1, 901):
            one = sample(0, utilization=0.9 if number <= worked_until else 0.0, **KNOWN)
            now = tick(number, [one], [process()], runs, interval_ns=round(interval * 1e9))
            self.frames.append(frame_of(now._replace(monotonic_ns=round(number * interval * 1e9)), number))
        self.read = 0

    def since(self, number: int) -> list[Frame]:
        """Frames newer than `number`."""
        found = self.frames[number:]
        self.read = max(self.read, len(found))
        return found

    def boundaries(self) -> list[Boundary]:
        """Every boundary that is kept."""
        return [one for frame in self.frames for one in frame.boundaries]

    def judged(self) -> GpuState:
        """The state that the command shows."""
        newest = self.frames[-1]
        (status,) = JudgedFrame(newest, earlier_frames(cast("Live", self), newest)).gpus
        return status.state


@pytest.mark.parametrize(
    ("worked_until", "state", "read"),
    [(900, GpuState.BUSY, 2), (895, GpuState.BUSY, MINUTE), (841, GpuState.BUSY, MINUTE), (839, GpuState.HELD, ALL)],
    ids=["works", "paused seconds ago", "paused just within the minute", "idle for a minute"],
)
def test_the_minute_before_is_read_where_a_gpu_may_pause_and_more_of_one_that_is_idle(
    worked_until: int, state: GpuState, read: int
) -> None:
    ring = Kept(worked_until)
    assert ring.judged() is state
    assert ring.read == read


def test_a_minute_is_longer_than_the_frames_that_are_read_of_a_fast_daemon() -> None:
    ring = Kept(0, interval=0.05)
    assert ring.judged() is GpuState.ALLOCATED, "30 s of idleness are no minute"
    assert ring.read == ALL


def test_all_is_read_where_a_run_ended_badly() -> None:
    ring = Kept(900, state=RunState.FAILED)
    assert ring.judged() is GpuState.BUSY
    assert ring.read == ALL


def test_the_time_left_goes_by_epochs_of_before_the_frames_that_are_read() -> None:
    ring = Kept(900)
    seconds = (1, 101, 111, 121, 899)  # a slow first epoch, two of 10 s, and one that hung for long
    one = run(gpus=(), epochs=20, epoch=4, epoch_started=frame_time(899), started=frame_time(1))
    for number, second in enumerate(seconds):
        begin = boundary(number + 1, number)._replace(time_ns=round(frame_time(second) * SECOND))
        ring.frames[second - 1] = frame_of(tick(second, [sample(0)], (), [one], (begin,)), second)
    newest = ring.frames[-1] = frame_of(tick(900, [sample(0)], (), [one]), 900)
    live = cast("Live", ring)
    judged = JudgedFrame(newest, earlier_frames(live, newest), epochs=epochs_from_boundaries(live, newest))
    assert ring.read == 2
    assert judged.progress(judged.runs[0]).left == pytest.approx(15 * 10 + 9)
    idle = Kept(900)
    assert epochs_from_boundaries(cast("Live", idle), idle.frames[-1]) is None, "nothing more is read without a run"


def test_frames_that_came_meanwhile_change_nothing() -> None:
    ring = Kept(839)
    shown, later = ring.frames[:-2], ring.frames
    assert JudgedFrame(shown[-1], shown).gpus[0].state is GpuState.BUSY
    assert JudgedFrame(shown[-1], later).gpus[0].state is GpuState.BUSY


def test_heat_that_lowers_the_clocks_is_found_by_two_frames_as_by_a_history() -> None:
    heat = [{"throttled_hw_thermal": float(second), "throttled_sw_thermal": 0.0} for second in range(2)]
    hot = [sample(0, utilization=0.9, **KNOWN, **known) for known in heat]
    earlier, newest = (frame_of(tick(number, [one]), number) for number, one in enumerate(hot, start=1))
    history = RecentHistory()
    for frame in (earlier, newest):
        history.add(frame)
    (alone,) = JudgedFrame(newest, [earlier, newest]).findings()
    statuses = JudgedFrame(newest, [earlier]).gpus
    assert [alone] == findings(statuses, [], None, newest.time, history)
    assert (alone.kind, alone.evidence) == (
        "heat_throttled",
        {"throttled_hw_thermal": 1.0, "throttled_sw_thermal": 0.0},
    )
    assert JudgedFrame(newest).findings() == [], "one frame tells no rate"


def test_frames_with_a_gap_between_them_tell_no_rate() -> None:
    hot = [sample(0, utilization=0.9, **KNOWN, throttled_hw_thermal=float(second)) for second in range(2)]
    assert JudgedFrame(frame_of(tick(9, hot[1:]), 2), [frame_of(tick(1, hot[:1]), 1)]).findings() == []
