"""The line that says what a source has found."""

from __future__ import annotations

from gpumon.model.origin import Driver, Origin
from gpumon.sources.combined import describe_devices
from tests.builders import sample


def test_gpus_and_driver_are_told() -> None:
    assert (
        describe_devices(Origin("nvml"), Driver("580.65.06"), [sample(0), sample(1)])
        == "nvml: 2 GPUs, driver 580.65.06"
    )
    assert describe_devices(Origin("sim", "SIMULATED"), Driver(), [sample(0)]) == "sim: 1 GPU, SIMULATED"


def test_where_no_gpu_is_found_the_line_says_why() -> None:
    none = Origin("nvml", problem="the NVIDIA driver is not installed")
    assert describe_devices(none, Driver(), []) == "nvml: no GPU: the NVIDIA driver is not installed"
