"""Ticks that are collected many at once give the cells, and the blocks, that they give one by one."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from random import Random

import pytest

from gpumon.common.clock import SECOND
from gpumon.storage.history.aggregator import Aggregator, Block, SubjectValues, TickValues
from gpumon.storage.history.cell import HistoryCell, weights
from gpumon.storage.history.query import HOST
from gpumon.storage.history.sample_cells import EvenCells, SampleCells
from gpumon.storage.history.tiers import GPU_COLUMNS, HOST_COLUMNS, SHAPES, columns_of
from gpumon.storage.history.write import seal

BEGIN = 93230 * 19200
GPUS = ("GPU-a", "GPU-b")
POWER = GPU_COLUMNS.names.index("gpu.power")
ENERGY = GPU_COLUMNS.names.index("gpu.energy")
Ticks = Sequence[TickValues]


def some_ticks(chance: Random, count: int, *, phase: float, troubled: bool) -> list[TickValues]:
    """Ticks once a second; `troubled`: with other intervals, gaps, a clock that is set, resets, and what is missing."""
    time, steady, interval = BEGIN + phase, 5000.0, 1.0
    grown = {name: [0.0] * len(columns_of(name).counters) for name in (HOST, *GPUS)}
    missing, lost, found = dict.fromkeys(GPUS, -1), set[str](), []
    for _ in range(count):
        passed = interval + chance.gauss(0, 0.0005)
        trouble = chance.randrange(400) if troubled else -1
        if trouble == 0:
            interval = chance.choice([0.1, 1.0, 1.0, 1.0, 2.5])
        elif trouble == 1:
            passed = chance.uniform(1, 400)
        elif trouble == 2:
            time += chance.uniform(-90, 90)
        elif trouble == 3:
            grown[chance.choice(GPUS)] = [0.0] * len(GPU_COLUMNS.counters)
        elif trouble == 4:
            lost ^= {chance.choice(GPUS)}
        elif trouble == 5:
            missing[chance.choice(GPUS)] = chance.randrange(-1, len(GPU_COLUMNS.names))
        time, steady = time + passed, steady + passed
        rows = []
        for name in (HOST, *(gpu for gpu in GPUS if gpu not in lost)):
            columns = columns_of(name)
            grown[name] = [old + chance.choice([0.0, chance.random()]) * (n % 3) for n, old in enumerate(grown[name])]
            if name != HOST:
                grown[name][columns.counters.index(ENERGY)] += 0.5  # no card draws nothing
            values = [chance.random() if n % 2 else 80.0 + n for n in range(len(columns.names))]
            for place, value in zip(columns.counters, grown[name], strict=True):
                values[place] = value
            if missing.get(name, -1) >= 0:
                values[missing[name]] = nan
            rows.append(SubjectValues(name, tuple(values), round(steady * SECOND) - chance.randrange(10**7)))
        found.append(TickValues(round(time * SECOND), round(steady * SECOND), round(interval * SECOND), rows))
    return found


def collected(ticks: Ticks, at_once: int) -> tuple[list[Block], list[int]]:
    """The blocks, and up to when ticks were in such after each hundred."""
    blocks: list[Block] = []
    aggregator, done = Aggregator(blocks.append), []
    for first in range(0, len(ticks), 100):
        for place in range(first, first + 100, at_once):
            part = ticks[place : min(place + at_once, first + 100)]
            if at_once > 1:
                aggregator.add_all(part)
            else:
                aggregator.add(part[0])
        done.append(aggregator.done_ns)
    aggregator.finish()
    return blocks, done


def exactly(blocks: Sequence[Block]) -> dict[tuple[int, str, int], list[str]]:
    """The numbers of all cells, by tier, subject and number of the cell."""
    found: dict[tuple[int, str, int], list[str]] = {}
    for block in blocks:
        for place, cell in block.cells.items():
            numbers = [*map(list, cell[:4]), weights(cell, columns_of(block.subject).counters)]
            key = (block.shape.number, block.subject, block.number * block.shape.cells + place)
            found.setdefault(key, []).append(repr(numbers))
    return found


@pytest.mark.parametrize(
    ("seed", "phase", "troubled"),
    [
        (1, 0.4, False),
        pytest.param(2, 0.4, True, marks=pytest.mark.slow),
        (3, 0.004, True),
        pytest.param(4, 0.9997, True, marks=pytest.mark.slow),
    ],
)
def test_ticks_that_are_taken_at_once_are_the_same_cells_as_one_by_one(seed: int, phase: float, troubled: bool) -> None:
    ticks = some_ticks(Random(seed), 1000, phase=phase, troubled=troubled)
    expected, expected_done = collected(ticks, 1)
    cells, sealed = exactly(expected), sorted(map(seal, expected))
    for at_once in (2, 13, 100):
        blocks, done = collected(ticks, at_once)
        assert done == expected_done, at_once
        assert exactly(blocks) == cells, at_once
        assert sorted(map(seal, blocks)) == sealed, at_once


@pytest.mark.parametrize(("seed", "phase", "troubled"), [(1, 0.4, False), (2, 0.4, True), (3, 0.9997, True)])
def test_a_block_has_the_bytes_of_its_cells_though_some_are_odd(seed: int, phase: float, troubled: bool) -> None:
    blocks, _ = collected(some_ticks(Random(seed), 1500, phase=phase, troubled=troubled), 13)
    assert len([block for block in blocks if block.shape is SHAPES[0]]) > 4
    for block in blocks:
        assert seal(block) == seal(block._replace(cells=dict(block.cells)))


def test_ticks_once_a_second_are_taken_at_once_but_where_a_block_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    single: list[int] = []
    add = Aggregator.add
    monkeypatch.setattr(Aggregator, "add", lambda self, tick: (single.append(tick.time_ns), add(self, tick)))
    collected(some_ticks(Random(1), 1000, phase=0.4, troubled=False), 10)
    assert len(single) <= 10
    assert {time // SECOND % 300 for time in single[-3:]} == {0}


def test_cells_of_an_open_block_are_given_back_as_they_were_put() -> None:
    metrics, counters = len(HOST_COLUMNS.names), HOST_COLUMNS.counters
    cells = SampleCells(SHAPES[0].cells, metrics, counters)
    rows = [[float(n + place) for place in range(metrics)] for n in range(3)]
    growth = [[n + 0.5 for n in range(3)] for _ in counters]
    cells.put_even(7, EvenCells(rows, growth, [[n + 100.0 for n in range(3)] for _ in counters]))
    half = HistoryCell([1.0] * metrics, [2.0] * metrics, [3.0] * metrics, [2.5] * metrics, (0.5, 0.5))
    cells.put(20, half)
    cells.put(21, cells[8])
    assert list(cells) == [7, 8, 9, 20, 21]
    assert len(cells) == 5
    assert cells[20] is half
    assert [list(column) for column in cells[21][:4]] == [list(column) for column in cells[8][:4]]
    assert [cells[8].mean[0], cells[8].mean[counters[0]], cells[8].last[counters[0]]] == [1.0, 1.5, 101.0]
