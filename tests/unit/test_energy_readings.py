"""Readings of an energy counter that are missing or wrong: all who sum energy up come to the same joules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nan

import pytest

from gpumon.analysis.holders import HolderWatch
from gpumon.common.clock import SECOND
from gpumon.launcher.summary import CommandCost
from gpumon.model.energy import EnergyGrowth, EnergyReadings
from gpumon.model.frame import Tick
from gpumon.model.metrics import GPU_INDEX, Availability
from gpumon.storage.history.tier_aggregator import Aggregator, Block, values_from_tick
from gpumon.storage.history.tiers import SHAPES
from gpumon.storage.usage.account import USER_COLUMNS
from gpumon.storage.usage.hours import AccountBook
from tests.builders import device, frame_of, process, sample
from tests.unit.test_ledger_recorder import Memory, keep, on, one_epoch, spread

ENERGY = GPU_INDEX["gpu.energy"]
LAST = 70
BEGIN, END = 2.0, 66.0


def used(time: float) -> float:
    """Joules up to a second: 300 W, and 500 W from second 30 on."""
    return 9e6 + 300.0 * time + 200.0 * max(0.0, time - 30.0)


def ticks(fault: Callable[[int], float | Availability | None]) -> list[Tick]:
    """A tick each second from the first on; `fault` gives what the counter or the GPU answers, None if it is well."""
    found = []
    for number in range(1, LAST + 1):
        answer = fault(number)
        one = on(number, energy=used(number), power=300.0, power_limit=700.0, throttled_sw_power=0.25 * number)
        if isinstance(answer, Availability):
            one = one._replace(samples=[sample(0, answer)])
        elif answer is not None:
            one = on(number, energy=answer, power=300.0, power_limit=700.0, throttled_sw_power=0.25 * number)
        found.append(one._replace(processes=[process()]))
    return found


def of_accounts(all_ticks: Sequence[Tick]) -> float:
    book, watch = AccountBook(lambda begin, end: ((0, (end - begin) / SECOND),)), HolderWatch()
    for one in all_ticks:
        book.add(one, watch.judged(one))
    return sum(account[USER_COLUMNS.index("energy")] for account in book.users.values())


def of_totals(all_ticks: Sequence[Tick]) -> float:
    blocks: list[Block] = []
    aggregator = Aggregator(blocks.append)
    for one in all_ticks:
        aggregator.add(values_from_tick(one))
    aggregator.finish()
    joules = 0.0
    for block in blocks:
        if block.subject == device(0).uuid and block.shape is SHAPES[0]:
            for cell in block.cells.values():
                seconds = cell.seconds[ENERGY]
                joules += cell.mean[ENERGY] * seconds if seconds else 0.0
    return joules


def of_a_command(all_ticks: Sequence[Tick]) -> float:
    cost = CommandCost(0, lambda pid: True, lambda run: True)
    for number, one in enumerate(all_ticks, 1):
        cost.add(frame_of(one, number))
    return cost.uses[device(0).uuid].energy


def of_an_epoch(all_ticks: Sequence[Tick]) -> float:
    ledger = Memory()
    keep(ledger, spread(all_ticks, one_epoch(BEGIN, END)))
    assert ledger.usage(-1)["energy"] == pytest.approx(used(END + 1) - used(1.0))
    return float(ledger.usage(0)["energy"])


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda number: None, id="none"),
        pytest.param(lambda number: nan if number == 20 else None, id="once missing"),
        pytest.param(lambda number: nan if (number - 1) % 3 else None, id="two of three missing"),
        pytest.param(lambda number: nan if (number - 1) % 10 else None, id="each ten seconds"),
        pytest.param(lambda number: used((number - 1) // 10 * 10 + 1), id="renewed each ten seconds"),
        pytest.param(lambda number: Availability.LOST if number == 20 else None, id="lost for a tick"),
        pytest.param(lambda number: Availability.STALE if 40 <= number < 50 else None, id="late for ten seconds"),
        pytest.param(lambda number: 0.0 if number % 25 > 15 else None, id="zero for ten seconds"),
        pytest.param(lambda number: 2.0**52 if number % 20 == 9 else None, id="garbage"),
    ],
)
def test_a_reading_that_is_missing_is_told_by_the_next(fault: Callable[[int], float | Availability | None]) -> None:
    all_ticks = ticks(fault)
    # What lies before the first reading or behind the last one is of no sum.
    begin, *_, until = (n for n in range(1, LAST + 1) if fault(n) is None or fault(n) == used(n))
    everything = pytest.approx(used(until) - used(begin), rel=1e-4)
    assert of_totals(all_ticks) == everything
    assert of_accounts(all_ticks) == everything
    assert of_a_command(all_ticks) == everything


@pytest.mark.parametrize("missing", [nan, 0.0])
def test_beyond_fifteen_seconds_it_is_unknown_when_energy_was_used(missing: float) -> None:
    all_ticks = ticks(lambda number: missing if 10 <= number < 30 else None)
    known = used(LAST) - used(1) - (used(30) - used(9))
    assert of_totals(all_ticks) == pytest.approx(known, rel=1e-4)
    assert of_a_command(all_ticks) == pytest.approx(known, rel=1e-4)
    assert of_accounts(all_ticks) == pytest.approx(known + 300.0 * 21, rel=1e-4), "power tells it"
    assert of_an_epoch(all_ticks) == pytest.approx(used(END) - used(BEGIN), rel=1e-4), "no border lies within"


@pytest.mark.parametrize("gap", [10, 20])
def test_an_epoch_with_a_border_in_a_long_gap_of_readings_says_what_is_surely_its_own(gap: int) -> None:
    ledger = Memory()
    keep(
        ledger, spread(ticks(lambda number: nan if 60 <= number < 60 + gap else None)[: 66 + gap], one_epoch(2.0, 65.0))
    )
    usage = ledger.usage(0)
    if gap == 10:
        assert usage["energy"] == pytest.approx(used(65.0) - used(2.0))
    else:
        assert "energy" not in usage
        assert usage["energy_least"] == pytest.approx(used(59.0) - used(2.0))


@pytest.mark.parametrize("more", [0.0, 200.0])
def test_power_that_changes_at_a_border_between_ticks_of_five_seconds_is_not_taken_for_even(more: float) -> None:
    """An epoch of 12 s ends at 32 s, when the card begins to draw `more` watts."""
    every = [on(second, energy=9e6 + 300.0 * second + more * max(0, second - 32)) for second in range(0, 71, 5)]
    every = [one._replace(interval_ns=5 * SECOND) for one in every]
    ledger = Memory()
    keep(ledger, spread(every, one_epoch(20.0, 32.0)))
    usage = ledger.usage(0)
    assert ("energy" in usage) == (not more)
    assert usage["energy_least"] == pytest.approx(300.0 * (10.0 if more else 12.0))


def test_a_counter_that_starts_over_is_believed_once_it_goes_on() -> None:
    readings, found = EnergyReadings(second=1.0), list[EnergyGrowth]()
    for second in range(20):
        found += readings.add(second, used(second) if second < 10 else 300.0 * (second - 10), 700.0)
    assert sum(one.joules for one in found if one.joules == one.joules) == pytest.approx(300.0 * 18)
    assert [one.end for one in found if one.joules != one.joules] == [0, 10]
