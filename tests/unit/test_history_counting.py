"""Growth of counters in a cell, where one of them is not known for a while."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import isnan, nan

import pytest

from gpumon.common.clock import SECOND
from gpumon.model.frame import Tick
from gpumon.model.metrics import GPU_INDEX, Availability
from gpumon.storage.history.counters import Growth, GrowthMeter
from gpumon.storage.history.tier_aggregator import Aggregator, Block, values_from_tick
from gpumon.storage.history.tiers import SHAPES
from tests.builders import TIME, device, sample, tick


def cells(first: Sequence[float], second: Sequence[float]) -> list[Growth]:
    """The growth in four seconds of two counters that are read every 0.25 s."""
    meter, found = GrowthMeter(2), []
    for number, values in enumerate(zip(first, second, strict=True)):
        time = 100.1 + number / 4
        meter.add(time, values, 1, 1.0)
        if number and number % 4 == 0:
            found.append(meter.pop_cell(int(time) - 1))
    return found


STEADY = [20.0 * number for number in range(17)]


def test_a_counter_that_is_known_throughout_grew_by_what_it_says() -> None:
    assert [one.rates for one in cells(STEADY, STEADY)] == [pytest.approx((80, 80))] * 4


def test_a_counter_that_alone_was_missing_may_have_started_over_and_is_unknown_in_that_cell() -> None:
    """One of 32 bits goes on behind a gap without what it counted in it."""
    lower = [*STEADY[:6], nan, *(number - 35 for number in STEADY[7:])]
    found = cells(STEADY, lower)
    assert [one.rates[0] for one in found] == pytest.approx([80] * 4)
    assert [isnan(one.rates[1]) for one in found] == [False, True, False, False]
    assert [one.rates[1] for one in found if not isnan(one.rates[1])] == pytest.approx([80] * 3)


def test_a_device_that_once_gave_nothing_at_all_goes_on_with_its_counters() -> None:
    part = [*STEADY[:6], nan, *STEADY[7:]]
    assert [one.rates for one in cells(part, part)] == [pytest.approx((80, 80))] * 4


BORDER = -(-TIME // SECOND // 300) * 300
"""Of blocks of every tier, seconds since 1970."""
ENERGY = GPU_INDEX["gpu.energy"]


def used(time: float) -> float:
    """Joules up to `time` (s since the border): 200 W and 400 W by turns, 10 s each."""
    whole, rest = divmod(time, 20.0)
    return 9e6 + 6000 * whole + (200 * rest if rest <= 10 else 2000 + 400 * (rest - 10))


def at(second: float, read: float, energy: float, state: Availability = Availability.OK, interval: float = 1.0) -> Tick:
    """A tick, and a GPU whose counter was read at `read`; both s since the border."""
    one = sample(0, energy=energy, power=300.0, power_limit=690.0, throttled_hw_thermal=0.25 * (read + 1000))
    steady = 10_000 + second
    one = one._replace(
        state=state, monotonic_ns=round(steady * SECOND), counters_monotonic_ns=round((10_000 + read) * SECOND)
    )
    return tick(samples=[one], time_ns=round((BORDER + second) * SECOND), monotonic_ns=round(steady * SECOND),
                interval_ns=round(interval * SECOND))  # fmt: skip


def kept(ticks: Sequence[Tick]) -> dict[int, dict[int, tuple[float, float]]]:
    """By length of the cells and by their begin (s since the border), joules and for how many seconds they are."""
    blocks: list[Block] = []
    aggregator = Aggregator(blocks.append)
    for one in ticks:
        aggregator.add(values_from_tick(one))
    aggregator.finish()
    found: dict[int, dict[int, tuple[float, float]]] = defaultdict(dict)
    for block in blocks:
        if block.subject == device(0).uuid:
            for place, cell in block.cells.items():
                seconds = cell.seconds[ENERGY]
                begin = (block.number * block.shape.cells + place) * block.shape.step - BORDER
                assert begin not in found[block.shape.step], "each cell is written once"
                found[block.shape.step][begin] = (cell.mean[ENERGY] * seconds if seconds else 0.0, seconds)
    return found


@pytest.mark.parametrize("hangs", [False, True])
def test_a_counter_that_is_read_seldom_has_its_growth_in_each_second_over_the_border_of_a_block(
    hangs: bool,
) -> None:
    ticks, read = [], 0.0
    for second in range(-40, 41):
        silent = hangs and -4 <= second < 4
        if second % 4 == 0 and not silent:
            read = second + 0.5
        ticks.append(at(second + 0.5, read, used(read), Availability.STALE if silent else Availability.OK))
    found = kept(ticks)
    for step in (shape.step for shape in SHAPES):
        joules, seconds = map(sum, zip(*found[step].values(), strict=True))
        assert joules == pytest.approx(used(40.5) - used(-39.5), abs=1)
        assert seconds == pytest.approx(80, abs=0.01)
    if not hangs:
        even = [second for second in range(-39, 40) if second % 20 in (*range(1, 8), 13, 14, 15)]
        for second in even:  # between two readings the power did not change
            assert found[1][second] == pytest.approx((used(second + 1) - used(second), 1.0), abs=0.01)


@pytest.mark.parametrize("interval", [0.1, 1.0])
@pytest.mark.parametrize("glitch", [2.0**62 / 1000, 9e6 + 4.29e6, 0.0, nan], ids=str)
def test_a_glitch_of_the_energy_counter_is_in_no_cell_and_loses_nothing(glitch: float, interval: float) -> None:
    times = [-29.9 + number * interval for number in range(round(60 / interval) + 1)]
    ticks = [at(time, time, glitch if -1.8 <= time < -0.2 else used(time), interval=interval) for time in times]
    for cells in kept(ticks).values():
        joules, seconds = map(sum, zip(*cells.values(), strict=True))
        assert joules == pytest.approx(used(times[-1]) - used(times[0]), rel=0.01)
        assert seconds == pytest.approx(60, abs=0.01)


def test_an_energy_counter_that_starts_over_loses_one_interval() -> None:
    ticks = [at(second, second, used(second) - (9e6 if second >= 5 else 0)) for second in range(-30, 31)]
    for cells in kept(ticks).values():
        joules, seconds = map(sum, zip(*cells.values(), strict=True))
        assert (joules, seconds) == pytest.approx((used(30) - used(-30) - 200, 59), abs=1)
