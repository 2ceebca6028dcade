"""Growth of counters in a cell, where one of them is not known for a while."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, nan

import pytest

from gpumon.history.counting import Counting, Grown


def cells(first: Sequence[float], second: Sequence[float]) -> list[Grown]:
    """The growth in four seconds of two counters that are read every 0.25 s."""
    counting, found = Counting(2), []
    for number, values in enumerate(zip(first, second, strict=True)):
        time = 100.1 + number / 4
        counting.add(time, values, 1, 1.0)
        if number and number % 4 == 0:
            found.append(counting.closed(int(time) - 1))
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
