"""Means of GPM: never of numbers that are none, of another device's past, or in memory that somebody freed."""

from __future__ import annotations

import ctypes
import gc
from argparse import Namespace
from math import inf, nan
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from gpumon.cli.options import resolve_options
from gpumon.common.errors import UsageError
from gpumon.model.metrics import Availability
from gpumon.sources.nvml.gpm import GPM, GPM_METRICS, TENSOR_THROUGHPUT, GpmReader
from gpumon.sources.nvml.values import DeviceValues
from tests.fakes import FakeClock
from tests.nvml.signatures import CheckedLibrary

HANDLE = ctypes.c_void_p(1)
SAMPLE, CALCULATE = "nvmlGpmSampleGet", "nvmlGpmMetricsGet"
SM, SENT = "gpu.sm_activity", "gpu.nvlink_sent_rate"
LOST, UNKNOWN, NO_MEMORY, NOT_SUPPORTED = 15, 999, 20, 3


class Card:
    """A GPU with GPM: what its driver calculates, and what is read from it."""

    def __init__(self, **functions: Any) -> None:
        self.clock = FakeClock()
        self.values: dict[str, float] = {}
        self.codes: dict[str, int] = {}
        self.allocated = self.freed = 0
        self.pairs: list[tuple[int, int]] = []
        answers = {"nvmlGpmSampleAlloc": self._allocate, "nvmlGpmSampleFree": self._free, CALCULATE: self._calculate}
        self.library: Any = CheckedLibrary({**answers, **functions})
        self.answers = DeviceValues(self.clock, {})
        self.reading = GpmReader.from_library(self.library)

    def read(self, after: float = 1.0) -> int:
        self.clock.advance(after)
        assert self.reading is not None
        return self.reading(HANDLE, self.answers)

    def why(self) -> set[Availability]:
        """Why its metrics are missing."""
        return {self.answers.missing[name] for name in GPM_METRICS if name not in self.answers.values}

    def _allocate(self, sample: Any) -> int:
        self.allocated += 1
        sample._obj.value = 0x1000 * self.allocated
        return 0

    def _free(self, _: Any) -> int:
        self.freed += 1
        return 0

    def _calculate(self, pair: Any) -> int:
        record = pair._obj
        self.pairs.append(
            tuple(ctypes.cast(one, ctypes.c_void_p).value or 0 for one in (record.sample1, record.sample2))  # type: ignore[arg-type]
        )
        assert (record.version, record.numMetrics) == (1, len(GPM))
        for place, (name, number) in enumerate(GPM.items()):
            assert record.metrics[place].metricId == number
            record.metrics[place].value = self.values.get(name, 40.0)
            record.metrics[place].nvmlReturn = self.codes.get(name, 0)
        return 0


def test_percents_are_ratios_and_rates_are_bytes_a_second() -> None:
    card = Card()
    card.values = {SM: 62.5, SENT: 3.0}
    assert (card.read(), card.read()) == (0, 0)
    assert card.answers.values[SM] == 0.625
    assert card.answers.values[SENT] == 3 * 2**20
    assert card.answers.values.keys() == set(GPM)


def test_the_share_of_the_tensor_peak_is_activity_times_the_mean_clock_over_the_highest() -> None:
    card = Card()
    card.values = {"gpu.tensor_activity": 50.0}
    card.answers.values.update({"gpu.clock_sm": 2e9, "gpu.clock_sm_max": 2e9})
    card.read()
    card.answers.values["gpu.clock_sm"] = 1e9
    card.read()
    assert card.answers.values[TENSOR_THROUGHPUT] == pytest.approx(0.5 * 1.5 / 2)
    card.read()
    assert card.answers.values[TENSOR_THROUGHPUT] == pytest.approx(0.25)


def test_without_the_highest_clock_there_is_no_share_of_the_tensor_peak() -> None:
    card = Card()
    card.answers.values["gpu.clock_sm"] = 2e9
    card.answers.set_missing("gpu.clock_sm_max", Availability.NOT_SUPPORTED)
    card.read()
    card.read()
    assert TENSOR_THROUGHPUT not in card.answers.values
    assert card.answers.missing[TENSOR_THROUGHPUT] is Availability.NOT_SUPPORTED


def test_there_is_no_mean_before_the_second_sample() -> None:
    card = Card()
    card.read()
    assert card.answers.values == {}
    assert card.why() == {Availability.TOO_EARLY}
    assert CALCULATE not in card.library.calls


def test_each_mean_is_of_the_newest_sample_and_the_one_before() -> None:
    card = Card()
    for _ in range(4):
        card.read()
    assert card.pairs == [(0x2000, 0x1000), (0x1000, 0x2000), (0x2000, 0x1000)]
    assert card.allocated == 2


@pytest.mark.parametrize("value", [nan, inf, -inf, -0.001, 101.0, 1e30, 1.7e308])
def test_what_is_no_share_is_missing(value: float) -> None:
    card = Card()
    card.read()
    card.read()
    card.values = {SM: value}
    card.read()
    assert SM not in card.answers.values
    assert card.answers.missing[SM] is Availability.NOT_SUPPORTED
    assert len(card.answers.values) == len(GPM) - 1


@pytest.mark.parametrize("value", [nan, inf, -1.0, 1e12])
def test_what_is_no_rate_is_missing(value: float) -> None:
    card = Card()
    card.values = {SENT: value}
    card.read()
    card.read()
    assert SENT not in card.answers.values
    assert len(card.answers.values) == len(GPM) - 1


def test_a_share_that_was_rounded_up_ends_at_one() -> None:
    card = Card()
    card.values = {SM: 100.2}
    card.read()
    card.read()
    assert card.answers.values[SM] == 1.0


def test_a_metric_fails_alone() -> None:
    card = Card()
    card.codes = {SM: NOT_SUPPORTED, SENT: UNKNOWN}
    card.read()
    card.read()
    assert card.answers.missing[SM] is Availability.NOT_SUPPORTED
    assert card.answers.missing[SENT] is Availability.FAILED
    assert len(card.answers.values) == len(GPM) - 2


def test_a_sample_too_near_to_the_one_before_is_asked_for_and_not_calculated_with() -> None:
    card = Card()
    card.read()
    card.read()
    before = len(card.library.calls)
    assert card.read(0.05) == 0
    assert card.library.calls[before:] == [SAMPLE], "whether the device answers is known only if it is asked"
    assert card.answers.values[SM] == 0.4
    card.library.answers[SAMPLE] = LOST
    assert card.read(0.01) == LOST


@pytest.mark.parametrize("function", [SAMPLE, CALCULATE])
def test_a_call_that_fails_gives_its_code(function: str) -> None:
    card = Card()
    card.read()
    card.read()
    held = card.library.answers.get(function, 0)
    card.library.answers[function] = UNKNOWN
    assert card.read() == UNKNOWN
    card.library.answers[function] = held
    for _ in range(2):
        assert card.read() == 0
    assert card.answers.values.keys() == set(GPM)


def test_no_mean_reaches_over_a_time_in_which_the_device_was_gone() -> None:
    card = Card()
    card.read()
    card.read()
    card.answers.clear()
    card.read(100.0)
    assert card.answers.values == {}
    assert card.why() == {Availability.TOO_EARLY}
    assert len(card.pairs) == 1
    card.read()
    assert card.answers.values[SM] == 0.4


def test_a_gpu_without_gpm_is_asked_for_no_sample() -> None:
    card = Card(nvmlGpmQueryDeviceSupport=0)
    assert card.read() == NOT_SUPPORTED
    assert card.library.calls == ["nvmlGpmQueryDeviceSupport"]


def test_a_driver_without_room_for_samples_is_asked_again() -> None:
    card = Card()
    made = card.library.answers["nvmlGpmSampleAlloc"]
    card.library.answers["nvmlGpmSampleAlloc"] = lambda sample: NO_MEMORY if card.allocated else made(sample)
    assert card.read() == NO_MEMORY
    assert (card.allocated, card.freed) == (1, 1)
    card.library.answers["nvmlGpmSampleAlloc"] = made
    assert (card.read(), card.read()) == (0, 0)
    assert SM in card.answers.values


def test_devices_that_come_and_go_use_the_same_buffers() -> None:
    card = Card()
    for _ in range(50):
        card.reading = GpmReader.from_library(card.library)
        card.read()
        card.reading = None
    assert (card.allocated, card.freed) == (2, 0)
    card.library.gpm_samples.free()
    assert card.freed == 2
    card.library.gpm_samples.free()
    assert card.freed == 2, "once"


def test_nobody_frees_what_a_call_that_hangs_writes_into() -> None:
    began, go_on = Event(), Event()

    def hang(*_: Any) -> int:
        began.set()
        go_on.wait()
        return 0

    card, other = Card(), Card()
    card.read()
    other.reading, other.library = GpmReader.from_library(card.library), card.library
    other.read()
    card.library.answers[SAMPLE] = hang
    stuck = Thread(target=card.read)
    stuck.start()
    began.wait()
    card.reading = None
    gc.collect()
    card.library.gpm_samples.free()
    assert (card.allocated, card.freed) == (4, 2), "those of the other device alone"
    go_on.set()
    stuck.join()


def gpm_of(value: str, tmp_path: Path, env: dict[str, str] | None = None) -> bool:
    """What the settings say of GPM, where the file has `gpm = VALUE`."""
    path = tmp_path / "gpumon" / "config.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"gpm = {value}\n" if value else "")
    _, found = resolve_options(Namespace(dir=None, state_dir=None), {"XDG_CONFIG_HOME": str(tmp_path), **(env or {})})
    return bool(found.gpm)


def test_gpm_is_read_unless_a_setting_says_otherwise(tmp_path: Path) -> None:
    assert gpm_of("", tmp_path)
    assert gpm_of("true", tmp_path)
    assert not gpm_of("false", tmp_path)
    assert gpm_of("false", tmp_path, {"GPUMON_GPM": "on"}), "the environment over the file"
    assert not gpm_of("true", tmp_path, {"GPUMON_GPM": "off"})


@pytest.mark.parametrize("value", ["0", '"no"', "[]", '"maybe"', "nan"])
def test_a_setting_of_gpm_that_is_neither_on_nor_off_is_refused(value: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="gpm must be on or off, not"):
        gpm_of(value, tmp_path)
