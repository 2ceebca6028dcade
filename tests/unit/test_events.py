"""The event log: what happened, at exact times, once, and nothing open for ever."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from math import isnan
from pathlib import Path
from typing import Any

import pytest

from gpumon.analysis.ranks import Ranks
from gpumon.analysis.throttling import CAUSES
from gpumon.common.clock import SECOND
from gpumon.daemon.followers import ActivityRecorder
from gpumon.model.events import BY_NAME
from gpumon.model.frame import Mark, Run, RunState, Sample, Tick
from gpumon.model.metrics import Availability
from gpumon.model.origin import Driver
from gpumon.model.process import Process
from gpumon.model.run import RunFacts
from gpumon.reports.events import details
from gpumon.storage.events.device_watch import ClockWatch
from gpumon.storage.events.query import EventFilter, LoggedEvent, read_events
from gpumon.storage.events.run_watch import ProcessWatch, RunWatch
from gpumon.storage.history.schema import TABLES
from tests.activity import keep
from tests.builders import boundary, device, process, run, sample, tick

NOON = 1_790_000_000
GIB = 2.0**30
GPU = device().uuid


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "history.sqlite"


def at(seconds: float, samples: Sequence[Sample] | None = None, **fields: Any) -> Tick:
    """The tick `seconds` after noon."""
    usual = [sample(0, utilization=0.9, memory_used=8 * GIB, memory_total=80 * GIB)]
    return tick(
        samples=usual if samples is None else samples,
        **{
            "time_ns": round((NOON + seconds) * SECOND), "monotonic_ns": round((1000 + seconds) * SECOND), **fields,
        },
    )  # fmt: skip


def log(
    path: Path, ticks: Iterable[Tick], *, stopped: float | None = None, kill: bool = False, earlier: Sequence[Tick] = ()
) -> list[LoggedEvent]:
    """The log after a daemon that took these ticks; `kill`: it wrote, and then it was gone; `earlier`: in its ring."""
    taken: list[Tick] = []

    def now() -> int:
        return taken[-1].time_ns if stopped is None else round((NOON + stopped) * SECOND)

    def passing() -> Iterable[Tick]:
        for one in ticks:
            taken.append(one)
            yield one

    keep(path, passing(), stopped=now, kill=kill, earlier=earlier)
    return read_events(str(path))


def told(events: Iterable[LoggedEvent], *kinds: str) -> list[tuple[float, str]]:
    """Seconds after noon (floats of them have microseconds) and kind, of these kinds; without any, not the daemon's."""
    return [
        (round((event.time_ns - NOON * SECOND) / SECOND, 6), event.kind.name)
        for event in events
        if (event.kind.name in kinds if kinds else not event.kind.name.startswith("daemon"))
    ]


def test_a_daemon_that_starts_and_stops_says_so(path: Path) -> None:
    found = log(path, [at(s) for s in range(11)], stopped=10.5)
    assert told(found, *BY_NAME) == [(0, "daemon_started"), (10.5, "daemon_stopped")]
    assert found[1].lasted == 10
    assert found[0].until_ns == 0, "it is not open"
    assert isnan(found[0].lasted)


def test_a_daemon_that_was_killed_stopped_when_it_wrote_last(path: Path) -> None:
    (begun,) = log(path, [at(s) for s in range(101)], kill=True)
    assert begun.until_ns == (NOON + 100) * SECOND
    found = log(path, [at(s) for s in range(500, 511)])
    assert told(found, *BY_NAME) == [
        (0, "daemon_started"), (100, "daemon_stopped"), (500, "daemon_started"), (510, "daemon_stopped"),
    ]  # fmt: skip
    assert found[1].details["unseen"] is True


def test_a_daemon_that_was_killed_saw_all_that_its_ring_still_has(path: Path) -> None:
    def samples(s: int) -> list[Sample]:
        lost = 120 <= s < 130 or s >= 135
        return [*throttled(1.0 * min(s, 110)), sample(1, Availability.LOST if lost else Availability.OK)]

    ticks = [at(s, samples(s)) for s in range(201)]
    log(path, ticks[:101], kill=True)
    found = log(path, ticks[160:], earlier=ticks[:141])
    assert told(found) == [
        (1, "throttling_began"), (110, "throttling_ended"), (120, "gpu_lost"), (130, "gpu_back"), (135, "gpu_lost"),
        (140, "not_seen"), (160, "gpu_lost"),
    ]  # fmt: skip
    assert told(found, "daemon_started", "daemon_stopped")[:3] == [
        (0, "daemon_started"), (140, "daemon_stopped"), (160, "daemon_started"),
    ]  # fmt: skip


@pytest.mark.parametrize("until", ["4", "x'00'", "'now'", "9e999"])
def test_a_damaged_event_stops_no_recording(path: Path, until: str) -> None:
    log(path, [at(s, throttled(1.0 * s)) for s in range(101)], kill=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO event SELECT time + 1, 'throttling_ended', device, user, run, cause, boot, "
                           f"lasted, {until}, details FROM event WHERE kind = 'throttling_began'")  # fmt: skip
        connection.execute(f"UPDATE event SET until = {until} WHERE kind = 'daemon_started'")
        connection.commit()
    assert told(log(path, [at(s) for s in range(500, 511)]), "daemon_started", "daemon_stopped")[-2:] == [
        (500, "daemon_started"), (510, "daemon_stopped"),
    ]  # fmt: skip


def test_a_ring_that_lost_the_ticks_that_were_written_begins_nothing_anew(path: Path) -> None:
    ticks = [at(s, throttled(1.0 * s)) for s in range(201)]
    log(path, ticks[:101], kill=True)
    found = log(path, ticks[160:], earlier=ticks[105:141])
    assert told(found)[:2] == [(1, "throttling_began"), (140, "not_seen")]
    assert told(found, "daemon_started") == [(0, "daemon_started"), (160, "daemon_started")]


def test_a_daemon_that_stopped_left_nothing_to_take_from_its_ring(path: Path) -> None:
    ticks = [at(s, throttled(1.0 * s)) for s in range(201)]
    before = log(path, ticks[:101])
    assert log(path, ticks[160:], earlier=ticks[:141])[: len(before)] == before


def throttled(seconds: float, cause: str = "throttled_hw_thermal") -> list[Sample]:
    return [sample(0, utilization=0.9, memory_used=8 * GIB, memory_total=80 * GIB, **{cause: seconds})]


def test_throttling_goes_from_its_first_to_its_last_tick_with_its_cause(path: Path) -> None:
    def counter(s: int) -> float:
        return 5.0 + 0.5 * min(max(s - 100, 0), 60) - (0.5 if s == 130 else 0)

    found = log(path, [at(s, throttled(counter(s))) for s in range(301)])
    assert told(found) == [(101, "throttling_began"), (160, "throttling_ended")]
    assert found[1].subject.cause == found[2].subject.cause == "gpu.throttled_hw_thermal"
    assert (found[2].lasted, found[1].subject.device, found[1].device) == (59, GPU, "GPU 0")


def test_the_power_limit_is_met_at_every_full_load_and_no_event(path: Path) -> None:
    assert "gpu.throttled_sw_power" not in {metric.name for metric in CAUSES}
    found = log(path, [at(s, throttled(s * 1.0, "throttled_sw_power")) for s in range(60)])
    assert told(found) == []


def test_throttling_behind_a_gap_is_not_claimed(path: Path) -> None:
    watched = [*range(100), *range(400, 450)]
    found = log(path, [at(s, throttled(1.0 * s if s < 100 else 400.0)) for s in watched])
    assert told(found) == [(1, "throttling_began"), (99, "not_seen")]
    assert found[2].details["of"] == "throttling_began"


def test_two_causes_at_once_are_two_events(path: Path) -> None:
    both = [
        [sample(0, utilization=0.9, throttled_hw_thermal=s * 0.9, throttled_hw_power_brake=s * 0.8)] for s in range(30)
    ]
    found = log(path, [at(s, one) for s, one in enumerate(both)])
    assert told(found, "throttling_began") == [(1, "throttling_began")] * 2


def test_what_was_open_when_the_daemon_died_was_not_seen_after_that(path: Path) -> None:
    log(path, [at(s, throttled(1.0 * s)) for s in range(100)], kill=True)
    found = log(path, [at(s, throttled(1.0 * s)) for s in range(200, 260)])
    assert told(found) == [(1, "throttling_began"), (99, "not_seen"), (201, "throttling_began"), (259, "not_seen")]
    assert not any(event.until_ns for event in found)


def test_throttling_that_stays_on_over_a_short_restart_never_ended(path: Path) -> None:
    ticks = [at(s, throttled(1.0 * min(s, 120))) for s in range(301)]
    for part in (ticks[:100], ticks[102:110], ticks[112:]):
        found = log(path, part)
    assert told(found) == [(1, "throttling_began"), (120, "throttling_ended")]
    (began, ended) = (event for event in found if event.subject.cause)
    assert began.details == {"at_least": True, "restarts": 2}
    assert (ended.lasted, began.until_ns) == (119, 0)


def test_throttling_is_on_again_after_a_longer_restart_and_nobody_knows_when_it_began(path: Path) -> None:
    ticks = [at(s, throttled(1.0 * s)) for s in range(201)]
    log(path, ticks[50:100])
    found = log(path, ticks[110:])
    assert told(found) == [(51, "throttling_began"), (99, "not_seen"), (111, "throttling_began"), (200, "not_seen")]
    assert [event.details for event in found if event.kind.name == "throttling_began"] == [{"at_least": True}] * 2


def test_throttling_that_begins_long_after_a_restart_is_new(path: Path) -> None:
    ticks = [at(s, throttled(1.0 * s if s < 100 else 100.0 + max(0, s - 150))) for s in range(301)]
    log(path, ticks[:100])
    found = log(path, ticks[102:])
    assert told(found) == [(1, "throttling_began"), (99, "not_seen"), (151, "throttling_began"), (300, "not_seen")]
    assert found[-3].details == {}


def test_a_lost_gpu_that_comes_back_throttled_hours_after_a_restart_is_new(path: Path) -> None:
    ticks = [at(s, [sample(0, Availability.STALE)] if 103 < s < 200 else throttled(1.0 * s)) for s in range(301)]
    log(path, ticks[:100])
    found = log(path, [*(one._replace(samples=throttled(99.0)) for one in ticks[102:104]), *ticks[104:]])
    assert told(found) == [(1, "throttling_began"), (99, "not_seen"), (201, "throttling_began"), (300, "not_seen")]


def test_a_state_of_the_boot_before_does_not_go_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = [at(s, throttled(1.0 * s)) for s in range(201)]
    log(path, ticks[:100])
    monkeypatch.setattr("gpumon.daemon.followers.boot_id", lambda: bytes(16))
    assert told(log(path, ticks[102:]))[1:3] == [(99, "not_seen"), (103, "throttling_began")]


def test_what_was_lost_before_a_short_restart_and_is_after_it_was_lost_all_the_time(path: Path) -> None:
    def samples(s: int) -> list[Sample]:
        lost = 50 <= s < 150
        other = sample(1, Availability.NO_DRIVER)
        other = other._replace(device=other.device._replace(source="other"))
        return [sample(0, Availability.LOST if lost else Availability.OK), other]

    ticks = [at(s, samples(s)) for s in range(201)]
    log(path, ticks[:100])
    found = log(path, ticks[102:])
    assert told(found) == [(0, "driver_lost"), (50, "gpu_lost"), (150, "gpu_back")]
    lost, back = (event for event in found if event.subject.device)
    assert (back.lasted, lost.details["restarts"]) == (100, 1)


def test_a_gpu_that_is_idle_over_a_short_restart_was_idle_all_the_time(path: Path) -> None:
    def samples(s: int) -> list[Sample]:
        return [sample(0, utilization=0.9 if s >= 1200 else 0.0, memory_used=8 * GIB, memory_total=80 * GIB)]

    ticks = [at(s, samples(s), processes=[process(1)]) for s in range(1301)]
    between = log(path, ticks[:500])
    assert told(between) == [(0, "idle_began"), (499, "not_seen")], "what is known if no daemon ever follows"
    found = log(path, ticks[502:])
    assert told(found) == [(0, "idle_began"), (1200, "idle_ended")]
    assert found[-2].lasted == 1200


def test_a_gpu_that_is_lost_and_back_is_two_events_with_the_reason(path: Path) -> None:
    lost = [sample(0, Availability.LOST)]
    found = log(path, [at(s, lost if 50 <= s < 80 else None) for s in range(101)])
    assert told(found) == [(50, "gpu_lost"), (80, "gpu_back")]
    assert found[1].details == {"reason": Availability.LOST.reason}
    assert found[2].lasted == 30


def test_a_gpu_that_is_lost_when_the_daemon_starts_says_that_it_was(path: Path) -> None:
    found = log(path, [at(s, [sample(0, Availability.LOST)]) for s in range(11)])
    assert found[1].details["at_start"] is True
    assert "before the first sample" in details(found[1]), "no daemon is named: a view may sample by itself"


@pytest.mark.parametrize("state", [Availability.LOST, Availability.STALE, Availability.NO_DRIVER])
def test_a_gpu_that_does_not_answer_is_neither_at_work_nor_cool(path: Path, state: Availability) -> None:
    def gpus(s: int) -> list[Sample]:
        if s >= 400:
            return [sample(0, state)]
        hot = s * 1.0
        return [sample(0, utilization=0.0, memory_used=8 * GIB, memory_total=80 * GIB, throttled_hw_thermal=hot)]

    found = log(path, [at(s, gpus(s), processes=[process()]) for s in range(451)])
    closed = [(event.kind.name, event.details.get("of")) for event in found if event.details.get("unseen")]
    assert sorted(closed) == [("not_seen", "idle_began"), ("not_seen", "throttling_began")]
    assert {seconds for seconds, kind in told(found) if kind == "not_seen"} == {399}
    assert "idle_ended" not in dict(map(reversed, told(found)))  # type: ignore[arg-type]


def test_a_tick_that_a_gpu_was_too_late_for_ends_nothing(path: Path) -> None:
    def samples(s: int) -> list[Sample]:
        seen = s - 1 if s in (200, 450) else s
        one = sample(0, utilization=0.0, memory_used=8 * GIB, memory_total=80 * GIB,
                     throttled_hw_thermal=1.0 * seen)  # fmt: skip
        return [one._replace(state=Availability.STALE, age=1.0) if seen < s else one]

    found = log(path, [at(s, samples(s), processes=[process()]) for s in range(500)], kill=True)
    assert sorted(kind for _, kind in told(found)) == ["idle_began", "throttling_began"]


def test_a_driver_that_is_reloaded_is_named_with_its_version_and_no_gpu_is_lost_for_it(path: Path) -> None:
    gone = [sample(0, Availability.NO_DRIVER)]
    ticks = [
        at(s, gone if 50 <= s < 80 else None, driver=Driver() if 50 <= s < 80 else Driver("550.1" if s < 50 else "560"))
        for s in range(101)
    ]
    found = log(path, ticks)
    assert told(found) == [(50, "driver_lost"), (80, "driver_reloaded")]
    assert found[2].details == {"version": "560", "before": "550.1"}


@pytest.mark.parametrize("others", [Availability.OK, Availability.STALE, Availability.LOST, Availability.ASLEEP])
def test_one_gpu_that_says_that_there_is_no_driver_is_no_lost_driver(path: Path, others: Availability) -> None:
    one = [sample(0, Availability.NO_DRIVER), sample(1, others)]
    assert "driver_lost" not in [kind for _, kind in told(log(path, [at(s, one) for s in range(11)]))]


def test_allocated_but_idle_begins_when_the_gpu_was_last_at_work(path: Path) -> None:
    def samples(s: int) -> list[Sample]:
        utilization = 0.9 if s < 100 or s >= 1000 else 0.0
        return [sample(0, utilization=utilization, memory_used=8 * GIB, memory_total=80 * GIB)]

    on = [process(1), process(2, user="bob")]
    found = log(path, [at(s, samples(s), processes=on) for s in range(1101)])
    assert told(found) == [
        (100, "idle_began"), (100, "idle_began"), (1000, "idle_ended"), (1000, "idle_ended"),
    ]  # fmt: skip
    assert sorted(event.subject.user for event in found[1:3]) == ["alice", "bob"]
    assert {event.lasted for event in found[3:5]} == {900}


def test_a_user_is_idle_from_when_they_came_however_long_the_gpu_was_free_or_idle_before(path: Path) -> None:
    def who(s: int) -> list[Process]:
        return [] if s < 1000 else [process(1)] if s < 2000 else [process(2, user="bob")]

    def samples(s: int) -> list[Sample]:
        return [sample(0, utilization=0.0, memory_used=8 * GIB if who(s) else 0.0, memory_total=80 * GIB)]

    found = log(path, [at(s, samples(s), processes=who(s)) for s in range(2401)])
    assert {(*one, event.subject.user) for one, event in zip(told(found), found[1:], strict=False)} == {
        (1000, "idle_began", "alice"), (2000, "idle_ended", "alice"), (2000, "idle_began", "bob"),
        (2400, "not_seen", ""),
    }  # fmt: skip
    assert not any("at_least" in event.details for event in found)


def test_a_pause_of_four_minutes_is_no_event(path: Path) -> None:
    idle = [sample(0, utilization=0.0, memory_used=8 * GIB, memory_total=80 * GIB)]
    found = log(path, [at(s, idle if s < 240 else None, processes=[process()]) for s in range(301)])
    assert told(found) == []


KEY = "tag.1000.4711.abcd"


def training(state: RunState = RunState.RUNNING, **fields: Any) -> Run:
    return run(KEY, gpus=(GPU,), started=NOON + 10.25, updated=NOON + 60.5, state=state, **fields)


def ended(number: int = 9) -> Any:
    end = boundary(number, mark=Mark.RUN_END)
    return end._replace(time_ns=round((NOON + 60.75) * SECOND), monotonic_ns=round(1060.75 * SECOND))


def test_a_run_begins_and_ends_at_its_own_times(path: Path) -> None:
    def runs(s: int) -> list[Run]:
        return [] if s < 11 else [training() if s < 61 else training(RunState.FINISHED)]

    found = log(path, [at(s, runs=runs(s), boundaries=[ended()] if s == 61 else []) for s in range(101)])
    assert told(found) == [(10.25, "run_began"), (60.75, "run_ended")]
    assert found[2].details == {"name": "resnet50", "state": "finished", "gpus": [GPU]}
    assert (round(found[2].lasted, 6), found[2].subject.run, found[2].subject.user) == (50.5, "resnet50-1a2b", "alice")


@pytest.mark.parametrize("hours", [-1, 24 * 365])
def test_how_long_a_run_took_is_by_the_clock_that_nobody_sets(path: Path, hours: int) -> None:
    began = boundary(10, mark=Mark.RUN_BEGIN)
    word = boundary(60, mark=Mark.RUN_END)._replace(time_ns=(NOON + 60 + hours * 3600) * SECOND)
    over = training(RunState.FINISHED)._replace(updated=NOON + 60.0 + hours * 3600)
    ticks = [at(10, boundaries=[began]), at(11, runs=[training()]), at(61, runs=[over], boundaries=[word])]
    found = log(path, [*(at(s) for s in range(10)), *ticks])
    assert [event.lasted for event in found if event.kind.name == "run_ended"] == [50.0]


@pytest.mark.parametrize(
    ("state", "kind"),
    [(RunState.FAILED, "run_ended"), (RunState.INTERRUPTED, "run_ended"), (RunState.DIED, "run_died")],
)
def test_how_a_run_ended_is_in_the_event(path: Path, state: RunState, kind: str) -> None:
    found = log(path, [at(s, runs=[training() if s < 61 else training(state)]) for s in range(101)])
    ((_, began), (seconds, end)) = told(found)
    assert (began, end, found[2].details["state"]) == ("run_began", kind, state.name.lower())
    assert seconds == pytest.approx(60.5, abs=0.5), "it lived in the tick before"
    assert details(found[2], timed=False) == ("interrupted" if state is RunState.INTERRUPTED else ""), "not twice"


def test_a_run_whose_board_vanishes_died_when_it_was_last_seen(path: Path) -> None:
    found = log(path, [at(s, runs=[training()] if s < 70 else []) for s in range(201)])
    assert told(found) == [(10.25, "run_began"), (69, "run_died")]


@pytest.mark.parametrize("end", [20, 70], ids=["before it is written", "after"])
def test_a_run_that_is_withdrawn_for_one_that_tells_more_leaves_no_event(path: Path, end: int) -> None:
    ticks = [at(s, runs=[training()] if s < end else [], withdrawn=[KEY] if s == end else []) for s in range(101)]
    assert told(log(path, ticks)) == []


def test_all_ranks_of_a_run_are_one_run(path: Path) -> None:
    def ranks(s: int) -> list[Run]:
        first = training(RunState.RUNNING if s < 50 else RunState.FINISHED, world_size=2)
        second = training(RunState.RUNNING if s < 60 else RunState.FAILED, world_size=2)
        return [second._replace(key="other", rank=1, gpus=("GPU-B",), updated=NOON + 59.5), first]

    found = log(path, [at(s, runs=ranks(s)) for s in range(101)])
    assert [found[place].details["gpus"] for place in (1, 2)] == [[GPU, "GPU-B"]] * 2, "each rank has its own GPU"
    assert [kind for _, kind in told(found)] == ["run_began", "run_ended"]
    assert found[2].details["state"] == "failed"


def test_a_restart_writes_no_event_of_a_run_twice(path: Path) -> None:
    log(path, [at(s, runs=[training()]) for s in range(11, 51)])
    found = log(path, [at(s, runs=[training() if s < 61 else training(RunState.FINISHED)]) for s in range(55, 101)])
    assert told(found) == [(10.25, "run_began"), (60.5, "run_ended")]
    again = log(path, [at(s, runs=[training(RunState.FINISHED)]) for s in range(200, 241)])
    assert told(again) == told(found)
    assert not any(event.until_ns for event in again)


def test_a_run_that_ended_while_no_daemon_watched_ends_at_its_own_time(path: Path) -> None:
    log(path, [at(s, runs=[training()]) for s in range(11, 51)], kill=True)
    found = log(path, [at(s, runs=[training(RunState.FINISHED)]) for s in range(100, 141)])
    assert told(found) == [(10.25, "run_began"), (60.5, "run_ended")]


def test_a_run_that_nobody_ever_shows_again_was_not_seen_after_the_daemon(path: Path) -> None:
    log(path, [at(s, runs=[training()]) for s in range(11, 51)])
    found = log(path, [at(s) for s in range(100, 141)])
    assert told(found) == [(10.25, "run_began"), (50, "not_seen")]
    assert not any(event.until_ns for event in found)


def test_out_of_memory_has_the_time_of_the_training_and_what_it_asked_for(path: Path) -> None:
    oom = boundary(5, mark=Mark.OUT_OF_MEMORY)
    oom = oom._replace(time_ns=round((NOON + 30.125) * SECOND), asked=2 * GIB, free=GIB)
    found = log(path, [at(s, runs=[training()], boundaries=[oom] if s == 31 else []) for s in range(11, 61)])
    (event,) = [event for event in found if event.kind.name == "out_of_memory"]
    assert told([event]) == [(30.125, "out_of_memory")]
    assert (event.subject.device, event.subject.user, event.details["asked"]) == (GPU, "alice", 2 * GIB)


def test_names_are_hostile_and_details_stay_small(path: Path) -> None:
    evil = "\x1b[31m'); DROP TABLE event; --\n" + "x" * 10_000
    found = log(path, [at(s, runs=[training()._replace(user=evil, id=evil, name=evil)]) for s in range(11, 61)])
    (began,) = [event for event in found if event.kind.name == "run_began"]
    assert began.subject.user.isprintable()
    assert len(began.subject.user) < 200
    assert len(str(began.details)) < 1000


def test_events_are_found_by_window_kind_device_user_and_run(path: Path) -> None:
    lost = [sample(0, Availability.LOST), sample(1, utilization=0.5)]
    there = [sample(0, utilization=0.5), sample(1, utilization=0.5)]
    log(path, [at(s, lost if 50 <= s < 80 else there, runs=[training()]) for s in range(11, 101)])

    def kinds(*window: float, **wanted: Any) -> list[str]:
        return [event.kind.name for event in read_events(str(path), *window, wanted=EventFilter(**wanted))]

    assert kinds(NOON + 49, NOON + 51) == ["gpu_lost"]
    assert kinds(kinds=["gpu_back", "gpu_lost"]) == ["gpu_lost", "gpu_back"]
    assert kinds(device=GPU) == ["gpu_lost", "gpu_back"]
    assert kinds(device=device(1).uuid) == []
    assert kinds(user="alice") == kinds(run="resnet50-1a2b") == ["run_began"]
    assert [event.kind.name for event in read_events(str(path), limit=2)] == ["gpu_back", "daemon_stopped"]


def test_what_a_later_version_wrote_is_read_as_far_as_it_is_known(path: Path) -> None:
    log(path, [at(0), at(1)])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "INSERT INTO event VALUES (?, 'gpu_painted', '', '', '', '', '', NULL, NULL, '[1')", (NOON * SECOND + 5,)
        )
        connection.commit()
    (painted,) = [event for event in read_events(str(path)) if event.kind.name == "gpu_painted"]
    assert (painted.kind.label, painted.details) == ("gpu painted", {})


def test_a_write_that_fails_loses_no_event(path: Path) -> None:
    part = ActivityRecorder()
    part.add(at(0))
    with closing(sqlite3.connect(":memory:")) as empty, pytest.raises(sqlite3.OperationalError):
        part.write(empty)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(TABLES)
        part.write(connection)
        part.write(connection)
        assert connection.execute("SELECT kind FROM event").fetchall() == [("daemon_started",)]


def test_more_processes_at_once_than_are_kept_are_counted_once_and_each_hour(path: Path) -> None:
    crowd = [process(pid + 1) for pid in range(1400)]

    def seen(seconds: float, count: int) -> Tick:
        return at(seconds, processes=crowd[:count])

    counts = [(0, 1024), (1, 1030), (2, 1020), (3, 1040), (4, 1400), (5, 1024), (6, 900), (7, 1025)]
    found = log(path, [seen(*one) for one in counts])
    left = [event for event in found if event.kind.name == "processes_left_out"]
    assert told(left) == [(1, "processes_left_out"), (4, "processes_left_out"), (7, "processes_left_out")]
    assert [event.details for event in left] == [
        {"count": count, "left_out": count - 1024} for count in (1030, 1400, 1025)
    ]
    assert details(left[0]) == "6 of 1030"
    watch = ProcessWatch()
    lasting = [bool(list(watch.add(seen(60 * minute, 1100)))) for minute in range(121)]
    assert [minute for minute, is_noted in enumerate(lasting) if is_noted] == [0, 60, 120]


@pytest.mark.parametrize(("set_by", "told_by"), [(3600.0, "1 h ahead"), (-8.0, "8 s back"), (4.0, ""), (-4.0, "")])
def test_a_clock_that_was_set_is_an_event(path: Path, set_by: float, told_by: str) -> None:
    ticks = [at(s) for s in range(30)]
    later = [one._replace(time_ns=one.time_ns + round(set_by * SECOND)) for one in ticks[20:]]
    found = [event for event in log(path, [*ticks[:20], *later]) if event.kind.name == "clock_set"]
    assert [event.details for event in found] == ([{"seconds": set_by}] if told_by else [])
    assert [details(event) for event in found] == ([told_by] if told_by else [])


@pytest.mark.parametrize(("slept", "events"), [(1800.0, []), (600.0, [1200.0]), (0.0, [1800.0])])
def test_a_machine_that_was_suspended_has_not_set_its_clock(slept: float, events: list[float]) -> None:
    watch = ClockWatch(lambda: slept)
    ticks = [at(s) for s in range(9)]
    later = [one._replace(time_ns=one.time_ns + 1800 * SECOND) for one in ticks[4:]]
    found = [event for one in [*ticks[:4], *later] for event in watch.add(one)]
    assert [event.details["seconds"] for event in found] == events


class TestStall:
    """A run that makes no progress from second 100 on, which is detected at second 160."""

    def stalled(self, since: float = 100.0) -> Run:
        return training(step=140, epoch=3, phase="validate", facts=RunFacts(stalled_since=NOON + since))

    def ticks(self, end: int, runs: Sequence[Run] = ()) -> list[Tick]:
        return [at(s, runs=[training() if s < 160 else self.stalled()] if s < end else runs) for s in range(11, 301)]

    def test_lasts_from_the_last_progress_to_the_next(self, path: Path) -> None:
        found = log(path, self.ticks(200, [training()]))
        events = [event for event in found if event.kind.name.startswith("stall_")]
        assert told(events) == [(100, "stall_began"), (200, "stall_ended")]
        assert events[1].lasted == 100.0
        assert (events[0].details["step"], events[0].details["phase"]) == (140, "validate")

    def test_ends_with_the_run(self, path: Path) -> None:
        found = log(path, self.ticks(200, [training(RunState.DIED)]))
        times = {kind: time for time, kind in told(found)}
        assert times["stall_began"] < times["stall_ended"] == times["run_died"]

    def test_of_one_rank_is_none_while_another_makes_progress(self, path: Path) -> None:
        other = training(rank=1)._replace(key=f"{KEY[:-1]}e")
        found = log(path, [at(s, runs=[self.stalled(), other]) for s in range(160, 200)])
        assert not [event for event in found if event.kind.name.startswith("stall_")]

    def test_is_written_once_with_the_reason_when_it_is_found_out(self) -> None:
        asked: list[str] = []
        answers: list[str | None] = [None, None, "Rank 0 waits."]

        def explain(ranks: Ranks) -> Callable[[], str | None]:
            asked.append(ranks.first.id)
            return lambda: answers.pop(0)

        watch = RunWatch(explain)
        events = [event for tick in self.ticks(301) for event in watch.add(tick)]
        assert asked == ["resnet50-1a2b"]
        assert [event.kind for event in events] == ["run_began", "stall_began"]
        assert (events[1].details["sentence"], events[1].time_ns) == ("Rank 0 waits.", (NOON + 100) * SECOND)

    def test_that_ends_before_its_reason_is_found_out_is_written_without_it(self) -> None:
        watch = RunWatch(lambda ranks: lambda: None)
        events = [event for tick in self.ticks(200, [training()]) for event in watch.add(tick)]
        assert [event.kind for event in events] == ["run_began", "stall_began", "stall_ended"]
        assert events[1].details["sentence"] == ""
