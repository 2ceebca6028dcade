"""A file with more rows takes over what the one before it had, value by value."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from gpumon.clock import SECOND
from gpumon.frame import Frame, Tick
from gpumon.metrics import GPU_METRICS, Availability, Kind
from gpumon.ring import writer as module
from gpumon.ring.reader import RingReader
from gpumon.ring.widen import can_widen
from gpumon.ring.writer import RingWriter
from tests.builders import boundary, process, run, sample, tick

FRAMES = 400
"""More than there are full ones."""


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
