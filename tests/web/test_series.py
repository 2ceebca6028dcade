"""The one function that figures ask for a window, and what they draw behind it."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from gpumon.history.recent import History
from gpumon.metrics import Availability
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


def paused(*seconds: float, interval: float = 1.0) -> History:
    served = Served(
        tick(1, [sample(0, utilization=0.5)])._replace(
            monotonic=round(at * 1e9), time=TIME + round(at * 1e9), interval=round(interval * 1e9)
        )
        for at in seconds
    )
    served.feed.refresh()
    return served.feed.history


def test_a_pause_of_the_daemon_is_a_gap_in_every_column() -> None:
    found = columns(paused(1, 2, 3, 22, 23), device().uuid, [NAME], BEGIN, BEGIN + 99)
    assert [time - BEGIN for time in found.times] == [1, 2, 3, 12.5, 22, 23]
    assert [value == value for value in found.values[0]] == [True, True, True, False, True, True]


def test_a_late_sample_is_no_gap() -> None:
    past = paused(1, 2, 3, 5.5, 6.5)
    assert all(value == value for value in past.values(device().uuid, NAME))


def test_a_recording_that_plays_faster_than_it_is_sampled_has_no_gap_between_its_samples() -> None:
    """Played at ×20 a frame is planned each 0.1 s, and each tick of the log is a second of its own time."""
    past = paused(*range(1, 60), interval=0.1)
    assert [value == value for value in past.values(device().uuid, NAME)].count(False) == 1  # before it is known


def test_a_pause_stays_a_gap_where_several_samples_are_one_point() -> None:
    times = [*range(1, 300), *range(400, 650)]
    found = columns(paused(*times), device().uuid, [NAME], BEGIN, BEGIN + 2000, 100)
    assert len(found.times) <= 100
    before = [place for place, time in enumerate(found.times) if time <= BEGIN + 299][-1]
    assert found.values[0][before] == 0.5
    assert math.isnan(found.values[0][before + 1])


def test_the_last_known_values_of_a_gpu_that_does_not_answer_are_no_part_of_its_line() -> None:
    states = [Availability.OK] * 3 + [Availability.STALE] * 3 + [Availability.OK]
    served = Served(tick(at, [sample(0, state, utilization=0.5)]) for at, state in enumerate(states, 1))
    served.feed.refresh()
    values = served.feed.history.values(device().uuid, NAME)
    assert [value == value for value in values] == [state is Availability.OK for state in states]
