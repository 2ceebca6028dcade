"""The ring file: what is written is read, and whatever happens to the file, nothing false is accepted."""

from __future__ import annotations

import contextlib
import math
import os
import random
from pathlib import Path

import pytest

from gpumon.common.errors import GpumonError, RingError
from gpumon.model.frame import Mark, RunState
from gpumon.model.metrics import GPU_METRICS, Availability
from gpumon.ring import layout, takeover, writer
from gpumon.ring.directory import RowsExhausted
from gpumon.ring.reader import RingReader
from gpumon.ring.writer import NoRoom, RingWriter
from tests.builders import boundary, process, run, sample, tick

SECOND = 1_000_000_000


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "ring")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring of 64 frames, so that it is soon lapped."""
    monkeypatch.setattr(writer, "FRAME_LADDER", (64,))


def test_a_tick_comes_back_as_a_frame_with_the_same_numbers(path: str) -> None:
    ring = RingWriter.create(path, 2, SECOND)
    written = tick(
        7,
        [sample(0, utilization=0.97, energy=123456.7, memory_used=72e9), sample(1, Availability.LOST)],
        [process(1, cpu_utilization=2.5), process(2, 1, memory_used=math.nan, name="x", run="tag.1000.4711.abcd")],
        [run(epoch=7, step=12345, phase="validate", metrics={"loss": 0.31}, state=RunState.FAILED, wait=1.5)],
        [boundary(3, 7, Mark.EPOCH_END)],
    )
    assert ring.append(written) == 1
    frame = RingReader.open(path).newest()
    assert frame is not None
    assert (frame.number, frame.monotonic_ns, frame.time) == (1, 7 * SECOND, written.time_ns / 1e9)
    first, second = frame.samples
    assert first.value("gpu.energy") == 123456.7
    assert first.value("gpu.memory_used") == 72e9
    assert math.isnan(first.value("gpu.power"))
    assert second.state is Availability.LOST
    assert frame.host == tuple(written.host)
    by_pid = {found.pid: found for found in frame.processes}
    assert by_pid[1].cpu_utilization == 2.5
    assert math.isnan(by_pid[2].memory_used)
    assert by_pid[2].run == "tag.1000.4711.abcd"
    (found,) = frame.runs
    assert (found.epoch, found.step, found.phase, found.metrics) == (7, 12345, "validate", {"loss": 0.31})
    assert (found.state, found.wait, found.name, found.epochs) == (RunState.FAILED, 1.5, "resnet50", 90)
    assert frame.boundaries[0][:8] == written.boundaries[0][:8]


def test_what_was_logged_in_an_epoch_comes_back_with_its_end_as_far_as_nothing_newer_is_there(path: str) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    ended = boundary(3, 7, Mark.EPOCH_END)._replace(metrics={"loss": 0.31, "grad": math.nan, "acc": 0.5, "gone": 1.0})
    of_another = boundary(4, 7, Mark.EPOCH_END, key="tag.1000.4712.abcd")._replace(metrics={"loss": 0.2})
    newest = {"lr": 1e-3, "loss": 0.31, "grad": math.nan, "acc": 0.6}
    ring.append(tick(1, runs=[run(epoch=8, metrics=newest)], boundaries=[ended, of_another]))
    ring.append(tick(2, runs=[run(epoch=8, metrics=newest)], boundaries=[boundary(5, 8, Mark.PHASE)]))
    first, second = RingReader.open(path).since(0)
    (found,) = first.boundaries
    assert found.metrics == {"loss": 0.31, "grad": pytest.approx(math.nan, nan_ok=True)}
    assert second.boundaries[0].metrics == {}


def test_the_shares_and_the_place_of_a_process_come_back(path: str) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    known = process(
        1, sm_utilization=0.37, memory_utilization=0.0, encoder_utilization=1.0, decoder_utilization=0.005,
        container="docker 3f2a9c1b04de", pod="0a1b2c3d-1111", job="4242",
    )  # fmt: skip
    ring.append(tick(1, processes=[known, process(2, sm_utilization=-1.0, encoder_utilization=1e9)]))
    frame = RingReader.open(path).newest()
    assert frame is not None
    first, second = sorted(frame.processes)
    assert first[7:9] + first[12:] == known[7:9] + known[12:]
    assert all(math.isnan(share) for share in (*second[7:9], *second[12:14])), "not known, or no share"
    assert second[14:] == ("", "", "")


def test_a_logged_nan_is_in_the_frame_and_what_was_logged_later_is_not(path: str) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    ring.append(tick(1, runs=[run(metrics={"loss": math.nan})]))
    ring.append(tick(2, runs=[run(metrics={"loss": math.inf, "accuracy": 0.5})]))
    before, after = RingReader.open(path).since(0)
    assert repr(before.runs[0].metrics) == repr({"loss": math.nan})
    assert after.runs[0].metrics == {"loss": math.inf, "accuracy": 0.5}


@pytest.mark.usefixtures("small")
def test_a_reader_with_a_cursor_gets_each_frame_once_and_a_lapped_one_what_is_left(path: str) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    reader = RingReader.open(path)
    for number in range(1, 11):
        ring.append(tick(number))
    assert [frame.number for frame in reader.since(4)] == [5, 6, 7, 8, 9, 10]
    assert reader.since(10) == []
    for number in range(11, 201):
        ring.append(tick(number))
    assert [frame.number for frame in reader.since(10)] == list(range(137, 201))


def test_a_device_keeps_its_row_and_its_absence_is_no_zero(path: str) -> None:
    ring = RingWriter.create(path, 2, SECOND)
    ring.append(tick(1, [sample(0, power=1.0), sample(1, power=2.0)]))
    ring.append(tick(2, [sample(1, power=3.0)]))
    frame = RingReader.open(path).newest()
    assert frame is not None
    assert [(found.device.index, found.value("gpu.power")) for found in frame.samples] == [(1, 3.0)]


def test_more_devices_than_rows_are_refused_before_anything_is_written(path: str) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    ring.append(tick(1))
    with pytest.raises(RowsExhausted):
        ring.append(tick(2, [sample(index) for index in range(ring.layout.rows + 1)]))
    newest = RingReader.open(path).newest()
    assert newest is not None
    assert newest.number == 1


def test_the_history_of_another_source_is_not_continued(path: str) -> None:
    RingWriter.create(path, 1, SECOND).append(tick(1))
    assert RingWriter.create(path, 1, SECOND, continues="sim").append(tick(2)) == 1


def test_the_history_of_another_boot_is_not_continued(path: str) -> None:
    RingWriter.create(path, 1, SECOND).append(tick(1))
    raw = bytearray(Path(path).read_bytes())
    raw[40:56] = bytes(16)
    raw[layout.SUPERBLOCK.size : layout.SUPERBLOCK.size + 4] = layout.crc32(raw[: layout.SUPERBLOCK.size]).to_bytes(
        4, "little"
    )
    Path(path).write_bytes(raw)
    assert RingReader.open(path).heartbeat().age == math.inf
    assert RingWriter.create(path, 1, SECOND, continues="nvml").append(tick(2)) == 1


def test_boundaries_without_room_come_with_the_next_frames_and_none_is_lost(path: str) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    ring.append(tick(1, runs=[run()], boundaries=[boundary(number) for number in range(1, 1001)]))
    for number in range(2, 20):
        ring.append(tick(number, runs=[run()]))
    found = [event.number for frame in RingReader.open(path).since(0) for event in frame.boundaries]
    assert found == list(range(1, 1001))
    assert [event.number for event in RingReader.open(path).boundaries()] == found, "without a frame that is read"


def test_too_many_processes_keep_the_largest_and_count_the_rest(path: str) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    ring.append(tick(1, processes=[process(pid, memory_used=float(pid)) for pid in range(1, 1001)]))
    frame = RingReader.open(path).newest()
    assert frame is not None
    kept = [found.pid for found in frame.processes]
    assert len(kept) >= 64
    assert kept == list(range(1000, 1000 - len(kept), -1))
    assert frame.dropped == 1000 - len(kept)
    assert frame.left_out == f"{1000 - len(kept)} processes left out: more than a frame can hold"


def test_runs_without_room_are_counted_with_those_that_nobody_read(path: str) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    runs = [run(f"tag.{number}") for number in range(300)]
    ring.append(tick(1, runs=runs, unread=5))
    reader = RingReader.open(path)
    many = reader.newest()
    assert many is not None
    assert 48 <= len(many.runs) < 300
    assert many.dropped_runs == 305 - len(many.runs)
    assert many.left_out == f"{many.dropped_runs} runs left out: more than a frame can hold"
    ring.append(tick(2, runs=runs[:2]))
    few = reader.newest()
    assert few is not None
    assert (few.dropped_runs, few.left_out) == (0, "")


def test_names_that_come_and_go_for_ever_do_not_fill_the_directory(path: str) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    for number in range(1, 400):
        names = [process(pid, name=f"{number}-{pid}-" + "\u6f22" * 200) for pid in range(60)]
        ring.append(tick(number, processes=names, runs=[run(f"tag.{number}", name="\u6f22" * 200)]))
    frame = RingReader.open(path).newest()
    assert frame is not None
    assert {found.name.partition("-")[0] for found in frame.processes} == {"399"}
    assert frame.runs[0].key == "tag.399"


@pytest.mark.parametrize("runs", [0, 48, 300])
def test_names_as_long_as_users_can_make_them_cost_runs_and_never_the_daemon(path: str, runs: int) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    long = "\U0001f600" * 200
    for number in range(1, 6):
        names = [process(pid, name=f"{number}-{pid}{long}", user=f"{number}+{pid}{long}") for pid in range(256)]
        going = [
            run(f"tag.{number}.{i}", id=f"{number}-{i}", name=long, user=long, framework=long, phase=f"{i}{long}",
                metrics={f"{name}{long}": 1.0 for name in range(8)})
            for i in range(runs)
        ]  # fmt: skip
        assert ring.append(tick(number, processes=names, runs=[*going, run("tag.short")])) == number
    assert ring.lost_writes == 0
    frame = RingReader.open(path).newest()
    assert frame is not None
    assert len(frame.processes) == 256
    assert len(frame.runs) + frame.dropped_runs == runs + 1
    assert len(frame.runs) >= min(runs, 20) or runs == 0


def test_a_frame_has_room_for_256_processes_beside_48_runs(path: str) -> None:
    ring = RingWriter.create(path, 8, SECOND)
    ring.append(
        tick(
            1,
            processes=[process(pid, name=f"train{pid}.py", user=f"user{pid}") for pid in range(256)],
            runs=[run(f"tag.{number}", metrics={"loss": 1.0}) for number in range(48)],
            boundaries=[boundary(number, key="tag.1") for number in range(1, 33)],
        )
    )
    frame = RingReader.open(path).newest()
    assert frame is not None
    assert (len(frame.processes), len(frame.runs), len(frame.boundaries), frame.left_out) == (256, 48, 32, "")
    assert {found.user for found in frame.processes} == {f"user{pid}" for pid in range(256)}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(20))
def test_random_damage_gives_an_error_or_a_true_frame_never_a_false_one(path: str, seed: int) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    for number in range(1, 65):
        ring.append(tick(number, [sample(0, power=float(number))], [process()], [run(epoch=number)]))
    chaos = random.Random(seed)
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        for _ in range(chaos.choice([1, 30, 3000])):
            file.seek(chaos.randrange(size))
            file.write(chaos.randbytes(chaos.choice([1, 8, 200])))
    try:
        reader = RingReader.open(path)
        frames = reader.since(0)
        newest = reader.newest()
    except RingError:
        return
    for frame in [*frames, *([newest] if newest else [])]:
        assert all(found.value("gpu.power") == float(frame.number) for found in frame.samples)
        assert all(found.epoch == frame.number for found in frame.runs)


@pytest.mark.parametrize("left", [0, 1, 100, 4096, 5000, 200_000])
def test_a_cut_file_gives_a_clear_error_or_no_frame(path: str, left: int) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    ring.append(tick(1))
    before = RingReader.open(path)
    os.truncate(path, left)
    assert not ring.is_intact()
    for make in (lambda: before, lambda: RingReader.open(path)):
        with contextlib.suppress(RingError):
            assert make().newest() is None


def test_a_full_file_system_gets_a_smaller_ring_and_at_last_a_clear_error(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = [takeover.plan_layout(1, 3600).size - 1]

    def allocate(fd: int, _: int, length: int) -> None:
        if length > room[0]:
            raise OSError(28, "No space left on device")
        os.truncate(fd, length)

    monkeypatch.setattr(os, "posix_fallocate", allocate)
    ring = RingWriter.create(path, 1, SECOND)
    assert ring.layout.frames < 3600
    assert ring.layout.size <= room[0]
    ring.append(tick(1))
    room[0] = 0
    with pytest.raises(NoRoom, match="--dir"):
        RingWriter.create(path, 1, SECOND)
    assert sorted(os.listdir(os.path.dirname(path))) == ["ring"]
    assert RingReader.open(path).newest() is not None


@pytest.mark.parametrize("pid", [1, os.getpid()], ids=["the first", "our own"])
def test_a_ring_that_a_killed_daemon_left_half_made_stops_nobody_and_goes(path: str, pid: int) -> None:
    """In a container a daemon has the same pid each time."""
    left = Path(f"{path}.{pid}")
    left.write_bytes(bytes(10_000))
    kept = [Path(f"{path}.old"), Path(f"{path}s.{pid}")]
    for other in kept:
        other.touch()
    assert RingWriter.create(path, 1, SECOND).append(tick(1)) == 1
    assert not left.exists()
    assert all(other.exists() for other in kept)


def test_what_is_no_file_in_the_way_of_a_new_ring_is_named(path: str) -> None:
    os.mkdir(f"{path}.{os.getpid()}")
    with pytest.raises(GpumonError, match=r"cannot create .*ring\.\d+, because it exists: remove it"):
        RingWriter.create(path, 1, SECOND)


def test_a_write_that_finds_no_room_is_counted_and_the_next_one_goes_on(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = RingWriter.create(path, 1, SECOND)
    ring.append(tick(1, runs=[run()], boundaries=[boundary(1)]))
    real = os.pwrite

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    ring.append(tick(2, runs=[run()], boundaries=[boundary(2)]))
    monkeypatch.setattr(os, "pwrite", real)
    ring.append(tick(3, runs=[run()], boundaries=[boundary(3)]))
    assert ring.lost_writes == 1
    frames = RingReader.open(path).since(0)
    assert [event.number for frame in frames for event in frame.boundaries] == [1, 2, 3]


def test_a_private_ring_leaves_no_file_and_is_read_through_its_descriptor() -> None:
    ring = RingWriter.private(1, SECOND, 8)
    for number in range(1, 30):
        ring.append(tick(number))
    reader = RingReader(os.dup(ring.fd))
    assert [frame.number for frame in reader.since(0)] == list(range(22, 30))
    assert not reader.is_replaced()


def test_a_ring_with_other_metrics_is_read_by_name(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer version may have appended metrics, an older one may lack some."""
    real = takeover.plan_layout

    def newer(rows: int, frames: int) -> layout.Layout:
        planned = real(rows, frames)
        names = [*planned.gpu]
        names[0] = "gpu.of_the_future"
        schema = planned.schema.replace(b'"gpu.utilization"', b'"gpu.of_the_future"')
        return planned._replace(gpu=tuple(names), schema=schema)

    monkeypatch.setattr(writer, "plan_layout", newer)
    ring = RingWriter.create(path, 1, SECOND)
    ring.append(tick(1, [sample(0, utilization=0.5, power=300.0)]))
    frame = RingReader.open(path).newest()
    assert frame is not None
    assert math.isnan(frame.samples[0].value("gpu.utilization"))
    assert frame.samples[0].value("gpu.power") == 300.0
    assert len(frame.samples[0].values) == len(GPU_METRICS)
