"""A real recording through the whole of gpumon: the frames of a daemon are the rows of the file."""

from __future__ import annotations

import csv
import gzip
import time
from array import array
from pathlib import Path

import pytest

from gpumon.common.paths import Places
from gpumon.live import follow
from gpumon.model.metrics import Availability
from tests.programs import daemon, environment, status, until

MIB = 2**20
Row = tuple[float, float, float]


def rows_of(path: Path, gpus: int) -> list[list[Row]]:
    """Utilization, power and memory by tick and GPU, read here without gpumon's parser."""
    with gzip.open(path, "rt") as file:
        found = [
            (int(row[2].split()[0]) / 100, float(row[1].split()[0]), int(row[3].split()[0]) * MIB)
            for row in list(csv.reader(file, skipinitialspace=True))[1:]
        ]
    return [found[i : i + gpus] for i in range(0, len(found) - gpus + 1, gpus)]


def single(row: Row) -> Row:
    """As a frame has it that this test reads late: the ring keeps older gauges in single precision."""
    utilization, power, memory = array("f", row)
    return utilization, power, memory


@pytest.mark.parametrize(
    ("name", "gpus", "speed"), [("h100x8-llama3-8b-ckpt100.csv.gz", 8, 60), ("titanx2-gpt350m.csv.gz", 2, 40)]
)
def test_recorded_frames_are_the_rows_of_the_file(
    recordings: Path, live_dir: Path, name: str, gpus: int, speed: int
) -> None:
    path = recordings / name
    expected = rows_of(path, gpus)
    live = follow(Places(explicit=str(live_dir)))
    recorded: dict[int, list[Row]] = {}
    full: set[int] = set()
    last = 0
    env = environment(live_dir)
    with daemon("--source", f"replay:{path}", "--speed", speed, env=env):
        deadline = time.monotonic() + 60
        while last < len(expected) and time.monotonic() < deadline:
            for frame in live.since(last):
                last = frame.number
                full |= {last} if frame.is_full else set()
                assert all(sample.state is Availability.OK for sample in frame.samples)
                recorded[frame.number] = [
                    (sample.value("gpu.utilization"), sample.value("gpu.power"), sample.value("gpu.memory_used"))
                    for sample in frame.samples
                ]
            time.sleep(0.05)
        until(lambda: "ended" in live.origin().label)
        assert "REPLAY" in live.origin().label
        assert status(env)["label"].startswith("REPLAY")
    assert sorted(recorded) == list(range(1, len(expected) + 1)), "every row, none twice"
    differing = [
        number
        for number, rows in recorded.items()
        if rows != [row if number in full else single(row) for row in expected[number - 1]]
    ]
    assert not differing
    assert full


def test_ten_times_the_speed_is_ten_times_the_speed(recordings: Path, live_dir: Path) -> None:
    live = follow(Places(explicit=str(live_dir)))
    path = recordings / "h100x8-llama3-8b-ckpt100.csv.gz"
    with daemon("--source", f"replay:{path}", "--speed", 10, env=environment(live_dir)):

        def lead() -> float:
            """How far it is ahead of ten times the clock, s, at best in a second: a busy machine only holds it up."""
            end, found = time.monotonic() + 1, []
            while time.monotonic() < end:
                found.append(-10 * time.monotonic() + until(live.latest).time)
                time.sleep(0.02)
            return max(found)

        first = lead()
        time.sleep(2)
        second = lead()
    assert second - first == pytest.approx(0, abs=0.15 * 10 * 3)
