"""Rings of earlier layouts: a view reads them, and a new daemon takes their history over.

`tests/rings/layout-N.gz` is a ring as the last version with layout N wrote it: two GPUs, eight slots, frames 5 to 12.
"""

from __future__ import annotations

import gzip
import math
import time
from pathlib import Path

import pytest

from gpumon.common.errors import RingError
from gpumon.common.numbers import NAN
from gpumon.common.procfs import boot_id
from gpumon.live import Live
from gpumon.model.frame import Frame
from gpumon.model.metrics import Availability
from gpumon.ring import layout, takeover, writer
from gpumon.ring.reader import RingReader
from gpumon.ring.writer import RingWriter
from tests.builders import device, sample, tick

SECOND = 1_000_000_000
RINGS = Path(__file__).parents[1] / "rings"
FORMER = sorted(set(layout.ROWS) - {layout.MAJOR})
_MAJOR_AT, _BOOT_AT = 8, slice(40, 56)


def put(path: str, major: int, state: int = layout.RUNNING) -> None:
    """A ring of layout `major` at `path`, as if a daemon of this boot had written it just now."""
    raw = bytearray(gzip.decompress((RINGS / f"layout-{major}.gz").read_bytes()))
    raw[_BOOT_AT] = boot_id()
    seal(raw)
    head, _, _, version = layout.HOT.unpack_from(raw, layout.HOT_OFFSET)
    layout.HOT.pack_into(raw, layout.HOT_OFFSET, head, time.monotonic_ns(), state, version)
    Path(path).write_bytes(raw)


def seal(raw: bytearray) -> None:
    end = layout.SUPERBLOCK.size
    raw[end : end + 4] = layout.crc32(raw[:end]).to_bytes(4, "little")


def assert_is_as_it_was_written(frame: Frame) -> None:
    number = frame.number
    first, second = frame.samples
    assert (first.device, second.device) == (device(0), device(1))
    assert (first.value("gpu.power"), first.value("gpu.energy")) == (100.0 + number, 5000.0 + number)
    assert math.isnan(first.value("gpu.temperature"))
    assert (second.state, second.age) == (Availability.LOST, 2.5)
    assert (frame.monotonic_ns, frame.skipped_ticks, frame.sample_duration) == (number * SECOND, number, 0.02)
    (process,) = frame.processes
    assert (process.pid, process.name, process.memory_used) == (number, f"train{number}.py", 2.0**30)
    assert (process.container, process.pod, process.job) == ("", "", "")
    assert math.isnan(process.sm_utilization)
    assert math.isnan(process.decoder_utilization)
    assert [(found.epoch, found.metrics) for found in frame.runs] == [(number, {"loss": 1 / number})]
    assert [found.number for found in frame.boundaries] == [number]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "ring")


def test_every_layout_that_was_released_has_a_file_here() -> None:
    assert [f"layout-{major}.gz" for major in FORMER] == sorted(found.name for found in RINGS.iterdir())


@pytest.mark.parametrize("major", FORMER)
def test_a_ring_of_a_daemon_from_before_an_upgrade_is_read(path: str, major: int) -> None:
    put(path, major)
    live = Live(lambda: RingReader.open(path).fd)
    assert live.state().live
    frames = live.since(0)
    assert [frame.number for frame in frames] == list(range(5, 13))
    for frame in frames:
        assert_is_as_it_was_written(frame)
    live.close()


def test_a_ring_of_the_first_layout_has_no_stamps_of_its_devices(path: str) -> None:
    put(path, 1)
    newest = RingReader.open(path).newest()
    assert newest is not None
    assert {(found.monotonic_ns, found.counters_monotonic_ns) for found in newest.samples} == {(0, 0)}


@pytest.mark.parametrize("major", FORMER)
def test_a_new_daemon_takes_over_every_frame_of_an_earlier_layout(path: str, major: int) -> None:
    put(path, major, layout.STOPPED)
    ring = RingWriter.create(path, 2, SECOND, continues="nvml")
    assert ring.layout.major == layout.MAJOR
    stamped = sample(0, power=1.0)._replace(monotonic_ns=13 * SECOND + 7, counters_monotonic_ns=13 * SECOND + 5)
    assert ring.append(tick(13, [stamped])) == 13
    frames = RingReader.open(path).since(0)
    assert [frame.number for frame in frames] == list(range(5, 14))
    for frame in frames[:-1]:
        assert_is_as_it_was_written(frame)
    (found,) = frames[-1].samples
    assert (found.monotonic_ns, found.counters_monotonic_ns) == (13 * SECOND + 7, 13 * SECOND + 5)


@pytest.mark.parametrize("major", FORMER)
def test_of_an_earlier_layout_values_and_boundaries_stay_for_the_hour(
    path: str, major: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the hour has eight frames, and four of them are full."""
    monkeypatch.setattr(writer, "FRAME_LADDER", (8,))
    monkeypatch.setattr(takeover, "FULL_FRAMES", 4)
    put(path, major, layout.STOPPED)
    RingWriter.create(path, 2, SECOND, continues="nvml").append(tick(13))
    frames = RingReader.open(path).since(0)
    assert [(frame.number, frame.is_full) for frame in frames] == [(n, n >= 10) for n in range(6, 14)]
    for frame in frames[:-1]:
        first, second = frame.samples
        assert (first.device, second.device) == (device(0), device(1))
        assert (first.value("gpu.power"), first.value("gpu.energy")) == (100.0 + frame.number, 5000.0 + frame.number)
        assert (second.state, second.age) == (Availability.LOST, 2.5)
        assert frame.host == tuple(float(i) for i in range(len(frame.host)))
        assert [found.number for found in frame.boundaries] == [frame.number]
        if frame.is_full:
            assert_is_as_it_was_written(frame)


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


@pytest.mark.parametrize(
    ("major", "advice"), [(layout.MAJOR + 1, "upgrade this one"), (0, "restart the daemon with this version")]
)
def test_a_ring_of_an_unknown_layout_is_refused_with_what_to_do(path: str, major: int, advice: str) -> None:
    RingWriter.create(path, 1, SECOND).append(tick(1))
    raw = bytearray(Path(path).read_bytes())
    raw[_MAJOR_AT : _MAJOR_AT + 2] = major.to_bytes(2, "little")
    seal(raw)
    Path(path).write_bytes(raw)
    with pytest.raises(RingError, match=advice):
        RingReader.open(path)
    assert RingWriter.create(path, 1, SECOND, continues="nvml").append(tick(2)) == 1


@pytest.mark.parametrize(("first", "last"), [(1, 1), (1, 9), (5, 12), (10, 20), (14, 24), (9, 10)])
def test_slots_of_frames_are_found_across_the_end_of_the_ring(first: int, last: int) -> None:
    area = takeover.plan(rows=2, frames=10).full
    assert list(area.range(first, last)) == [area.at(number) for number in range(first, last)]
