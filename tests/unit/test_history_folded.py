"""Frames that are too old to be kept one by one: nothing that was seen of them is lost from sight or made up."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, takewhile
from math import floor, inf, isnan
from random import Random
from statistics import fmean

import pytest

from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.folded_frames import FoldedFrames
from gpumon.storage.history.query import Query, Series
from gpumon.storage.history.tiered_history import TieredHistory
from tests.builders import TIME, device, frame_of, sample, tick

NAME = "gpu.utilization"
GPU = device().uuid
BEGAN = TIME / 1e9 // 3600 * 3600
STALL = 97
"""Seconds from one stall, of a tenth of a second, to the next."""


def played(times: Iterator[float], keep: int, *, interval: float = 0.1) -> TieredHistory:
    """A history to which a recording was played: a GPU works, and stalls for a moment now and then."""
    history = TieredHistory(keep=keep)
    for number, time in enumerate(times, 1):
        busy = 0.0 if round(10 * (time - BEGAN)) % (10 * STALL) == 35 else 0.9
        moment = {"time_ns": round(time * 1e9), "monotonic_ns": round((time - BEGAN) * 1e9)}
        history.add(frame_of(tick(number, (sample(0, utilization=busy),), interval_ns=round(interval * 1e9), **moment)))
    return history


def tenths(seconds: float, without: tuple[float, float] = (inf, inf)) -> Iterator[float]:
    """Ten times a second, but for a stretch."""
    times = takewhile(lambda time: time < BEGAN + seconds, (BEGAN + place / 10 for place in count()))
    return (time for time in times if not without[0] <= time - BEGAN < without[1])


def asked(history: TieredHistory, step: float, seconds: float, begin: float = 0.0) -> Series:
    grid = Grid(floor((BEGAN + begin) / step), step, round((seconds - begin) / step))
    return history.query(Query(GPU, (NAME,), grid.begin, grid.end, grid=grid))[NAME]


def test_a_recording_of_ten_frames_a_second_is_seen_whole() -> None:
    history = played(tenths(900), keep=600)
    assert history.begin == BEGAN
    assert history.first_frame > BEGAN + 800, "few are kept one by one"
    found = asked(history, 5, 900)
    stalls = {floor((3.5 + place * STALL) / 5) for place in range(10) if 3.5 + place * STALL < 900}
    assert {place for place, low in enumerate(found.low) if low == 0} == stalls
    assert all(high == pytest.approx(0.9) for high in found.high), "no gap, not where the one ends and the other begins"
    for place, mean in enumerate(found.mean):
        assert mean == pytest.approx(0.9 * 49 / 50 if place in stalls else 0.9)
    fine = asked(history, 0.5, 900, begin=700)
    assert not any(map(isnan, fine.mean)), "also where columns are finer than cells"


def test_a_pause_stays_a_gap() -> None:
    history = played(tenths(600, without=(100, 160)), keep=300)
    found = asked(history, 10, 600)
    assert [place for place, mean in enumerate(found.mean) if isnan(mean)] == [10, 11, 12, 13, 14, 15]


def test_cells_get_longer_and_stay_few() -> None:
    cells, random, begin = FoldedFrames(max_cells=40), Random(3), BEGAN + 7
    times = [begin + place / 10 for place in range(7000)]
    values = [random.random() for _ in times]
    first = 0
    for last in range(300, 7000, 300):
        rows = slice(first, last)
        first += max(0, cells.add(times[rows], {GPU: {NAME: values[rows]}}, ()) - 1)
        assert (cells.end - cells.begin) / cells.step <= 41
    assert cells.step == 20
    grid = Grid(floor(cells.begin / 20), 20, 34)
    (series,) = cells.query(Query(GPU, (NAME,), grid.begin, cells.end, grid=grid)).values()
    for place, low, mean, high in zip(range(34), series.low, series.mean, series.high, strict=True):
        edges = (grid.begin + (place + next_one) * 20 - begin for next_one in (0, 1))
        truth = values[slice(*(max(0, round(10 * edge)) for edge in edges))]
        assert (low, mean, high) == pytest.approx((min(truth), fmean(truth), max(truth)))


def test_frames_that_come_seldom_leave_no_cell_empty() -> None:
    random = Random(7)
    times = [BEGAN]
    while times[-1] < BEGAN + 4000:
        times.append(times[-1] + random.choice((0.9, 1.0, 1.1, 1.6)))
    history = played(iter(times), keep=400, interval=1.0)
    assert {tier.step for tier in history.finer(inf)} == {10.0}
    assert not any(map(isnan, asked(history, 10, 3990).mean))


def test_what_was_never_known_is_in_no_cell() -> None:
    history = played(tenths(300), keep=100)
    assert history.has(GPU, NAME)
    (tier,) = history.finer(inf)
    assert not tier.has(GPU, "gpu.power")
    assert all(
        map(isnan, tier.query(Query(GPU, ("gpu.power",), BEGAN, BEGAN + 60, grid=Grid(0, 1.0, 5)))["gpu.power"].mean)
    )


def test_all_is_forgotten_where_time_jumps_back() -> None:
    history = played(tenths(300), keep=100)
    history.clear()
    assert isnan(history.begin)
