"""Recordings of earlier versions are played as they were recorded.

`tests/recordings/version-N.gpumon` is a file as the last gpumon with format N wrote it: 30 ticks of `tests.builders`;
the first GPU with utilization n / 100, 400 W and energy 1000 + 400 n, the second one lost; a run with a process, and
the begin of an epoch every ten ticks.
"""

from __future__ import annotations

from math import isnan
from pathlib import Path

import pytest

from gpumon.model.frame import Mark
from gpumon.model.metrics import Availability
from gpumon.recording.format import MAJOR
from tests.builders import TIME, device
from tests.recorded import read

RECORDINGS = Path(__file__).parents[1] / "recordings"


def test_every_format_that_was_released_has_a_file_here() -> None:
    assert [f"version-{n}.gpumon" for n in range(1, MAJOR + 1)] == sorted(found.name for found in RECORDINGS.iterdir())


@pytest.mark.parametrize("version", range(1, MAJOR + 1))
def test_a_recording_of_each_format_gives_its_frames(version: int) -> None:
    recorded, problem = read(RECORDINGS / f"version-{version}.gpumon")
    assert problem == ""
    assert len(recorded) == 30
    for n, (frame, context) in enumerate(recorded, 1):
        first, second = frame.samples
        assert (frame.number, frame.time, frame.is_full) == (n, TIME / 1e9 + n, True)
        assert (first.device.uuid, first.device.name) == (device(0).uuid, "NVIDIA H100")
        assert [first.value(f"gpu.{name}") for name in ("utilization", "power", "energy")] == [
            n / 100, 400.0, 1000.0 + 400 * n
        ]  # fmt: skip
        assert (second.device.uuid, second.state) == (device(1).uuid, Availability.LOST)
        assert frame.host[:2] == (0.0, 1.0)
        (process,), (run,) = frame.processes, frame.runs
        assert (process.container, process.pod, process.job) == ("", "", "")
        assert isnan(process.encoder_utilization)
        assert (process.pid, process.user, process.run, run.key) == (4711, "alice", run.key, first.run)
        assert (run.epoch, run.step, run.gpus) == (n // 10, n, (device(0).uuid,))
        assert [(found.mark, found.epoch) for found in frame.boundaries] == (
            [(Mark.EPOCH_BEGIN, n // 10)] if n % 10 == 0 else []
        )
        assert (context.origin.source, context.driver.version, context.hostname) == ("nvml", "570.1", "node1")
