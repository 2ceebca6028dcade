"""The stub NVML driver answers nvidia-ml-py as a driver would, with values that are known."""

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.nvml import (
    COUNTERS,
    FUNCTIONS,
    GPM,
    LEVELS,
    METRICS,
    NEWEST,
    CompilerMissing,
    Process,
    Stub,
    build,
    truth,
)
from tests.nvml.build import LIBRARY
from tests.nvml.layout import VERSION
from tests.nvml.truth import SAMPLES_KEPT, gpm, mean_utilization, utilization_samples
from tests.programs import Child

CACHE = Path(__file__).resolve().parents[2] / ".cache"

# NVML's state is per process, so the calls are made in one of their own: it evaluates expressions
# in which n is pynvml and h are the handles, and answers {"error": code} for an NVMLError.
CLIENT = """
import ctypes, json, sys, time
import pynvml as n

def fields(gpu, *ids):
    return [[v.nvmlReturn, v.valueType, v.value.uiVal if v.valueType == 1 else v.value.ullVal]
            for v in n.nvmlDeviceGetFieldValues(h[gpu], list(ids))]

def field(gpu, id):
    code, _, value = fields(gpu, id)[0]
    n._nvmlCheckReturn(code)
    return value

def listed(processes):
    return [[p.pid, p.usedGpuMemory] for p in processes]

class V1(ctypes.Structure):  # nvidia-ml-py no longer has it, drivers before 450 speak nothing else
    _fields_ = [("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong)]

def v1(gpu, room=64, name="nvmlDeviceGetComputeRunningProcesses"):
    count, infos = ctypes.c_uint(room), (V1 * room)()
    code = n._nvmlGetFunctionPointer(name)(h[gpu], ctypes.byref(count), infos)
    return [code, count.value, listed(infos[:count.value])]

def gpm(gpu, numbers, end):
    before, after = n.nvmlGpmSampleAlloc(), n.nvmlGpmSampleAlloc()
    n.nvmlGpmSampleGet(h[gpu], before)
    end()
    n.nvmlGpmSampleGet(h[gpu], after)
    pair = n.c_nvmlGpmMetricsGet_t(n.NVML_GPM_METRICS_GET_VERSION, len(numbers), before, after)
    for place, number in enumerate(numbers):
        pair.metrics[place].metricId = number
    n.nvmlGpmMetricsGet(pair)
    for sample in (before, after):
        n.nvmlGpmSampleFree(sample)
    return [[metric.nvmlReturn, metric.value] for metric in pair.metrics[:len(numbers)]]

n.nvmlInit()
h = [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]
for line in sys.stdin:
    try:
        answer = eval(line)
    except n.NVMLError as error:
        answer = {"error": error.value}
    print(json.dumps(answer), flush=True)
"""

Ask = Callable[[str], Any]

UNINITIALIZED, NOT_SUPPORTED, NOT_FOUND, TOO_SMALL = 1, 3, 6, 7
NOT_LOADED, NO_FUNCTION, LOST = 9, 13, 15

# How each metric is read: the expression for one GPU (g), and what makes the base unit of it.
READ: dict[str, tuple[str, float]] = {
    "gpu.utilization": ("n.nvmlDeviceGetUtilizationRates(h[g]).gpu", 100),
    "gpu.memory_utilization": ("n.nvmlDeviceGetUtilizationRates(h[g]).memory", 100),
    "gpu.memory_used": ("n.nvmlDeviceGetMemoryInfo(h[g], n.nvmlMemory_v2).used", 1),
    "gpu.memory_reserved": ("n.nvmlDeviceGetMemoryInfo(h[g], n.nvmlMemory_v2).reserved", 1),
    "gpu.memory_total": ("n.nvmlDeviceGetMemoryInfo(h[g]).total", 1),
    "gpu.power": ("n.nvmlDeviceGetPowerUsage(h[g])", 1e3),
    "gpu.power_limit": ("n.nvmlDeviceGetEnforcedPowerLimit(h[g])", 1e3),
    "gpu.energy": ("n.nvmlDeviceGetTotalEnergyConsumption(h[g])", 1e3),
    "gpu.temperature": ("n.nvmlDeviceGetTemperature(h[g], 0)", 1),
    "gpu.temperature_memory": ("field(g, 82)", 1),
    "gpu.clock_sm_max": ("n.nvmlDeviceGetMaxClockInfo(h[g], n.NVML_CLOCK_SM)", 1e-6),
    "gpu.clock_sm": ("n.nvmlDeviceGetClockInfo(h[g], n.NVML_CLOCK_SM)", 1e-6),
    "gpu.clock_memory": ("n.nvmlDeviceGetClockInfo(h[g], n.NVML_CLOCK_MEM)", 1e-6),
    "gpu.event_reasons": ("n.nvmlDeviceGetCurrentClocksEventReasons(h[g])", 1),
    "gpu.throttled_sw_power": ("field(g, 74)", 1e9),
    "gpu.throttled_sync_boost": ("field(g, 76)", 1e9),
    "gpu.throttled_sw_thermal": ("field(g, 269)", 1e9),
    "gpu.throttled_hw_thermal": ("field(g, 270)", 1e9),
    "gpu.throttled_hw_power_brake": ("field(g, 271)", 1e9),
    "gpu.fan": ("n.nvmlDeviceGetFanSpeed(h[g])", 100),
    "gpu.performance_state": ("n.nvmlDeviceGetPerformanceState(h[g])", 1),
    "gpu.pcie_generation": ("n.nvmlDeviceGetCurrPcieLinkGeneration(h[g])", 1),
    "gpu.pcie_width": ("n.nvmlDeviceGetCurrPcieLinkWidth(h[g])", 1),
    "gpu.pcie_sent": ("field(g, 197)", 1),
    "gpu.pcie_received": ("field(g, 198)", 1),
    "gpu.encoder_utilization": ("n.nvmlDeviceGetEncoderUtilization(h[g])[0]", 100),
    "gpu.decoder_utilization": ("n.nvmlDeviceGetDecoderUtilization(h[g])[0]", 100),
    "gpu.power_instant": ("field(g, 186)", 1e3),
    "gpu.ecc_corrected": ("field(g, 3)", 1),
    "gpu.ecc_uncorrected": ("field(g, 4)", 1),
    "gpu.ecc_corrected_lifetime": ("field(g, 5)", 1),
    "gpu.ecc_uncorrected_lifetime": ("field(g, 6)", 1),
    "gpu.rows_remapped_corrected": ("field(g, 142)", 1),
    "gpu.rows_remapped_uncorrected": ("field(g, 143)", 1),
    "gpu.remapping_pending": ("field(g, 144)", 1),
    "gpu.remapping_failed": ("field(g, 145)", 1),
    "gpu.retirement_pending": ("field(g, 31)", 1),
    "gpu.recovery_action": ("field(g, 230)", 1),
    "gpu.pcie_replays": ("field(g, 94)", 1),
    "gpu.nvlink_links": ("field(g, 91)", 1),
    "gpu.nvlink_replays": ("field(g, 52)", 1),
    "gpu.nvlink_recoveries": ("field(g, 59)", 1),
    "gpu.nvlink_crc_errors": ("field(g, 38)", 1),
    "gpu.nvlink_sent": ("field(g, (138, 0xFFFFFFFF))", 1 / 1024),
    "gpu.nvlink_received": ("field(g, (139, 0xFFFFFFFF))", 1 / 1024),
    "gpu.pcie_generation_max": ("n.nvmlDeviceGetMaxPcieLinkGeneration(h[g])", 1),
    "gpu.pcie_width_max": ("n.nvmlDeviceGetMaxPcieLinkWidth(h[g])", 1),
    "gpu.temperature_slowdown": ("n.nvmlDeviceGetTemperatureThreshold(h[g], 1)", 1),
    "gpu.temperature_shutdown": ("n.nvmlDeviceGetTemperatureThreshold(h[g], 0)", 1),
    "gpu.temperature_margin": ("n.nvmlDeviceGetMarginTemperature(h[g])", 1),
    "gpu.jpeg_utilization": ("n.nvmlDeviceGetJpgUtilization(h[g])[0]", 100),
    "gpu.optical_flow_utilization": ("n.nvmlDeviceGetOfaUtilization(h[g])[0]", 100),
    "gpu.nvlink_active": ("sum(field(g, (165, link)) for link in range(18))", 1),
}


@contextmanager
def client(stub: Stub) -> Iterator[Ask]:
    with Child(
        [sys.executable, "-c", CLIENT],
        env=stub.env(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        questions, answers = process.stdin, process.stdout

        def ask(expression: str) -> Any:
            questions.write(expression + "\n")
            questions.flush()
            return json.loads(answers.readline())

        yield ask


def compiled(level: int = NEWEST) -> Path:
    try:
        return build(level, into=CACHE)
    except CompilerMissing as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Stub, Ask]]:
    with Stub(compiled(), gpus=8) as stub, client(stub) as ask:
        ask("n.nvmlDeviceGetCount()")  # it begins with a driver that is well
        yield stub, ask


@pytest.fixture
def stub(running: tuple[Stub, Ask]) -> Stub:
    """A driver with 8 GPUs, as new, on which `ask` already runs."""
    stub, _ = running
    stub.clear_faults()
    stub.run_clock()
    stub.gpus, stub.constant, stub.pcie_bits = 8, False, 64
    for gpu in range(8):
        stub.set_processes(gpu, [])
    stub.reset_calls()
    return stub


@pytest.fixture
def ask(running: tuple[Stub, Ask], stub: Stub) -> Ask:
    return running[1]


def everywhere(ask: Ask, metric: str) -> list[float]:
    expression, per_unit = READ[metric]
    return [value / per_unit for value in ask(f"[{expression} for g in range(8)]")]


# Values ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_every_reading_is_the_truth(metric: str, stub: Stub, ask: Ask) -> None:
    for second in (0.0, 0.5, 13.25, 100.0, 86_400.125):
        stub.hold_clock(second)
        expected = [stub.truth(metric, gpu) for gpu in range(8)]
        assert everywhere(ask, metric) == pytest.approx(expected, rel=1e-14, abs=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_a_constant_driver_moves_nothing_but_its_counters(metric: str, stub: Stub, ask: Ask) -> None:
    stub.constant = True
    stub.hold_clock(0.0)
    start = everywhere(ask, metric)
    stub.hold_clock(50.0)
    half = everywhere(ask, metric)
    stub.hold_clock(100.0)
    end = everywhere(ask, metric)
    assert end == pytest.approx([stub.truth(metric, gpu) for gpu in range(8)], rel=1e-14)
    if metric in COUNTERS:
        assert all(a < b for a, b in zip(start, end, strict=True))
        assert [e - h for e, h in zip(end, half, strict=True)] == pytest.approx(
            [h - s for h, s in zip(half, start, strict=True)], abs=0.002
        )
    else:
        assert start == end


def test_the_clock_is_the_monotonic_clock_of_python(stub: Stub, ask: Ask) -> None:
    before = time.monotonic()
    (joules, *_) = everywhere(ask, "gpu.energy")
    after = time.monotonic()
    assert stub.truth("gpu.energy", 0, before) <= joules <= stub.truth("gpu.energy", 0, after)


def test_the_energy_counter_is_the_integral_of_the_power() -> None:
    step = 10_000_000  # 10 ms in ns
    for gpu in (0, 5):
        middles = range(step // 2, 60_000_000_000, step)
        joules = sum(truth("gpu.power", gpu, middle) for middle in middles) * step / 1e9
        counted = truth("gpu.energy", gpu, 60_000_000_000) - truth("gpu.energy", gpu, 0)
        assert counted == pytest.approx(joules, abs=0.1)


def test_the_gpus_differ_from_each_other(stub: Stub, ask: Ask) -> None:
    stub.hold_clock(7.0)
    for metric in ("gpu.utilization", "gpu.memory_used", "gpu.power", "gpu.energy", "gpu.throttled_sw_power"):
        assert len(set(everywhere(ask, metric))) > 4, metric


def test_memory_adds_up_and_its_old_version_counts_reserved_memory_as_used(stub: Stub, ask: Ask) -> None:
    stub.hold_clock(3.0)
    total, reserved, free, used = ask(
        "[n.nvmlDeviceGetMemoryInfo(h[3], n.nvmlMemory_v2).__getattribute__(a)"
        " for a in ('total', 'reserved', 'free', 'used')]"
    )
    assert total == reserved + free + used == 80 * 2**30
    assert ask("n.nvmlDeviceGetMemoryInfo(h[3]).used") == used + reserved


def test_pcie_counters_of_32_bits_wrap(stub: Stub, ask: Ask) -> None:
    stub.hold_clock(10.0)
    ((_, wide_type, wide),) = ask("fields(0, 197)")
    stub.pcie_bits = 32
    ((_, narrow_type, narrow),) = ask("fields(0, 197)")
    assert (wide_type, narrow_type) == (3, 1)
    assert narrow == wide % 2**32 == stub.truth("gpu.pcie_sent", 0)


def test_field_values_have_the_types_of_nvml_and_unknown_ones_fail_alone(ask: Ask) -> None:
    answers = ask("fields(1, 82, 83, 4711, 185, 186, 190, 191, 197, 269)")
    assert [code for code, _, _ in answers] == [0, 0, NOT_SUPPORTED, 0, 0, 0, 0, 0, 0]
    assert [kind for code, kind, _ in answers if code == 0] == [1, 3, 1, 1, 1, 3, 3, 3]


def test_samples_are_what_came_after_the_time_stamp(stub: Stub, ask: Ask) -> None:
    stub.hold_clock(30.0)
    samples = ask("[[s.timeStamp, s.sampleValue.uiVal] for s in n.nvmlDeviceGetSamples(h[0], 1, 0)[1]]")
    assert len(samples) == 100
    assert samples[-1][1] == 100 * stub.truth("gpu.utilization", 0)
    newer = ask(f"[s.timeStamp for s in n.nvmlDeviceGetSamples(h[0], 1, {samples[-4][0]})[1]]")
    assert newer == [stamp for stamp, _ in samples[-3:]]
    assert ask(f"n.nvmlDeviceGetSamples(h[0], 1, {samples[-1][0]})") == {"error": NOT_FOUND}


@pytest.mark.parametrize("gpu", [0, 1])
def test_samples_are_taken_six_times_a_second_and_are_the_truth_of_their_moment(gpu: int, stub: Stub, ask: Ask) -> None:
    for second in (0.1, 5.0, 30.25, 86_400.125):
        stub.hold_clock(second)
        samples = ask(f"[[s.timeStamp, s.sampleValue.uiVal] for s in n.nvmlDeviceGetSamples(h[{gpu}], 1, 0)[1]]")
        elapsed = round(second * 1e9)
        truths = utilization_samples(gpu, max(0, elapsed - 10**11), elapsed)[-SAMPLES_KEPT:]
        assert [percent / 100 for _, percent in samples] == [ratio for _, ratio in truths]
        assert [stamp for stamp, _ in samples] == [(stub._file.t0_unix_ns + moment) // 1000 for moment, _ in truths]


def test_the_size_of_the_sample_buffer_can_be_asked_and_every_call_counts(stub: Stub, ask: Ask) -> None:
    stub.hold_clock(30.0)
    sizes = (
        "(lambda count, kind: (n._nvmlGetFunctionPointer('nvmlDeviceGetSamples')(h[0], 1, ctypes.c_ulonglong(0),"
        " ctypes.byref(kind), ctypes.byref(count), None), count.value, kind.value))(ctypes.c_uint(), ctypes.c_uint())"
    )
    assert ask(sizes) == [0, SAMPLES_KEPT, 1]
    ask("len(n.nvmlDeviceGetSamples(h[0], 1, 0)[1])")
    assert stub.calls(0) == {"nvmlDeviceGetSamples": 3}, "nvidia-ml-py asks for the size first"
    with stub.fault("nvmlDeviceGetSamples", 4, gpu=0):
        assert ask("n.nvmlDeviceGetSamples(h[0], 1, 0)") == {"error": 4}
    stub.set_supported("gpu.utilization", False, gpu=1)
    assert ask("n.nvmlDeviceGetSamples(h[1], 1, 0)") == {"error": NOT_SUPPORTED}


def test_the_mean_of_a_stretch_is_that_of_its_samples(stub: Stub) -> None:
    for gpu in (0, 1, 5):
        samples = [ratio for _, ratio in utilization_samples(gpu, 10_000_000_000, 130_000_000_000)]
        mean = mean_utilization(gpu, 10_000_000_000, 130_000_000_000)
        assert mean == pytest.approx(sum(samples) / len(samples), abs=0.005)
    assert mean_utilization(1, 0, 5_000_000_000) == pytest.approx(0.92), "while the square wave is up"


# GPUs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gpus", [0, 1, 8, 32])
def test_there_are_as_many_gpus_as_were_asked_for(gpus: int) -> None:
    with Stub(compiled(), gpus=gpus) as stub, client(stub) as ask:
        assert ask("n.nvmlDeviceGetCount()") == gpus
        assert ask("[n.nvmlDeviceGetIndex(x) for x in h]") == list(range(gpus))
        assert len(set(ask("[n.nvmlDeviceGetUUID(x) for x in h]"))) == gpus


def test_a_gpu_is_found_by_its_names(stub: Stub, ask: Ask) -> None:
    find = "n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleBy{}(n.nvmlDeviceGet{}))"
    assert ask(find.format("UUID", "UUID(h[5])")) == 5
    assert ask(find.format("Serial", "Serial(h[4])")) == 4
    assert ask(find.format("PciBusId", "PciInfo(h[3]).busId")) == 3
    assert ask("n.nvmlDeviceGetHandleByUUID('GPU-none')") == {"error": NOT_FOUND}
    assert ask("n.nvmlDeviceGetUUID(h[5])") == stub.uuid(5)


def test_gpus_come_and_go_while_a_process_runs_on_the_driver(stub: Stub, ask: Ask) -> None:
    stub.gpus = 1
    assert ask("n.nvmlDeviceGetCount()") == 1
    assert ask("n.nvmlDeviceGetPowerUsage(h[1])") == {"error": LOST}
    stub.gpus = 2
    assert ask("n.nvmlDeviceGetPowerUsage(h[1])") > 0


def test_without_a_control_file_there_are_two_idle_gpus() -> None:
    script = "import pynvml as n; n.nvmlInit(); print(n.nvmlDeviceGetCount())"
    environment = {"LD_LIBRARY_PATH": str(compiled())}
    assert subprocess.check_output([sys.executable, "-c", script], env=environment, text=True) == "2\n"


# Processes ------------------------------------------------------------------------------------------


def test_processes_are_listed_by_kind(stub: Stub, ask: Ask) -> None:
    stub.set_processes(
        1,
        [
            Process(11, 100),
            Process(12, None),
            Process(13, 300, "graphics"),
            Process(14, 400, "both"),
            Process(15, 5, "mps"),
        ],
    )
    assert ask("listed(n.nvmlDeviceGetComputeRunningProcesses(h[1]))") == [[11, 100], [12, None], [14, 400]]
    assert ask("listed(n.nvmlDeviceGetGraphicsRunningProcesses(h[1]))") == [[13, 300], [14, 400]]
    assert ask("listed(n.nvmlDeviceGetMPSComputeRunningProcesses(h[1]))") == [[15, 5]]
    assert ask("listed(n.nvmlDeviceGetComputeRunningProcesses(h[0]))") == []


def test_a_list_without_room_says_how_much_it_needs(stub: Stub, ask: Ask) -> None:
    stub.set_processes(0, [Process(pid) for pid in range(1, 65)])
    assert ask("v1(0, room=0)[:2]") == [TOO_SMALL, 64]
    assert ask("len(v1(0, room=64)[2])") == 64


def test_process_utilization_is_what_came_after_the_time_stamp(stub: Stub, ask: Ask) -> None:
    use = "[[s.pid, s.smUtil, s.memUtil, s.timeStamp] for s in n.nvmlDeviceGetProcessUtilization(h[0], {})]"
    assert ask(use.format(0)) == {"error": NOT_FOUND}
    stub.hold_clock(5.1)
    stub.set_processes(0, [Process(11, sm=70, mem=20), Process(12, sm=None), Process(13, sm=0)])
    (first, second) = ask(use.format(0))
    assert (first[:3], second[:3]) == ([11, 70, 20], [13, 0, 0])
    assert ask(use.format(first[3])) == {"error": NOT_FOUND}
    stub.hold_clock(5.3)
    assert len(ask(use.format(first[3]))) == 2


def test_a_process_list_is_never_seen_half_written(stub: Stub, ask: Ask) -> None:
    short, long = [Process(1, memory=1)], [Process(2, memory=2) for _ in range(60)]
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            stub.set_processes(0, short)
            stub.set_processes(0, long)

    writer = threading.Thread(target=write)
    writer.start()
    seen = ask("sorted({str(v1(0)[2]) for _ in range(2000)})")
    stop.set()
    writer.join()
    assert set(seen) <= {str([[p.pid, p.memory] for p in listed]) for listed in (short, long)}


# Faults ---------------------------------------------------------------------------------------------


def test_an_error_hits_every_gpu_or_one(stub: Stub, ask: Ask) -> None:
    power = "n.nvmlDeviceGetPowerUsage(h[{}])"
    with stub.fault("nvmlDeviceGetPowerUsage", 999, gpu=1):
        assert ask(power.format(1)) == {"error": 999}
        assert ask(power.format(0)) > 0
    with stub.fault("nvmlDeviceGetPowerUsage", 999):
        assert ask(power.format(0)) == ask(power.format(1)) == {"error": 999}
        assert ask("n.nvmlDeviceGetTemperature(h[0], 0)") > 0
    assert ask(power.format(1)) > 0


def test_every_call_on_a_lost_gpu_says_so(stub: Stub, ask: Ask) -> None:
    stub.set_lost(2)
    for call in ("Name(h[2])", "PowerUsage(h[2])", "ComputeRunningProcesses(h[2])", "HandleByIndex(2)"):
        assert ask(f"n.nvmlDeviceGet{call}") == {"error": LOST}
    assert ask("n.nvmlDeviceGetName(h[1])")
    assert stub.lost == {2}


@pytest.mark.parametrize("code", [UNINITIALIZED, NOT_LOADED])
def test_a_driver_that_is_gone_answers_nothing(code: int, stub: Stub, ask: Ask) -> None:
    stub.driver_error = code
    for call in ("DeviceGetCount()", "DeviceGetPowerUsage(h[0])", "SystemGetDriverVersion()", "Init()"):
        assert ask(f"n.nvml{call}") == {"error": code}


def test_nothing_works_after_the_last_shutdown() -> None:
    with Stub(compiled()) as stub, client(stub) as ask:
        ask("n.nvmlInit()")
        ask("n.nvmlShutdown()")
        assert ask("n.nvmlDeviceGetCount()") == 2
        ask("n.nvmlShutdown()")
        assert ask("n.nvmlDeviceGetCount()") == ask("n.nvmlShutdown()") == {"error": UNINITIALIZED}


def test_a_reading_can_be_unsupported_by_call_and_by_field(stub: Stub, ask: Ask) -> None:
    stub.set_supported("gpu.energy", False, gpu=1)
    assert ask("n.nvmlDeviceGetTotalEnergyConsumption(h[1])") == {"error": NOT_SUPPORTED}
    assert ask("fields(1, 83)")[0][0] == NOT_SUPPORTED
    assert ask("fields(0, 83)")[0][0] == 0
    stub.set_supported("gpu.fan", False)
    assert ask("n.nvmlDeviceGetFanSpeed(h[7])") == {"error": NOT_SUPPORTED}


def test_a_reading_can_be_set_for_one_gpu_and_for_all(stub: Stub, ask: Ask) -> None:
    stub.hold_clock(3.0)
    own = ask("n.nvmlDeviceGetFanSpeed(h[2])")
    stub.set_value("gpu.fan", 77, gpu=2)
    assert ask("n.nvmlDeviceGetFanSpeed(h[2])") == 77
    assert stub.truth("gpu.fan", 2) == 0.77
    assert ask("n.nvmlDeviceGetFanSpeed(h[1])") == 100 * stub.truth("gpu.fan", 1) != 77
    stub.set_value("gpu.fan", 5)
    assert ask("n.nvmlDeviceGetFanSpeed(h[1])") == 5
    stub.set_value("gpu.fan", None)
    assert ask("n.nvmlDeviceGetFanSpeed(h[2])") == own


def test_latency_makes_a_call_slow(stub: Stub, ask: Ask) -> None:
    stub.set_latency("nvmlDeviceGetPowerUsage", 50_000, gpu=1)

    def took(gpu: int) -> float:
        began = time.monotonic()
        ask(f"n.nvmlDeviceGetPowerUsage(h[{gpu}])")
        return time.monotonic() - began

    assert min(took(0) for _ in range(20)) < 0.05, "one of them is quick on a busy machine too"
    assert took(1) >= 0.05


def test_a_hang_ends_when_the_test_says_so(stub: Stub, ask: Ask) -> None:
    stub.set_latency("nvmlDeviceGetName", 3_600_000_000)
    release = threading.Timer(0.1, stub.set_latency, ["nvmlDeviceGetName", 0])
    began = time.monotonic()
    release.start()
    assert ask("n.nvmlDeviceGetName(h[0])")
    assert 0.1 <= time.monotonic() - began < 600
    release.join()


# GPM ------------------------------------------------------------------------------------------------

ALL_OF_GPM = [row.number for row in GPM.values()]


def test_gpm_gives_the_means_of_the_time_between_two_samples(stub: Stub, ask: Ask) -> None:
    stub.set_gpm(True)
    for gpu in (0, 7):
        before = time.monotonic_ns()
        found = ask(f"gpm({gpu}, {[*ALL_OF_GPM, 4711]}, lambda: time.sleep(0.3))")
        after = time.monotonic_ns()
        for (metric, row), (code, value) in zip(GPM.items(), found, strict=False):
            expected = stub.gpm(metric, gpu, before, after) * row.denominator / row.numerator
            assert (code, value) == (0, pytest.approx(expected, rel=0.02, abs=0.5)), metric
        assert found[-1] == [NOT_SUPPORTED, 0.0]


def test_the_mean_of_gpm_is_that_of_its_values() -> None:
    step = 10_000_000  # 10 ms in ns
    for metric in GPM:
        for gpu in (0, 5):
            moments = range(3_000_000_000, 23_000_000_000, step)
            mean = sum(gpm(metric, gpu, moment, moment + step) for moment in moments) / len(moments)
            assert gpm(metric, gpu, moments[0], moments[-1] + step) == pytest.approx(mean, rel=1e-6), metric


def test_what_gpm_measures_of_pcie_is_what_its_counters_grow_by() -> None:
    for direction in ("sent", "received"):
        grown = truth(f"gpu.pcie_{direction}", 3, 10**10) - truth(f"gpu.pcie_{direction}", 3, 0)
        assert gpm(f"gpu.pcie_{direction}_rate", 3, 0, 10**10) == pytest.approx(grown / 10, rel=1e-9)


def test_no_gpu_has_gpm_at_the_start(stub: Stub, ask: Ask) -> None:
    support = "n.nvmlGpmQueryDeviceSupport(h[{}]).isSupportedDevice"
    assert ask(support.format(1)) == 0
    assert ask("gpm(1, [1], int)") == {"error": NOT_SUPPORTED}
    stub.set_gpm(True, gpu=1)
    assert [ask(support.format(gpu)) for gpu in (0, 1)] == [0, 1]
    stub.set_supported("gpu.sm_activity", False)
    assert [code for code, _ in ask(f"gpm(1, {ALL_OF_GPM}, int)")] == [
        NOT_SUPPORTED if metric == "gpu.sm_activity" else 0 for metric in GPM
    ]


# Counts ---------------------------------------------------------------------------------------------


def test_calls_are_the_calls_that_the_driver_got(stub: Stub, ask: Ask) -> None:
    stub.set_processes(1, [Process(1)])
    stub.reset_calls()
    ask("[listed(n.nvmlDeviceGetComputeRunningProcesses(h[g])) for g in (0, 1)]")
    ask("n.nvmlDeviceGetCount()")
    assert stub.calls() == {"nvmlDeviceGetComputeRunningProcesses_v3": 3, "nvmlDeviceGetCount_v2": 1}
    assert stub.calls(gpu=0) == {"nvmlDeviceGetComputeRunningProcesses_v3": 1}  # no process: the size call suffices
    assert stub.calls(gpu=1) == {"nvmlDeviceGetComputeRunningProcesses_v3": 2}
    stub.reset_calls()
    assert stub.calls() == {}


def test_no_call_of_many_processes_is_lost() -> None:
    with Stub(compiled()) as stub:
        script = "import pynvml as n; n.nvmlInit(); [n.nvmlDeviceGetCount() for _ in range(5000)]"
        children = [subprocess.Popen([sys.executable, "-c", script], env=stub.env()) for _ in range(3)]
        assert [child.wait() for child in children] == [0, 0, 0]
        assert stub.calls() == {"nvmlInitWithFlags": 3, "nvmlDeviceGetCount_v2": 15_000}
        assert Stub.attach(stub.path).calls() == stub.calls()


# Driver levels --------------------------------------------------------------------------------------

SINCE = {
    "nvmlDeviceGetComputeRunningProcesses": 390,
    "nvmlDeviceGetMemoryInfo": 390,
    "nvmlDeviceGetCurrentClocksThrottleReasons": 390,
    "nvmlDeviceGetFieldValues": 390,
    "nvmlDeviceGetComputeRunningProcesses_v2": 470,
    "nvmlDeviceGetTotalEnergyConsumption": 470,
    "nvmlDeviceGetSamples": 470,
    "nvmlEventSetWait": 390,
    "nvmlEventSetWait_v2": 470,
    "nvmlDeviceGetComputeRunningProcesses_v3": 580,
    "nvmlDeviceGetMemoryInfo_v2": 580,
    "nvmlDeviceGetCurrentClocksEventReasons": 580,
    "nvmlDeviceGetTemperatureV": 580,
    "nvmlDeviceGetDriverModel_v2": 615,
}


@pytest.mark.parametrize("level", LEVELS)
def test_an_old_driver_lacks_what_came_later(level: int) -> None:
    library = ctypes.CDLL(str(compiled(level) / LIBRARY))
    assert {name: hasattr(library, name) for name in SINCE} == {name: level >= since for name, since in SINCE.items()}


def test_the_newest_driver_has_every_function_of_the_list() -> None:
    library = ctypes.CDLL(str(compiled() / LIBRARY))
    assert [name for name in FUNCTIONS if not hasattr(library, name)] == []


@pytest.mark.parametrize("level", LEVELS)
def test_processes_are_the_same_in_every_version_that_a_driver_has(level: int) -> None:
    with Stub(compiled(level)) as stub, client(stub) as ask:
        stub.set_processes(0, [Process(11, 100), Process(12, None)])
        newer = [[11, 100], [12, None]]
        assert ask("v1(0)") == [0, 2, [[11, 100], [12, 2**64 - 1]]]
        expected_v2 = newer if level >= 470 else {"error": NO_FUNCTION}
        expected_v3 = newer if level >= 580 else {"error": NO_FUNCTION}
        assert ask("listed(n.nvmlDeviceGetComputeRunningProcesses_v2(h[0]))") == expected_v2
        assert ask("listed(n.nvmlDeviceGetComputeRunningProcesses_v3(h[0]))") == expected_v3


@pytest.mark.parametrize(
    ("level", "known"),
    [
        (390, {74}),
        (470, {74, 83}),
        (580, {74, 83, 186, 197, 251}),
        (615, {74, 83, 186, 197, 269}),
    ],
)
def test_a_driver_knows_the_fields_of_its_branch(level: int, known: set[int]) -> None:
    ids = [74, 83, 186, 197, 251, 269]
    with Stub(compiled(level)) as stub, client(stub) as ask:
        answers = ask(f"fields(0, {', '.join(map(str, ids))})")
        assert {id for id, (code, _, _) in zip(ids, answers, strict=True) if code == 0} == known
        assert ask("n.nvmlSystemGetDriverVersion()").startswith(str(level))


# The stub itself ------------------------------------------------------------------------------------


def test_a_control_file_of_another_layout_is_refused_on_both_sides(tmp_path: Path) -> None:
    with Stub(compiled(), file=tmp_path / "control") as stub:
        stub._file.version += 1
        script = "import pynvml as n; n.nvmlInit()"
        done = subprocess.run([sys.executable, "-c", script], env=stub.env(), capture_output=True, text=True)
        assert "layout version or size differs" in done.stderr
        assert "NVMLError_LibRmVersionMismatch" in done.stderr
        with pytest.raises(ValueError, match=f"layout version {VERSION + 1}, expected {VERSION}"):
            Stub.attach(stub.path)


def test_a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(CompilerMissing, match="no-such-compiler"):
        build(into=tmp_path)


def test_the_control_file_goes_away_with_the_stub() -> None:
    with Stub() as stub:
        assert stub.path.exists()
    assert not stub.path.exists()
