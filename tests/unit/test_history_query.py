"""What every chart asks of history: the one downsampler, and how the last frames answer."""

from __future__ import annotations

from itertools import pairwise
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.model.metrics import Availability
from gpumon.storage.history.buckets import LENGTHS, Grid, aligned
from gpumon.storage.history.envelope import Envelope, downsample
from gpumon.storage.history.query import MAX_POINTS, Query, Series
from gpumon.storage.history.recent import RecentHistory
from tests.builders import TIME, device, frame_of, sample, tick

NAME = "gpu.utilization"
BEGIN = TIME / 1e9
GPU = device().uuid

VALUES = st.one_of(st.floats(0, 1), st.just(nan))
SAMPLES = st.lists(st.tuples(st.floats(0.05, 9), VALUES), min_size=1, max_size=200)
"""Seconds since the sample before, and the value."""


def rows(samples: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Times and values, from `BEGIN`."""
    times, at = [], BEGIN
    for gap, _ in samples:
        at += gap
        times.append(at)
    return times, [value for _, value in samples]


def line(times: list[float], values: list[float], grid: Grid, hold: float = inf) -> Series:
    return downsample(times, [Envelope(values, values, values)], grid, hold=hold)[0]


def known(values: object) -> list[float]:
    return [value for value in values if value == value]  # type: ignore[attr-defined]


@given(st.floats(0, 2e9), st.floats(0, 1e7), st.integers(1, MAX_POINTS))
def test_buckets_are_aligned_to_absolute_time_and_no_more_than_asked(begin: float, span: float, points: int) -> None:
    grid = aligned(begin, begin + span, points)
    assert grid.buckets <= points
    assert grid.phase == 0
    assert grid.begin == grid.first * grid.step
    assert grid.at(begin) >= 0
    assert grid.at(begin + span) < grid.buckets


@given(st.floats(1e9, 2e9), st.floats(100, 1e6), st.integers(50, MAX_POINTS))
def test_buckets_are_no_longer_than_half_as_long_again_as_the_points_need(
    begin: float, span: float, points: int
) -> None:
    least = max(span / (points - 1), LENGTHS[0])
    assert aligned(begin, begin + span, points).step <= 2.01 * least


@given(SAMPLES, st.integers(1, 60))
def test_low_is_at_most_mean_is_at_most_high_and_no_extreme_is_lost(
    samples: list[tuple[float, float]], points: int
) -> None:
    times, values = rows(samples)
    found = line(times, values, aligned(times[0], times[-1], points))
    for low, mean, high in zip(found.low, found.mean, found.high, strict=True):
        assert low <= mean <= high or (low != low and mean != mean and high != high)
    assert min(known(found.low), default=0) == min(known(values), default=0)
    assert max(known(found.high), default=0) == max(known(values), default=0)
    assert set(known([*found.low, *found.high])) <= set(values)


@given(SAMPLES, st.integers(1, 60))
def test_each_bucket_has_the_extremes_of_its_own_samples(samples: list[tuple[float, float]], points: int) -> None:
    times, values = rows(samples)
    grid = aligned(times[0], times[-1], points)
    found = line(times, values, grid, hold=0)
    for place in range(grid.buckets):
        inside = known(value for time, value in zip(times, values, strict=True) if grid.at(time) == place)
        assert (found.low[place] == min(inside)) if inside else (found.low[place] != found.low[place])
        assert (found.high[place] == max(inside)) if inside else (found.high[place] != found.high[place])


@given(SAMPLES, st.floats(0.1, 20), st.integers(1, 200), st.integers(0, 200))
def test_the_same_samples_give_the_same_buckets_whatever_begin_and_end(
    samples: list[tuple[float, float]], step: float, shown: int, later: int
) -> None:
    times, values = rows(samples)
    whole = Grid(int(times[0] / step) - 1, step, int((times[-1] - times[0]) / step) + 3)
    part = whole._replace(first=whole.first + later % whole.buckets, buckets=1 + shown % whole.buckets)
    everything = line(times, values, whole)
    until = next((place for place, time in enumerate(times) if time > part.end), len(times))
    found = line(times[: until + 1], values[: until + 1], part)
    for place in range(min(part.buckets, whole.buckets - (part.first - whole.first))):
        other = part.first - whole.first + place
        assert repr([column[place] for column in found[:4]]) == repr([column[other] for column in everything[:4]])


@given(SAMPLES, st.floats(0.1, 5), st.floats(0, 9))
def test_a_gap_is_never_bridged(samples: list[tuple[float, float]], step: float, hold: float) -> None:
    times, values = rows(samples)
    grid = Grid(int(times[0] / step), step, int((times[-1] - times[0]) / step) + 2)
    found = line(times, values, grid, hold=hold)
    edges = grid.edges()
    for place, value in enumerate(found.mean):
        begin, end = edges[place], edges[place + 1]
        near = [(time, one) for time, one in zip(times, values, strict=True) if begin - hold - 1e-3 <= time < end]
        assert value != value or known(one for _, one in near)
    for (time, value), (after, _) in pairwise(zip(times, values, strict=True)):
        between = [
            one for one, begin, end in zip(found.mean, edges, edges[1:], strict=False) if time < begin and end <= after
        ]
        assert not known(between) if value != value or after - time > hold else between == [value] * len(between)


def test_a_sample_stands_for_buckets_shorter_than_the_time_to_the_next_one_but_not_before_a_pause() -> None:
    times, values = [0.0, 1.0, 2.0, 12.0, 22.0], [1.0, 2.0, 3.0, nan, 4.0]
    one = Envelope(values, values, values)
    (found,) = downsample(times, [one], Grid(0, 0.5, 46), pauses={12.0})
    assert found.mean[:5] == [1, 1, 2, 2, 3]
    assert not known(found.mean[5:44])
    assert found.mean[44] == 4
    (later,) = downsample(times, [one], Grid(3, 0.5, 2))
    assert later.mean == [2, 3], "also where it is older than the first bucket"


@given(SAMPLES, st.integers(1, 60))
def test_samples_and_points_made_of_one_sample_each_give_the_same(
    samples: list[tuple[float, float]], points: int
) -> None:
    times, values = rows(samples)
    grid = aligned(times[0], times[-1], points)
    (found,) = downsample(times, [Envelope(values[:], values[:], values[:])], grid)
    assert repr(found) == repr(line(times, values, grid))


def test_extremes_that_are_infinite_stay() -> None:
    low, mean, high = [0.0, -inf, 0.0], [1.0, nan, 2.0], [3.0, inf, 4.0]
    (found,) = downsample([0.5, 1.5, 2.5], [Envelope(low, mean, high)], Grid(0, 3.0, 1))
    assert (found.low, found.mean, found.high) == ([-inf], [1.5], [inf])


def history(values: list[float]) -> RecentHistory:
    past = RecentHistory()
    for number, value in enumerate(values, 1):
        past.add(frame_of(tick(number, [sample(0, utilization=value)])))
    return past


def asked(past: RecentHistory, begin: float, end: float, points: int = MAX_POINTS, subject: str = GPU) -> Series:
    return past.query(Query(subject, (NAME,), begin, end, points))[NAME]


def test_a_short_window_is_given_as_it_is() -> None:
    found = asked(history([0.1, 0.2, nan, 0.4]), BEGIN + 2, BEGIN + 4)
    assert found.times == [BEGIN + 2, BEGIN + 3, BEGIN + 4]
    assert found.step == 0
    assert found.low == found.mean == found.high
    assert found.mean[0] == 0.2
    assert found.mean[1] != found.mean[1]


def test_a_stall_of_one_sample_is_seen_in_any_window() -> None:
    values = [0.9] * 500
    values[333] = 0.0
    found = asked(history(values), BEGIN, BEGIN + 1000, 40)
    assert len(found.times) <= 40
    assert min(found.low) == 0.0
    assert max(found.high) == 0.9


@given(st.lists(VALUES, min_size=1, max_size=100), st.integers(1, 60), st.integers(0, 110), st.integers(0, 110))
def test_no_window_has_more_points_than_asked_or_values_that_were_not_there(
    values: list[float], points: int, a: int, b: int
) -> None:
    found = asked(history(values), BEGIN + a, BEGIN + b, points)
    assert len(found.times) == len(found.low) == len(found.mean) == len(found.high) <= points
    assert list(found.times) == sorted(found.times)
    inside = known(value for number, value in enumerate(values, 1) if a <= number <= b)
    assert set(known([*found.low, *found.high])) <= set(inside)
    assert max(known(found.high), default=0) == max(inside, default=0)
    assert min(known(found.low), default=0) == min(inside, default=0)


def test_a_window_that_moves_on_keeps_its_buckets() -> None:
    past = history([number % 7 / 7 for number in range(1000)])
    early, late = asked(past, BEGIN + 100, BEGIN + 900, 100), asked(past, BEGIN + 111, BEGIN + 911, 100)
    assert early.step == late.step > 0
    before = {one[0]: one for one in zip(*early[:4], strict=True)}
    shared = [one for one in zip(*late[:4], strict=True) if one[0] in before][1:-1]
    assert len(shared) > 50
    assert all(before[one[0]] == one for one in shared[:-2])


def test_an_unknown_device_is_a_gap_and_an_empty_window_is_empty() -> None:
    past = history([0.1, 0.2])
    assert not known(asked(past, 0, BEGIN + 9, subject="GPU-x").mean)
    assert asked(past, BEGIN + 9, BEGIN).times == []
    assert asked(RecentHistory(), 0, BEGIN).times == []
    grid = Grid(0, 1.0, 3)
    assert not known(RecentHistory().query(Query(GPU, (NAME,), 0, 3, grid=grid))[NAME].mean)


def paused(*seconds: float, interval: float = 1.0) -> RecentHistory:
    past = RecentHistory()
    for number, at in enumerate(seconds, 1):
        one = tick(number, [sample(0, utilization=0.5)])._replace(
            monotonic_ns=round(at * 1e9), time_ns=TIME + round(at * 1e9), interval_ns=round(interval * 1e9)
        )
        past.add(frame_of(one))
    return past


def everything(past: RecentHistory) -> Series:
    return asked(past, 0, BEGIN + 1e6)


def test_a_pause_of_the_daemon_is_a_gap_in_every_column() -> None:
    found = asked(paused(1, 2, 3, 22, 23), BEGIN, BEGIN + 99)
    assert [time - BEGIN for time in found.times] == [1, 2, 3, 12.5, 22, 23]
    assert [value == value for value in found.mean] == [True, True, True, False, True, True]


def test_a_late_sample_is_no_gap() -> None:
    assert all(value == value for value in everything(paused(1, 2, 3, 5.5, 6.5)).mean)


def test_a_recording_that_plays_faster_than_it_is_sampled_has_no_gap_between_its_samples() -> None:
    """Played at ×20 a frame is planned each 0.1 s, and each tick of the log is a second of its own time."""
    past = paused(*range(1, 60), interval=0.1)
    assert [value == value for value in everything(past).mean].count(False) == 1  # before it is known


def test_a_pause_stays_a_gap_where_several_samples_are_one_point() -> None:
    found = asked(paused(*range(1, 300), *range(400, 650)), BEGIN, BEGIN + 2000, 100)
    assert len(found.times) <= 100
    for time, value in zip(found.times, found.mean, strict=True):
        begin, end = time - found.step / 2 - BEGIN, time + found.step / 2 - BEGIN
        if begin > 299 and end <= 400:
            assert value != value
        elif (end > 1 and begin < 299) or 400 <= begin < 649:
            assert value == 0.5


def test_the_last_known_values_of_a_gpu_that_does_not_answer_are_no_part_of_its_line() -> None:
    states = [Availability.OK] * 3 + [Availability.STALE] * 3 + [Availability.OK]
    past = RecentHistory()
    for at, state in enumerate(states, 1):
        past.add(frame_of(tick(at, [sample(0, state, utilization=0.5)])))
    assert [value == value for value in everything(past).mean] == [state is Availability.OK for state in states]


@pytest.mark.parametrize("length", LENGTHS)
def test_lengths_divide_a_day_or_are_multiples_of_one_that_does(length: float) -> None:
    assert 86400 / length == pytest.approx(round(86400 / length))
