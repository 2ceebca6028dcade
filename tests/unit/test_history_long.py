"""The last frames with tiers behind them: who answers which stretch of a window, and how they are joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, inf, nan
from typing import NamedTuple

import pytest

from gpumon.storage.history.buckets import Grid, aligned
from gpumon.storage.history.envelope import Envelope, downsample
from gpumon.storage.history.query import Query, Series
from gpumon.storage.history.tiered_history import TieredHistory
from tests.builders import TIME, device, frame_of, sample, tick

NAME = "gpu.utilization"
GPU = device().uuid
NOW = TIME / 1e9 // 600 * 600


class FakeTier(NamedTuple):
    """Every cell from `begin` to `end` has the same value."""

    step: float
    begin: float
    end: float
    value: float
    since: Sequence[float] = ()
    """What it knows begins there, if it is told, whatever its reach."""

    def has(self, subject: str, metric: str) -> bool:
        return (subject, metric) == (GPU, NAME)

    def seconds(self, query: Query, begin: float, end: float) -> Sequence[float]:
        cells = range(floor(begin / self.step), ceil(end / self.step))
        return [max(0.0, min((number + 1) * self.step, self.end) - max(number * self.step, self.begin, *self.since))
                for number in cells]  # fmt: skip

    def query(self, query: Query) -> Mapping[str, Series]:
        assert query.grid is not None
        assert self.begin <= query.begin < query.end <= self.end
        times = [query.begin + (n + 0.5) * self.step for n in range(int((query.end - query.begin) / self.step))]
        line = [self.value] * len(times)
        return {NAME: downsample(times, [Envelope(line, line, line)], query.grid)[0]}


def filled(*tiers: FakeTier, seconds: int = 60) -> TieredHistory:
    """Frames of the last `seconds`, all 0.9."""
    history = TieredHistory(tiers)
    for second in range(seconds):
        time_ns = round((NOW - seconds + 1 + second) * 1e9)
        history.add(frame_of(tick(second + 1, samples=(sample(0, utilization=0.9),))._replace(time_ns=time_ns)))
    return history


def asked(history: TieredHistory, seconds: float, points: int = 2000) -> Series:
    return history.query(Query(GPU, (NAME,), NOW - seconds, NOW, points))[NAME]


TENTHS = FakeTier(10.0, NOW - 86400, NOW - 600, 0.5)
MINUTES = FakeTier(300.0, NOW - 31 * 86400, NOW - 21600, 0.25)


def test_without_tiers_it_answers_as_the_last_frames_do() -> None:
    history = filled()
    assert history.begin == history.first_frame == NOW - 59
    assert asked(history, 30).mean == [0.9] * 31
    assert asked(history, 3000).times[0] == NOW - 59


def test_what_lies_before_the_frames_comes_from_the_tiers_and_a_hole_stays_a_hole() -> None:
    history = filled(TENTHS, MINUTES)
    assert history.begin == MINUTES.begin
    series = asked(history, 7200)
    assert series.step == 10
    found = dict(zip(series.times, series.mean, strict=True))
    assert {value for time, value in found.items() if time < NOW - 600} == {0.5}
    assert {value for time, value in found.items() if time > NOW - 50} == {0.9}
    assert all(value != value for time, value in found.items() if NOW - 595 < time < NOW - 65)


def test_a_long_window_reads_the_coarse_tier_and_the_fine_one_only_where_that_has_nothing() -> None:
    series = asked(filled(TENTHS, MINUTES), 7 * 86400)
    assert series.step % 300 == 0
    found = dict(zip(series.times, series.mean, strict=True))
    assert {value for time, value in found.items() if time < NOW - 22000} == {0.25}
    assert {value for time, value in found.items() if NOW - 21000 < time < NOW - 1200} == {0.5}


def test_the_cell_in_which_a_daemon_began_and_was_killed_tells_nothing_of_the_time_around() -> None:
    """It ran for 71 s and was gone for three minutes: a line of five minutes would say that it watched all along."""
    killed = NOW - 243
    seconds = FakeTier(1.0, killed - 71, killed, 0.5)
    tens = FakeTier(10.0, killed // 10 * 10 - 70, killed // 10 * 10 + 10, 0.5)
    fives = FakeTier(300.0, NOW - 600, NOW, 0.5)
    history = filled(seconds, tens, fives)
    series = asked(history, 600, 400)
    assert series.step <= 10
    found = dict(zip(series.times, series.mean, strict=True))
    assert all(value != value for time, value in found.items() if time < killed - 72 or killed + 1 < time < NOW - 61)
    assert {value for time, value in found.items() if killed - 70 < time < killed - 1} == {0.5}
    assert sorted(series.times) == list(series.times)
    assert not asked(history, 86400, 400).coarse, "nobody is told of means of five minutes"
    assert history.begin == seconds.begin, "what lies before is before all that is kept, and no gap in it"


def test_a_coarse_tier_that_reaches_over_an_outage_of_days_says_nothing_of_the_minutes_after_it() -> None:
    """It knows weeks up to a day ago, and of its newest cell the 60 s that the frames have, too."""
    fives = FakeTier(300.0, NOW - 31 * 86400, NOW, 0.25, since=[NOW - 60])
    series = asked(filled(FakeTier(1.0, NOW - 60, NOW - 30, 0.5), fives), 600, 400)
    assert series.step < 10
    found = dict(zip(series.times, series.mean, strict=True))
    assert min(found) < NOW - 590, "the minutes that nobody watched are a gap of the line"
    assert all(value != value for time, value in found.items() if time < NOW - 62)
    assert {value for time, value in found.items() if NOW - 58 < time < NOW - 1} == {0.9}


def test_coarse_cells_of_an_older_past_make_no_coarse_cells_of_what_finer_ones_know() -> None:
    """A daemon of half an hour, with an outage of half a minute, behind the five-minute cells of an earlier one."""
    began, down = NOW - 1800, NOW - 900
    before = FakeTier(10.0, began, down - 30, 0.5)
    after = FakeTier(1.0, down, NOW - 30, 0.5)
    fives = FakeTier(300.0, NOW - 31 * 86400, began, 0.25)
    series = asked(filled(after, before, fives), 3600, 400)
    assert series.step == 10
    found = dict(zip(series.times, series.mean, strict=True))
    assert {value for time, value in found.items() if began - 1600 < time < began - 300} == {0.25}
    assert all(value != value for time, value in found.items() if down - 28 < time < down), "the outage is a gap"
    assert {value for time, value in found.items() if began < time < down - 40} == {0.5}
    assert series.coarse == [(NOW - 3600, began, 300.0)], "and the answer says where less is kept"


def test_where_finer_cells_are_a_short_piece_of_a_window_the_coarse_ones_decide() -> None:
    series = asked(filled(FakeTier(300.0, NOW - 31 * 86400, NOW - 60, 0.25)), 3600, 400)
    assert (series.step, series.coarse) == (300, [])


def test_cells_hardly_longer_than_the_buckets_that_are_asked_for_stay_whole() -> None:
    seconds = FakeTier(1.0, NOW - 4200, NOW - 30, 0.5)
    series = asked(filled(seconds, TENTHS._replace(end=NOW - 4200.0)), 7200, 1200)
    assert (series.step, series.coarse) == (10, [])


def test_minutes_before_the_frames_that_no_tier_reaches_are_a_gap_too() -> None:
    series = asked(filled(FakeTier(300.0, NOW - 31 * 86400, NOW - 86400, 0.25)), 600, 400)
    assert min(series.times) < NOW - 590
    assert [value for value in series.mean if value == value].count(0.9) >= 20


def test_a_coarse_cell_that_knows_more_than_the_frames_in_it_is_shown() -> None:
    fives = FakeTier(300.0, NOW - 31 * 86400, NOW, 0.25)
    series = asked(filled(fives), 1200, 400)
    found = dict(zip(series.times, series.mean, strict=True))
    assert {value for time, value in found.items() if NOW - 890 < time < NOW - 310} == {0.25}


def test_zooming_in_brings_the_finest_cells_that_reach_so_far() -> None:
    history = filled(TENTHS, MINUTES)
    fine = history.query(Query(GPU, (NAME,), NOW - 30000, NOW - 29000))[NAME]
    assert (fine.step, set(fine.mean[:-1])) == (10, {0.5})
    coarse = history.query(Query(GPU, (NAME,), NOW - 300000, NOW - 298800))[NAME]
    assert (coarse.step, set(coarse.mean[:-1])) == (300, {0.25})


def test_a_bucket_that_two_share_is_weighted_by_time_and_has_the_extremes_of_both() -> None:
    tier = FakeTier(10.0, NOW - 86400, NOW - 450, 0.5)
    older = FakeTier(300.0, NOW - 31 * 86400, NOW - 86400, 0.25)
    history = filled(tier, older, seconds=451)
    grid = Grid(int(NOW // 600) - 1, 600.0, 1)
    found = history.query(Query(GPU, (NAME,), grid.begin, NOW, grid=grid))[NAME]
    assert (found.low, found.high) == ([0.5], [0.9])
    assert found.mean == [pytest.approx((150 * 0.5 + 450 * 0.9) / 600, abs=0.01)]


def test_a_metric_that_only_a_tier_has_is_known() -> None:
    assert TieredHistory([TENTHS]).has(GPU, NAME)
    assert not TieredHistory([TENTHS]).has(GPU, "gpu.power")


def test_peak_of_a_window_longer_than_the_frames_asks_the_tiers() -> None:
    history = filled(FakeTier(10.0, NOW - 86400, NOW - 60, 0.95))
    assert history.peak(GPU, NAME, NOW - 30, NOW) == 0.9
    assert history.peak(GPU, NAME, NOW - 3000, NOW) == 0.95


def test_a_copy_for_another_thread_keeps_the_tiers() -> None:
    history = filled(TENTHS).whole(GPU)
    assert history.begin == TENTHS.begin
    assert asked(history, 7200).mean[0] == 0.5


@pytest.mark.parametrize("span", [10.0, 3600.0, 86400.0, 31 * 86400.0])
@pytest.mark.parametrize("points", [1, 7, 400, 2000])
def test_buckets_hold_whole_cells_and_are_no_more_than_asked(span: float, points: int) -> None:
    grid = aligned(NOW - span, NOW, points, [10.0, 300.0])
    assert grid.step % 300 == 0
    assert grid.buckets <= points
    assert grid.begin <= NOW - span
    assert grid.at(NOW) < grid.buckets


def test_nothing_known_is_nothing() -> None:
    history = TieredHistory([FakeTier(10.0, nan, nan, 0.5)])
    assert history.begin != history.begin
    assert list(asked(history, 60).mean) == []


def test_a_window_without_an_end_is_up_to_the_newest_frame() -> None:
    history = filled(TENTHS)
    found = history.query(Query(GPU, (NAME,), NOW - 7200, inf))[NAME]
    assert found.times[-1] == pytest.approx(NOW, abs=10)
    grid = Grid(int(NOW // 60) - 120, 60.0, 121)
    assert len(history.query(Query(GPU, (NAME,), grid.begin, inf, grid=grid))[NAME].mean) == 121
    assert TieredHistory([TENTHS]).query(Query(GPU, (NAME,), NOW - 7200, inf))[NAME].times[-1] < NOW - 590
