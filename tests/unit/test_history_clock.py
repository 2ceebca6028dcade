"""Clocks that are set, machines that sleep, devices that move: through the recorder into the file, and read from it."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.analysis.holders import HolderWatch
from gpumon.common.clock import SECOND
from gpumon.model.frame import Frame, Sample, Tick
from gpumon.model.metrics import Availability
from gpumon.storage.events.log import EventBook
from gpumon.storage.history.cell import HistoryCell
from gpumon.storage.history.file import HistoryFile
from gpumon.storage.history.open import open_history
from gpumon.storage.history.query import HOST, Query
from gpumon.storage.history.recorder import BATCH, HistoryRecorder
from gpumon.storage.history.tier_aggregator import Aggregator, values_from_tick
from gpumon.storage.history.tiers import GPU_COLUMNS, SHAPES, TierShape
from gpumon.storage.history.window_totals import window_totals
from gpumon.storage.processes.recorder import ProcessRecorder
from gpumon.storage.usage.hours import AccountBook
from tests.builders import TIME, device, frame_of, sample, tick
from tests.programs import PATIENCE, until
from tests.unit.test_history_earlier import GPUS, cells, grown

BEGIN = TIME // SECOND
HOUR, DAY = 3600, 86400
WATTS = 400.0
T1, T2, T3 = SHAPES
UTILIZATION = GPU_COLUMNS.names.index("gpu.utilization")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "history.sqlite"


def at(steady: float, set_by: float = 0.0, samples: Iterable[Sample] | None = None) -> Tick:
    """The tick `steady` seconds after the first one, on a machine whose wall clock was set by some seconds since."""
    found = tick(samples=[sample(0, utilization=0.5, energy=WATTS * steady)] if samples is None else list(samples))
    return found._replace(
        time_ns=round((BEGIN + steady + set_by) * SECOND), monotonic_ns=round((1000 + steady) * SECOND)
    )


def keep(path: Path, ticks: Iterable[Tick], earlier: Iterable[Frame] = ()) -> None:
    """Keep the history of ticks in a daemon that is stopped behind them."""
    history = HistoryRecorder(str(path), os.getuid(), pytest.fail, directory="/run", earlier=lambda _: iter(earlier))
    history.start()
    for one in ticks:
        history.add(one)
        if len(history._ticks) > 200:
            until(lambda: len(history._ticks) < BATCH)
    history.close(PATIENCE)


def seconds(path: Path, shape: TierShape = T1, subject: str = GPUS[0]) -> list[int]:
    """The cells of a tier, in seconds after the first tick."""
    return sorted(number * shape.step - BEGIN for number in cells(path, shape, subject))


def known(found: HistoryCell) -> float:
    return found.seconds[UTILIZATION]


def test_a_clock_that_is_set_back_two_hours_puts_each_second_where_its_clock_had_it(path: Path) -> None:
    keep(path, [at(n) for n in range(1000)] + [at(n, -2 * HOUR) for n in range(1000, 2000)])
    assert seconds(path) == [*range(1000 - 2 * HOUR, 2000 - 2 * HOUR), *range(1000)]
    for shape in SHAPES:
        assert grown(path, shape, GPUS[0]) == pytest.approx(WATTS * 1998), shape
        assert sum(map(known, cells(path, shape, GPUS[0]).values())) == pytest.approx(2000), shape


def test_of_hours_that_the_clock_shows_twice_the_later_ones_are_kept_and_no_cell_counts_both(path: Path) -> None:
    later = [at(n, -1000, [sample(0, utilization=1.0, energy=WATTS * n)]) for n in range(2000, 2500)]
    keep(path, [*(at(n) for n in range(2000)), *later])
    assert seconds(path) == list(range(2000))
    found = cells(path, T1, GPUS[0])
    assert [found[BEGIN + n].mean[UTILIZATION] for n in (999, 1000, 1499, 1500)] == pytest.approx([0.5, 1.0, 1.0, 0.5])
    for shape in SHAPES:
        for cell in cells(path, shape, GPUS[0]).values():
            assert known(cell) <= shape.step * 1.01, shape


def test_a_clock_that_is_three_days_ahead_for_a_while_leaves_its_days_and_disturbs_none(path: Path) -> None:
    ticks = [at(n, 3 * DAY if 1000 <= n < 2000 else 0) for n in range(3000)]
    keep(path, ticks)
    assert seconds(path) == [*range(1000), *range(2000, 3000), *range(3 * DAY + 1000, 3 * DAY + 2000)]
    for shape in SHAPES:
        assert grown(path, shape, GPUS[0]) == pytest.approx(WATTS * 2997), shape


def test_a_daemon_that_is_killed_after_its_clock_was_set_loses_nothing_that_the_ring_has(path: Path) -> None:
    """Whatever the clock showed before: what was written is known by the steady clock."""
    offsets = [0.0] * 700 + [3.0 * DAY] * 700 + [-2.0 * HOUR] * 700
    ticks = [at(n, offset) for n, offset in enumerate(offsets)]
    ring = [frame_of(one, number) for number, one in enumerate(ticks, 1)]
    killed = HistoryRecorder(str(path), os.getuid(), pytest.fail, directory="/run").start()
    for one in ticks:
        killed.add(one)
        if len(killed._ticks) > 200:
            until(lambda: len(killed._ticks) < BATCH)
    until(lambda: len(killed._ticks) < BATCH and killed._aggregator._last_ns >= ticks[-BATCH].monotonic_ns)
    keep(path, [at(2200, -2 * HOUR)], ring)
    expected = [*range(1400 - 2 * HOUR, 2100 - 2 * HOUR), 2200 - 2 * HOUR, *range(700)]
    assert seconds(path) == [*expected, *range(3 * DAY + 700, 3 * DAY + 1400)]
    assert sum(map(known, cells(path, T3, GPUS[0]).values())) == pytest.approx(2101)


@pytest.mark.parametrize("step", [1.5, -1.5])
def test_a_clock_that_is_corrected_by_a_second_loses_seconds_and_counts_none_twice(path: Path, step: float) -> None:
    keep(path, [at(n + 0.5, step if n >= 500 else 0) for n in range(1000)])
    found = seconds(path)
    assert len(found) >= 1000 - 4
    assert set(found) <= set(range(1002))
    for shape in SHAPES:
        assert WATTS * 994 <= grown(path, shape, GPUS[0]) <= WATTS * 999.01, shape
        for cell in cells(path, shape, GPUS[0]).values():
            assert known(cell) <= shape.step * 1.01, shape


def test_a_machine_that_sleeps_leaves_a_gap(path: Path) -> None:
    """CLOCK_MONOTONIC stands still meanwhile, so the ticks follow each other as ever."""
    keep(path, [at(n, HOUR if n >= 500 else 0) for n in range(1000)])
    assert seconds(path) == [*range(500), *range(HOUR + 500, HOUR + 1000)]
    assert seconds(path, subject=HOST) == seconds(path)
    for shape in SHAPES:
        assert grown(path, shape, GPUS[0]) == pytest.approx(WATTS * 998), shape


def test_a_device_keeps_its_history_when_its_index_changes(path: Path) -> None:
    def moved(n: int) -> Sample:
        found = sample(0, utilization=0.5, energy=WATTS * n)
        return found._replace(device=found.device._replace(index=5)) if n >= 400 else found

    keep(path, [at(n, samples=[moved(n)]) for n in range(800)])
    assert seconds(path) == list(range(800))
    assert grown(path, T2, GPUS[0]) == pytest.approx(WATTS * 799)


def test_a_device_that_is_lost_and_comes_back_continues_behind_a_gap(path: Path) -> None:
    def ticks() -> Iterator[Tick]:
        for n in range(800):
            there = [sample(0, utilization=0.5, energy=WATTS * n)]
            yield at(n, samples=[sample(0, Availability.LOST)] if 300 <= n < 400 else [] if 400 <= n < 500 else there)

    keep(path, ticks())
    assert seconds(path) == [*range(300), *range(500, 800)]
    assert seconds(path, subject=HOST) == list(range(800))
    for shape in SHAPES:
        assert grown(path, shape, GPUS[0]) == pytest.approx(WATTS * 598), shape


def test_a_device_that_is_added_has_a_history_from_then_on(path: Path) -> None:
    second = [sample(0, utilization=0.5), sample(1, utilization=0.75, energy=7.0)]
    keep(path, [at(n, samples=second if n >= 250 else second[:1]) for n in range(500)])
    assert seconds(path) == list(range(500))
    assert seconds(path, subject=GPUS[1]) == list(range(250, 500))


def test_two_devices_that_claim_one_uuid_are_never_mixed() -> None:
    other = sample(1, utilization=1.0, energy=9e9)
    twins = [sample(0, utilization=0.5, energy=5.0), other._replace(device=device(0)._replace(index=1))]
    rows = values_from_tick(at(1, samples=twins)).rows
    assert [row.subject for row in rows] == [HOST, GPUS[0]]
    assert rows[1].values[UTILIZATION] == 0.5


YEARS = 10 * 365 * DAY
WRONG = {"behind": [-YEARS] * 4, "ahead": [YEARS] * 4, "each another year": [n * YEARS / 20 for n in range(-20, 20)]}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
class TestYearsOff:
    """A clock that is years off for seconds, or a forged ring, chooses no allocation."""

    @staticmethod
    def ticks(wrong: list[float]) -> list[Tick]:
        before = [at(n) for n in range(50)]
        off = [at(50 + n, set_by) for n, set_by in enumerate(wrong)]
        return [*before, *off, *(at(n) for n in range(50 + len(wrong), 400))]

    @staticmethod
    @contextmanager
    def small() -> Iterator[None]:
        """Nothing in it takes more than 20 MB at once."""
        tracemalloc.start()
        yield
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 20e6, f"{peak / 1e6:.0f} MB"

    def test_costs_totals_no_memory(self, wrong: list[float]) -> None:
        frames = [frame_of(one, number) for number, one in enumerate(self.ticks(wrong), 1)]
        with self.small():
            found = window_totals(HistoryFile(""), frames, BEGIN - 12 * YEARS, BEGIN + 12 * YEARS)
            today = window_totals(HistoryFile(""), frames, BEGIN, BEGIN + 400)
        energy = found.devices[GPUS[0]]["energy"]
        assert 350 < energy.seconds - energy.missing_seconds <= 400
        assert WATTS * 340 <= today.devices[GPUS[0]]["energy"].value <= WATTS * 400

    def test_costs_those_who_follow_each_tick_no_memory(self, wrong: list[float]) -> None:
        ticks = self.ticks(wrong)
        blocks: list[object] = []
        aggregator, accounts, events, holders = Aggregator(blocks.append), AccountBook(), EventBook(), HolderWatch()
        processes = ProcessRecorder()
        with self.small():
            for one in ticks:
                aggregator.add(values_from_tick(one))
            aggregator.finish()
            for one in ticks:
                judged = holders.judged(one)
                accounts.add(one, judged)
                events.add(one, judged)
                processes.add(one)
        assert len(blocks) < 40 * len(wrong) + 40

    def test_costs_views_and_players_no_memory(self, wrong: list[float]) -> None:
        long = open_history(keep=60)
        with self.small():
            for number, one in enumerate(self.ticks(wrong), 1):
                long.add(frame_of(one, number))
            query = Query(GPUS[0], ("gpu.utilization",), BEGIN - 12 * YEARS, BEGIN + 12 * YEARS, points=100)
            assert len(long.query(query)["gpu.utilization"].times) <= 101
