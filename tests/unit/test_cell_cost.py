"""The cost of a notebook cell, from made-up frames."""

from __future__ import annotations

from math import isnan, nan

import pytest

from gpumon.common.clock import SECOND
from gpumon.model.frame import Frame
from gpumon.model.metrics import Availability
from gpumon.notebook.cell_cost import CellCost, FrameworkPeaks, GpuCost
from gpumon.tracking.wire_format import NOT_KNOWN, Memory, device_mark
from tests.builders import device, frame_of, process, sample, tick

OWN, OTHER = 11, 12
GIB = 2.0**30


def frame(
    second: int, *, pids: tuple[int, ...] = (OWN,), state: Availability = Availability.OK, **values: float
) -> Frame:
    """A frame of GPU 0 at 200 W, on which these processes are."""
    usual = {"utilization": 0.5, "energy": 200.0 * second, "power": 200.0, "memory_used": GIB, **values}
    processes = [process(pid) for pid in pids]
    return frame_of(tick(second, [sample(0, state, **usual)], processes), second)


def cost_of(
    begin: float, end: float, *frames: Frame, peaks: FrameworkPeaks | None = None, show_all: bool = False
) -> list[GpuCost]:
    cost = CellCost(round(begin * SECOND), lambda pid: pid == OWN)
    cost.ended = round(end * SECOND)
    for one in frames:
        cost.add(one)
    return cost.costs(peaks or FrameworkPeaks([]), show_all=show_all)


def test_energy_is_interpolated_at_both_ends() -> None:
    (gpu,) = cost_of(10.25, 13.5, *map(frame, range(10, 16)))
    assert (gpu.energy, gpu.energy_sign) == (pytest.approx(200 * 3.25), "")


def test_energy_after_the_last_sample_is_estimated() -> None:
    (gpu,) = cost_of(10.0, 13.5, *map(frame, range(10, 14)))
    assert (gpu.energy, gpu.energy_sign) == (pytest.approx(200 * 3.5), "")


def test_a_gap_makes_a_lower_bound() -> None:
    (gpu,) = cost_of(10.0, 50.0, frame(10), frame(11), frame(49), frame(50))
    assert (gpu.energy, gpu.energy_sign) == (pytest.approx(200 * 2), "≥")
    assert gpu.utilization == pytest.approx(0.5)


def test_a_daemon_that_begins_later_makes_a_lower_bound() -> None:
    (gpu,) = cost_of(5.0, 13.0, *map(frame, range(10, 14)))
    assert (gpu.energy, gpu.energy_sign) == (pytest.approx(200 * 3), "≥")


def test_utilization_and_memory_are_those_within_the_cell() -> None:
    frames = [
        frame(10, memory_used=9 * GIB), frame(11, utilization=1.0), frame(12, utilization=0.0, memory_used=2 * GIB),
        frame(13, memory_used=9 * GIB),
    ]  # fmt: skip
    (gpu,) = cost_of(10.5, 12.0, *frames)
    assert gpu.utilization == pytest.approx(0.5 / 1.5)
    assert gpu.memory_peak == 2 * GIB


def test_a_short_cell_has_neither() -> None:
    (gpu,) = cost_of(10.2, 10.4, frame(10), frame(11))
    assert isnan(gpu.utilization)
    assert isnan(gpu.energy)
    assert isnan(gpu.memory_peak)


def test_old_values_of_a_driver_that_hangs_do_not_count() -> None:
    (gpu,) = cost_of(10.0, 12.0, frame(10), *(frame(second, state=Availability.STALE) for second in (11, 12)))
    assert isnan(gpu.utilization)
    assert isnan(gpu.energy)


def test_gpus_without_a_process_of_the_notebook_are_left_out() -> None:
    frames = [frame(second, pids=(OTHER,)) for second in range(10, 14)]
    assert cost_of(10.0, 13.0, *frames) == []
    assert len(cost_of(10.0, 13.0, *frames, show_all=True)) == 1


def test_other_processes_are_noted() -> None:
    frames = [frame(second, pids=(OWN, OTHER)) for second in range(10, 14)]
    assert [gpu.is_shared for gpu in cost_of(10.0, 13.0, *frames)] == [True]


class TestFrameworkPeak:
    def test_a_gpu_of_the_framework_is_shown(self) -> None:
        peaks = FrameworkPeaks([])
        peaks.after = [Memory(0, device_mark(device().uuid), peak=7)]
        frames = [frame(second, pids=()) for second in range(10, 14)]
        (gpu,) = cost_of(10.0, 13.0, *frames, peaks=peaks)
        assert (gpu.framework_peak, gpu.framework_sign) == (7.0, "")

    @pytest.mark.parametrize(
        ("before", "after", "shown"),
        [(5, 7, (7.0, "")), (7, 7, (7.0, "≤")), (7, 3, (3.0, "≥")), (NOT_KNOWN, 7, (7.0, "≤")), (0, 0, (0.0, ""))],
    )
    def test_signs(self, before: int, after: int, shown: tuple[float, str]) -> None:
        peaks = FrameworkPeaks([Memory(0, 1, peak=before)])
        peaks.after = [Memory(0, device_mark("GPU-1"), peak=after)]
        assert peaks.of("GPU-1", is_only=False) == shown

    def test_a_device_without_a_uuid_is_the_only_one_or_unknown(self) -> None:
        peaks = FrameworkPeaks([])
        peaks.after = [Memory(0, 0, peak=7)]
        assert peaks.of("GPU-1", is_only=True) == (7.0, "")
        assert peaks.of("GPU-1", is_only=False) == (pytest.approx(nan, nan_ok=True), "")
