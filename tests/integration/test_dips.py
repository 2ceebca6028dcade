"""Stalls that are shorter than a tick, from the driver's own samples: through ctypes, on the stub driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.model.metrics import Availability
from gpumon.sources.nvml.utilization import SAMPLES_EVERY
from tests.nvml import Stub
from tests.sourced import Gpu, Source, nvml_source

GPU = 1
STEADY = 0.92
"""Utilization of that GPU while the stub driver's values stand still."""


@pytest.fixture
def source(stub: Stub, tmp_path: Path) -> Iterator[Source]:
    stub.constant = True
    with nvml_source(stub, tmp_path) as read:
        yield read


def each_second(source: Source, first: int, last: int) -> dict[int, Gpu]:
    """What a GPU gave at 1 Hz, by second."""
    return {second: source(float(second)).gpus[GPU] for second in range(first, last + 1)}


@pytest.mark.parametrize("begin", [20.0, 20.03, 20.1, 20.31])
def test_a_stall_of_150_ms_shows_at_one_hertz_within_the_period_of_the_samples(
    begin: float, source: Source, stub: Stub
) -> None:
    stub.set_stall(GPU, begin, 0.15)
    seen = each_second(source, 1, 40)
    dips = [second for second, gpu in seen.items() if gpu["utilization_low"] < STEADY - 0.3]
    assert dips == list(range(dips[0], dips[-1] + 1))
    assert begin < dips[0] <= begin + 1 + SAMPLES_EVERY
    assert len(dips) == SAMPLES_EVERY, "until the next read"
    assert {gpu["utilization_low"] for second, gpu in seen.items() if second not in dips} == {STEADY}
    assert {gpu["utilization"] for gpu in seen.values()} == {STEADY}, "which is why it is not enough"


def test_the_idle_share_is_that_of_the_time_without_work(source: Source, stub: Stub) -> None:
    stub.set_stall(GPU, 20.0, 2.0)
    shares = [gpu["idle_share"] for gpu in each_second(source, 1, 40).values()]
    assert shares[0] == shares[-1] == 0
    # The stall may lie across two reads.
    assert sum(sorted(set(shares))) == pytest.approx(2.0 / SAMPLES_EVERY, abs=0.02)


def test_no_sample_is_no_dip(source: Source, stub: Stub) -> None:
    assert source(20.0).gpus[GPU]["utilization_low"] == STEADY
    stub.set_error("nvmlDeviceGetSamples", 6, gpu=GPU)  # nothing new, as of some cards while nothing runs
    gpu = each_second(source, 21, 30)[30]
    for metric in ("utilization_low", "idle_share"):
        assert gpu.missing[f"gpu.{metric}"] is Availability.UNRELIABLE
    stub.set_error("nvmlDeviceGetSamples", 3, gpu=GPU)
    gpu = each_second(source, 31, 40)[40]
    assert gpu.missing["gpu.utilization_low"] is Availability.NOT_SUPPORTED


def test_a_gpu_that_comes_back_has_its_samples_at_once(source: Source, stub: Stub) -> None:
    source(20.0)
    stub.set_lost(GPU)
    assert "gpu.utilization_low" not in source(21.0).gpus[GPU].values
    stub.set_lost(GPU, False)
    found = next(gpu for second in range(22, 30) if (gpu := source(float(second)).gpus[GPU]).state is Availability.OK)
    assert found["utilization_low"] == STEADY
