"""What a ring may hold and no view may have to calculate with."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.common.clock import SECOND
from gpumon.model.frame import FrameworkMemory
from gpumon.model.metrics import GPU_METRICS, HOST_METRICS
from gpumon.model.origin import Driver, Origin
from gpumon.reports.status_json import document
from gpumon.reports.status_text import lines
from gpumon.ring.layout import LARGEST, believable, is_doubtful
from gpumon.ring.reader import RingReader
from gpumon.ring.writer import RingWriter
from tests.builders import boundary, process, run, sample, tick

GARBAGE = [math.inf, -math.inf, 1.7e308, -1e300, LARGEST]


@given(st.lists(st.floats(width=64) | st.sampled_from(GARBAGE), max_size=20))
def test_what_is_not_doubtful_is_believable(values: list[float]) -> None:
    found = believable(values)
    assert all(value != value or abs(value) < LARGEST for value in found)
    if not is_doubtful(struct.pack(f"<{len(values)}d", *values)):
        assert [repr(value) for value in found] == [repr(value) for value in values]


def test_what_a_gpu_tells_is_not_doubtful() -> None:
    assert not is_doubtful(struct.pack("<7d", 0.0, -0.0, 1e-308, 0.97, 150e9, math.nan, 2.0**63))
    assert all(is_doubtful(struct.pack("<3d", math.nan, value, 1.0)) for value in GARBAGE)


@pytest.mark.parametrize("value", GARBAGE)
def test_what_is_infinite_or_beyond_reason_in_a_ring_is_missing_in_every_part(tmp_path: Path, value: float) -> None:
    path = str(tmp_path / "ring")
    ring = RingWriter.create(path, 1, SECOND)
    everything = {metric.key: value for metric in GPU_METRICS}
    amounts = dict.fromkeys(("started", "memory_used", "sm_utilization", "cpu_utilization", "host_memory"), value)
    memory = FrameworkMemory(*[value] * len(FrameworkMemory._fields))
    ring.append(
        tick(
            1, [sample(0, **everything)], [process(**amounts)],
            [run(started=value, epoch_started=value, updated=value, wait=value, memory=memory)],
            [boundary(1)._replace(wait=value, asked=value, free=value)], host=[value] * len(HOST_METRICS),
        )
    )  # fmt: skip
    reader = RingReader.open(path)
    frame = reader.newest()
    assert frame is not None
    (device,), (command,), (training,), (event,) = frame.samples, frame.processes, frame.runs, frame.boundaries
    numbers = [
        *device.values, *frame.host, *command[5:11], training.started, training.epoch_started, training.updated,
        training.wait, *training.memory, event.wait, event.asked, event.free, *reader.series("gpu.power", 5)[1][0],
    ]  # fmt: skip
    assert not any(math.isfinite(number) or math.isinf(number) for number in numbers if number == number)
    assert list(lines(frame, Origin("nvml"), Driver(), "node1", ""))
    assert document(frame, Origin("nvml"), Driver(), "node1", None)


@pytest.mark.parametrize("field", ["started", "memory_used", "sm_utilization", "memory_utilization", "cpu_utilization"])
def test_one_infinity_among_many_processes_is_found(tmp_path: Path, field: str) -> None:
    path = str(tmp_path / "ring")
    ring = RingWriter.create(path, 1, SECOND)
    several = [process(pid, memory_used=2.0**30 - pid, host_memory=float(pid)) for pid in range(20)]
    several[7] = several[7]._replace(**{field: -math.inf})
    ring.append(tick(1, processes=several))
    frame = RingReader.open(path).newest()
    assert frame is not None
    (found,) = (found for found in frame.processes if found.pid == 7)
    assert math.isnan(getattr(found, field))
    assert found.host_memory == 7.0
    assert len(frame.processes) == 20
