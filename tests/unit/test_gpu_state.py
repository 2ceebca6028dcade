"""The one judgment of a GPU: nothing is claimed that the frame does not prove."""

from __future__ import annotations

from itertools import product
from math import isnan
from typing import Any

import pytest

from gpumon.analysis.gpu_state import UNOBSERVED, Activity, GpuState, Observed, has_unlisted_holder, is_held, judge
from gpumon.analysis.gpu_status import gpu_statuses
from gpumon.analysis.thresholds import PAUSE
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.device import Device
from gpumon.model.frame import Frame, Sample
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.origin import Driver, Origin
from gpumon.model.process import Process
from gpumon.reports.status_text import lines
from tests.builders import frame_of, process, sample, tick

GIB = 2.0**30
EMPTY = {"utilization": 0.0, "memory_used": 3e6, "memory_reserved": 6e8, "memory_total": 80 * GIB}


LONG = Observed(idle=PAUSE)


def state(
    one: Sample, processes: tuple[Process, ...] = (), observed: Observed = UNOBSERVED, live: bool = True
) -> GpuState:
    return judge(one, is_held(one, processes, bool(one.run)), observed, live)


def without_processes(one: Sample) -> Sample:
    return one._replace(device=one.device._replace(missing={PROCESSES: Availability.FAILED}))


def test_a_gpu_that_answers_does_nothing_and_is_empty_is_free() -> None:
    assert state(sample(**EMPTY)) is GpuState.FREE
    assert state(sample(**EMPTY), observed=Observed(3.0, 3.0)) is GpuState.FREE, "whoever worked here has gone"


@pytest.mark.parametrize(
    "values",
    [{"utilization": NAN}, {"utilization": float("inf")}, {"memory_used": NAN}, {"memory_total": NAN},
     {"memory_used": 60 * GIB}, {"utilization": 0.84}, {"memory_used": 0.4 * GIB}],
)  # fmt: skip
def test_a_gpu_is_free_only_if_everything_proves_it(values: dict[str, float]) -> None:
    assert state(sample(**{**EMPTY, **values})) is not GpuState.FREE


def test_an_unreadable_process_list_is_not_empty() -> None:
    assert state(without_processes(sample(**EMPTY))) is GpuState.IDLE


def test_memory_without_a_listed_process_has_an_unknown_holder() -> None:
    hidden = sample(**{**EMPTY, "memory_used": 40 * GIB})
    assert state(hidden, observed=LONG) is GpuState.HELD
    assert has_unlisted_holder(hidden, ())
    assert not has_unlisted_holder(hidden, (process(),))
    assert not has_unlisted_holder(sample(**EMPTY), ())


def test_memory_reserved_by_the_driver_has_no_holder() -> None:
    older = {name: value for name, value in EMPTY.items() if name != "memory_reserved"}
    assert state(sample(**{**older, "memory_used": 0.6 * GIB})) is GpuState.FREE
    assert state(sample(**{**older, "memory_used": 1.5 * GIB}), observed=LONG) is GpuState.HELD


def test_a_pause_of_a_holder_is_busy_and_a_minute_of_it_is_not() -> None:
    idle = sample(**EMPTY)
    assert state(idle, (process(),), Observed(PAUSE - 1, PAUSE - 1)) is GpuState.BUSY
    assert state(idle, (process(),), Observed(PAUSE, PAUSE)) is GpuState.HELD
    assert state(idle, (process(),), LONG) is GpuState.HELD, "never seen working, and watched for a minute"


@pytest.mark.parametrize(
    "observed",
    [UNOBSERVED, Observed(idle=PAUSE - 1), Observed(since_work=PAUSE + 30, idle=5.0), Observed(since_work=PAUSE + 30)],
    ids=["one frame", "less than a minute", "a gap since it worked", "a gap just before"],
)
def test_a_minute_is_needed_to_distinguish_a_pause_from_idleness(observed: Observed) -> None:
    assert state(sample(**EMPTY), (process(),), observed) is GpuState.ALLOCATED
    assert state(sample(**EMPTY), (), observed) is GpuState.FREE, "which one frame proves"


def test_stale_lost_and_unreadable_precede_values() -> None:
    for values, live in product((EMPTY, {"utilization": 0.9}), (True, False)):
        assert state(sample(0, Availability.LOST, **values), live=live) is GpuState.LOST
        assert state(sample(0, Availability.NO_DRIVER, **values), live=live) is GpuState.UNREADABLE
        assert state(sample(0, Availability.STALE, **values), live=live) is GpuState.STALE
        assert state(sample(0, **values), live=False) is GpuState.STALE
        assert state(sample(0, Availability.ASLEEP, **values)) is GpuState.ASLEEP
        assert state(sample(0, Availability.ASLEEP, **values), live=False) is GpuState.STALE, "it may be awake by now"


def seen(*ticks: Any) -> Activity:
    activity = Activity()
    for one in ticks:
        activity.add(frame_of(one))
    return activity


UUID = sample().device.uuid


def at(second: int, utilization: float) -> Any:
    return tick(second, [sample(0, utilization=utilization)])


def test_idleness_counts_from_the_end_of_work() -> None:
    activity = seen(at(1, 0.9), at(2, 0.0), at(3, 0.0))
    since = activity.idle_since(UUID)
    assert since is not None
    assert (since.seconds, since.at_least) == (1.0, False)
    assert activity.observed(UUID) == Observed(2.0, 2.0), "it may have worked until just after that frame"


def test_idleness_since_the_first_sample_is_a_lower_bound() -> None:
    activity = seen(at(1, 0.0), at(2, 0.0), at(3, 0.0))
    since = activity.idle_since(UUID)
    assert since is not None
    assert since.at_least
    assert activity.observed(UUID).idle == 2.0
    assert isnan(activity.observed(UUID).since_work)


def test_idleness_follows_a_pause_directly() -> None:
    activity = Activity()
    states = []
    for second in range(1, 130):
        activity.add(frame_of(at(second, 0.9 if second < 20 else 0.0)))
        now = sample(**{**EMPTY, "utilization": 0.9 if second < 20 else 0.0})
        states.append(state(now, (process(),), activity.observed(UUID)))
    assert list(dict.fromkeys(states)) == [GpuState.BUSY, GpuState.HELD]
    assert states.count(GpuState.BUSY) == 19 + PAUSE - 1


@pytest.mark.parametrize("by", ["memory", "run", "list"])
def test_a_new_process_does_not_inherit_idle_time(by: str) -> None:
    """Who takes a free GPU and loads their data has held it for seconds, however long it was free."""
    activity = Activity()
    taken = 20 * GIB if by == "memory" else 0.0
    for second in range(1, 1000):
        is_taken = second >= 900
        one = sample(
            0, run="r1" if by == "run" and is_taken else "", utilization=0.0,
            memory_used=taken if is_taken else 0.0, memory_total=80 * GIB,
        )  # fmt: skip
        frame = frame_of(tick(second, [one]))
        holders = {UUID} if by == "list" and is_taken else ()
        activity.watch(frame.samples, monotonic_ns=frame.monotonic_ns, time=frame.time, interval=1.0, holders=holders)
        now = judge(one, is_taken, activity.observed(UUID))
        assert now is (GpuState.HELD if second >= 960 else GpuState.ALLOCATED if is_taken else GpuState.FREE)
    since, whole = activity.idle_as_held(UUID), activity.idle_since(UUID)
    assert since is not None
    assert whole is not None
    assert (since.seconds, since.at_least) == (99.0, False)
    assert (whole.seconds, whole.at_least) == (998.0, True)


def test_a_process_is_not_idle_for_longer_than_it_runs() -> None:
    """The GPU stays taken when one process follows another; of what was before it the new one has nothing."""
    one = sample(0, utilization=0.0, memory_used=20 * GIB, memory_total=80 * GIB)
    activity = seen(*(tick(second, [one]) for second in range(1, 1000)))

    def status(*ages: float) -> tuple[GpuState, float]:
        frame = frame_of(tick(999, [one]))
        held = [process(pid, started=frame.time - age) for pid, age in enumerate(ages, 1)]
        (found,) = gpu_statuses(frame_of(tick(999, [one], processes=held)), [], activity)
        assert found.since is not None
        return found.state, round(found.since.seconds)

    assert status(5.0) == (GpuState.ALLOCATED, 5)
    assert status(5.0, 300.0) == (GpuState.HELD, 300)
    assert status(5000.0) == (GpuState.HELD, 998)
    assert status(5.0, NAN) == (GpuState.HELD, 998), "nobody knows when that one came"


def test_a_temporarily_unreadable_process_list_changes_no_idle_time() -> None:
    unread = Activity()
    for second in range(1, 10):
        values = {} if second == 5 else {"memory_used": 0.0, "memory_total": 80 * GIB}
        unread.add(frame_of(tick(second, [sample(0, utilization=0.0, **values)])))
    assert unread.idle_as_held(UUID) == unread.idle_since(UUID)


def test_a_gap_or_a_missing_value_restarts_idle_time() -> None:
    gap = seen(at(1, 0.9), at(2, 0.0), at(100, 0.0), at(101, 0.0)).idle_since(UUID)
    unknown = seen(at(1, 0.9), at(2, 0.0), at(3, NAN), at(4, 0.0), at(5, 0.0)).idle_since(UUID)
    assert gap is not None
    assert unknown is not None
    assert (gap.seconds, gap.at_least) == (1.0, True)
    assert (unknown.seconds, unknown.at_least) == (1.0, True)
    assert seen(at(1, 0.0), at(2, NAN)).idle_since(UUID) is None


def test_late_ticks_of_100_ms_are_no_gap() -> None:
    def fast(tenth: int, utilization: float) -> Any:
        return at(1, utilization)._replace(monotonic_ns=tenth * SECOND // 10, interval_ns=SECOND // 10)

    late = seen(fast(10, 0.9), fast(15, 0.0), fast(22, 0.0)).observed(UUID)
    assert late == Observed(pytest.approx(1.2), pytest.approx(1.2)), "it pauses"
    gone = seen(fast(10, 0.9), fast(15, 0.0), fast(46, 0.0)).observed(UUID)
    assert isnan(gone.since_work)
    assert gone.idle == 0.0


def test_work_before_a_gap_makes_no_pause_after_it() -> None:
    activity = seen(at(1, 0.9), at(2, 0.9), at(32, 0.0), at(33, 0.0))
    assert isnan(activity.observed(UUID).since_work)
    idle = sample(**EMPTY)
    assert state(idle, (process(),), activity.observed(UUID)) is GpuState.ALLOCATED, "nobody knows yet"


def test_a_clock_that_restarts_resets_the_activity() -> None:
    activity = seen(at(100, 0.9), at(1, 0.0))
    assert isnan(activity.observed(UUID).since_work)


def said(frame: Frame, live: bool = True) -> str:
    return "\n".join(lines(frame, Origin("nvml"), Driver("580"), "node1", "", live=live))


def test_status_calls_only_a_proven_gpu_free() -> None:
    assert said(frame_of(tick(1, [sample(**EMPTY)]))).endswith("free")
    assert "free" not in said(frame_of(tick(1, [sample(**EMPTY)])), live=False)
    for one in (
        sample(**{**EMPTY, "utilization": 0.84, "memory_used": 68 * GIB}),
        sample(**{**EMPTY, "memory_used": 68 * GIB}),
        without_processes(sample(**EMPTY)),
        sample(),
    ):
        assert "free" not in said(frame_of(tick(1, [one])))
    assert "unknown process" in said(frame_of(tick(1, [sample(**{**EMPTY, "memory_used": 68 * GIB})])))


def test_devices_are_compared_by_identity_not_by_index() -> None:
    other = Device("GPU-other", 0, "H100")
    activity = seen(at(1, 0.9))
    assert activity.idle_since(other.uuid) is None
