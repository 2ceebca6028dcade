"""A ring is made anew where devices have no room in it, and seldom: no frame is written meanwhile."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from gpumon.daemon.recorder import Recorder
from gpumon.live import WAITING, Live
from gpumon.ring.reader import RingReader
from gpumon.ring.sizes import SPARE_ROWS
from gpumon.sampler import Sampler
from tests.builders import sample, tick
from tests.fakes import FakeClock
from tests.unit.test_sampler import FakeSource


@pytest.mark.parametrize("is_private", [False, True])
def test_devices_that_come_one_after_another_lead_to_one_new_ring(tmp_path: Path, is_private: bool) -> None:
    clock = FakeClock()
    recorder = Recorder(Sampler(FakeSource(clock), clock), clock, None if is_private else str(tmp_path))
    rings = []
    for devices in range(2, 3 + SPARE_ROWS + 2):
        recorder.store(tick(devices, [sample(index, power=float(index)) for index in range(devices)]))
        if recorder.writer not in rings:
            rings.append(recorder.writer)
    assert [ring.layout.rows for ring in rings if ring] == [2, 3 + SPARE_ROWS, 4 + 2 * SPARE_ROWS]
    with closing(RingReader(recorder.open_ring()) if is_private else RingReader.open(f"{tmp_path}/ring")) as reader:
        frames = reader.since(0)
    assert [len(frame.samples) for frame in frames] == list(range(2, 3 + SPARE_ROWS + 2))
    recorder.close()


def test_a_private_ring_is_read_after_its_sampler_has_ended() -> None:
    clock = FakeClock()
    recorder = Recorder(Sampler(FakeSource(clock), clock), clock)
    for second in range(3):
        recorder.store(tick(second + 1, [sample(0, power=1.0)]))
    live = Live(recorder.open_ring, missing=WAITING)
    assert len(live.since(0)) == 3
    recorder.close()
    live.close()
    assert live.state().text.startswith("sampling in this process stopped")
    with open(os.devnull, "rb"):  # takes the number of the descriptor that was closed
        assert len(live.since(0)) == 3
    live.close()
