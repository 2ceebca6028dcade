"""Counters that come by batches of fields and by slow tiers: through ctypes, on the stub driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.model.metrics import Availability
from tests.conftest import ROOT
from tests.nvml import Process, Stub, build
from tests.sourced import Source, nvml_source

SLOW = 31
"""Seconds within which a value of the slow batch is read again."""


@pytest.fixture
def source(stub: Stub, tmp_path: Path) -> Iterator[Source]:
    with nvml_source(stub, tmp_path) as read:
        yield read


@pytest.mark.parametrize(("level", "most"), [(470, 7.1), (580, 6.0), (615, 6.0)])
def test_all_calls_of_ten_minutes_stay_below_six_per_gpu_and_second(level: int, most: float, tmp_path: Path) -> None:
    """On drivers without a field of it, power takes a call of its own at each tick."""
    with Stub(build(level, into=ROOT / ".cache"), gpus=8) as stub, nvml_source(stub, tmp_path) as source:
        for gpu in range(8):
            stub.set_processes(gpu, [Process(4000 + gpu)])
        stub.constant = True  # a change of memory would be a reason to look for processes
        source(1.0)
        stub.reset_calls()
        for second in range(2, 602):
            source(float(second))
        calls = sum(count for gpu in range(8) for name, count in stub.calls(gpu).items() if "Gpm" not in name)
    assert calls / 8 / 600 <= most


@pytest.mark.parametrize(
    ("metric", "number"),
    [
        ("ecc_uncorrected", 3), ("remapping_pending", 1), ("remapping_failed", 1), ("retirement_pending", 1),
        ("recovery_action", 2), ("pcie_replays", 70_000), ("nvlink_active", 11), ("nvlink_crc_errors", 2**40),
        ("pcie_width", 4), ("temperature_margin", 2),
    ],
)  # fmt: skip
def test_a_fault_is_seen_within_its_period_and_so_is_its_end(
    metric: str, number: int, source: Source, stub: Stub
) -> None:
    before = source(1.0).gpus[1][metric]
    stub.set_value(f"gpu.{metric}", number, gpu=1)
    other = source(1.0 + (2 if metric == "temperature_margin" else 1) * SLOW).gpus
    assert (other[1][metric], other[0][metric]) == (number, stub.truth(f"gpu.{metric}", 0))
    stub.set_value(f"gpu.{metric}", None)
    if metric != "temperature_margin":
        assert source(1.0 + 2 * SLOW).gpus[1][metric] == before


@pytest.mark.parametrize(
    "metric",
    [
        "power_instant", "nvlink_sent", "ecc_corrected", "ecc_uncorrected_lifetime", "rows_remapped_corrected",
        "recovery_action", "pcie_replays", "nvlink_replays", "pcie_generation_max", "temperature_slowdown",
        "jpeg_utilization", "optical_flow_utilization",
    ],
)  # fmt: skip
def test_what_one_gpu_cannot_report_is_missing_on_that_one_alone(metric: str, source: Source, stub: Stub) -> None:
    stub.set_supported(f"gpu.{metric}", False, gpu=1)
    first, second = source(1.0).gpus
    assert first[metric] == pytest.approx(stub.truth(f"gpu.{metric}", 0))
    assert second.missing == {f"gpu.{metric}": Availability.NOT_SUPPORTED} | {
        name: why for name, why in second.missing.items() if name in first.missing
    }


def test_nvlink_bytes_of_a_minute_are_those_that_the_driver_counted(source: Source, stub: Stub) -> None:
    before = source(1.0)
    after = source(61.0)
    for one, other in zip(before.gpus, after.gpus, strict=True):
        seconds = (other.counters_monotonic_ns - one.counters_monotonic_ns) / 1e9
        assert (other["nvlink_sent"] - one["nvlink_sent"]) / seconds == pytest.approx(1024 * (40e6 + 2e6 * one.index))


def test_links_of_an_old_driver_are_asked_one_by_one(tmp_path: Path) -> None:
    with Stub(build(470, into=ROOT / ".cache"), gpus=1) as stub, nvml_source(stub, tmp_path) as source:
        stub.set_value("gpu.nvlink_links", 12)
        stub.set_value("gpu.nvlink_active", 10)
        (gpu,) = source(1.0).gpus
        assert (gpu["nvlink_links"], gpu["nvlink_active"]) == (12, 10)
        assert gpu["nvlink_crc_errors"] == stub.truth("gpu.nvlink_crc_errors", 0)
        assert stub.calls(0)["nvmlDeviceGetNvLinkState"] == 12


def test_instant_power_and_the_mean_are_two_values(source: Source, stub: Stub) -> None:
    gpu = source(1.0).gpus[0]
    assert gpu["power_instant"] == pytest.approx(stub.truth("gpu.power_instant", 0))
    assert gpu["power"] == pytest.approx(stub.truth("gpu.power", 0))
    assert abs(gpu["power_instant"] - gpu["power"]) > 1
