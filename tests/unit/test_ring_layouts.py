"""What the layout of a ring keeps, and rings of another layout."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.common.errors import RingError
from gpumon.common.numbers import NAN
from gpumon.model.metrics import Availability
from gpumon.ring import layout, takeover
from gpumon.ring.reader import RingReader
from gpumon.ring.writer import RingWriter
from tests.builders import sample, tick

SECOND = 1_000_000_000
_MAJOR_AT = 8


def seal(raw: bytearray) -> None:
    end = layout.SUPERBLOCK.size
    raw[end : end + 4] = layout.crc32(raw[:end]).to_bytes(4, "little")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "ring")


def test_the_times_at_which_devices_were_read_come_back(path: str) -> None:
    ring = RingWriter.create(path, 2, SECOND)
    stamps = {0: (5 * SECOND + 1, 5 * SECOND - 20_000_003), 1: (9 * SECOND, 0)}
    ring.append(
        tick(
            5,
            [
                sample(i)._replace(monotonic_ns=at, counters_monotonic_ns=counters)
                for i, (at, counters) in stamps.items()
            ],
        )
    )
    newest = RingReader.open(path).newest()
    assert newest is not None
    assert {found.device.index: (found.monotonic_ns, found.counters_monotonic_ns) for found in newest.samples} == stamps


@pytest.mark.parametrize(("told", "kept"), [(0.0, 0.0), (2.36, 2.3), (5999.9, 5999.9), (6000.0, NAN), (NAN, NAN)])
def test_for_how_long_a_driver_has_not_answered_is_kept_to_a_tenth_of_a_second(
    path: str, told: float, kept: float
) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    ring.append(tick(1, [sample(0, Availability.STALE)._replace(age=7000.0, unanswered=told)]))
    newest = RingReader.open(path).newest()
    assert newest is not None
    assert newest.samples[0].unanswered == pytest.approx(kept, nan_ok=True)
    assert newest.samples[0].age == 7000.0


@pytest.mark.parametrize("stamp", [1 << 63, -(1 << 70)])
def test_a_stamp_that_no_clock_gives_is_not_known_and_stops_no_daemon(path: str, stamp: int) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    ring.append(tick(1, [sample(0)._replace(monotonic_ns=stamp, counters_monotonic_ns=stamp)]))
    newest = RingReader.open(path).newest()
    assert newest is not None
    found = newest.samples[0]
    assert (found.monotonic_ns, found.counters_monotonic_ns) == (0, 0)


def test_a_frame_from_before_the_machine_started_is_kept(path: str) -> None:
    """A simulation shows ten minutes of history on a machine that is up for one."""
    ring = RingWriter.create(path, 1, SECOND)
    ring.append(tick(1, [sample(0, power=2.0)._replace(monotonic_ns=-9 * SECOND)], monotonic_ns=-10 * SECOND))
    ring.append(tick(2))
    reader = RingReader.open(path)
    first = reader.since(0)[0]
    assert (first.monotonic_ns, first.samples[0].monotonic_ns) == (-10 * SECOND, -9 * SECOND)
    assert len(reader.series("gpu.power", 2)[0]) == 2


@pytest.mark.parametrize("major", [0, layout.MAJOR + 1])
def test_a_ring_of_another_layout_is_refused_and_a_new_daemon_begins_a_new_one(path: str, major: int) -> None:
    RingWriter.create(path, 1, SECOND).append(tick(1))
    raw = bytearray(Path(path).read_bytes())
    raw[_MAJOR_AT : _MAJOR_AT + 2] = major.to_bytes(2, "little")
    seal(raw)
    Path(path).write_bytes(raw)
    with pytest.raises(RingError, match=f"layout {major},"):
        RingReader.open(path)
    assert RingWriter.create(path, 1, SECOND, continues="nvml").append(tick(2)) == 1


@pytest.mark.parametrize(("first", "last"), [(1, 1), (1, 9), (5, 12), (10, 20), (14, 24), (9, 10)])
def test_slots_of_frames_are_found_across_the_end_of_the_ring(first: int, last: int) -> None:
    area = takeover.plan_layout(rows=2, frames=10).full
    assert list(area.range(first, last)) == [area.at(number) for number in range(first, last)]
