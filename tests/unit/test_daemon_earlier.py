"""Frames of the ring from before a daemon: read in their order, from where they are wanted on."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpumon.common.clock import SECOND
from gpumon.daemon.recovery import frames_since, newest_frames, ticks_since
from gpumon.ring.takeover import FULL_FRAMES
from gpumon.ring.writer import RingWriter
from tests.builders import run, tick


@pytest.fixture
def path(tmp_path: Path) -> str:
    found = str(tmp_path / "ring")
    writer = RingWriter.create(found, 1, SECOND)
    for number in range(1, 4001):
        writer.append(tick(number))
    writer.close()
    return found


@pytest.mark.parametrize("since", [3999.0, 3500.5, 500.0, 3.0])
def test_all_frames_since_a_time_come_in_their_order_and_one_before_it(path: str, since: float) -> None:
    times = [frame.monotonic_ns / SECOND for frame in frames_since(path, round(since * SECOND))]
    oldest = 401
    assert times == list(range(int(times[0]), 4001))
    assert times[0] == oldest if since < oldest else since - 65 <= times[0] < since


def test_a_ring_that_is_none_has_no_frames(tmp_path: Path) -> None:
    (tmp_path / "broken").write_bytes(b"no ring" * 1000)
    for name in ("missing", "broken"):
        assert list(frames_since(str(tmp_path / name), 0)) == []
        assert newest_frames(str(tmp_path / name), 10, 10**18) == []


def test_the_newest_frames_are_none_of_the_future(path: str) -> None:
    found = newest_frames(path, 10, 3995 * SECOND)
    assert [frame.monotonic_ns // SECOND for frame in found] == [3991, 3992, 3993, 3994, 3995]


def test_ticks_since_a_time_before_the_clock_was_set_back_begin_there(tmp_path: Path) -> None:
    path, now, steady = str(tmp_path / "ring"), time.time_ns(), time.monotonic_ns()
    writer = RingWriter.create(path, 1, SECOND)
    for ago in range(200, 0, -1):
        ahead = 3600 if ago > 50 else 0
        writer.append(tick(time_ns=now + (ahead - ago) * SECOND, monotonic_ns=steady - ago * SECOND))
    writer.close()
    found = [round((steady - one.monotonic_ns) / SECOND) for one in ticks_since(path, now + (3600 - 70) * SECOND)]
    assert found[0] > 70
    assert found[-1] == 1


def test_ticks_of_a_ring_since_a_time_of_the_clock_are_those_that_name_users(tmp_path: Path) -> None:
    path, now, steady = str(tmp_path / "ring"), time.time_ns(), time.monotonic_ns()
    writer = RingWriter.create(path, 1, SECOND)
    for ago in range(400, 0, -1):
        writer.append(tick(time_ns=now - ago * SECOND, monotonic_ns=steady - ago * SECOND, runs=[run("r1")]))
    writer.close()
    found = list(ticks_since(path, now - 100 * SECOND))
    ages = [round((now - one.time_ns) / SECOND) for one in found]
    assert ages == list(range(FULL_FRAMES, 0, -1)), "of an earlier one nobody knows whose processes it had"
    assert {(one.runs[0].key, one.origin.source) for one in found} == {("r1", "nvml")}
    assert list(ticks_since(str(tmp_path / "missing"), 0)) == []
