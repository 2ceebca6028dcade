"""Frames from kept history, for a recording of more than the ring holds."""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from gpumon.common.clock import SECOND
from gpumon.model.frame import Frame
from gpumon.model.metrics import HOST_INDEX, PROCESSES, Availability
from gpumon.recording.content import Context, RecordedFrame, means_part
from gpumon.storage.history.past_frames import stored_frames
from gpumon.storage.history.recorder import HistoryRecorder
from tests import builders
from tests.programs import PATIENCE
from tests.recorded import bits, read, write

LENGTH = 4000
"""Seconds of history: more than a block of each of the two finer tiers."""
END = (builders.TIME // SECOND // 300 + 20) * 300
"""A time at which cells of every tier begin (s since 1970)."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """History that ends at `END`, of a GPU of which the energy is 100 J a second."""
    path = tmp_path_factory.mktemp("state") / "history.sqlite"
    history = HistoryRecorder(str(path), os.getuid(), pytest.fail).start()
    for second in range(END - LENGTH, END):
        number = second - builders.TIME // SECOND
        samples = [builders.sample(0, utilization=0.25 + second % 2 / 2, energy=100.0 * (second - END + LENGTH))]
        history.add(builders.tick(number, samples)._replace(monotonic_ns=(number + LENGTH) * SECOND))
        if second % 300 == 0:
            until_taken(history)
    history.close(PATIENCE)
    return path


def until_taken(history: HistoryRecorder) -> None:
    """Wait until no more ticks wait than it has room for: a daemon has a second for each."""
    while len(history._ticks) > 200:
        time.sleep(0.005)


def newest() -> Frame:
    """The oldest frame that the ring still has, at `END`."""
    number = END - builders.TIME // SECOND
    return builders.frame_of(builders.tick(number)._replace(monotonic_ns=(number + LENGTH) * SECOND))


def test_the_finest_tier_comes_last_and_none_overlaps(path: Path) -> None:
    found = stored_frames(str(path), END - LENGTH, newest(), {})
    times = [one.frame.time for one in found]
    assert times == sorted(set(times))
    assert times[0] >= END - LENGTH
    assert times[-1] <= END
    steps = [one.step for one in found]
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] == 1
    assert sum(steps) >= LENGTH - 600


def test_gauges_are_means_and_counters_stand_at_the_end_of_their_cell(path: Path) -> None:
    device = builders.device()
    for step, frame in stored_frames(str(path), END - LENGTH, newest(), {device.uuid: device}):
        (sample,) = frame.samples
        assert sample.value("gpu.utilization") == pytest.approx(0.5, abs=0.25 if step == 1 else 0.03)
        assert sample.value("gpu.energy") == pytest.approx(100 * (frame.time - END + LENGTH), abs=101)
        assert math.isnan(sample.value("gpu.power"))
        assert frame.host[HOST_INDEX["host.load"]] == HOST_INDEX["host.load"]
        assert not frame.is_full
        assert frame.interval == step


def test_who_was_there_is_missing_with_its_reason(path: Path) -> None:
    (*_, (_, frame)) = stored_frames(str(path), END - 60, newest(), {})
    assert frame.samples[0].device.missing[PROCESSES] is Availability.NOT_RECORDED
    assert frame.samples[0].device.name == "unknown model"
    assert frame.processes == ()


def test_a_gpu_that_is_not_there_any_more_has_the_name_and_the_index_that_it_had(path: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(path, tmp_path))
    device = builders.device()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO device VALUES (?, 5, 'NVIDIA B200')", (device.uuid,))
    (*_, (_, frame)) = stored_frames(str(path), END - 60, newest(), {})
    assert frame.samples[0].device[:3] == (device.uuid, 5, "NVIDIA B200")
    other = builders.device()._replace(uuid="GPU-other", index=5)
    (*_, (_, frame)) = stored_frames(str(path), END - 60, newest(), {other.uuid: other})
    assert frame.samples[0].device.index == 6, "another GPU has that index now"


def test_their_clocks_lead_to_the_ring(path: Path) -> None:
    (*_, (_, frame)) = stored_frames(str(path), END - 60, newest(), {})
    assert newest().monotonic_ns - frame.monotonic_ns == round((newest().time - frame.time) * SECOND)


def test_a_recording_names_the_length_of_their_cells(path: Path, tmp_path: Path) -> None:
    kept = stored_frames(str(path), END - LENGTH, newest(), {})
    write(tmp_path / "a.gpumon", [RecordedFrame(frame, Context(part=means_part(step))) for step, frame in kept])
    found, problem = read(tmp_path / "a.gpumon")
    assert [bits(one.frame) for one in found] == [bits(one.frame) for one in kept]
    assert found[-1].context.part == "means of 1 s"
    assert problem == ""


def test_what_cannot_be_read_is_missing(tmp_path: Path) -> None:
    (tmp_path / "broken").write_bytes(b"no database" * 100)
    assert stored_frames(str(tmp_path / "broken"), 0.0, newest(), {}) == []
    assert stored_frames(str(tmp_path / "absent"), 0.0, newest(), {}) == []
