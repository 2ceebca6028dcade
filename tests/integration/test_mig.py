"""A GPU that is divided by MIG while gpumon runs is said to be, and nothing is invented of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.metrics import Availability
from tests.nvml import Process, Stub
from tests.sourced import Source, nvml_source

GIB = 2.0**30
NO_PERMISSION = 4


@pytest.fixture
def stub(driver_library: Path) -> Iterator[Stub]:
    with Stub(driver_library) as stub:
        yield stub


@pytest.fixture
def source(stub: Stub, tmp_path: Path) -> Iterator[Source]:
    with nvml_source(stub, tmp_path) as source:
        yield source


def test_a_gpu_that_is_divided_and_whole_again_is_counted_so(source: Source, stub: Stub) -> None:
    assert [gpu["mig_instances"] for gpu in source(1.0).gpus] == [0, 0]
    stub.set_mig(1, 3)
    stub.set_processes(1, [Process(11, instance=0), Process(12, instance=2)])
    whole, divided = source(100.0).gpus
    assert (whole["mig_instances"], divided["mig_instances"]) == (0, 3)
    assert divided.state is Availability.OK
    assert divided["memory_used"] == 6 * GIB
    assert divided.missing["gpu.utilization"] is Availability.NOT_SUPPORTED
    assert "gpu.utilization" not in divided.values, "not 0: nobody knows"
    stub.set_mig(1, None)
    again = source(200.0).gpus[1]
    assert again["mig_instances"] == 0
    assert "gpu.utilization" in again.values


def test_instances_that_may_not_be_seen_have_a_reason(source: Source, stub: Stub) -> None:
    stub.set_mig(0, 7)
    stub.set_error("nvmlDeviceGetMigDeviceHandleByIndex", NO_PERMISSION)
    assert source(1.0).gpus[0].missing["gpu.mig_instances"] is Availability.NO_PERMISSION
