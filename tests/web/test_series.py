"""The one function that figures ask for a window, and what they draw behind it."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from gpumon.history.recent import History
from gpumon_web.series import columns
from tests.builders import TIME, device, sample, tick
from tests.web.served import Served

NAME = "gpu.utilization"
BEGIN = TIME / 1e9


def history(values: list[float]) -> History:
    served = Served([tick(number, [sample(0, utilization=value)]) for number, value in enumerate(values, 1)])
    served.feed.refresh()
    return served.feed.history


def test_a_short_window_is_given_as_it_is() -> None:
    found = columns(history([0.1, 0.2, math.nan, 0.4]), device().uuid, [NAME], BEGIN + 2, BEGIN + 4)
    assert found.times == [BEGIN + 2, BEGIN + 3, BEGIN + 4]
    assert found.values[0][0] == 0.2
    assert math.isnan(found.values[0][1])


def test_a_stall_of_one_sample_is_seen_in_any_window() -> None:
    values = [0.9] * 500
    values[333] = 0.0
    found = columns(history(values), device().uuid, [NAME], BEGIN, BEGIN + 1000, 40)
    assert len(found.times) <= 40
    assert min(found.values[0]) == 0.0
    assert max(found.values[0]) == 0.9


@given(
    st.lists(st.one_of(st.floats(0, 1), st.just(math.nan)), min_size=1, max_size=300), st.integers(2, 60),
    st.integers(0, 310), st.integers(0, 310),
)  # fmt: skip
def test_no_window_has_more_points_than_asked_or_values_that_were_not_there(
    values: list[float], points: int, a: int, b: int
) -> None:
    past = History()
    for number, value in enumerate(values):
        past.times.append(float(number))
        past._columns.setdefault("x", {}).setdefault(NAME, past.times[:0]).append(value)
    found = columns(past, "x", [NAME], float(a), float(b), points)
    assert len(found.times) == len(found.values[0]) <= points
    assert found.times == sorted(found.times)
    inside = [value for number, value in enumerate(values) if a <= number <= b and value == value]
    known = [value for value in found.values[0] if value == value]
    assert set(known) <= set(inside)
    assert max(known, default=0) == max(inside, default=0)
    assert min(known, default=0) == min(inside, default=0)


def test_an_unknown_device_is_a_gap_and_an_empty_window_is_empty() -> None:
    past = history([0.1, 0.2])
    assert all(math.isnan(value) for value in columns(past, "GPU-x", [NAME], 0, BEGIN + 9).values[0])
    assert columns(past, device().uuid, [NAME], BEGIN + 9, BEGIN).times == []
