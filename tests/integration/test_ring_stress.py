"""One writer at full speed and four readers: no torn frame is ever accepted."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpumon.ring.reader import RingReader
from tests.programs import PATIENCE

WRITER = """
import sys, time
from gpumon.ring import layout, takeover, writer
from gpumon.common.numbers import NAN
from tests.builders import tick, sample, process, run, boundary
writer.FRAME_LADDER = (int(sys.argv[3]),)  # few slots: every read races with the writer
takeover.FULL_FRAMES = int(sys.argv[4])
ring = writer.RingWriter.create(sys.argv[1], 8, 1)
seconds = float(sys.argv[2])
end = time.monotonic() + seconds
number = 0
while time.monotonic() < end or number <= 100 * seconds:  # a busy machine takes longer for as many
    number += 1
    # Every part of the frame says which frame it is.
    value = float(number)
    written = ring.append(tick(number,
        [sample(index, power=value, energy=value, utilization=value, fan=value) for index in range(8)],
        [process(pid, memory_used=value, host_memory=value) for pid in range(1, number % 40 + 2)],
        [run(epoch=number, step=number)], host=[value] * 10))
    assert written == number
print(number)
"""

READER = """
import sys, time
from gpumon.ring.reader import RingReader
reader = RingReader.open(sys.argv[1])
seconds = float(sys.argv[2])
end = time.monotonic() + seconds
reads = false = empty = 0
metrics = ("gpu.power", "gpu.energy", "gpu.utilization", "gpu.fan")
def is_true(frame):
    value = float(frame.number)
    if not frame.is_full:
        return (all(sample.value(metric) == value for sample in frame.samples for metric in metrics)
            and len(frame.samples) == 8 and set(frame.host) == {value} and not frame.processes
            and (frame.number == 1 or not frame.runs))
    return (all(sample.value(metric) == value for sample in frame.samples for metric in metrics)
        and len(frame.samples) == 8 and set(frame.host) == {value}
        and all(p.memory_used == value and p.host_memory == value for p in frame.processes)
        and len(frame.processes) == frame.number % 40 + 1
        and [(r.epoch, r.step) for r in frame.runs] == [(frame.number, frame.number)])
while time.monotonic() < end or reads <= 25 * seconds:
    frame = reader.newest()
    reads += 1
    if frame is None:
        empty += 1
        continue
    if not is_true(frame):
        false += 1
    if reads % 50 == 0:
        false += sum(not is_true(frame) for frame in reader.since(frame.number - int(sys.argv[3])))
print(reads, empty, false)
"""


@pytest.mark.parametrize("seconds", [2.0, pytest.param(30.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("slots", "full", "back"), [(1, 64, 3), (64, 64, 3), (64, 2, 64)])
def test_no_torn_frame_is_accepted(tmp_path: Path, seconds: float, slots: int, full: int, back: int) -> None:
    """With two of 64 frames full, the others have their values alone."""
    path = tmp_path / "ring"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), str(seconds + 1), str(slots), str(full)],
        stdout=subprocess.PIPE,
        text=True,
    )
    while not path.exists() or RingReader.open(str(path)).newest() is None:
        assert writer.poll() is None
        time.sleep(0.01)
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", READER, str(path), str(seconds), str(back)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    totals = [
        [int(word) for word in reader.communicate(timeout=seconds + 2 * PATIENCE)[0].split()] for reader in readers
    ]
    frames = int(writer.communicate(timeout=2 * PATIENCE)[0])
    reads, empty, false = (sum(column) for column in zip(*totals, strict=True))
    print(f"{frames} frames, {reads} reads, {empty} found none, {false} false")
    assert false == 0
    assert frames > 100 * seconds
    assert reads > 100 * seconds
    if slots > 1:
        assert empty == 0, "a reader that is not lapped always finds a frame"
