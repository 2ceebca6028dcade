"""GPM on the stub driver, through ctypes: means of the time between two samples, or a reason."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.common.clock import SECOND
from gpumon.common.paths import Places
from gpumon.live import follow
from gpumon.model.frame import Sample
from gpumon.model.metrics import FROM_DRIVERS, Availability
from tests.nvml import GPM, Stub, build
from tests.nvml.truth import FIXED, clock_sm
from tests.programs import daemon, environment, gpumon, until
from tests.sourced import Gpu, Source, nvml_source

ROOT = Path(__file__).parent.parent.parent
SUPPORT, ALLOC, FREE = "nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree"
SAMPLE, CALCULATE = "nvmlGpmSampleGet", "nvmlGpmMetricsGet"
UNKNOWN, NOT_LOADED, IN_USE, NO_PERMISSION = 999, 9, 19, 4
SM, TENSOR = "gpu.sm_activity", "gpu.tensor_activity"


@pytest.fixture
def source(stub: Stub, tmp_path: Path) -> Iterator[Source]:
    stub.gpus = 8
    stub.set_gpm(True)
    with nvml_source(stub, tmp_path) as read:
        yield read


def known(gpu: Gpu) -> dict[str, float]:
    """Its values of GPM."""
    return {name: value for name, value in gpu.values.items() if name in GPM}


def lacking(gpu: Gpu) -> dict[str, Availability]:
    """Those that it has not, each with the reason."""
    return {name: reason for name, reason in gpu.missing.items() if name in GPM}


def why(gpu: Gpu) -> set[Availability]:
    """Why it has not all of them."""
    return set(lacking(gpu).values())


def truths(stub: Stub, gpu: int, begin: float, end: float) -> dict[str, float]:
    """The means of the driver's own functions of time, between two moments in seconds after its start."""
    t0 = stub._file.t0_ns
    begin_ns, end_ns = t0 + round(begin * SECOND), t0 + round(end * SECOND)
    return {name: pytest.approx(stub.gpm(name, gpu, begin_ns, end_ns), rel=1e-9) for name in GPM}  # type: ignore[misc]


def gpm_calls(stub: Stub) -> dict[str, int]:
    return {name: count for name, count in stub.calls().items() if name.startswith("nvmlGpm")}


# Values ----------------------------------------------------------------------------------------------


def test_each_value_is_the_mean_since_the_sample_before(source: Source, stub: Stub) -> None:
    for gpu in source(1.0).gpus:
        assert (known(gpu), why(gpu)) == ({}, {Availability.TOO_EARLY})
    for second in range(2, 8):
        for index, gpu in enumerate(source(float(second)).gpus):
            assert known(gpu) == truths(stub, index, second - 1, second)
            assert lacking(gpu) == {}


def test_means_over_a_minute_are_the_truth_within_one_percent(source: Source, stub: Stub) -> None:
    source(0.0)
    read = [source(float(second)).gpus for second in range(1, 61)]
    for index in range(8):
        for name, truth in truths(stub, index, 0.0, 60.0).items():
            assert sum(gpus[index].values[name] for gpus in read) / 60 == pytest.approx(truth.expected, rel=0.01)


@pytest.mark.parametrize("seconds", [20, 60])
def test_the_share_of_the_tensor_peak_is_within_half_a_point_of_the_truth(
    seconds: int, source: Source, stub: Stub
) -> None:
    begun = 0.3  # the clock changes every 15 s, and not just when it is read
    source(begun)
    read = [source(begun + second).gpus for second in range(1, seconds + 1)]
    t0, parts = stub._file.t0_ns, 10 * seconds
    for index in range(8):
        moments = [begun + part / 10 for part in range(parts)]
        truth = sum(
            stub.gpm(TENSOR, index, t0 + round(begin * SECOND), t0 + round((begin + 0.1) * SECOND))
            * clock_sm(index, begin + 0.05)
            / FIXED["gpu.clock_sm_max"](index)
            for begin in moments
        )
        mean = sum(gpus[index].values["gpu.tensor_throughput"] for gpus in read) / seconds
        assert mean == pytest.approx(truth / parts, abs=0.005)


def test_a_value_after_a_gap_is_the_mean_of_the_gap(source: Source, stub: Stub) -> None:
    for moment in (1.0, 2.0, 14.5):
        read = source(moment)
    assert known(read.gpus[3]) == truths(stub, 3, 2.0, 14.5)


def test_a_value_between_two_samples_is_that_of_the_last_one(source: Source, stub: Stub) -> None:
    moments = [1.0 + tick / 10 for tick in range(31)]
    values = [source(moment).gpus[0].values.get(SM) for moment in moments]
    assert len(dict.fromkeys(values)) == 4, "none, and three means of a second"


# What is missing -------------------------------------------------------------------------------------


def test_a_metric_that_the_gpu_does_not_measure_is_missing_alone(source: Source, stub: Stub) -> None:
    stub.set_supported(TENSOR, False, gpu=2)
    source(1.0)
    gpus = source(2.0).gpus
    assert lacking(gpus[2]) == {TENSOR: Availability.NOT_SUPPORTED}
    assert all(lacking(gpu) == {} for gpu in gpus if gpu.index != 2)


def test_a_gpu_without_gpm_says_so_and_is_asked_once_a_minute(source: Source, stub: Stub) -> None:
    stub.set_gpm(False, gpu=1)
    for second in range(1, 50):
        read = source(float(second))
    assert (known(read.gpus[1]), why(read.gpus[1])) == ({}, {Availability.NOT_SUPPORTED})
    assert known(read.gpus[0]).keys() == GPM.keys()
    assert {name: count for name, count in stub.calls(gpu=1).items() if "Gpm" in name} == {SUPPORT: 1}
    stub.set_gpm(True, gpu=1)
    for second in range(61, 66):
        read = source(float(second))
    assert known(read.gpus[1]).keys() == GPM.keys()


@pytest.mark.parametrize("level", [390, 470])
def test_an_old_driver_has_no_gpm(level: int, tmp_path: Path) -> None:
    with Stub(build(level, into=ROOT / ".cache")) as old, nvml_source(old, tmp_path) as source:
        old.set_gpm(True)
        gpu = [source(second) for second in (1.0, 2.0)][-1].gpus[0]
        assert (known(gpu), why(gpu)) == ({}, {Availability.NOT_SUPPORTED})


@pytest.mark.parametrize("function", [SUPPORT, ALLOC, SAMPLE, CALCULATE])
def test_a_call_that_fails_is_missing_for_that_while_and_other_values_are_not(
    function: str, source: Source, stub: Stub
) -> None:
    with stub.fault(function, UNKNOWN):
        for second in (1.0, 2.0, 3.0):
            gpu = source(second).gpus[5]
        assert (gpu.state, known(gpu), why(gpu)) == (Availability.OK, {}, {Availability.FAILED})
        assert gpu.values.keys() >= {"gpu.utilization", "gpu.memory_used", "gpu.power", "gpu.clock_sm", "gpu.energy"}
    for second in (4.0, 5.0):
        gpu = source(second).gpus[5]
    assert known(gpu) == truths(stub, 5, 4.0, 5.0)


@pytest.mark.parametrize(
    ("code", "reason"), [(IN_USE, Availability.FAILED), (NO_PERMISSION, Availability.NO_PERMISSION)]
)
@pytest.mark.parametrize("function", [SAMPLE, CALCULATE])
def test_counters_that_another_program_holds_are_missing_with_a_reason_and_not_idle(
    function: str, code: int, reason: Availability, source: Source, stub: Stub
) -> None:
    """nvml.h has no code for that: any that comes is a reason."""
    source(1.0)
    assert known(source(2.0).gpus[5])
    with stub.fault(function, code, gpu=5):
        for second in range(3, 9):
            held, other = source(float(second)).gpus[5:7]
            assert (held.state, known(held), why(held)) == (Availability.OK, {}, {reason})
            assert known(other) == truths(stub, 6, second - 1, second)
    back = [source(second).gpus[5] for second in (9.0, 10.0, 11.0)]
    assert known(back[2]) == truths(stub, 5, 10.0, 11.0)


def test_no_mean_reaches_over_the_time_in_which_a_gpu_was_lost(source: Source, stub: Stub) -> None:
    source(1.0)
    assert known(source(2.0).gpus[1])
    stub.set_lost(1)
    for second in (3.0, 4.0, 9.0):
        gpu = source(second).gpus[1]
        assert (gpu.state, known(gpu)) == (Availability.LOST, {})
    stub.set_lost(1, False)
    back = [source(second).gpus[1] for second in (15.0, 16.0, 17.0)]
    assert (back[0].state, known(back[0]), why(back[0])) == (Availability.OK, {}, {Availability.TOO_EARLY})
    assert known(back[2]) == truths(stub, 1, 16.0, 17.0)


# What it costs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "most"), [(1, 8.0), (2, 16.0), (10, 44.0)])
def test_gpm_adds_two_calls_per_gpu_and_second(rate: int, most: float, source: Source, stub: Stub) -> None:
    source(0.0)
    source(1.0)
    stub.reset_calls()
    for tick in range(1, 60 * rate + 1):
        source(1.0 + tick / rate)
    per_second = {name: count / 60 / 8 for name, count in stub.calls().items()}
    assert per_second[SAMPLE] + per_second[CALCULATE] <= 2.02
    assert per_second[SAMPLE] == pytest.approx(1.0, abs=0.05)
    assert sum(per_second.values()) <= most


def test_buffers_are_used_again_by_devices_that_come_back(source: Source, stub: Stub) -> None:
    second = 1.0
    for _ in range(12):
        for gpus in (8, 3):
            stub.gpus = gpus
            for _ in range(8):
                source(second)
                second += 1.0
    assert stub.calls()[ALLOC] <= 2 * 8
    assert FREE not in stub.calls()


def test_a_driver_that_comes_and_goes_takes_no_memory(source: Source, stub: Stub) -> None:
    second = 1.0
    for code in (0, NOT_LOADED) * 6:
        stub.driver_error = code
        for _ in range(8):
            source(second)
            second += 1.0
    assert stub.calls()[ALLOC] > 16, "each library has buffers of its own"
    seconds = itertools.count(second)

    def held() -> int:
        """Buffers that were not given back yet: who waits for XID errors closes a library when it comes out."""
        source(next(seconds))
        calls = stub.calls()
        return calls[ALLOC] - calls.get(FREE, 0)

    until(lambda: held() <= 2 * 8)


# Switched off ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("switch", ["option", "variable", "file"])
def test_switched_off_it_is_never_called_and_every_view_says_why(switch: str, stub: Stub, live_dir: Path) -> None:
    stub.set_gpm(True)
    env = environment(live_dir, stub.env())
    options = ("--no-gpm",) if switch == "option" else ()
    if switch == "variable":
        env["GPUMON_GPM"] = "off"
    if switch == "file":
        config = live_dir / ".config" / "gpumon" / "config.toml"
        config.parent.mkdir(parents=True)
        config.write_text("gpm = false\n")
    live = follow(Places(explicit=str(live_dir)))
    with daemon(*options, "--interval", "0.1", env=env):
        until(lambda: (found := live.latest()) is not None and found.number >= 15)
        (gpu, *_) = json.loads(gpumon("status", "--json", env=env).stdout)["gpus"]
    assert gpm_calls(stub) == {}
    keys = [name.removeprefix("gpu.") for name in GPM]
    assert [gpu[key] for key in keys] == [None] * len(GPM)
    assert [gpu["missing"][name] for name in GPM] == ["switched_off"] * len(GPM)


@pytest.mark.parametrize(("switch", "reason"), [("on", "too_early"), ("off", "switched_off")])
def test_a_view_that_samples_by_itself_obeys_the_setting(switch: str, reason: str, stub: Stub, live_dir: Path) -> None:
    stub.set_gpm(True)
    env = {**environment(live_dir, stub.env()), "GPUMON_GPM": switch}
    (gpu, *_) = json.loads(gpumon("status", "--json", env=env).stdout)["gpus"]
    assert {gpu["missing"][name] for name in GPM} == {reason}
    assert (gpm_calls(stub) == {}) == (switch == "off")


def test_gpm_is_of_the_metrics_that_the_source_gives() -> None:
    assert GPM.keys() <= set(FROM_DRIVERS)


# A driver that hangs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [SAMPLE, CALCULATE])
def test_a_gpu_whose_counters_hang_holds_up_no_other_and_comes_back(function: str, stub: Stub, live_dir: Path) -> None:
    stub.gpus = 3
    stub.set_gpm(True)
    live = follow(Places(explicit=str(live_dir)))

    def gpus() -> list[Sample]:
        frame = live.latest()
        return list(frame.samples) if frame else []

    def is_known(gpu: Sample) -> bool:
        return gpu.state is Availability.OK and gpu.value(SM) >= 0

    with daemon("--interval", "0.25", env=environment(live_dir, stub.env())):
        until(lambda: len(gpus()) == 3 and all(map(is_known, gpus())))
        stub.set_latency(function, 3_600_000_000, gpu=1)
        until(lambda: gpus()[1].state is Availability.STALE)
        begin = until(live.latest).number
        until(lambda: until(live.latest).number >= begin + 8)
        frames = live.since(begin)
        assert all(is_known(frame.samples[index]) for frame in frames for index in (0, 2))
        assert len({frame.samples[0].value(SM) for frame in frames}) > 1, "each second a new mean"
        stub.set_latency(function, 0, gpu=1)
        until(lambda: is_known(gpus()[1]))


def test_a_daemon_ends_while_a_sample_hangs(stub: Stub, live_dir: Path) -> None:
    stub.set_gpm(True)
    live = follow(Places(explicit=str(live_dir)))
    with daemon("--interval", "0.25", env=environment(live_dir, stub.env())) as process:
        until(lambda: (frame := live.latest()) is not None and frame.samples[0].value(SM) >= 0)
        stub.set_latency(SAMPLE, 3_600_000_000, gpu=1)
        until(lambda: until(live.latest).samples[1].state is Availability.STALE)
        process.terminate()
        assert process.wait(timeout=30) == 0
