"""Frames that are older than the full ones: their values, their boundaries, and the runs that began or ended."""

from __future__ import annotations

import json
import math
import os
import random
from pathlib import Path

import pytest

from gpumon.analysis.run_epochs import Epochs
from gpumon.common.errors import RingError
from gpumon.common.numbers import NAN
from gpumon.live import Live
from gpumon.model.frame import Frame, Mark, Run, RunState
from gpumon.model.metrics import GPU_METRICS, HOST_METRICS, Availability, Kind, Unit
from gpumon.ring import layout, takeover, writer
from gpumon.ring.events import read_raw_events
from gpumon.ring.reader import RingReader
from gpumon.ring.writer import RingWriter
from tests.builders import TIME, boundary, device, process, run, sample, tick

SECOND = 1_000_000_000
MIB = 2**20
FULL, ALL = 8, 64


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of 64 frames, of which 8 are full."""
    monkeypatch.setattr(writer, "FRAME_LADDER", (ALL,))
    monkeypatch.setattr(takeover, "FULL_FRAMES", FULL)
    monkeypatch.setattr(takeover, "EVENTS", 100)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "ring")


def fill(ring: RingWriter, first: int, last: int) -> None:
    """Frames of which every value says which one it is."""
    for number in range(first, last + 1):
        samples = [sample(0, power=number + 0.5, energy=2.0**40 + number, run="tag.1000.4711.abcd")]
        found = ring.append(
            tick(number, samples, [process(number)], [run(epoch=number, metrics={"loss": 0.5})], [boundary(number)])
        )
        assert found == number


def assert_is_true(frame: Frame) -> None:
    (found,) = frame.samples
    assert found.value("gpu.power") == frame.number + 0.5
    assert found.value("gpu.energy") == 2.0**40 + frame.number
    assert frame.monotonic_ns == frame.number * SECOND


def test_every_metric_comes_back_counters_and_masks_exactly_and_gauges_to_seven_digits(path: str) -> None:
    chance = random.Random(5)
    ring = RingWriter.create(path, 2, SECOND)
    rows = [[chance.random() * 10**9 for _ in GPU_METRICS] for _ in range(2)]
    host = [chance.random() * 10**9 for _ in HOST_METRICS]
    written = [
        sample(i, run="tag.1000.4711.abcd")._replace(
            values=rows[i], monotonic_ns=5 * SECOND + i, counters_monotonic_ns=4 * SECOND - i, age=0.25
        )
        for i in range(2)
    ]
    ring.append(tick(5, written, host=host, runs=[run()], skipped_ticks=3))
    for number in range(6, 20):
        ring.append(tick(number))
    found = RingReader.open(path).since(0)[0]
    assert not found.is_full
    assert (found.number, found.monotonic_ns, found.interval, found.skipped_ticks) == (1, 5 * SECOND, 1.0, 3)
    for one, before in zip(found.samples, written, strict=True):
        assert one._replace(values=()) == before._replace(values=())
    pairs = [
        *((metric, one.values[i], rows[row][i]) for row, one in enumerate(found.samples)
          for i, metric in enumerate(GPU_METRICS)),
        *((metric, found.host[i], host[i]) for i, metric in enumerate(HOST_METRICS)),
    ]  # fmt: skip
    for metric, value, before in pairs:
        exact = metric.kind is Kind.COUNTER or metric.unit is Unit.BITS
        assert value == (before if exact else pytest.approx(before, rel=1e-7)), metric.name


def test_older_frames_have_values_and_boundaries_and_say_that_they_are_not_full(path: str) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    fill(ring, 1, 100)
    frames = RingReader.open(path).since(0)
    assert [frame.number for frame in frames] == list(range(37, 101))
    assert [frame.is_full for frame in frames] == [False] * (ALL - FULL) + [True] * FULL
    for frame in frames:
        assert_is_true(frame)
        assert [found.number for found in frame.boundaries] == [frame.number]
        assert frame.samples[0].run == "tag.1000.4711.abcd"
        assert [found.pid for found in frame.processes] == ([frame.number] if frame.is_full else [])
        assert frame.left_out == ""


def test_the_newest_frame_is_full_whatever_is_asked_before(path: str) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    fill(ring, 1, 20)
    reader = RingReader.open(path)
    assert [frame.is_full for frame in reader.since(0, 3)] == [True] * 3
    newest = reader.newest()
    assert newest is not None
    assert (newest.number, newest.is_full) == (20, True)


@pytest.mark.parametrize(("devices", "most"), [(0, 6.1), (1, 6.1), (8, 16)])
def test_an_hour_takes_little_room(devices: int, most: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    planned = takeover.plan_layout(max(1, devices), writer.FRAME_LADDER[0])
    assert planned.n_slots >= 120
    assert planned.n_values >= 3600
    assert planned.size < most * MIB - 50_000, "the lock and the boards' directory come on top"


def test_fifty_metrics_of_eight_devices_fit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    more = [GPU_METRICS[i % len(GPU_METRICS)]._replace(name=f"gpu.{i}") for i in range(50)]
    monkeypatch.setattr(takeover, "GPU_METRICS", more)
    monkeypatch.setattr(takeover, "METRICS", (*more, *HOST_METRICS))
    assert takeover.plan_layout(8, writer.FRAME_LADDER[0]).size < 16 * MIB - 100_000


def test_a_run_that_is_gone_is_known_from_the_frames_with_which_it_began_and_ended(path: str) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    began = run(state=RunState.RUNNING, phase="train", step=1)
    ended = run(state=RunState.DIED, epoch=3, step=40, updated=1_790_000_003.0, epoch_started=1_790_000_002.0)
    for number, runs in ((1, [began]), (2, [began]), (3, [ended]), (4, [ended])):
        ring.append(tick(number, runs=runs))
    for number in range(5, 30):
        ring.append(tick(number))
    frames = RingReader.open(path).since(0)
    states = {frame.number: [(found.state, found.id, found.step) for found in frame.runs] for frame in frames}
    assert {number: found for number, found in states.items() if found} == {
        1: [(RunState.RUNNING, "resnet50-1a2b", 1)],
        3: [(RunState.DIED, "resnet50-1a2b", 40)],
    }
    (last,) = frames[2].runs
    assert (last.epoch, last.updated, last.epoch_started, last.metrics) == (3, 1_790_000_003.0, 1_790_000_002.0, {})


def test_a_burst_of_boundaries_is_kept_with_the_frames_that_had_room_for_it(path: str) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    ring.append(tick(1, runs=[run()], boundaries=[boundary(number) for number in range(1, 91)]))
    for number in range(2, 40):
        ring.append(tick(number, runs=[run()]))
    frames = RingReader.open(path).since(0)
    assert [event.number for frame in frames for event in frame.boundaries] == list(range(1, 91))


def test_the_newest_events_are_kept_when_there_are_too_many(path: str) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    for number in range(1, 60):
        numbers = range(3 * number, 3 * number + 3)
        ring.append(tick(number, runs=[run()], boundaries=[boundary(event) for event in numbers]))
    reader = RingReader.open(path)
    assert [number for number, _ in read_raw_events(reader.fd, reader.layout)] == list(range(79, 179))
    found = [event.number for frame in reader.since(0) for event in frame.boundaries]
    assert found == list(range(80, 180))


@pytest.mark.parametrize("metric", ["gpu.power", "gpu.energy"])
def test_a_series_reaches_as_far_back_as_the_values(path: str, metric: str) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    fill(ring, 1, 100)
    reader = RingReader.open(path)
    times, values = reader.series(metric, 50)
    frames = reader.since(50)
    assert times == [round(frame.time * 1e9) for frame in frames]
    assert [value[0] for value in values] == [frame.samples[0].value(metric) for frame in frames]


def test_a_restart_takes_over_values_and_events(path: str) -> None:
    first = RingWriter.create(path, 1, SECOND)
    fill(first, 1, 30)
    first.close()
    second = RingWriter.create(path, 1, SECOND, continues="nvml")
    assert second.append(tick(31, [sample(0, power=31.5, energy=2.0**40 + 31)], runs=[run()])) == 31
    frames = RingReader.open(path).since(0)
    assert [frame.number for frame in frames] == list(range(1, 32))
    assert [event.number for frame in frames for event in frame.boundaries] == list(range(1, 31))
    assert [found.key for frame in frames if not frame.is_full for found in frame.runs] == ["tag.1000.4711.abcd"]
    assert [found.pid for frame in frames for found in frame.processes] == list(range(24, 31))
    for frame in frames:
        assert_is_true(frame)


def test_more_devices_keep_what_older_frames_had(path: str) -> None:
    fill(RingWriter.create(path, 1, SECOND), 1, 30)
    before = RingReader.open(path)
    wider = RingWriter.create(path, 5, SECOND, continues="nvml")
    assert wider.layout.rows == 5
    assert before.is_replaced()
    fill(wider, 31, 40)
    frames = RingReader.open(path).since(0)
    assert [frame.number for frame in frames] == list(range(1, 41))
    assert [frame.is_full for frame in frames] == [False] * 32 + [True] * 8
    assert [event.number for frame in frames for event in frame.boundaries] == list(range(1, 41))
    for frame in frames:
        assert_is_true(frame)


def test_devices_that_come_and_go_for_ever_do_not_make_the_ring_grow(path: str) -> None:
    """As with MIG instances: each has a UUID of its own, and a frame that shows it is kept for an hour."""
    ring = RingWriter.create(path, 1, SECOND)
    for number in range(1, 300):
        index = number // 10
        if number % 10 == 0:
            ring = RingWriter.create(path, 1, SECOND, continues="nvml", uuids=[device(index).uuid])
        ring.append(tick(number, [sample(index, power=float(number))]))
    assert ring.layout.rows <= ALL // 10 + 2
    for frame in RingReader.open(path).since(0):
        assert [(found.device.index, found.value("gpu.power")) for found in frame.samples] == [
            (frame.number // 10, float(frame.number))
        ]


def test_a_private_ring_keeps_its_frames_when_devices_come() -> None:
    old = RingWriter.private(1, SECOND, ALL)
    fill(old, 1, 30)
    new = RingWriter.private(3, SECOND, ALL, former=old.fd)
    old.close()
    fill(new, 31, 31)
    frames = RingReader(os.dup(new.fd)).since(0)
    assert [frame.number for frame in frames] == list(range(1, 32))
    for frame in frames:
        assert_is_true(frame)


def test_a_window_has_the_values_and_epochs_of_all_frames(path: str) -> None:
    fill(RingWriter.create(path, 1, SECOND), 1, 60)
    live = Live(lambda: os.open(path, os.O_RDONLY))
    window = live.window("1m")
    assert list(window["gpu.power"][:, 0]) == [number + 0.5 for number in range(1, 61)]
    assert [found["time"] for found in window.epochs()] == list(window.time)


@pytest.mark.parametrize("calls", range(8))
def test_a_writer_that_dies_between_two_writes_loses_nothing_before_and_nothing_false_is_read(
    path: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    fill(ring, 1, 20)
    left, real = [calls], os.pwrite

    def dies(*arguments: object) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "pwrite", dies)
    try:
        fill(ring, 21, 21)
    except KeyboardInterrupt:
        assert calls < 5
    monkeypatch.setattr(os, "pwrite", real)
    second = RingWriter.create(path, 1, SECOND, continues="nvml")
    fill(second, second.head + 1, 40)
    frames = RingReader.open(path).since(0)
    assert [frame.number for frame in frames] == list(range(1, 41))
    for frame in frames:
        assert_is_true(frame)
    assert {event.number for frame in frames for event in frame.boundaries} == set(range(1, 41))


@pytest.mark.parametrize("seed", range(20))
def test_random_damage_gives_an_error_or_true_values_never_false_ones(path: str, seed: int) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    fill(ring, 1, 90)
    chance = random.Random(seed)
    begin, size = ring.layout.values.begin, ring.layout.size
    with open(path, "r+b") as file:
        for _ in range(chance.choice([1, 30, 300])):
            file.seek(chance.randrange(begin, size))
            file.write(chance.randbytes(chance.choice([1, 8, 200])))
    for frame in RingReader.open(path).since(0):
        assert_is_true(frame)
        assert {event.number for event in frame.boundaries} <= {frame.number}
    again = RingWriter.create(path, 1, SECOND, continues="nvml")
    fill(again, 91, 92)
    for frame in RingReader.open(path).since(0):
        assert_is_true(frame)


@pytest.mark.parametrize("part", ["full", "values", "events"])
def test_a_file_that_is_cut_within_an_area_gives_what_is_left(path: str, part: str) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    fill(ring, 1, 64)
    area: layout.Area = getattr(ring.layout, part)
    os.truncate(path, area.begin + area.slot_size // 2)
    assert not ring.is_intact()
    for frame in RingReader.open(path).since(0):
        assert_is_true(frame)


@pytest.mark.parametrize("value", [1e300, -1e300, math.inf, 1e30, 2.0**66])
def test_a_value_that_no_metric_has_is_missing_and_stops_no_daemon(path: str, value: float) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    ring.append(tick(1, [sample(0, power=value, energy=value, temperature=50.0)]))
    for number in range(2, 20):
        ring.append(tick(number))
    reader = RingReader.open(path)
    (found,) = reader.since(0)[0].samples
    assert math.isnan(found.value("gpu.power"))
    assert math.isnan(found.value("gpu.energy"))
    assert found.value("gpu.temperature") == 50.0
    assert math.isnan(reader.series("gpu.power", ALL)[1][0][0])


@pytest.mark.parametrize(
    "parts",
    [
        {"values": -1}, {"values": 1 << 40}, {"values": 1.5}, {"values": None}, {"events": 1 << 40}, {"events": "3"},
        {"wide": "gpu.power"}, {"wide": [3]}, {"rows": 512, "gpu": [f"g{i}" for i in range(2000)]},
    ],
)  # fmt: skip
def test_a_schema_whose_sizes_make_no_sense_is_refused(path: str, parts: dict[str, object]) -> None:
    RingWriter.create(path, 1, SECOND).append(tick(1))
    raw = bytearray(Path(path).read_bytes())
    head = layout.Head._make(layout.SUPERBLOCK.unpack_from(raw))
    end = layout.SCHEMA_OFFSET + head.schema_length
    schema = json.dumps({**json.loads(raw[layout.SCHEMA_OFFSET : end]), **parts}).encode()
    raw[layout.SCHEMA_OFFSET : layout.SCHEMA_OFFSET + len(schema)] = schema
    head = head._replace(schema_length=len(schema), schema_crc=layout.crc32(schema))
    layout.SUPERBLOCK.pack_into(raw, 0, *head)
    end = layout.SUPERBLOCK.size
    raw[end : end + 4] = layout.crc32(raw[:end]).to_bytes(4, "little")
    Path(path).write_bytes(raw)
    with pytest.raises(RingError, match=r"is invalid|does not fit"):
        RingReader.open(path)


def test_events_of_a_stranger_that_name_nothing_known_are_left_out(path: str) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    fill(ring, 1, 20)
    area = ring.layout.events
    for number in range(1, 21):
        raw = bytearray(os.pread(ring.fd, area.slot_size, area.at(number)))
        raw[24:] = os.urandom(len(raw) - 24)
        raw[:4] = layout.crc32(raw[4:]).to_bytes(4, "little")
        os.pwrite(ring.fd, raw, area.at(number))
    for frame in RingReader.open(path).since(0):
        assert_is_true(frame)
        assert all(isinstance(found, Run) for found in frame.runs)
        assert all(isinstance(found.mark, Mark) for found in frame.boundaries)


def test_a_device_that_was_absent_or_lost_is_so_in_older_frames(path: str) -> None:
    ring = RingWriter.create(path, 3, SECOND)
    ring.append(tick(1, [sample(0, power=1.0), sample(1, Availability.LOST)]))
    for number in range(2, 20):
        ring.append(tick(number, [sample(0), sample(1), sample(2, power=NAN)]))
    found = RingReader.open(path).since(0)[0].samples
    assert [(one.device.index, one.state) for one in found] == [(0, Availability.OK), (1, Availability.LOST)]
    assert math.isnan(found[1].value("gpu.power"))


def test_a_view_that_opens_late_has_the_epochs_of_a_run_that_is_long_gone(path: str) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    keys = ["tag.0", "tag.1"]
    for number in range(1, 11):
        state = RunState.RUNNING if number < 10 else RunState.FINISHED
        ring.append(
            tick(
                number,
                [sample(0, power=1.0, run=keys[0] if state is RunState.RUNNING else "")],
                runs=[run(key, rank=rank, state=state, updated=TIME / 1e9 + number) for rank, key in enumerate(keys)],
                boundaries=[boundary(number, number, key=key) for key in keys],
            )
        )
    for number in range(11, 40):
        ring.append(tick(number))
    epochs = Epochs()
    for frame in RingReader.open(path).since(0):
        epochs.add(frame)
    assert epochs.runs_on(device(0).uuid) == [keys[0]]
    marks = epochs.marks(keys)
    assert [(mark.epoch, mark.run, mark.time) for mark in marks] == [
        (number, "resnet50-1a2b", TIME / 1e9 + number) for number in range(1, 11)
    ], "one for both ranks, by the id that they share"
    assert epochs.time_range(keys) == (TIME / 1e9 + 1, TIME / 1e9 + 10)
