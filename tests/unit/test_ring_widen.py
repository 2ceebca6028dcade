"""A file with other rows takes over what the one before it had, value by value."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from gpumon.common.clock import SECOND
from gpumon.model.frame import Frame, Tick
from gpumon.model.metrics import GPU_METRICS, Availability, Kind
from gpumon.ring import writer as module
from gpumon.ring.reader import RingReader
from gpumon.ring.takeover import can_widen
from gpumon.ring.writer import RingWriter
from tests.builders import boundary, device, process, run, sample, tick

FRAMES = 260
"""More than there are full ones."""
KEPT = 130


def seen(number: int, devices: int) -> Tick:
    """A tick with values of every metric; some are missing, and one device was lost for a while."""
    samples = []
    for index in range(devices):
        if index == 1 and 50 <= number < 60:
            samples.append(sample(index, Availability.LOST))
            continue
        values = {
            metric.name.removeprefix("gpu."): 1e10 * (index + 1) + number
            if metric.kind is Kind.COUNTER
            else index + 0.5
            for place, metric in enumerate(GPU_METRICS)
            if (place + number) % 7
        }
        samples.append(
            sample(index, run=run().key if index == 0 else "", **values)._replace(monotonic_ns=number * SECOND)
        )
    boundaries = [boundary(1)] if number == 30 else []
    return tick(number, samples, [process(pid=number)], [run()], boundaries)


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "ring")
    writer = RingWriter.create(path, 3, SECOND)
    for number in range(1, FRAMES + 1):
        writer.append(seen(number, 3))
    writer.close()
    return path


def all_of(path: str) -> list[Frame]:
    with closing(RingReader.open(path)) as reader:
        return reader.since(0)


def told(frames: list[Frame]) -> list[str]:
    """All that frames have, as text: NaN is not itself."""
    return [
        repr((
            one.number, one.time, one.monotonic_ns, one.interval, one.sample_duration, one.skipped_ticks, one.is_full,
            one.samples, one.host, one.processes, one.runs, one.boundaries,
        ))
        for one in frames
    ]  # fmt: skip


@pytest.mark.parametrize("devices", [4, 30])
def test_every_frame_is_as_it_was_and_the_next_one_has_the_new_devices(path: str, devices: int) -> None:
    before = all_of(path)
    assert len(before) == FRAMES
    writer = RingWriter.create(path, devices, SECOND, continues="nvml")
    assert told(all_of(path)) == told(before)
    writer.append(seen(FRAMES + 1, devices))
    *kept, newest = all_of(path)
    assert told(kept[-100:]) == told(before[-100:])
    assert (len(newest.samples), newest.number) == (devices, FRAMES + 1)
    writer.close()


def test_what_is_moved_is_what_would_be_written_anew(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = str(tmp_path / "other")
    Path(other).write_bytes(Path(path).read_bytes())
    RingWriter.create(path, 5, SECOND, continues="nvml").close()
    monkeypatch.setattr(module, "can_widen", lambda old, new: False)
    RingWriter.create(other, 5, SECOND, continues="nvml").close()
    with closing(RingReader.open(path)) as moved, closing(RingReader.open(other)) as written:
        assert can_widen(moved.layout, written.layout)
        for number in range(1, FRAMES + 1):
            values = moved.raw_values(number), written.raw_values(number)
            assert None not in values
            # The head names the copy of the directory that was in use; all behind it is the same.
            assert values[0][64:] == values[1][64:]  # type: ignore[index]
    assert told(all_of(path)) == told(all_of(other))


@pytest.fixture
def with_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A ring of five devices, of which the first and the fourth are gone for longer than it keeps."""
    monkeypatch.setattr(module, "FRAME_LADDER", (KEPT,))
    path = str(tmp_path / "gone")
    writer = RingWriter.create(path, 5, SECOND)
    for number in range(1, FRAMES + 1):
        whole = seen(number, 5)
        there = range(5) if number <= FRAMES - KEPT else (1, 2, 4)
        processes = [process(pid=number, index=index, name=f"on {index}") for index in there]
        writer.append(whole._replace(samples=[whole.samples[index] for index in there], processes=processes))
    writer.close()
    return path


def test_rows_of_devices_that_are_gone_are_left_out_and_all_else_is_as_it_was(with_gone: str) -> None:
    before = all_of(with_gone)
    there = [device(index).uuid for index in (1, 2, 4, 7)]
    writer = RingWriter.create(with_gone, len(there), SECOND, continues="nvml", uuids=there)
    assert writer.layout.rows == len(there)
    after = all_of(with_gone)
    assert told(after) == told(before)
    assert {one.name for one in after[-1].processes} == {"on 1", "on 2", "on 4"}
    assert {one.uuid: one.name for one in after[-1].processes}[device(4).uuid] == "on 4"
    writer.close()


def test_without_the_rows_of_some_what_is_moved_is_what_would_be_written_anew(
    with_gone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = str(tmp_path / "other")
    Path(other).write_bytes(Path(with_gone).read_bytes())
    RingWriter.create(with_gone, 3, SECOND, continues="nvml").close()
    monkeypatch.setattr(module, "can_widen", lambda old, new: False)
    RingWriter.create(other, 3, SECOND, continues="nvml").close()
    with closing(RingReader.open(with_gone)) as moved, closing(RingReader.open(other)) as written:
        assert moved.layout == written.layout
        for number in range(FRAMES - KEPT + 1, FRAMES + 1):
            for mine, its in (
                (moved.raw_values(number), written.raw_values(number)), (moved.raw(number), written.raw(number)),
            ):  # fmt: skip
                assert (mine or b"")[64:] == (its or b"")[64:]
    assert told(all_of(with_gone)) == told(all_of(other))


def test_more_processes_than_have_room_in_fewer_rows_are_left_out_as_with_any_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FRAME_LADDER", (KEPT,))
    path, many = str(tmp_path / "ring"), [process(pid=pid) for pid in range(1, 1001)]
    writer = RingWriter.create(path, 60, SECOND)
    for number in range(1, FRAMES + 1):
        devices = 60 if number <= FRAMES - KEPT else 1
        writer.append(seen(number, devices)._replace(processes=many))
    writer.close()
    before = all_of(path)[-1]
    RingWriter.create(path, 1, SECOND, continues="nvml").close()
    after = all_of(path)[-1]
    assert 0 < len(after.processes) < len(before.processes)
    assert len(after.processes) + after.dropped == len(before.processes)
    assert repr(after.samples) == repr(before.samples)


@pytest.mark.parametrize("is_same_form", [True, False])
def test_an_hour_of_frames_is_never_in_memory_at_once(
    with_gone: str, monkeypatch: pytest.MonkeyPatch, is_same_form: bool
) -> None:
    read: list[int] = []
    frames = RingReader.frames

    def counted(self: RingReader, numbers: Sequence[int]) -> list[Frame]:
        read.append(len(numbers))
        return frames(self, numbers)

    monkeypatch.setattr(RingReader, "frames", counted)
    if not is_same_form:
        monkeypatch.setattr(module, "can_widen", lambda old, new: False)
    RingWriter.create(with_gone, 6, SECOND, continues="nvml").close()
    assert sum(read) == (0 if is_same_form else KEPT)
    assert max(read, default=0) <= 64


@pytest.mark.parametrize("is_same_form", [True, False])
def test_devices_that_are_gone_longest_lose_their_rows_where_there_are_too_many(
    path: str, monkeypatch: pytest.MonkeyPatch, is_same_form: bool
) -> None:
    monkeypatch.setattr(module, "MAX_ROWS", 4)
    if not is_same_form:
        monkeypatch.setattr(module, "can_widen", lambda old, new: False)
    writer = RingWriter.create(path, 4, SECOND, continues="nvml")
    for number in range(FRAMES + 1, FRAMES + 11):
        whole = seen(number, 4)
        writer.append(whole._replace(samples=[whole.samples[index] for index in (1, 3)]))
    writer.close()
    there = [device(index).uuid for index in (3, 8, 9)]
    writer = RingWriter.create(path, len(there), SECOND, continues="nvml", uuids=there)
    assert writer.layout.rows == 4
    kept = {sample.device.uuid for frame in all_of(path) for sample in frame.samples}
    assert kept == {device(1).uuid, device(3).uuid}
    writer.close()
