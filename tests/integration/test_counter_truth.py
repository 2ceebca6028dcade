"""What the driver's counters came to in 60 s, in the ring and in totals of history, also where they start over.

By a clock that does not wait; `test_truth.py` has the same with a daemon's own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from gpumon.common.paths import Places
from gpumon.live import Live, follow
from gpumon.model.frame import Frame
from gpumon.model.metrics import Availability
from gpumon.storage.history.counters import counted_at, rates_between
from tests.accelerated import EpochSpan
from tests.nvml import COUNTERS, Stub, truth
from tests.nvml.truth import driver_value
from tests.programs import Child, environment

LENGTH, NEAR = 60.0, 0.01
GPUS = 4
BEFORE = 5.0
"""Seconds of the driver before the window."""
PCIE, NVLINK = ("gpu.pcie_sent", "gpu.pcie_received"), ("gpu.nvlink_sent", "gpu.nvlink_received")
THROTTLED = sorted(metric for metric in COUNTERS if metric.startswith("gpu.throttled_"))
IN_TOTALS = {metric.removeprefix("gpu."): metric for metric in COUNTERS if metric not in NVLINK}
EARLY = 2
"""Seconds into the window: about when a counter starts over."""


def at_the_end(metric: str, bits: int) -> tuple[str, int, int]:
    """A counter of so many bits that starts over within the window on each GPU, about `EARLY` s after its begin."""
    elapsed = round((2 * BEFORE + EARLY) * 1e9)
    return metric, 2**bits - driver_value(metric, 0, elapsed) + driver_value(metric, 0, 0), bits


@contextmanager
def played(stub: Stub, directory: Path, interval: float, wraps: Sequence[tuple[str, int, int]] = ()) -> Iterator[Live]:
    """Frames and history of a daemon that watched the window, and some seconds before it."""
    begin = time.time() // 300 * 300 - 600
    stretch = EpochSpan(begin - BEFORE, begin + LENGTH + 2, begin - 2 * BEFORE, interval, wraps=tuple(wraps))
    words = [sys.executable, "-m", "tests.accelerated", str(stub.path), str(directory), json.dumps([stretch])]
    env = environment(directory, stub.env())
    with Child(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "over\n"
        live = follow(Places(explicit=str(directory / "live"), state=str(directory / "state")))
        yield live
        live.close()
        process.stdin.close()
        assert process.wait(60) == 0


def window(live: Live) -> tuple[list[Frame], float]:
    """Frames of the window, and its begin in seconds since 1970."""
    frames = live.since(0)
    begin = frames[0].time + BEFORE
    return [frame for frame in frames if begin - 1e-6 <= frame.time <= begin + LENGTH + 1e-6], begin


def true(metric: str, gpu: int, seconds: float = LENGTH) -> float:
    """What it grew by in the window, up to so many seconds of it."""
    begin = 2 * BEFORE
    return truth(metric, gpu, round((begin + seconds) * 1e9)) - truth(metric, gpu, round(begin * 1e9))


def seen(frames: Sequence[Frame], metric: str) -> list[tuple[float, float]]:
    """Of each GPU what it grew by as pairs of frames tell, and the seconds between those that do."""
    found = [(0.0, 0.0)] * GPUS
    for before, after in pairwise(frames):
        rates = rates_between(before, after, [metric])
        for gpu, (one, other) in enumerate(zip(before.samples, after.samples, strict=True)):
            rate = rates.get(other.device.uuid, {}).get(metric, float("nan"))
            seconds = (counted_at(other, after) - counted_at(one, before)) / 1e9
            if rate == rate:
                grown, known = found[gpu]
                found[gpu] = grown + rate * seconds, known + seconds
    return found


def assert_true(live: Live, lost: float = 0.0, metrics: Sequence[str] = sorted(COUNTERS)) -> None:
    """All that grew is the truth within 1 %, in frames and in totals, of which at most `lost` seconds are missing."""
    frames, begin = window(live)
    for metric in metrics:
        for gpu, (grown, known) in enumerate(seen(frames, metric)):
            assert known >= LENGTH - lost - 1e-3, (metric, gpu)
            assert grown == pytest.approx(true(metric, gpu), rel=NEAR), (metric, gpu)
    totals = live.totals(begin=begin, end=begin + LENGTH)
    assert len(totals.devices) == GPUS
    for gpu, found in enumerate(totals.devices.values()):
        for name, metric in IN_TOTALS.items():
            if metric in metrics:
                share = LENGTH if metric in THROTTLED else 1.0
                assert found[name].value * share == pytest.approx(true(metric, gpu), rel=NEAR), (name, gpu)
                assert found[name].missing_seconds <= lost, (name, gpu)


@pytest.fixture
def four(driver_library: Path) -> Iterator[Stub]:
    with Stub(driver_library, gpus=GPUS) as stub:
        yield stub


@pytest.mark.parametrize("interval", [1.0, 0.1])
def test_shares_bytes_and_energy_of_a_minute_are_the_truth(interval: float, four: Stub, tmp_path: Path) -> None:
    with played(four, tmp_path, interval) as live:
        assert_true(live)


@pytest.mark.parametrize("interval", [1.0, 0.1])
def test_counters_that_pass_32_bits_in_a_wide_type_go_on(interval: float, four: Stub, tmp_path: Path) -> None:
    wide = [(metric, at_the_end(metric, 32)[1], 64) for metric in sorted(COUNTERS)]
    with played(four, tmp_path, interval, wide) as live:
        assert_true(live)


def test_counters_that_start_over_at_the_largest_number_of_their_type_lose_one_interval(
    four: Stub, tmp_path: Path
) -> None:
    """But the bytes of NVLink, which come in KiB: so many would not be believed."""
    largest = ["gpu.energy", *THROTTLED, *PCIE]
    with played(four, tmp_path, 0.1, [at_the_end(metric, 64) for metric in largest]) as live:
        frames, _ = window(live)
        for metric in largest:
            values = [frame.samples[0].value(metric) for frame in frames]
            assert any(after < before for before, after in pairwise(values)), f"{metric} starts over"
        assert_true(live, lost=0.7)


def test_narrow_counters_of_pcie_start_over_again_and_again_and_lose_nothing(four: Stub, tmp_path: Path) -> None:
    four.pcie_bits = 32
    with played(four, tmp_path, 0.05) as live:
        assert true(PCIE[0], 0) > 2**32
        assert_true(live)


def test_narrow_counters_in_a_wide_type_lose_nothing_behind_their_first_start(four: Stub, tmp_path: Path) -> None:
    with played(four, tmp_path, 0.05, [at_the_end(metric, 32) for metric in PCIE]) as live:
        assert_true(live, lost=0.1)


def test_narrow_counters_that_are_read_too_seldom_are_unknown_and_never_too_low(four: Stub, tmp_path: Path) -> None:
    four.pcie_bits = 32
    with played(four, tmp_path, 1.0) as live:
        frames, begin = window(live)
        assert {frame.samples[0].device.missing[PCIE[0]] for frame in frames} == {Availability.UNRELIABLE}
        assert [known for _, known in seen(frames, PCIE[0])] == [0.0] * GPUS
        for found in live.totals(begin=begin, end=begin + LENGTH).devices.values():
            assert not found["pcie_sent"].value >= 0
            assert found["pcie_sent"].missing_seconds == pytest.approx(LENGTH, abs=0.1)
        assert_true(live, metrics=[metric for metric in sorted(COUNTERS) if metric not in PCIE])
