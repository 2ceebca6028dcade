"""The driver's own utilization samples, read through ctypes from the stub driver.

NVML keeps its state for the life of a process, so the source runs in one of its own. Its clock is the
test's, and so is the driver's: hours pass in no time, and every stamp is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon.sources.nvml.utilization import SAMPLES_EVERY
from tests.conftest import ROOT
from tests.nvml import Stub, build
from tests.nvml.truth import SAMPLES_KEPT, SAMPLES_PER_SECOND
from tests.programs import asked, environment
from tests.sourced import READ_AT

CALL = "nvmlDeviceGetSamples"
FIRST = 20 - (SAMPLES_KEPT - 0.5) / SAMPLES_PER_SECOND
"""A read at 20 s gives what was sampled from then on."""
NOT_FOUND, NO_PERMISSION, NOT_SUPPORTED = 6, 4, 3
UNKNOWN, NOT_LOADED = 999, 9

CLIENT = (
    READ_AT
    + """\
    busy = {uuid: list(new) for uuid, new in reading.utilization_samples.items()}
    print(json.dumps([busy, [sample.state for sample in reading.samples]]), flush=True)
"""
)

Given = list[tuple[int, float]]


class Reader:
    """A source in a process of its own, read at the moments that the test names."""

    def __init__(self, stub: Stub, ask: Callable[[object], Any]) -> None:
        self.stub = stub
        self.states: list[int] = []
        self._ask = ask
        self._wall = stub._file.t0_unix_ns - stub._file.t0_ns

    def now(self, seconds: float | None) -> dict[str, Given]:
        """What a read gives `seconds` after the driver's start (None: of the real clocks), by UUID."""
        moment = None
        if seconds is not None:
            self.stub.hold_clock(seconds)
            monotonic = self.stub._file.t0_ns + round(seconds * SECOND)
            moment = [monotonic, monotonic + self._wall]
        answer = self._ask(moment)
        self.states = answer[1]
        return {uuid: [(when, ratio) for when, ratio in new] for uuid, new in answer[0].items()}

    def at(self, seconds: float, gpu: int = 0) -> Given:
        """The samples of one GPU."""
        return self.now(seconds).get(self.stub.uuid(gpu), [])

    def every_second(self, begin: int, end: int, gpu: int = 0) -> Given:
        """All that is given by a read each second."""
        return [sample for second in range(begin, end) for sample in self.at(second, gpu)]

    def step_wall_clock(self, seconds: int) -> None:
        """Set the wall clock of the machine: of the source and, from now on, of the driver."""
        self._wall += seconds * SECOND
        self.stub._file.t0_unix_ns += seconds * SECOND


@contextmanager
def reading(stub: Stub, tmp_path: Path) -> Iterator[Reader]:
    with asked(CLIENT, environment(tmp_path, stub.env())) as ask:
        yield Reader(stub, ask)


@pytest.fixture
def reader(stub: Stub, tmp_path: Path) -> Iterator[Reader]:
    with reading(stub, tmp_path) as running:
        yield running


def expected(stub: Stub, gpu: int, begin: float, end: float) -> Given:
    """What the driver sampled between two times after its start."""
    t0 = stub._file.t0_ns
    return stub.utilization_samples(gpu, t0 + round(begin * SECOND), t0 + round(end * SECOND))


def same(given: Given, truth: Given) -> None:
    """The same samples: values exactly, times within the microsecond that stamps are rounded to."""
    assert [ratio for _, ratio in given] == [ratio for _, ratio in truth]
    for (when, _), (moment, _) in zip(given, truth, strict=True):
        assert abs(when - moment) <= 1000


@pytest.mark.parametrize("gpu", [0, 1])
def test_every_sample_comes_once_in_order_with_its_value(reader: Reader, stub: Stub, gpu: int) -> None:
    given = reader.every_second(20, 90, gpu)
    truth = expected(stub, gpu, FIRST, 89)
    missed = len(truth) - len(given)
    assert 0 <= missed <= SAMPLES_EVERY * SAMPLES_PER_SECOND + 1, "only those that the next read will bring"
    same(given, truth[: len(given)])


def test_the_samples_of_a_stretch_have_its_mean(reader: Reader, stub: Stub) -> None:
    begin, end = (stub._file.t0_ns + second * SECOND for second in (25, 45))
    inside = [ratio for when, ratio in reader.every_second(20, 60) if begin < when <= end]
    assert len(inside) == 20 * SAMPLES_PER_SECOND
    assert sum(inside) / len(inside) == pytest.approx(stub.mean_utilization(0, begin, end), abs=0.01)


def test_with_the_real_clocks_the_times_are_those_of_the_monotonic_clock(reader: Reader, stub: Stub) -> None:
    given = reader.now(None)[stub.uuid(1)]
    truth = stub.utilization_samples(1, 0, given[-1][0] + SECOND)
    for (when, ratio), (moment, true) in zip(given, truth, strict=False):
        # Python took the driver's two clocks one after the other, and the wall clock is being slewed.
        assert abs(when - moment) < SECOND / SAMPLES_PER_SECOND / 2
        assert ratio == true


def test_a_read_is_one_call_each_eight_seconds_and_devices_take_turns(reader: Reader, stub: Stub) -> None:
    stub.gpus = 8
    reader.now(20)
    assert {stub.calls(gpu)[CALL] for gpu in range(8)} == {2}, "the first asks how many the driver keeps"
    stub.reset_calls()
    readers = [len(reader.now(second)) for second in range(21, 21 + 16)]
    assert [stub.calls(gpu)[CALL] for gpu in range(8)] == [2] * 8
    assert max(readers) <= 2


def test_nothing_new_is_no_failure_and_is_asked_again(reader: Reader, stub: Stub) -> None:
    assert reader.at(20)
    with stub.fault(CALL, NOT_FOUND):
        assert reader.every_second(21, 29) == []
    given = reader.every_second(29, 43)
    same(given, expected(stub, 0, 20.001, 60)[: len(given)])
    assert len(given) >= 10 * SAMPLES_PER_SECOND, "what the driver kept meanwhile is not lost"


def test_what_is_not_supported_is_asked_again_each_minute(reader: Reader, stub: Stub) -> None:
    stub.set_error(CALL, NOT_SUPPORTED, gpu=0)
    assert reader.every_second(20, 60) == []
    assert stub.calls(0)[CALL] == 1
    assert set(reader.states) == {1}, "the GPU itself is there"
    assert stub.calls(1)[CALL] > 3
    stub.set_error(CALL, 0, gpu=0)
    assert reader.every_second(60, 90), "such as with MIG, which was switched off"


@pytest.mark.parametrize("code", [NO_PERMISSION, UNKNOWN])
def test_what_fails_is_asked_seldom_and_comes_back(reader: Reader, stub: Stub, code: int) -> None:
    with stub.fault(CALL, code):
        assert reader.every_second(20, 60) == []
        assert stub.calls(0)[CALL] == 2
    assert reader.every_second(60, 100)


def test_a_driver_without_the_function_gives_none_and_everything_else(tmp_path: Path) -> None:
    with Stub(build(390, into=ROOT / ".cache")) as old, reading(old, tmp_path) as reader:
        assert reader.every_second(20, 40) == []
        assert set(reader.states) == {1}
        assert CALL not in old.calls()


def test_a_lost_gpu_gives_none_and_no_sample_twice_when_it_is_back(reader: Reader, stub: Stub) -> None:
    before = reader.every_second(20, 40)
    stub.set_lost(0)
    calls = stub.calls(0)[CALL]
    assert reader.every_second(40, 46) == []
    assert reader.states[0] != 1
    assert stub.calls(0)[CALL] <= calls + 1
    stub.set_lost(0, False)
    after = reader.every_second(46, 70)
    times = [when for when, _ in before + after]
    assert times == sorted(set(times))
    assert len(after) >= 16 * SAMPLES_PER_SECOND


def test_a_driver_that_was_away_for_a_moment_gives_no_sample_twice(reader: Reader, stub: Stub) -> None:
    before = reader.every_second(20, 40)
    stub.driver_error = NOT_LOADED
    assert reader.every_second(40, 42) == []
    stub.driver_error = 0
    after = reader.every_second(42, 60)
    assert after
    same(before + after, expected(stub, 0, FIRST, 60)[: len(before + after)])


def test_a_driver_that_counts_from_the_start_of_the_machine_is_understood(stub: Stub, tmp_path: Path) -> None:
    with reading(stub, tmp_path) as reader:
        stub._file.t0_unix_ns = stub._file.t0_ns
        given = reader.every_second(20, 60)
        same(given, expected(stub, 0, FIRST, 60)[: len(given)])
        assert len(given) > 100


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_wall_clock_that_is_set_costs_no_later_sample_and_repeats_none(
    reader: Reader, stub: Stub, hours: int
) -> None:
    before = reader.every_second(20, 40)
    reader.step_wall_clock(hours * 3600)
    after = reader.every_second(40, 70)
    same(before + after, expected(stub, 0, FIRST, 70)[: len(before + after)])
    assert len(after) > 15 * SAMPLES_PER_SECOND


def test_stamps_of_no_known_clock_are_left_out(reader: Reader, stub: Stub) -> None:
    stub._file.t0_unix_ns += 5000 * SECOND
    assert reader.every_second(20, 40) == []
    stub._file.t0_unix_ns -= 10_000 * SECOND
    assert reader.every_second(40, 60) == []
    stub._file.t0_unix_ns += 5000 * SECOND
    assert reader.every_second(60, 80)


def test_what_is_more_than_a_minute_old_is_left_out(reader: Reader, stub: Stub) -> None:
    """A driver that writes no samples while nothing runs still holds those from before."""
    stub._file.t0_unix_ns -= 55 * SECOND
    given = reader.at(40)
    ages = [stub._file.t0_ns + 40 * SECOND - when for when, _ in given]
    assert len(ages) == 5 * SAMPLES_PER_SECOND
    assert all(55 * SECOND - 1000 <= age <= 60 * SECOND for age in ages)
