"""Chips without memory of their own: told by their names, and only where their driver tells of no memory."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from gpumon.common.numbers import NAN
from gpumon.model.metrics import HOST_INDEX, HOST_METRICS, Availability
from gpumon.model.origin import Driver, Origin
from gpumon.reports.status_text import lines
from gpumon.sources.nvml.readings import CALLS, MEMORY, explain_shared_memory, shares_host_memory
from gpumon.sources.nvml.values import DeviceValues
from tests.builders import device, frame_of, sample, tick
from tests.fakes import FakeClock
from tests.nvml.signatures import CheckedLibrary

SHARED, UNSPOKEN = Availability.SHARED_WITH_HOST, Availability.NOT_SUPPORTED


@pytest.mark.parametrize(
    "name", ["NVIDIA GB10", "NVIDIA Thor", "NVIDIA Jetson AGX Thor", "Orin (nvgpu)", "NVIDIA GB10-DGX"]
)
def test_a_chip_without_memory_is_known_by_its_name(name: str) -> None:
    assert shares_host_memory(name)


@pytest.mark.parametrize(
    "name", ["NVIDIA GB100", "NVIDIA GH200 480GB", "NVIDIA GB200", "NVIDIA H100 80GB HBM3", "", "Thorium"]
)
def test_a_card_with_memory_is_none(name: str) -> None:
    assert not shares_host_memory(name)


def test_only_what_the_driver_does_not_tell_is_explained() -> None:
    assert explain_shared_memory({"gpu.memory_used": UNSPOKEN, "gpu.fan": UNSPOKEN}) == {
        "gpu.memory_used": SHARED,
        "gpu.fan": UNSPOKEN,
    }
    refused = {"gpu.memory_used": Availability.NO_PERMISSION}
    assert explain_shared_memory(refused) == refused


def test_a_total_of_zero_is_no_empty_memory() -> None:
    def answer(_: Any, record: Any) -> int:
        ctypes.memset(record, 0, 24)
        return 0

    call = next(call for call in CALLS if "gpu.memory_total" in call.metrics)
    library: Any = CheckedLibrary({"nvmlDeviceGetMemoryInfo": answer}, only="nvmlDeviceGetMemoryInfo")
    read = call.bind(library)
    assert read is not None
    answers = DeviceValues(FakeClock(), {})
    read(ctypes.c_void_p(1), answers)
    assert answers.values == {}
    assert answers.missing == dict.fromkeys(MEMORY[:3], UNSPOKEN)


def test_status_shows_the_memory_of_the_host_as_that() -> None:
    host = [NAN] * len(HOST_METRICS)
    host[HOST_INDEX["host.memory_used"]], host[HOST_INDEX["host.memory_total"]] = 45 * 2.0**30, 120 * 2.0**30
    of = sample(0, utilization=0.5)._replace(device=device(0, missing={"gpu.memory_used": SHARED}))
    text = list(lines(frame_of(tick(1, [of], host=host)), Origin("nvml"), Driver(), "node1", ""))
    assert "45.0/120.0 GiB shared with the host" in text[1]
