"""What the driver writes where it has no number, and counters that cannot be relied on; no driver, no process."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pynvml
import pytest

from gpumon.common.clock import SECOND
from gpumon.model.frame import Sample
from gpumon.model.metrics import PROCESS_SHARES, Availability
from gpumon.sources.nvml.device import NvmlDevice
from gpumon.sources.nvml.processes import DeviceProcesses, ProcessShares
from gpumon.sources.nvml.return_codes import availability
from gpumon.sources.nvml.values import DeviceValues
from gpumon.sources.process_cache import EngineShares
from tests.fakes import FakeClock
from tests.nvml.signatures import CheckedLibrary, buffer_of

HANDLE = ctypes.c_void_p(1)
U32, U64 = 2**32 - 1, 2**64 - 1
UINT, ULL, INT, USHORT, DOUBLE = 1, 3, 5, 6, 0
FORMATS = {UINT: "=I", ULL: "=Q", INT: "=i", USHORT: "=H", DOUBLE: "=d"}
NOT_SUPPORTED = int(pynvml.NVML_ERROR_NOT_SUPPORTED)
ENERGY, SENT, SW_POWER, SW_THERMAL_580, SW_THERMAL = 83, 197, 74, 251, 269
NEW, OLD, MOVED = "590.44.01", "580.65.06", "580.82.07"

FieldValue = tuple[int, int | float]
"""Value type and number."""


def writes(*numbers: int) -> Callable[..., int]:
    """A function of the driver that writes these, one for each pointer."""

    def answer(*arguments: Any) -> int:
        pointers = [argument for argument in arguments if hasattr(argument, "_obj")]
        for pointer, number in zip(pointers, numbers, strict=True):
            buffer_of(pointer).value = number
        return 0

    return answer


class Driver:
    """A driver with one GPU, on which the test sets fields and functions."""

    def __init__(self, version: str = NEW, functions: Mapping[str, Any] | None = None) -> None:
        self.clock = FakeClock()
        self.fields: dict[int, FieldValue] = {ENERGY: (ULL, 1_000_000), SW_POWER: (ULL, 5 * SECOND)}
        self.asked: list[list[int]] = []
        """Ids of each batch that is read at every tick."""
        self.links: dict[tuple[int, int], FieldValue] = {}
        """Fields of one link, by id and link."""
        self.asked_slowly: list[list[tuple[int, int]]] = []
        """Ids and scopes of each slow batch."""
        self.took = 0.0
        """Seconds that a batch takes."""
        self.stamped = True
        self.code = 0
        """Answer of a whole batch."""
        answers = {"nvmlDeviceGetFieldValues": self._answer, **(functions or {})}
        library: Any = CheckedLibrary(answers, version)
        self.device = NvmlDevice(library, HANDLE, 0, "GPU-1", "card", self.clock)

    def read(self, seconds: float = 1.0) -> Sample:
        """The sample so many seconds after the last one."""
        self.clock.advance(seconds)
        return self.device.read(self.clock.monotonic() / SECOND).sample

    def _answer(self, _: Any, count: Any, batch: Any) -> int:
        self.clock.advance(self.took)
        if self.code:
            return self.code
        ids = [batch[i].fieldId for i in range(count.value)]
        if ENERGY in ids:
            self.asked.append(ids)
        else:
            self.asked_slowly.append([(batch[i].fieldId, batch[i].scopeId) for i in range(count.value)])
        for i in range(count.value):
            entry = batch[i]
            entry.timestamp = self.clock.time() // 1000 if self.stamped else 0
            of_link = self.links.get((entry.fieldId, entry.scopeId))
            kind, number = of_link or self.fields.get(entry.fieldId, (-1, 0))
            entry.nvmlReturn = NOT_SUPPORTED if kind < 0 else 0
            entry.valueType = max(0, kind)
            if kind >= 0:
                raw = struct.pack(FORMATS[kind], number).ljust(8, b"\0")
                ctypes.memmove(ctypes.addressof(entry.value), raw, 8)
        return 0


def missing(sample: Sample, metric: str) -> Availability | None:
    """Why a metric is missing; None where it is not."""
    value = sample.value(metric)
    assert (value != value) == (metric in sample.device.missing), "a gap has a reason, and only a gap"
    return sample.device.missing.get(metric)


# What is no number ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "function", "numbers"),
    [
        ("gpu.power", "nvmlDeviceGetPowerUsage", (U32,)),
        ("gpu.power_limit", "nvmlDeviceGetEnforcedPowerLimit", (U32,)),
        ("gpu.temperature", "nvmlDeviceGetTemperature", (U32,)),
        ("gpu.fan", "nvmlDeviceGetFanSpeed", (U32,)),
        ("gpu.clock_sm", "nvmlDeviceGetClockInfo", (U32,)),
        ("gpu.clock_memory", "nvmlDeviceGetClockInfo", (U32,)),
        ("gpu.performance_state", "nvmlDeviceGetPerformanceState", (32,)),
        ("gpu.pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", (U32,)),
        ("gpu.pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", (U32,)),
        ("gpu.pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration", (U32,)),
        ("gpu.pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", (U32,)),
        ("gpu.temperature_slowdown", "nvmlDeviceGetTemperatureThreshold", (U32,)),
        ("gpu.temperature_shutdown", "nvmlDeviceGetTemperatureThreshold", (U32,)),
        ("gpu.jpeg_utilization", "nvmlDeviceGetJpgUtilization", (U32, 167)),
        ("gpu.optical_flow_utilization", "nvmlDeviceGetOfaUtilization", (U32, 167)),
        ("gpu.event_reasons", "nvmlDeviceGetCurrentClocksEventReasons", (U64,)),
        ("gpu.encoder_utilization", "nvmlDeviceGetEncoderUtilization", (U32, 167)),
        ("gpu.decoder_utilization", "nvmlDeviceGetDecoderUtilization", (U32, 167)),
    ],
)
def test_a_number_of_only_ones_is_no_value(metric: str, function: str, numbers: tuple[int, ...]) -> None:
    assert missing(Driver(functions={function: writes(*numbers)}).read(), metric) is Availability.NOT_SUPPORTED


@pytest.mark.parametrize("rates", [(U32, 5), (101, 5)])
def test_a_share_above_the_whole_is_no_value(rates: tuple[int, int]) -> None:
    def answer(_: Any, pair: Any) -> int:
        pair[0], pair[1] = rates
        return 0

    sample = Driver(functions={"nvmlDeviceGetUtilizationRates": answer}).read()
    why = Availability.NOT_SUPPORTED if rates[0] == U32 else Availability.UNRELIABLE
    assert missing(sample, "gpu.utilization") is why
    assert sample.value("gpu.memory_utilization") == 0.05


def test_memory_that_is_not_available_is_no_value() -> None:
    def answer(_: Any, memory: Any) -> int:
        memory._obj.total, memory._obj.used, memory._obj.reserved = U64, 2**30, U64
        return 0

    sample = Driver(functions={"nvmlDeviceGetMemoryInfo_v2": answer}).read()
    assert missing(sample, "gpu.memory_total") is Availability.NOT_SUPPORTED
    assert missing(sample, "gpu.memory_reserved") is Availability.NOT_SUPPORTED
    assert sample.value("gpu.memory_used") == 2**30


def test_memory_that_went_below_zero_is_no_value() -> None:
    def answer(_: Any, memory: Any) -> int:
        memory._obj.total, memory._obj.used, memory._obj.reserved = 2**36, 2**64 - 2**20, 2**29
        return 0

    sample = Driver(functions={"nvmlDeviceGetMemoryInfo_v2": answer}).read()
    assert missing(sample, "gpu.memory_used") is Availability.UNRELIABLE
    assert sample.value("gpu.memory_total") == 2**36


@pytest.mark.parametrize(
    ("metric", "function", "number"),
    [
        ("gpu.power", "nvmlDeviceGetPowerUsage", U32 - 1),
        ("gpu.power_limit", "nvmlDeviceGetEnforcedPowerLimit", 10_000_001),
        ("gpu.temperature", "nvmlDeviceGetTemperature", U32 - 5),  # 6 degrees below 0, as an unsigned number
        ("gpu.temperature", "nvmlDeviceGetTemperature", 251),
        ("gpu.fan", "nvmlDeviceGetFanSpeed", 201),
        ("gpu.clock_sm", "nvmlDeviceGetClockInfo", 2**31),
        ("gpu.clock_memory", "nvmlDeviceGetClockInfo", 50_001),
        ("gpu.performance_state", "nvmlDeviceGetPerformanceState", 16),
        ("gpu.pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", 16),
        ("gpu.pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", 65),
        ("gpu.temperature_slowdown", "nvmlDeviceGetTemperatureThreshold", 300),
        ("gpu.jpeg_utilization", "nvmlDeviceGetJpgUtilization", 101),
    ],
)
def test_a_number_beyond_what_cards_have_is_no_value(metric: str, function: str, number: int) -> None:
    def answer(_: Any, *arguments: Any) -> int:
        buffer_of(next(one for one in arguments if hasattr(one, "_obj"))).value = number
        return 0

    assert missing(Driver(functions={function: answer}).read(), metric) is Availability.UNRELIABLE


@pytest.mark.parametrize(
    ("metric", "id", "usual", "beyond"),
    [
        ("gpu.power", 185, (UINT, 690_000), (UINT, U32 - 1)),
        ("gpu.power", 185, (ULL, 690_000), (ULL, 2**62)),
        ("gpu.power_limit", 190, (UINT, 700_000), (UINT, 10_000_001)),
        ("gpu.power_instant", 186, (UINT, 700_000), (DOUBLE, -1.0)),
        ("gpu.temperature_memory", 82, (UINT, 90), (UINT, U32 - 5)),
        ("gpu.temperature_memory", 82, (INT, -6), (INT, -251)),
        ("gpu.energy", ENERGY, (ULL, 10**6), (INT, -5)),
    ],
)  # fmt: skip
def test_a_field_beyond_what_cards_have_is_no_value_also_of_a_batch_that_was_well(
    metric: str, id: int, usual: FieldValue, beyond: FieldValue
) -> None:
    alone = ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetEnforcedPowerLimit")
    driver = Driver(functions=dict.fromkeys(alone, writes(U32 - 1)))
    for value, why in [(beyond, Availability.UNRELIABLE), (usual, None), (beyond, Availability.UNRELIABLE)]:
        driver.fields[id] = value
        assert missing(driver.read(), metric) is why
        assert missing(driver.read(), "gpu.throttled_sw_power") is None


@pytest.mark.parametrize(("used", "why"), [(2**36 + 2**30, None), (2**37, Availability.UNRELIABLE)])
def test_memory_in_use_far_above_the_total_is_no_value(used: int, why: Availability | None) -> None:
    def answer(_: Any, memory: Any) -> int:
        memory._obj.total, memory._obj.used, memory._obj.reserved = 2**36, used, 2**29
        return 0

    def answer_v1(_: Any, memory: Any) -> int:
        memory[0], memory[2] = 2**36, used
        return 0

    older = {"nvmlDeviceGetMemoryInfo_v2": NOT_SUPPORTED, "nvmlDeviceGetMemoryInfo": answer_v1}
    for functions in ({"nvmlDeviceGetMemoryInfo_v2": answer}, older):
        sample = Driver(functions=functions).read()
        assert missing(sample, "gpu.memory_used") is why
        assert sample.value("gpu.memory_total") == 2**36


@pytest.mark.parametrize(
    "value",
    [(UINT, U32), (ULL, U64), (INT, -1), (INT, 2**31 - 1), (USHORT, 2**16 - 1), (DOUBLE, float("nan")),
     (DOUBLE, float("inf"))],
)  # fmt: skip
@pytest.mark.parametrize(("metric", "id"), [("gpu.energy", ENERGY), ("gpu.temperature_memory", 82), ("gpu.power", 185)])
def test_a_field_that_holds_the_most_of_its_type_is_no_value(metric: str, id: int, value: FieldValue) -> None:
    driver = Driver(functions={"nvmlDeviceGetPowerUsage": NOT_SUPPORTED})
    driver.fields[id] = value
    assert missing(driver.read(), metric) is Availability.NOT_SUPPORTED


def margin(degrees: int) -> Callable[..., int]:
    def answer(_: Any, record: Any) -> int:
        record[1] = degrees
        return 0

    return answer


def test_the_margin_is_the_drivers_own_also_below_zero() -> None:
    for degrees in (31, -2):
        sample = Driver(functions={"nvmlDeviceGetMarginTemperature": margin(degrees)}).read()
        assert sample.value("gpu.temperature_margin") == degrees


@pytest.mark.parametrize("newer", [NOT_SUPPORTED, margin(2**31 - 1)])
def test_without_a_margin_of_the_driver_it_is_what_is_left_up_to_the_slowdown(newer: Any) -> None:
    functions: dict[str, Any] = {
        "nvmlDeviceGetMarginTemperature": newer,
        "nvmlDeviceGetTemperature": writes(61),
        "nvmlDeviceGetTemperatureThreshold": writes(90),
    }
    assert Driver(functions=functions).read().value("gpu.temperature_margin") == 29
    functions["nvmlDeviceGetTemperatureThreshold"] = NOT_SUPPORTED
    assert missing(Driver(functions=functions).read(), "gpu.temperature_margin") is Availability.NOT_SUPPORTED
    functions |= {"nvmlDeviceGetTemperatureThreshold": writes(90), "nvmlDeviceGetTemperature": NOT_SUPPORTED}
    assert missing(Driver(functions=functions).read(), "gpu.temperature_margin") is Availability.NOT_SUPPORTED


def test_a_margin_that_is_what_is_left_follows_each_temperature() -> None:
    degrees = [61]
    driver = Driver(functions={
        "nvmlDeviceGetMarginTemperature": NOT_SUPPORTED,
        "nvmlDeviceGetTemperature": lambda *arguments: writes(degrees[0])(*arguments),
        "nvmlDeviceGetTemperatureThreshold": writes(90),
    })  # fmt: skip
    driver.read()
    for degrees[0] in (62, 88, 40):
        sample = driver.read(3.0)
        assert (sample.value("gpu.temperature"), sample.value("gpu.temperature_margin")) == (
            degrees[0], 90 - degrees[0]
        )  # fmt: skip


def test_the_drivers_margin_is_asked_again_with_the_tick_after_the_temperature_has_moved() -> None:
    degrees, asked = [61], list[int]()

    def answer(handle: Any, record: Any) -> int:
        asked.append(degrees[0])
        return margin(87 - degrees[0])(handle, record)

    driver = Driver(functions={
        "nvmlDeviceGetMarginTemperature": answer,
        "nvmlDeviceGetTemperature": lambda *arguments: writes(degrees[0])(*arguments),
    })  # fmt: skip
    driver.read()
    for degrees[0] in (62, 60, 61):
        driver.read(3.0)
    assert asked == [61], "as seldom as before while it hardly moves"
    degrees[0] = 86
    driver.read(3.0)
    assert driver.read(1.0).value("gpu.temperature_margin") == 1
    for _ in range(8):
        driver.read(1.0)
    assert asked == [61, 86]


def test_event_reasons_have_all_their_bits() -> None:
    sample = Driver(functions={"nvmlDeviceGetCurrentClocksEventReasons": writes(1 << 40 | 4)}).read()
    assert sample.value("gpu.event_reasons") == float(1 << 40 | 4)


# Counters of 32 bits ----------------------------------------------------------------------------------

LINK = {"nvmlDeviceGetMaxPcieLinkGeneration": writes(4), "nvmlDeviceGetMaxPcieLinkWidth": writes(16)}
"""31.5 GB/s: 4 GiB in 136 ms."""


def test_a_narrow_counter_that_may_wrap_between_two_reads_is_missing() -> None:
    driver = Driver(functions=LINK)
    total = 0
    for _ in range(5):
        total += 10 * 10**9
        driver.fields[SENT] = (UINT, total % 2**32)
        assert missing(driver.read(1.0), "gpu.pcie_sent") is Availability.UNRELIABLE


def test_a_narrow_counter_that_is_read_often_enough_goes_on() -> None:
    driver = Driver(functions=LINK)
    values = []
    for tick in range(20):
        driver.fields[SENT] = (UINT, tick * 10**9 % 2**32)
        values.append(driver.read(0.1).value("gpu.pcie_sent"))
    known = [value for value in values if value == value]
    assert len(known) == 19, "the first says nothing: nobody knows how often it has wrapped"
    assert {after - before for before, after in pairwise(known)} == {1e9}


def test_a_narrow_link_is_read_often_enough_at_one_hertz() -> None:
    link = {"nvmlDeviceGetMaxPcieLinkGeneration": writes(3), "nvmlDeviceGetMaxPcieLinkWidth": writes(1)}
    driver = Driver(functions=link)
    driver.fields[SENT] = (UINT, 2**32 - 5)
    driver.read()
    before = driver.read().value("gpu.pcie_sent")
    driver.fields[SENT] = (UINT, 95)
    assert driver.read().value("gpu.pcie_sent") - before == 100


def test_a_counter_that_wraps_although_its_type_is_wide_is_a_narrow_one() -> None:
    driver = Driver(functions=LINK)
    for number in (4 * 10**9, 2 * 10**9, 3 * 10**9):
        driver.fields[SENT] = (ULL, number)
        sample = driver.read(1.0)
    assert missing(sample, "gpu.pcie_sent") is Availability.UNRELIABLE
    driver.fields[SENT] = (ULL, 2**33)
    assert driver.read(1.0).value("gpu.pcie_sent") == 2**33, "it is wide after all"


def test_a_wide_counter_is_given_at_any_interval() -> None:
    driver = Driver(functions=LINK)
    for number in (10**9, 40 * 10**9, 90 * 10**9):
        driver.fields[SENT] = (ULL, number)
        assert driver.read(60.0).value("gpu.pcie_sent") == number


# Field ids of the branches ----------------------------------------------------------------------------


def heat(driver: Driver, first: int, seconds: float, kind: int = ULL) -> None:
    for id in range(first, first + 3):
        driver.fields[id] = (kind, round(seconds * SECOND))


@pytest.mark.parametrize(("version", "first"), [(OLD, SW_THERMAL_580), (MOVED, SW_THERMAL), (NEW, SW_THERMAL)])
def test_heat_is_where_the_release_of_the_driver_has_it(version: str, first: int) -> None:
    driver = Driver(version)
    other = SW_THERMAL if first == SW_THERMAL_580 else SW_THERMAL_580
    for id in range(other, other + 3):
        driver.fields[id] = (UINT, 0)  # power smoothing: a setting that is off
    for second in range(1, 5):
        heat(driver, first, second)
        assert driver.read().value("gpu.throttled_sw_thermal") == second
    assert set(driver.asked[-1]) & {other} == set(), "the other one is asked for once"
    assert len(driver.asked) == 4, "and in the same call"


@pytest.mark.parametrize("version", [OLD, MOVED])
@pytest.mark.parametrize("first", [SW_THERMAL_580, SW_THERMAL])
def test_where_two_ids_are_possible_the_one_that_answers_is_kept(version: str, first: int) -> None:
    driver = Driver(version)
    heat(driver, first, 7.0)
    assert driver.read().value("gpu.throttled_hw_thermal") == 7.0
    assert driver.read().value("gpu.throttled_hw_power_brake") == 7.0
    assert len(driver.asked[-1]) == len(set(driver.asked[0])) - 3


def test_a_kept_id_that_falls_is_no_counter_and_gives_way_to_the_other() -> None:
    driver = Driver(OLD)
    heat(driver, SW_THERMAL_580, 1.0, UINT)  # a setting, in a driver that NVIDIA numbered otherwise
    heat(driver, SW_THERMAL, 40.0)
    assert driver.read().value("gpu.throttled_sw_thermal") == 1.0
    heat(driver, SW_THERMAL_580, 0.0, UINT)
    assert missing(driver.read(), "gpu.throttled_sw_thermal") is Availability.UNRELIABLE
    assert driver.read().value("gpu.throttled_sw_thermal") == 40.0


def test_counters_that_all_fall_are_a_reset_of_the_gpu_and_no_wrong_id() -> None:
    driver = Driver(OLD)
    heat(driver, SW_THERMAL_580, 9.0)
    driver.read()
    heat(driver, SW_THERMAL_580, 0.0)
    driver.fields[ENERGY] = (ULL, 5)
    assert driver.read().value("gpu.throttled_sw_thermal") == 0.0
    assert SW_THERMAL_580 in driver.asked[-1]


@pytest.mark.parametrize("version", ["535.183.01", "570.172.08", "470.256.02", "", "not a version"])
def test_a_driver_that_has_no_counters_of_heat_is_not_asked_for_its_power_smoothing(version: str) -> None:
    driver = Driver(version)
    heat(driver, SW_THERMAL_580, 1.0, UINT)
    assert missing(driver.read(), "gpu.throttled_sw_thermal") is Availability.NOT_SUPPORTED
    assert SW_THERMAL_580 not in driver.asked[-1]


# Times --------------------------------------------------------------------------------------------------


def test_a_driver_that_stamps_with_the_time_since_boot_is_believed_too() -> None:
    driver = Driver()
    driver.took = 0.4
    driver.clock.time = driver.clock.monotonic  # type: ignore[method-assign]
    before = driver.clock.monotonic()
    sample = driver.read()
    assert sample.counters_monotonic_ns == before + round(1.4 * SECOND)
    assert sample.monotonic_ns == before + SECOND


@pytest.mark.parametrize("stamped", [True, False])
def test_a_slow_call_has_counters_only_where_the_driver_says_of_when(stamped: bool) -> None:
    driver = Driver()
    driver.took, driver.stamped = 4.0, stamped
    assert missing(driver.read(), "gpu.energy") is (None if stamped else Availability.UNRELIABLE)


def shares(*samples: tuple[int, int, int]) -> Callable[..., int]:
    """nvmlDeviceGetProcessUtilization with samples (pid, µs, percent) of later than what it is given."""

    def answer(_: Any, buffer: Any, count: Any, since: Any) -> int:
        new = [sample for sample in samples if sample[1] > since.value]
        count._obj.value = len(new)
        raw = b"".join(struct.pack("=IxxxxQIIII", pid, when, sm, 0, 0, 0) for pid, when, sm in new)
        ctypes.memmove(buffer, raw, len(raw))
        return 0 if new else int(pynvml.NVML_ERROR_NOT_FOUND)

    return answer


def test_a_share_from_the_future_does_not_end_all_shares() -> None:
    clock = FakeClock()
    library: Any = CheckedLibrary()
    reader = ProcessShares(library, clock)
    for _ in range(3):
        now = clock.time() // 1000
        function = shares((41, now - 100_000, 50), (42, now + 3600 * 1_000_000, 70), (43, now - 1, 4000))
        library.answers["nvmlDeviceGetProcessUtilization"] = function
        assert reader.read(HANDLE) == {41: EngineShares(0.5, 0.0, 0.0, 0.0)}
        clock.advance(3)


def packed(pid: int, when: int, *percents: int) -> bytes:
    return struct.pack("=IxxxxQIIII", pid, when, *percents)


def answering(*samples: bytes, asked: list[int]) -> Callable[..., int]:
    """nvmlDeviceGetProcessUtilization with these samples, whatever it is given."""

    def answer(_: Any, buffer: Any, count: Any, since: Any) -> int:
        asked.append(since.value)
        count._obj.value = len(samples)
        ctypes.memmove(buffer, b"".join(samples), sum(map(len, samples)))
        return 0

    return answer


def test_the_first_shares_are_of_the_last_second_by_the_drivers_clock() -> None:
    asked: list[int] = []
    library: Any = CheckedLibrary(
        {"nvmlDeviceGetProcessUtilization": answering(packed(1, 7_000_000, 50, 10, 20, 30), asked=asked)}
    )
    reader = ProcessShares(library, FakeClock())
    assert reader.read(HANDLE) == {1: EngineShares(0.5, 0.1, 0.2, 0.3)}
    assert asked == [0, 6_000_000], "with 0 the driver answers with a mean over its whole buffer"
    assert reader.read(HANDLE) == {}, "the same sample again is none"
    assert asked[2:] == [7_000_000]


@pytest.mark.parametrize(
    "wrong",
    [
        packed(0, 7_000_000, 50, 0, 0, 0),
        packed(2, 7_000_000, 101, 0, 0, 0),
        packed(2, 7_000_000, 0, 0xFFFFFFFF, 0, 0),
        packed(2, 7_000_000, 0, 0, 4_000, 0),
        packed(2, 7_000_000, 0, 0, 0, 101),
        packed(2, 0, 50, 0, 0, 0),
        packed(2, (1 << 64) - 1, 50, 0, 0, 0),
        bytes(32),
    ],
)
def test_a_sample_that_cannot_be_is_none(wrong: bytes) -> None:
    library: Any = CheckedLibrary()
    library.answers["nvmlDeviceGetProcessUtilization"] = answering(
        wrong, packed(1, 7_000_000, 50, 0, 0, 0), wrong, asked=[]
    )
    assert ProcessShares(library, FakeClock()).read(HANDLE) == {1: EngineShares(0.5, 0.0, 0.0, 0.0)}


def test_of_several_samples_of_a_process_the_newest_counts() -> None:
    several = [packed(1, at, percent, 0, 0, 0) for at, percent in ((6_500_000, 10), (7_000_000, 70), (6_900_000, 30))]
    library: Any = CheckedLibrary({"nvmlDeviceGetProcessUtilization": answering(*several, asked=[])})
    assert ProcessShares(library, FakeClock()).read(HANDLE) == {1: EngineShares(0.7, 0.0, 0.0, 0.0)}


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (pynvml.NVML_SUCCESS, None),
        (pynvml.NVML_ERROR_NOT_FOUND, None),  # nothing ran
        (pynvml.NVML_ERROR_NOT_SUPPORTED, Availability.NOT_SUPPORTED),
        (pynvml.NVML_ERROR_NO_PERMISSION, Availability.NO_PERMISSION),
        (pynvml.NVML_ERROR_GPU_IS_LOST, Availability.LOST),
        (pynvml.NVML_ERROR_UNKNOWN, Availability.FAILED),
    ],
)
def test_shares_that_the_driver_does_not_tell_are_missing_for_its_reason(code: int, why: Availability | None) -> None:
    listed = [7]

    def processes(_: Any, count: Any, __: Any) -> int:
        count._obj.value = len(listed)
        return 0

    library: Any = CheckedLibrary({
        "nvmlDeviceGetProcessUtilization": lambda *_: code,
        "nvmlDeviceGetComputeRunningProcesses_v3": processes,
        "nvmlDeviceGetGraphicsRunningProcesses_v3": processes,
    })  # fmt: skip
    device = DeviceValues(FakeClock(), {})
    reader = DeviceProcesses(library, device, 0, FakeClock())
    reader.read(HANDLE, 0.0)
    assert device.missing.get(PROCESS_SHARES) is why
    listed.clear()
    reader.read(HANDLE, 60.0)
    assert PROCESS_SHARES not in device.missing, "without a process, the driver is not asked"


def test_a_driver_without_the_call_supports_no_shares() -> None:
    library: Any = CheckedLibrary(only="_of_a_later_driver")
    reader = ProcessShares(library, FakeClock())
    assert (reader.read(HANDLE), availability(reader.code)) == ({}, Availability.NOT_SUPPORTED)


def test_shares_go_on_when_the_wall_clock_is_set_back() -> None:
    clock = FakeClock()
    library: Any = CheckedLibrary()
    reader = ProcessShares(library, clock)
    for set_back in (0, 3600, 0):
        clock._offset -= set_back * SECOND
        clock.advance(3)
        library.answers["nvmlDeviceGetProcessUtilization"] = shares((41, clock.time() // 1000, 50))
        found = reader.read(HANDLE)
    assert found == {41: EngineShares(0.5, 0.0, 0.0, 0.0)}
