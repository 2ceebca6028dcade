"""A GPU that shares the memory of the host, on the stub driver."""

from __future__ import annotations

from pathlib import Path

from gpumon.model.metrics import PROCESSES, Availability
from tests.nvml import Process, Stub
from tests.sourced import nvml_source

NOT_SUPPORTED = 3
SHARED = Availability.SHARED_WITH_HOST


def test_its_memory_is_that_of_the_host_and_its_processes_are_known(stub: Stub, tmp_path: Path) -> None:
    stub.gpus = 2
    stub.set_name(0, "NVIDIA GB10")
    for version in ("", "_v2"):
        stub.set_error(f"nvmlDeviceGetMemoryInfo{version}", NOT_SUPPORTED)
    stub.set_processes(0, [Process(41, memory=2**30, sm=50)])
    with nvml_source(stub, tmp_path) as source:
        read = source(1.0)
        source(4.0)
    unified, card = read.gpus
    for name in ("memory_total", "memory_used", "memory_reserved", "memory_unattributed"):
        assert unified.missing[f"gpu.{name}"] is SHARED
        assert card.missing[f"gpu.{name}"] is Availability.NOT_SUPPORTED, "of this one nothing says why"
    assert (unified.state, PROCESSES in unified.missing) == (Availability.OK, False)
    assert [(pid, memory) for pid, uuid, _, memory, _ in read.processes if uuid == unified.uuid] == [(41, 2**30)]
    assert unified.missing["gpu.pcie_width"] is Availability.NOT_SUPPORTED, "it sits behind no link"
    assert "pcie_width" in {name.removeprefix("gpu.") for name in card.values}
    assert stub.calls(0).keys() & {"nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMaxPcieLinkWidth"} == set()


def test_a_chip_that_tells_of_its_memory_is_believed(stub: Stub, tmp_path: Path) -> None:
    stub.gpus = 1
    stub.set_name(0, "NVIDIA GB10")
    with nvml_source(stub, tmp_path) as source:
        (gpu,) = source(1.0).gpus
    assert gpu["memory_used"] == stub.truth("gpu.memory_used", 0)
    assert SHARED not in gpu.missing.values()
