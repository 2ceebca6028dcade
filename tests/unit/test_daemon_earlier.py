"""Frames of the ring from before a daemon: read in their order, from where they are wanted on."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.clock import SECOND
from gpumon.daemon.earlier import frames_since, newest_frames
from gpumon.ring.writer import RingWriter
from tests.builders import tick


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
