"""Processes in kept history: who is who, what is known of them, and what is read back of any window."""

from __future__ import annotations

import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import astuple
from math import inf, isnan, nan
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.common.clock import SECOND
from gpumon.common.columnar import DamagedBlock, pack_block
from gpumon.model.frame import Frame, Tick
from gpumon.model.metrics import Availability
from gpumon.model.process import Process
from gpumon.storage.history import tiers as limits_module
from gpumon.storage.history.buckets import Grid, WindowSpan
from gpumon.storage.history.query import Query, Series
from gpumon.storage.history.schema import HISTORY_FILE
from gpumon.storage.history.tiers import HistoryLimits, prune_old
from gpumon.storage.processes.blocks import IndexedCell, pack_cells, unpack_cells, unpack_spans
from gpumon.storage.processes.in_memory import RecentSnapshots
from gpumon.storage.processes.query import ProcessFilter, ProcessUse, read_processes
from gpumon.storage.processes.recorder import ProcessRecorder
from gpumon.storage.processes.snapshot import SNAPSHOT_INTERVAL, Snapshots
from gpumon.storage.processes.usage_series import ProcessKey, process_key, process_lines
from gpumon.storage.sqlite.write import open_to_write
from tests.builders import device, frame_of, process, sample, tick

BEGIN = 1_790_035_200
"""A border of an hour, seconds since 1970."""
HOUR = 3600
GIB = 2.0**30
STARTED = BEGIN - 100.0
Seen = Callable[[int], Sequence[Process]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "history.sqlite"


def at(second: float, processes: Sequence[Process] = (), **fields: Any) -> Tick:
    """The tick `second` seconds after `BEGIN`."""
    times = {"time_ns": round((BEGIN + second) * SECOND), "monotonic_ns": round((10_000 + second) * SECOND)}
    return tick(1, **{"samples": [sample(0), sample(1)], "processes": processes, **times, **fields})


def one(pid: int = 1, index: int = 0, **fields: Any) -> Process:
    return process(pid, index, **{"started": STARTED, "memory_used": GIB, "sm_utilization": 0.5, **fields})


def steady(first: int, last: int, *processes: Process, **fields: Any) -> Iterator[Tick]:
    """A tick a second, with one and the same list of processes."""
    return (at(second, processes, **fields) for second in range(first, last + 1))


def connected(path: Path) -> closing[sqlite3.Connection]:
    return closing(open_to_write(str(path), HISTORY_FILE, shared=False, uid=os.getuid(), log=pytest.fail))


def keep(path: Path, ticks: Iterable[Tick], *, kill: bool = False) -> None:
    """Write what a daemon would of these ticks, each minute and at its end; `kill`: it had no end."""
    part = ProcessRecorder()
    with connected(path) as connection:
        part.on_open(connection)
        written = 0
        for each in ticks:
            part.add(each)
            if each.monotonic_ns - written >= 60 * SECOND:
                written = each.monotonic_ns
                part.write(connection)
        if not kill:
            part.finish()
            part.write(connection)


def uses(
    path: Path | str, begin: float = -HOUR, end: float = 40 * HOUR, frames: Sequence[Frame] = (), **wanted: Any
) -> list[ProcessUse]:
    """The processes between two times in seconds after `BEGIN`."""
    span = WindowSpan(BEGIN + begin, BEGIN + end)
    found = read_processes(str(path), frames, span, ProcessFilter(**wanted))
    assert found.problem == ""
    return list(found.processes)


def line(
    path: Path, begin: float, end: float, points: int, name: str = "memory_used", frames: Sequence[Frame] = (),
    key: ProcessKey | None = None,
) -> Series:  # fmt: skip
    key = key or ProcessKey(device().uuid, 1, STARTED)
    query = Query("", (name,), BEGIN + begin, BEGIN + end, points)
    found = process_lines(str(path), frames, key, query)
    assert found.problem == ""
    return found.series[name]


@pytest.mark.parametrize("damage", ["UPDATE process SET id = ?", "UPDATE sqlite_sequence SET seq = ?"])
def test_processes_are_kept_behind_a_row_with_the_largest_number(path: Path, damage: str) -> None:
    keep(path, steady(0, 100, one(1)))
    with connected(path) as connection:
        connection.execute(damage, (2**63 - 1,))
    keep(path, steady(200, 300, one(1), one(2)))
    keep(path, steady(400, 500, one(3)))
    assert {2, 3} <= {use.process.pid for use in uses(path)}


def test_a_process_has_its_time_its_memory_and_its_share(path: Path) -> None:
    keep(path, steady(0, 100, one(memory_used=3 * GIB, sm_utilization=0.25, cpu_utilization=2.0, host_memory=GIB)))
    (use,) = uses(path)
    assert (use.process.pid, use.process.user, use.process.name) == (1, "alice", "python")
    assert (use.process.first, use.process.last, use.held) == (BEGIN, BEGIN + 100, pytest.approx(100))
    assert use.process.started == STARTED
    assert {name: (of.mean, of.peak) for name, of in use.measures.items()} == {
        "memory_used": (3 * GIB, 3 * GIB), "sm_utilization": (0.25, 0.25), "cpu_utilization": (2.0, 2.0),
        "host_memory": (GIB, GIB),
    }  # fmt: skip


def test_what_the_driver_does_not_tell_is_missing_and_not_nothing(path: Path) -> None:
    unknown = one(memory_used=nan, sm_utilization=nan)
    keep(path, (at(second, [unknown if second < 60 else one()]) for second in range(121)))
    (use,) = uses(path)
    memory, share, cpu = (use.measures[name] for name in ("memory_used", "sm_utilization", "cpu_utilization"))
    assert use.held == pytest.approx(120)
    assert (share.mean, share.seconds) == (0.5, pytest.approx(60))
    assert (memory.peak, memory.seconds) == (GIB, pytest.approx(60))
    assert isnan(cpu.mean)
    assert (isnan(cpu.peak), cpu.seconds) == (True, 0.0)


def test_a_constant_is_its_own_mean(path: Path) -> None:
    memory = 32_212_254_720.0
    keep(path, (at(s * 1.1, [one(memory_used=memory)]) for s in range(200)))
    (use,) = uses(path)
    assert use.measures["memory_used"].mean == use.measures["memory_used"].peak == memory


def test_a_pid_that_is_used_again_is_another_process(path: Path) -> None:
    ticks = (at(s, [one(started=STARTED if s < 50 else BEGIN + 49.0, user="a" if s < 50 else "b")]) for s in range(101))
    keep(path, ticks)
    first, second = uses(path)
    assert (first.process.user, first.process.last) == ("a", BEGIN + 50)
    assert (second.process.user, second.process.first) == ("b", BEGIN + 50)
    assert first.held + second.held == pytest.approx(100)


def test_a_process_without_a_start_is_another_one_after_it_was_gone_or_unseen(path: Path) -> None:
    ticks = [at(s, [] if 30 <= s < 40 else [one(started=nan)]) for s in range(100)]
    ticks += [at(s, [one(started=nan)]) for s in range(200, 230)]
    keep(path, ticks)
    firsts = [use.process.first - BEGIN for use in uses(path)]
    assert firsts == [0, 40, 200]


def test_a_process_with_a_start_is_the_same_after_it_was_unseen(path: Path) -> None:
    keep(path, [*steady(0, 50, one()), *steady(200, 250, one())])
    (use,) = uses(path)
    assert (use.held, use.process.last) == (pytest.approx(100), BEGIN + 250)


def test_a_process_that_ends_keeps_its_name_and_its_start(path: Path) -> None:
    gone = one(started=nan, name="", user="", memory_used=nan)
    keep(path, (at(s, [one() if s < 50 else gone]) for s in range(61)))
    (use,) = uses(path)
    assert (use.process.name, use.process.user, use.process.started) == ("python", "alice", STARTED)
    assert use.held == pytest.approx(60)


def test_a_process_has_its_container_its_pod_and_its_job_once_they_are_known(path: Path) -> None:
    known = one(container="docker 3f2a9c1b04de", pod="c0ffee", job="4242")
    keep(path, (at(s, [one() if s < 30 else known]) for s in range(61)))
    (use,) = uses(path)
    assert (use.process.container, use.process.pod, use.process.job) == ("docker 3f2a9c1b04de", "c0ffee", "4242")
    assert use.held == pytest.approx(60)


def test_a_process_that_is_listed_twice_counts_once(path: Path) -> None:
    keep(path, steady(0, 60, one(), one(kind="graphics")))
    (use,) = uses(path)
    assert use.held == pytest.approx(60)


def test_a_process_on_two_gpus_is_listed_for_each(path: Path) -> None:
    keep(path, steady(0, 50, one(), one(index=1, memory_used=5 * GIB)))
    assert {use.process.device: use.measures["memory_used"].peak for use in uses(path)} == {
        device(0).uuid: GIB, device(1).uuid: 5 * GIB,
    }  # fmt: skip
    (use,) = uses(path, devices=[device(1).uuid])
    assert use.measures["memory_used"].peak == 5 * GIB


def test_a_process_that_came_and_went_between_two_looks_is_seen(path: Path) -> None:
    keep(path, (at(s, [one(), one(2, user="bob")] if 13 <= s < 16 else [one()]) for s in range(61)))
    (use,) = uses(path, user="bob")
    assert (use.process.first, use.process.last, use.held) == (BEGIN + 13, BEGIN + 16, pytest.approx(3))


def test_of_a_gpu_that_does_not_answer_nothing_is_claimed(path: Path) -> None:
    lost = [sample(0, Availability.LOST), sample(1)]
    there, other = one(), one(2, 1)
    keep(path, (at(s, [there, other], **({"samples": lost} if 20 <= s < 60 else {})) for s in range(101)))
    first, second = uses(path)
    assert (first.held, second.held) == (pytest.approx(60), pytest.approx(100))


def test_nothing_is_claimed_of_a_gap(path: Path) -> None:
    keep(path, [*steady(0, 100, one()), *steady(200, 300, one())])
    found = line(path, 0, 300, 31)
    assert found.step == 10
    assert [isnan(value) for value in found.mean[:30]] == [False] * 10 + [True] * 10 + [False] * 10
    assert list(found.seen[:30]) == pytest.approx([10.0] * 10 + [0.0] * 10 + [10.0] * 10)


def test_ticks_between_two_looks_cost_nothing_but_their_time() -> None:
    looks = Snapshots()
    there = [one(pid) for pid in range(1, 17)]
    for each in steady(0, 600, *there):
        looks.add(each.monotonic_ns, each.time_ns, 1.0, each.processes, each.samples)
    looks.finish()
    assert len(looks.finished) == 600 * SECOND // SNAPSHOT_INTERVAL + 1
    assert sum(look.ns for look in looks.finished) == 600 * SECOND


def test_looks_that_nobody_takes_are_bounded() -> None:
    looks = Snapshots()
    for each in steady(0, 5000, one()):
        looks.add(each.monotonic_ns, each.time_ns, 1.0, each.processes, each.samples)
    assert len(looks.finished) == 128
    assert looks.finished[-1].end_ns == (BEGIN + 5000) * SECOND


def test_a_process_goes_on_in_the_next_daemon_and_ends_with_the_boot(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(path, steady(0, 50, one()))
    keep(path, steady(100, 150, one(started=STARTED + 1)))
    (use,) = uses(path)
    assert (use.held, use.process.first, use.process.last) == (pytest.approx(100), BEGIN, BEGIN + 150)
    monkeypatch.setattr("gpumon.storage.processes.recorder.boot_id", lambda: b"another boot")
    keep(path, steady(200, 250, one()))
    assert [use.held for use in uses(path)] == pytest.approx([100, 50])


def test_a_killed_daemon_costs_a_minute_and_its_hours_are_made_coarse_by_the_next(path: Path) -> None:
    keep(path, steady(0, 2 * HOUR + 1000, one()), kill=True)
    (use,) = uses(path)
    assert 2 * HOUR + 1000 - 72 <= use.held <= 2 * HOUR + 1000
    with connected(path) as connection:
        connection.execute("DELETE FROM process_block WHERE tier = 2")
    keep(path, steady(4 * HOUR, 4 * HOUR + 60, one()))
    with connected(path) as connection:
        hours = connection.execute("SELECT begin FROM process_block WHERE tier = 2 ORDER BY begin").fetchall()
        assert [begin // SECOND - BEGIN for (begin,) in hours] == [0, HOUR, 2 * HOUR]
        connection.execute("DELETE FROM process_block WHERE tier = 1")
    (left,) = uses(path)
    assert left.held == pytest.approx(use.held, abs=11), "of the hour that goes on there is the finer tier alone"


def varied(second: int) -> Process:
    """More memory in each look, and one look of no work."""
    return one(memory_used=GIB * (1 + second // 10), sm_utilization=0.0 if 4000 <= second < 4010 else 0.8)


def test_the_coarser_tier_has_low_mean_and_high_of_the_finer_one(path: Path) -> None:
    keep(path, (at(s, [varied(s)]) for s in range(3 * HOUR + 1)))
    fine = line(path, HOUR, 2 * HOUR, 13, "sm_utilization")
    with connected(path) as connection:
        connection.execute("DELETE FROM process_block WHERE tier = 1")
    coarse = line(path, HOUR, 2 * HOUR, 13, "sm_utilization")
    assert fine.step == coarse.step == 300
    for mine, its in ((fine.low, coarse.low), (fine.mean, coarse.mean), (fine.high, coarse.high)):
        assert list(mine)[:12] == pytest.approx(list(its)[:12])
    assert coarse.low[1] == 0.0
    assert coarse.mean[1] == pytest.approx(0.8 * 29 / 30)
    assert line(path, HOUR, 2 * HOUR, 13).high[0] == pytest.approx(GIB * 390)


def test_a_window_takes_finer_cells_at_its_ends_and_what_the_file_lacks_from_frames(path: Path) -> None:
    ticks = list(steady(0, 2 * HOUR + 100, one()))
    keep(path, ticks[: 2 * HOUR + 50], kill=True)
    frames = [frame_of(each, number) for number, each in enumerate(ticks[-120:], 1)]
    (use,) = uses(path, 130, 2 * HOUR + 100, frames)
    assert use.held == pytest.approx(2 * HOUR - 30)
    assert use.process.last == BEGIN + 2 * HOUR + 100
    (cut,) = uses(path, 130, HOUR + 250)
    assert cut.held == pytest.approx(HOUR + 120)


def test_a_window_has_what_was_kept_before_the_first_whole_cell(path: Path) -> None:
    keep(path, steady(130, 700, one()))
    (use,) = uses(path)
    assert use.held == pytest.approx(570)
    keep(path, steady(701, 3 * HOUR, one()))
    (use,) = uses(path)
    assert use.held == pytest.approx(3 * HOUR - 131, abs=1)


def test_frames_give_finer_points_of_the_last_minutes(path: Path) -> None:
    ticks = [at(s, [one(memory_used=GIB * s)]) for s in range(601)]
    keep(path, ticks[:570], kill=True)
    frames = [frame_of(each, number) for number, each in enumerate(ticks[-100:], 1)]
    fine = line(path, 510, 600, 91, frames=frames)
    assert fine.step == 1
    assert list(fine.mean)[:90] == pytest.approx([GIB * s for s in range(510, 600)])
    longer = line(path, 0, 600, 61, frames=frames)
    assert longer.step == 10
    assert not any(map(isnan, list(longer.mean)[:60]))
    assert list(longer.seen)[:60] == pytest.approx([10.0] * 60)


@pytest.mark.parametrize("oldest", range(90, 110, 3))
def test_no_hole_is_where_frames_take_over_from_the_file_nor_at_the_ends(path: Path, oldest: int) -> None:
    ticks = [at(s + 0.3, [one()]) for s in range(301)]
    keep(path, ticks[:290], kill=True)
    frames = [frame_of(each, number) for number, each in enumerate(ticks[oldest:], 1)]
    found = line(path, 47, 260, 1500, frames=frames)
    assert found.step < 1
    assert not any(map(isnan, found.mean))
    assert sum(found.seen) == pytest.approx(found.step * len(found.seen), abs=1)


def test_frames_alone_are_enough() -> None:
    frames = [frame_of(each, number) for number, each in enumerate(steady(0, 60, one(), one(2, started=nan)), 1)]
    found = read_processes("", frames, WindowSpan(BEGIN, BEGIN + 60)).processes
    assert [use.held for use in found] == pytest.approx([60, 60])
    lines = process_lines(
        "", frames, process_key(frames[-1].processes[1]), Query("", ("memory_used",), BEGIN, BEGIN + 60)
    )
    assert any(value == GIB for value in lines.series["memory_used"].mean)


def looked(ticks: Iterable[Tick], **bounds: Any) -> RecentSnapshots:
    looks = RecentSnapshots(**bounds)
    for number, each in enumerate(ticks, 1):
        looks.add(frame_of(each, number))
    return looks


@pytest.mark.parametrize("meanwhile", ["gone", "blind"])
def test_a_process_that_is_seen_again_is_one_also_in_frames_that_no_file_has(path: Path, meanwhile: str) -> None:
    silent = {"samples": [sample(0, state=Availability.STALE), sample(1)]}
    without = steady(11, 12) if meanwhile == "gone" else steady(11, 12, one(), **silent)
    ticks = [*steady(0, 10, one()), *without, *steady(13, 20, one())]
    (recent,) = uses("", frames=[frame_of(each, number) for number, each in enumerate(ticks, 1)])
    keep(path, ticks)
    (kept,) = uses(path)
    assert recent.process[1:] == kept.process[1:]
    assert (recent.process.first, recent.process.last, recent.held) == (BEGIN, BEGIN + 20, 18)


def test_one_whose_start_is_not_known_and_that_comes_again_is_another_one_in_frames_too() -> None:
    unknown = one(started=nan)
    ticks = (*steady(0, 10, unknown), *steady(11, 12), *steady(13, 20, unknown))
    found = uses("", frames=[frame_of(each, number) for number, each in enumerate(ticks, 1)])
    assert [use.process.first - BEGIN for use in found] == [0, 13]


def test_looks_in_memory_reach_further_back_than_frames_and_leave_no_hole() -> None:
    ticks = [at(second, [one(memory_used=(1 + second // 100) * GIB), one(2)]) for second in range(601)]
    frames = [frame_of(each, number) for number, each in enumerate(ticks, 1)][-120:]
    key = process_key(frames[-1].processes[0])
    query = Query("", ("memory_used",), BEGIN, BEGIN + 600, grid=Grid(0, 100.0, 6, phase=BEGIN))
    series = process_lines("", frames, key, query, looked(ticks).pieces(*key[:3])).series["memory_used"]
    assert series.mean == pytest.approx([GIB, 2 * GIB, 3 * GIB, 4 * GIB, 5 * GIB, 6 * GIB])
    assert series.seen == pytest.approx([100] * 6)
    alone = process_lines("", frames, key, query).series["memory_used"]
    assert isnan(alone.mean[0])


def test_looks_in_memory_claim_nothing_of_a_gap_and_tell_processes_of_one_pid_apart() -> None:
    device_of = device().uuid
    looks = looked([*steady(0, 50, one()), *steady(100, 150, one(started=nan)), *steady(200, 250, one(started=nan))])
    assert [(piece.begin - BEGIN, piece.end - BEGIN) for piece in looks.pieces(device_of, 1, STARTED)] == [
        (second, second + 10) for second in range(0, 50, 10)
    ]
    unknown = looks.pieces(device_of, 1, nan)
    assert unknown[0].begin == BEGIN + 200, "one without a start is another one after nobody watched"
    assert unknown[-1].end == BEGIN + 250
    assert looks.pieces(device_of, 2, nan) == []


def test_looks_in_memory_are_kept_for_their_time_and_within_their_bounds() -> None:
    assert looked(steady(0, 500, one()), max_age=100.0).begin == BEGIN + 400
    assert looked(steady(0, 500, one(), one(2)), max_rows=20).begin == BEGIN + 410


def test_the_line_of_one_process_has_nothing_of_another_with_its_pid(path: Path) -> None:
    small, large = (one(started=nan, memory_used=GIB * size) for size in (1, 7))
    keep(path, (at(s, [] if s == 100 else [small if s < 100 else large]) for s in range(201)))
    first, second = uses(path)
    for use, memory in ((first, 1), (second, 7)):
        found = line(path, 0, 200, 20, key=process_key(use.process))
        assert {value for value in found.mean if not isnan(value)} == {GIB * memory}


def test_frames_of_two_processes_with_one_pid_are_told_apart_by_when_they_came(path: Path) -> None:
    small, large = (one(started=nan, memory_used=GIB * size) for size in (1, 7))
    ticks = [*steady(0, 100, small), *steady(130, 400, large)]  # nobody watched in between
    keep(path, ticks[:220])
    frames = [frame_of(each, number) for number, each in enumerate(ticks, 1)]
    for file, seconds in ((path, (100, 270)), (Path(), (100, 270))):
        found = read_processes(str(file) if file.name else "", frames, WindowSpan(BEGIN, BEGIN + 400)).processes
        assert [use.held for use in found] == pytest.approx(seconds)
        for use, memory, held in zip(found, (1, 7), seconds, strict=True):
            query = Query("", ("memory_used",), BEGIN, BEGIN + 400, 400)
            drawn = process_lines(str(file) if file.name else "", frames, process_key(use.process), query)
            series = drawn.series["memory_used"]
            assert {value for value in series.mean if not isnan(value)} == {GIB * memory}
            assert sum(series.seen) == pytest.approx(held, abs=1)


def test_a_process_without_a_start_is_another_one_at_once_where_nobody_watched(path: Path) -> None:
    unknown = one(started=nan)
    keep(path, steady(0, 100, unknown))
    later = [frame_of(each, number) for number, each in enumerate(steady(130, 140, unknown), 1)]
    assert [use.process.first - BEGIN for use in uses(path, frames=later)] == [0, 130], "as it will be in the file"
    at_once = [frame_of(each, number) for number, each in enumerate(steady(100, 140, unknown), 1)]
    assert [use.held for use in uses(path, frames=at_once)] == pytest.approx([140])


@pytest.mark.parametrize(("begin", "end"), [(52, 53), (55, 58), (33, 68), (100, 101), (-20, 5)])
def test_nobody_is_on_a_gpu_for_longer_than_a_window_nor_missing_in_a_short_one(
    path: Path, begin: int, end: int
) -> None:
    keep(path, steady(0, 200, one()))
    (use,) = uses(path, begin, end)
    assert use.held == pytest.approx(end - max(begin, 0))
    assert astuple(use.measures["memory_used"]) == pytest.approx((use.held, GIB, GIB))


def test_a_wrong_clock_puts_nothing_in_the_way_of_other_days(path: Path) -> None:
    keep(path, [at(s, [one()], time_ns=(s + 5) * SECOND) for s in range(200)])
    keep(path, steady(0, 2 * HOUR, one()))
    assert sum(line(path, 100, HOUR + 50, 400).seen) == pytest.approx(HOUR - 50, abs=11)
    (use,) = uses(path, 100, HOUR + 50)
    assert use.held == pytest.approx(HOUR - 50, abs=11)


def test_what_a_clock_that_is_set_back_shows_twice_is_there(path: Path) -> None:
    ticks = [at(s, [one()]) for s in range(300)]
    ticks += [at(s, [one()], time_ns=(BEGIN + s - 200) * SECOND) for s in range(300, 700)]
    keep(path, ticks)
    (use,) = uses(path)
    assert use.held == pytest.approx(698, abs=1)
    assert line(path, 0, 490, 50).mean[5] == GIB


@pytest.mark.parametrize(
    "ahead", [range(40), range(100, 140), range(10**6)], ids=["first", "meanwhile", "until the end"]
)
@pytest.mark.parametrize("restart", [340, 60, 20], ids=["none", "late", "early"])
def test_a_process_is_known_whenever_its_clock_was_ahead(path: Path, ahead: range, restart: int) -> None:
    """As before a machine has asked for the time."""
    ticks = [at(s, [one()], time_ns=(BEGIN + s + HOUR * (s in ahead)) * SECOND) for s in range(340)]
    keep(path, ticks[:restart])
    keep(path, ticks[restart:])
    shift = HOUR * (339 in ahead)
    right = [s for s in range(340) if s not in ahead or shift]
    (use,) = uses(path, right[0] - 10 + shift, right[-1] + 30 + shift)
    assert use.held == pytest.approx(len(right), abs=4)
    assert BEGIN + shift <= use.process.first <= BEGIN + right[0] + shift
    assert use.process.last == pytest.approx(BEGIN + 340 + shift, abs=12), "and no time that is still to come"


@pytest.mark.parametrize("ahead", [60, HOUR, 400 * 24 * HOUR])
@pytest.mark.parametrize("written", [30, 50, 75, 111], ids=["before", "while ahead", "after", "all"])
@pytest.mark.parametrize("started", [STARTED, nan], ids=["known", "unknown"])
def test_no_process_begins_after_its_end_if_it_began_while_the_clock_was_ahead(
    path: Path, ahead: int, written: int, started: float
) -> None:
    ticks = [*steady(0, 29, one(2))]
    ticks += [at(s, [one(started=started)], time_ns=(BEGIN + s + ahead) * SECOND) for s in range(30, 70)]
    ticks += steady(70, 110, one(started=started))
    keep(path, ticks[:written], kill=written < len(ticks))
    seen = [use.process for use in uses(path, -100, 200, [*map(frame_of, ticks)])]
    assert all(process.first <= process.last for process in seen)
    if written in (30, 111) and started == STARTED:
        (seen_process,) = [process for process in seen if process.pid == 1]
        assert seen_process.first == pytest.approx(BEGIN + 30, abs=2)


@pytest.mark.parametrize("ahead", [HOUR, 365 * 24 * HOUR])
@pytest.mark.parametrize("kill", [False, True])
def test_a_process_that_ended_while_the_clock_was_ahead_hides_none(path: Path, ahead: int, kill: bool) -> None:
    ticks = [at(s, [one()]) for s in range(100)]
    ticks += [at(s, [one()], time_ns=(BEGIN + s + ahead) * SECOND) for s in range(100, 140)]
    ticks += [at(s) for s in range(140, 300)]
    keep(path, ticks[:150], kill=kill)
    keep(path, ticks[150:], kill=kill)
    (use,) = uses(path, -100, 290)
    assert use.held == pytest.approx(100, abs=4)


def test_names_are_harmless_in_the_file_and_behind_it(path: Path) -> None:
    keep(path, steady(0, 20, one(name="\x1b[2J" + "x" * 500, user="eve\n\u202e")))
    (use,) = uses(path)
    assert use.process.user == "eve\\x0a\\u202e"
    assert len(use.process.name) <= 100
    assert "\x1b" not in use.process.name


def test_a_block_gives_the_cells_of_some_processes_as_those_of_all() -> None:
    given_cells = [
        IndexedCell(number, place, [10.0, 10.0, 20.0 * number, 1.0, 3.0 * number + place, *[0.0, 0.0, inf, -inf] * 3])
        for number in (3, 7, 8) for place in range(number)
    ]  # fmt: skip
    data = pack_cells(given_cells)
    whole = unpack_cells(data)
    assert whole == given_cells
    for wanted in ({3}, {7, 8}, {5}, set()):
        assert unpack_cells(data, wanted) == [one for one in whole if one.number in wanted]


def test_a_damaged_block_is_a_gap(path: Path) -> None:
    keep(path, steady(0, 300, one()))
    with connected(path) as connection:
        (whole,) = connection.execute("SELECT count(*) FROM process_block").fetchone()
        connection.execute(
            "UPDATE process_block SET data = substr(data, 1, length(data) / 2) WHERE rowid ="
            " (SELECT min(rowid) + 1 FROM process_block)"
        )
    assert whole >= 5
    (use,) = uses(path)
    assert 200 <= use.held < 300


@given(st.binary(max_size=400), st.sampled_from([unpack_spans, unpack_cells]))
def test_any_bytes_are_a_block_or_a_damaged_one(raw: bytes, unpack: Callable[[bytes], list[Any]]) -> None:
    for data in (raw, pack_block([raw]), pack_block([zlib.compress(raw)])):
        found = []
        with suppress(DamagedBlock):
            found = unpack(data)
        assert isinstance(found, list)


@pytest.mark.parametrize("content", [b"", b"this is no database, and long enough to be read as one" * 20])
def test_a_file_that_is_none_leaves_the_frames_and_says_so(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    frames = [frame_of(each, number) for number, each in enumerate(steady(0, 60, one()), 1)]
    found = read_processes(str(path), frames, WindowSpan(BEGIN, BEGIN + 60))
    assert [use.held for use in found.processes] == pytest.approx([60])
    query = Query("", ("memory_used",), BEGIN, BEGIN + 60)
    lines = process_lines(str(path), frames, process_key(frames[-1].processes[0]), query)
    assert bool(found.problem) == bool(lines.problem) == bool(content)
    assert GIB in lines.series["memory_used"].mean


def test_processes_and_blocks_are_kept_for_their_time_and_within_their_bounds(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = 24 * HOUR
    with connected(path) as connection:
        for number in range(40 * 24):
            time = (BEGIN + number * HOUR) * SECOND
            for tier in (1, 2):
                row = (tier, time, time + HOUR * SECOND, b"x" * 100)
                connection.execute("INSERT INTO process_block VALUES (?, ?, ?, ?)", row)
            row = (device().uuid, number, "", None, "compute", "python", "alice", *[""] * 3, time, time + HOUR * SECOND)
            connection.execute(f"INSERT INTO process VALUES (NULL{', ?' * len(row)})", row)

        def counts() -> list[int]:
            asked = ("process_block WHERE tier = 1", "process_block WHERE tier = 2", "process")
            return [connection.execute(f"SELECT count(*) FROM {what}").fetchone()[0] for what in asked]

        prune_old(connection, BEGIN + 40.0 * day, HistoryLimits())
        assert counts() == [26, 32 * 24 + 1, 32 * 24 + 1]
        prune_old(connection, BEGIN + 40.0 * day, HistoryLimits(days=10))
        assert counts() == [26, 241, 241]
        monkeypatch.setattr(limits_module, "MAX_PROCESSES", 100)
        monkeypatch.setattr(limits_module, "MAX_PROCESS_BYTES", 50 * 100)
        prune_old(connection, BEGIN + 40.0 * day, HistoryLimits())
        assert counts() == [25, 25, 100]
        (oldest,) = connection.execute("SELECT min(pid) FROM process").fetchone()
        assert oldest == 40 * 24 - 100, "the oldest goes first"


def test_a_process_whose_row_was_removed_has_a_new_one(path: Path) -> None:
    part = ProcessRecorder()
    with connected(path) as connection:
        part.on_open(connection)
        for each in steady(0, 100, one()):
            part.add(each)
        part.write(connection)
        connection.execute("DELETE FROM process")
        part.on_open(connection)
        for each in steady(101, 200, one()):
            part.add(each)
        part.finish()
        part.write(connection)
    (use,) = uses(path)
    assert use.held == pytest.approx(100)
