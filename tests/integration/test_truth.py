"""What a daemon records on the stub driver, against the functions of time that the stub follows."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest

from gpumon.common.paths import Places
from gpumon.live import follow
from gpumon.model.frame import Frame, Sample
from gpumon.model.metrics import GPU_METRICS, Kind
from gpumon.sources.nvml.readings import CALLS
from gpumon.storage.history.counters import counted_at
from tests.nvml import COUNTERS, METRICS, Process, Stub, build, of_a_first_read, sleepers
from tests.programs import daemon, environment, until

DRIVERS = [metric for metric in GPU_METRICS if metric.name in METRICS]
"""What the driver gives; the other metrics come from the trainings."""
ROOT = Path(__file__).parent.parent.parent
PERIOD = {name: call.period for call in CALLS for name in call.metrics}


def record(stub: Stub, live_dir: Path, frames: int, interval: float) -> list[Frame]:
    """So many frames of a daemon."""
    live = follow(Places(explicit=str(live_dir)))
    with daemon("--interval", interval, env=environment(live_dir, stub.env())):
        until(lambda: (found := live.latest()) is not None and found.number >= frames, timeout=frames * interval + 20)
        return live.since(0)


def test_every_constant_value_is_recorded_exactly(stub: Stub, live_dir: Path) -> None:
    stub.gpus = 8
    stub.hold_clock(10.0)
    for frame in record(stub, live_dir, 5, 0.1):
        assert len(frame.samples) == 8
        for sample in frame.samples:
            for metric in DRIVERS:
                truth = stub.truth(metric.name, sample.device.index)
                assert sample.value(metric.name) == pytest.approx(truth, rel=1e-12), metric.name


@pytest.mark.parametrize("count", [40, pytest.param(80, marks=pytest.mark.slow)])
def test_every_moving_value_is_the_truth_within_its_sampling_period(stub: Stub, live_dir: Path, count: int) -> None:
    """Compared with all that the truth was between one period before the sample and the sample's own end."""
    interval = 0.25
    frames = record(stub, live_dir, count, interval)
    compared = 0
    for frame in frames[1:]:
        end = frame.monotonic_ns / 1e9 + frame.sample_duration
        for sample in frame.samples:
            for metric in DRIVERS:
                begin = frame.monotonic_ns / 1e9 - max(PERIOD.get(metric.name, 0.0) * 1.1 + interval, interval)
                moments = [begin + i * (end - begin) / 400 for i in range(401)]
                truths = [stub.truth(metric.name, sample.device.index, moment) for moment in moments]
                value = sample.value(metric.name)
                # Between two of these moments the truth may turn: allow the largest step among them.
                slack = max(abs(b - a) for a, b in itertools.pairwise(truths)) + 1e-9 * abs(value)
                assert min(truths) - slack <= value <= max(truths) + slack, (metric.name, frame.number)
                compared += 1
    assert compared >= (count - 1) * 2 * len(DRIVERS)


@pytest.mark.slow
def test_counters_over_a_minute_are_right_within_one_percent(stub: Stub, live_dir: Path) -> None:
    frames = record(stub, live_dir, 62, 1.0)
    energy_is_right(stub, frames, 60.0)
    all_that_counts_is_right(stub, frames)


def test_counters_over_some_seconds_are_right_within_one_percent(stub: Stub, live_dir: Path) -> None:
    frames = record(stub, live_dir, 40, 0.2)
    energy_is_right(stub, frames, 7.0)
    all_that_counts_is_right(stub, frames)


def all_that_counts_is_right(stub: Stub, frames: list[Frame]) -> None:
    """Throttled time, bytes of PCIe and NVLink, and energy, each with its own time of the counter."""
    for metric in sorted(COUNTERS):
        for before, after in zip(frames[0].samples, frames[-1].samples, strict=True):
            recorded, truth, _ = grown(stub, metric, before, after, frames)
            assert recorded == pytest.approx(truth, rel=0.01), (metric, before.device.index)


def energy_is_right(stub: Stub, frames: list[Frame], seconds: float) -> None:
    first, last = frames[0], frames[-1]
    assert last.monotonic_ns - first.monotonic_ns >= seconds * 1e9
    for before, after in zip(first.samples, last.samples, strict=True):
        index = before.device.index
        recorded, truth, lasted = grown(stub, "gpu.energy", before, after, frames)
        assert recorded == pytest.approx(truth, rel=0.01)
        # The counter agrees with the power that was read over the same time. A busy machine reads late, so that
        # frames are not evenly apart: each power stands for the time around it.
        power = [frame.samples[index].value("gpu.power") for frame in frames]
        times = [frame.samples[index].monotonic_ns for frame in frames]
        steps = [(b - a) / 1e9 for a, b in itertools.pairwise(times)]
        means = [(a + b) / 2 for a, b in itertools.pairwise(power)]
        average = sum(step * mean for step, mean in zip(steps, means, strict=True)) / sum(steps)
        assert recorded == pytest.approx(average * lasted, rel=0.02)


def grown(stub: Stub, metric: str, before: Sample, after: Sample, frames: list[Frame]) -> tuple[float, float, float]:
    """By how much a counter grew from the first frame to the last as recorded and in truth, and in how many seconds.

    Of the times at which the counter was read: on a busy machine a device is read long after its frame began.
    """
    begin, end = counted_at(before, frames[0]) / 1e9, counted_at(after, frames[-1]) / 1e9
    index = before.device.index
    truth = stub.truth(metric, index, end) - stub.truth(metric, index, begin)
    return after.value(metric) - before.value(metric), truth, end - begin


def test_processes_are_recorded_with_memory_share_user_and_name(stub: Stub, live_dir: Path) -> None:
    with sleepers(3) as pids:
        stub.set_processes(
            0, [Process(pids[0], memory=3 * 2**30, sm=40), Process(pids[1], memory=None, kind="graphics", sm=None)]
        )
        stub.set_processes(1, [Process(pids[0], memory=2**30, sm=7), Process(pids[2], memory=5, kind="both")])
        frame = record(stub, live_dir, 2, 0.1)[-1]
    found = {(process.pid, process.uuid): process for process in frame.processes}
    assert len(found) == 4, "one line for each process and device, also for one in both lists"
    first = found[pids[0], stub.uuid(0)]
    assert (first.memory_used, first.sm_utilization, first.name) == (3 * 2**30, 0.4, "sleep")
    assert first.host_memory > 0
    assert found[pids[0], stub.uuid(1)].memory_used == 2**30
    unknown = found[pids[1], stub.uuid(0)]
    assert unknown.kind == "graphics"
    assert math.isnan(unknown.memory_used), "not available is not zero"
    assert math.isnan(unknown.sm_utilization)
    assert found[pids[2], stub.uuid(1)].kind == "compute"


def test_a_metric_that_is_not_supported_is_missing_with_its_reason_and_the_others_stay(
    stub: Stub, live_dir: Path
) -> None:
    stub.set_supported("gpu.fan", False)
    stub.set_supported("gpu.energy", False, gpu=1)
    first, second = record(stub, live_dir, 3, 0.1)[-1].samples
    assert math.isnan(first.value("gpu.fan"))
    assert first.device.missing["gpu.fan"].name == "NOT_SUPPORTED"
    assert of_a_first_read(first.device.missing).keys() == {"gpu.fan"}
    assert of_a_first_read(second.device.missing).keys() == {"gpu.fan", "gpu.energy"}
    assert math.isnan(second.value("gpu.energy"))


def test_a_call_that_fails_for_a_while_is_missing_for_that_while(stub: Stub, live_dir: Path) -> None:
    live = follow(Places(explicit=str(live_dir)))

    def missing() -> dict[str, str]:
        frame = live.latest()
        return (
            {name: why.name for name, why in of_a_first_read(frame.samples[0].device.missing).items()}
            if frame
            else {"?": "?"}
        )

    with daemon("--interval", "0.05", env=environment(live_dir, stub.env())):
        until(lambda: missing() == {})
        with stub.fault("nvmlDeviceGetUtilizationRates", 999, 0):
            until(lambda: missing().get("gpu.utilization") == "FAILED")
        until(lambda: missing() == {})
        with stub.fault("nvmlDeviceGetMemoryInfo_v2", 4, 0):
            until(lambda: missing().get("gpu.memory_used") == "NO_PERMISSION")
        until(lambda: missing() == {})


@pytest.mark.parametrize("level", [390, 470, 580])
def test_an_old_driver_gives_what_it_has(level: int, tmp_path: Path, live_dir: Path) -> None:
    lacking = {
        390: {
            "gpu.memory_reserved", "gpu.energy", "gpu.temperature_memory", "gpu.throttled_sw_thermal",
            "gpu.throttled_hw_thermal", "gpu.throttled_hw_power_brake", "gpu.pcie_sent", "gpu.pcie_received",
            "gpu.power_instant", "gpu.recovery_action", "gpu.nvlink_sent", "gpu.nvlink_received", "gpu.pcie_replays",
            "gpu.rows_remapped_corrected", "gpu.rows_remapped_uncorrected", "gpu.remapping_pending",
            "gpu.remapping_failed", "gpu.nvlink_links", "gpu.nvlink_active", "gpu.nvlink_replays",
            "gpu.nvlink_recoveries", "gpu.nvlink_crc_errors", "gpu.jpeg_utilization", "gpu.optical_flow_utilization",
            "gpu.utilization_low", "gpu.idle_share", "gpu.memory_unattributed", "gpu.mig_instances",
        },
        470: {
            "gpu.memory_reserved", "gpu.memory_unattributed", "gpu.throttled_sw_thermal", "gpu.throttled_hw_thermal",
            "gpu.throttled_hw_power_brake", "gpu.pcie_sent", "gpu.pcie_received", "gpu.power_instant",
            "gpu.recovery_action", "gpu.jpeg_utilization", "gpu.optical_flow_utilization",
        },
        580: set(),
    }  # fmt: skip
    with Stub(build(level, into=ROOT / ".cache")) as old, sleepers(1) as (pid,):
        old.set_processes(0, [Process(pid, memory=2**30, sm=30)])
        old.hold_clock(10.0)
        frame = record(old, live_dir, 3, 0.1)[-1]
        for sample in frame.samples:
            assert of_a_first_read(sample.device.missing).keys() == lacking[level]
            for metric in DRIVERS:
                if metric.name not in lacking[level] and metric.name != "gpu.memory_used":
                    truth = old.truth(metric.name, sample.device.index)
                    assert sample.value(metric.name) == pytest.approx(truth), metric.name
        (process,) = frame.processes
        assert (process.pid, process.memory_used) == (pid, 2**30)


def test_the_driver_is_asked_at_most_six_times_per_gpu_and_second(stub: Stub, live_dir: Path) -> None:
    """Budget of 1 Hz, on a driver whose clock the test cannot hurry: a short check of what the table plans."""
    stub.gpus = 8
    with sleepers(8) as pids:
        for index, pid in enumerate(pids):
            stub.set_processes(index, [Process(pid)])
        live = follow(Places(explicit=str(live_dir)))
        with daemon(env=environment(live_dir, stub.env())):
            until(lambda: (found := live.latest()) is not None and found.number >= 2)
            stub.reset_calls()
            start = until(live.latest).number
            until(lambda: (found := live.latest()) is not None and found.number >= start + 12)
            calls = sum(stub.calls().values())
            frames = until(live.latest).number + 1 - start  # the one under way may have asked, too
    assert calls / 8 / frames <= 6.5


def test_counters_only_grow(stub: Stub, live_dir: Path) -> None:
    frames = record(stub, live_dir, 20, 0.05)
    for metric in DRIVERS:
        if metric.kind is Kind.COUNTER:
            values = [frame.samples[0].value(metric.name) for frame in frames]
            assert values == sorted(values), metric.name
