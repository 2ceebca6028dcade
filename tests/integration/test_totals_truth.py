"""Totals of windows against the stub driver's truth: over borders of tiers, restarts, resets, reboots and gaps."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from gpumon.common.paths import Places
from gpumon.live import Live, follow
from gpumon.storage.history.window_totals import Total, WindowTotals
from tests.accelerated import EpochSpan
from tests.nvml import Stub
from tests.nvml.truth import truth
from tests.programs import Child, environment

HOUR = 3600.0
LENGTH = 7 * HOUR
GPUS = 2
PART = 0.5
"""Seconds between two values of the truth of a gauge."""
NEAR = 0.005
"""The share by which a total may miss the truth."""
_PHASE = 0.37
"""Seconds by which the driver began before a whole second: else each edge of its square waves meets a sample."""
COUNTED = {
    "energy": "gpu.energy", "throttled_sw_power": "gpu.throttled_sw_power",
    "throttled_hw_thermal": "gpu.throttled_hw_thermal", "pcie_received": "gpu.pcie_received",
    "nvlink_received": "gpu.nvlink_received",
}  # fmt: skip
SHARES = ("throttled_sw_power", "throttled_hw_thermal")


def plan(begin: float) -> list[EpochSpan]:
    """Seven hours: a daemon that ends, is killed, has its driver reset, and a machine that starts again."""
    boot = begin - 1000 - _PHASE

    def stretch(first: float, last: float, driver: float = boot, interval: float = 1.0, **more: bool) -> EpochSpan:
        return EpochSpan(begin + first, begin + last, driver, interval, **more)

    return [
        stretch(0, 7000, interval=2.0),
        stretch(7600, 9000, interval=2.0),
        stretch(9000, 9300, interval=2.0, is_new=False)._replace(lost=(1,)),
        stretch(9300, 12005, interval=2.0, is_new=False, is_killed=True),
        stretch(12015, 15000),
        stretch(15000, 18000, begin + 15000 - _PHASE, is_new=False),
        stretch(18240, LENGTH - 600, begin + 18200 - _PHASE, rebooted=True),
        stretch(LENGTH - 590, LENGTH, begin + 18200 - _PHASE, interval=0.5),
    ]


WINDOWS = (
    (0, 7), (0.002, 6.9), (0, 1), (0.5, 1.75), (1, 4), (1.3, 2.4), (2.2, 3.0), (3.0, 3.7), (3.5, 4.5), (3.75, 5.6),
    (4.6, 5.3), (5.2, 6.2), (5.25, 6.75), (5.77, 6.93), (6.1, 6.6), (6.4, 6.83), (6.63, 6.9), (6.8, 6.95), (6.9, 7),
    (6.9601, 6.9909),
)  # fmt: skip
"""Begin and end in hours. The cells of 1 s reach back to 6.5 h or so, those of 10 s to 4.8 h."""


class History(NamedTuple):
    """All that there is to ask, and what is true."""

    live: Live
    begin: float
    stretches: list[EpochSpan]

    asked: dict[tuple[float, float], WindowTotals]
    """Answers: the past stands still, and each takes a while."""

    def totals(self, first: float, last: float) -> WindowTotals:
        if (first, last) not in self.asked:
            self.asked[first, last] = self.live.totals(begin=self.begin + first, end=self.begin + last)
        return self.asked[first, last]


@pytest.fixture(scope="module")
def history(driver_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    directory = tmp_path_factory.mktemp("accelerated")
    begin = time.time() // 300 * 300 - LENGTH
    stretches = plan(begin)
    with Stub(driver_library, gpus=GPUS) as stub:
        words = [sys.executable, "-m", "tests.accelerated", str(stub.path), str(directory), json.dumps(stretches)]
        env = environment(directory, stub.env())
        with Child(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            assert process.stdout.readline() == "over\n"
            live = follow(Places(explicit=str(directory / "live"), state=str(directory / "state")))
            yield History(live, begin, stretches, {})
            live.close()
            process.stdin.close()
            assert process.wait(60) == 0


def driver_times(stretches: list[EpochSpan], first: float, last: float, gpu: int) -> Iterator[tuple[float, float]]:
    """The times of the driver's own clock of which a window has samples, each up to a reset or a gap."""
    for stretch in stretches:
        begin, end = max(first, stretch.begin), min(last, stretch.end)
        if begin < end and gpu not in stretch.lost:
            yield begin - stretch.driver_begin, end - stretch.driver_begin


def true(name: str, times: list[tuple[float, float]], gpu: int) -> float:
    """The total of some times of the driver."""
    seconds = sum(end - begin for begin, end in times)
    if name in COUNTED:
        metric = COUNTED[name]
        grown = sum(
            truth(metric, gpu, round(end * 1e9)) - truth(metric, gpu, round(begin * 1e9)) for begin, end in times
        )
        return grown / seconds if name in SHARES else grown
    return sum(_integral(gpu, begin, end) for begin, end in times) / seconds


def _integral(gpu: int, begin: float, end: float) -> float:
    """Utilization times seconds."""
    parts = math.ceil((end - begin) / PART)
    length = (end - begin) / parts
    moments = (begin + (part + 0.5) * length for part in range(parts))
    return sum(truth("gpu.utilization", gpu, round(moment * 1e9)) for moment in moments) * length


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_a_total_is_the_truth_or_says_how_much_is_missing(history: History, window: tuple[float, float]) -> None:
    first, last = (hours * HOUR for hours in window)
    found = history.totals(first, last)
    assert len(found.devices) == GPUS
    for gpu, totals in enumerate(found.devices.values()):
        times = list(driver_times(history.stretches, found.begin, found.end, gpu))
        seen = sum(end - begin for begin, end in times)
        gone = found.end - found.begin - seen
        for name in (*COUNTED, "utilization"):
            total = totals[name]
            about = (window, gpu, name, total, gone)
            borders = sum(
                first <= border <= last
                for one in history.stretches
                for border in (one.begin - history.begin, one.end - history.begin)
            )
            assert total.missing_seconds >= gone - 2 * borders - 1, about
            assert total.missing_seconds <= gone + 4 * borders + 1 + total.estimated_seconds, about
            assert total.is_complete == (total.missing_seconds <= 0.002 * total.seconds), about
            assert total.value == pytest.approx(true(name, times, gpu), rel=allowed(total)), about


def allowed(total: Total) -> float:
    """The share by which a total may miss the truth of the seconds that were seen."""
    estimated = total.estimated_seconds / total.seconds
    return NEAR if estimated <= NEAR else NEAR + estimated


def test_most_windows_are_complete_and_exact(history: History) -> None:
    assert len(WINDOWS) == 20
    found = [history.totals(first * HOUR, last * HOUR) for first, last in WINDOWS]
    energies = [totals["energy"] for one in found for totals in one.devices.values()]
    assert sum(total.is_complete and total.estimated_seconds < NEAR * total.seconds for total in energies) >= GPUS * 8
