"""Pure drawing: numbers in, text out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import nan

import pytest
from rich.segment import Segment

from gpumon.analysis.gpu_state import GpuState
from gpumon.analysis.memory import PARTS, MemoryBreakdown
from gpumon.model.frame import Sample
from gpumon.model.metrics import BY_NAME, PROCESSES, Availability
from gpumon.storage.history.buckets import Grid
from gpumon.storage.history.envelope import Envelope, downsample
from gpumon.storage.history.query import Series
from gpumon_tui import theme
from gpumon_tui.render.bars import TINTS, WHOLE, bar, bar_text, memory_bar
from gpumon_tui.render.cells import changed_ranges
from gpumon_tui.render.gpu_charts import legend
from gpumon_tui.render.gpu_columns import gpu_columns
from gpumon_tui.render.gpu_row import GpuLine, gpu_row
from gpumon_tui.render.gpu_status import CRITICAL, FINE, WARN, GpuHolder, GpuLabel, level
from gpumon_tui.render.table import MARK, Cell, TableColumn, fit_columns, placed_cells, row_line
from gpumon_tui.render.text_width import fit, width
from gpumon_tui.render.time_axis import HOLD
from tests.builders import sample


def plain(line: list[Segment]) -> str:
    return "".join(segment.text for segment in line)


def fill(times: Sequence[float], values: list[float], grid: Grid) -> Series:
    """What columns show of samples that are a second apart."""
    return downsample(times, [Envelope(values, values, values)], grid, hold=HOLD)[0]


def test_a_sample_falls_into_its_column_and_holes_are_filled_but_gaps_are_not() -> None:
    grid = Grid(0, 0.5, 8)
    assert fill([0.0, 1.0, 2.0], [1.0, 2.0, 3.0], grid).mean[:5] == [1, 1, 2, 2, 3]
    gap = fill([0.0, 3.5], [1.0, 2.0], grid).mean
    assert gap[0] == 1
    assert all(value != value for value in gap[1:7])
    missing = fill([0.0, 1.0, 2.0], [1.0, nan, 3.0], grid).mean
    assert missing[2] != missing[2]
    assert missing[3] != missing[3]


def test_a_column_of_many_samples_is_their_mean_or_their_peak() -> None:
    grid = Grid(0, 4.0, 1)
    found = fill([0, 1, 2, 3], [0.0, 0.0, 1.0, 1.0], grid)
    assert (found.mean, found.high) == ([0.5], [1.0])


def test_bars_read_without_color() -> None:
    assert bar_text(0.5, 4) == "▄▄▁▁"
    assert bar_text(0.01, 4) == "▃▁▁▁"
    assert bar_text(0.6, 4) == "▄▄▃▁", "no hole between what is filled and the track"
    assert bar_text(0.0004, 4) == "▁▁▁▁", "0.0 GiB of 80 is no bar"
    assert bar_text(0.0, 4) == "▁▁▁▁"
    assert bar_text(7.0, 4) == "▄▄▄▄"
    assert bar_text(nan, 4) == "┈┈┈┈"
    assert plain(bar(0.5, 4, theme.GOOD)) == bar_text(0.5, 4)


def gpu_line(cells: int, **values: float) -> str:
    """A busy GPU that nobody has, as a line."""
    one = sample(0, utilization=0.5, **values)
    label, nobody = GpuLabel("busy", theme.GOOD, True), GpuHolder("", False, "", ())
    row = GpuLine(one, GpuState.BUSY, label, "", nobody, nan, nan, nan, [])
    columns = gpu_columns(cells, totals=cells == 90)
    return plain(row_line(gpu_row(row, columns), columns.placed, cells))


def test_a_number_that_has_no_room_leaves_its_neighbors_whole_and_is_no_other_number() -> None:
    usual = {"memory_used": 37 * 2**30, "memory_total": 80 * 2**30, "power": 212.0, "temperature": 66.0,
             "clock_sm": 1.98e9, "fan": 0.41, "encoder_utilization": 0.07, "performance_state": 2.0}  # fmt: skip
    for cells in range(40, 231, 5):
        numbers = re.findall(r"[\d.]+", gpu_line(cells, **usual))
        for name in usual:
            line = gpu_line(cells, **{**usual, name: 123456789e15})
            cut = re.findall(r"[\d.]+", line)
            assert len(line) <= cells
            assert set(cut) <= set(numbers), (cells, name, line)
            assert len(numbers) - len(cut) == line.count("…"), (cells, name, line)


def test_rows_of_cards_of_any_size_stand_under_each_other() -> None:
    cards = [(0.4, 79.6, 69, 5), (139.8, 139.8, 700, 71), (216.4, 276.6, 1250, 100), (9.4, 276.6, 98, 71)]
    for cells in (40, 60, 80, 90, 120, 200):
        lines = [
            gpu_line(cells, memory_used=used * 2**30, memory_total=total * 2**30, power=watts, temperature=degrees)
            for used, total, watts, degrees in cards
        ]
        assert {len(line.rstrip()) for line in lines} == {len(lines[0].rstrip())}
        if cells >= 56:
            assert len({line.index(".") for line in lines}) == 1, lines
            assert "216.4" in lines[2]
        if cells >= 80:
            assert re.search(r" 216.4(/277)? +100 +1250 ", lines[2])
        assert not re.search(r"▆\d", "".join(lines)), "a gap between a bar and its number"


def test_the_name_of_a_program_is_whole_beside_the_state_of_its_gpu() -> None:
    one = sample(0, utilization=0.0, power=118.0, temperature=36.0)
    holder = GpuHolder("jupyter-kernel", False, "", ("carol",))
    row = GpuLine(one, GpuState.BUSY, GpuLabel("pausing", theme.DIM, True), "", holder, nan, nan, nan, [])
    for cells in (80, 99, 100, 120, 150, 200):
        columns = gpu_columns(cells)
        line = plain(row_line(gpu_row(row, columns), columns.placed, cells))
        assert re.search(r"carol +jupyter-kernel +pausing", line), line


@pytest.mark.parametrize(("total", "text"), [(80.0, " 6.6/80 "), (nan, " 6.6 ")])
def test_memory_is_told_whether_its_total_is_known_or_not(total: float, text: str) -> None:
    line = gpu_line(90, memory_used=6.6 * 2**30, memory_total=total * 2**30)
    assert text in line
    assert ("▆" in line) == (total == 80.0), "a bar of nobody knows what is none"


def test_text_is_cut_by_cells() -> None:
    assert fit("日本語", 5) == "日本…"
    assert fit("日本語", 4) == "日 …"
    assert fit("日本語", 8, right=True) == "  日本語"
    assert width(fit("e\u0301" * 30, 10)) == 10


@pytest.mark.parametrize(
    ("before", "after", "cells"),
    [
        ("load of 12 %", "load of 13 %", (9, 10)),
        ("abc", "abcd", (3, 4)),
        ("日本語の x 1", "日本語の y 1", (9, 10)),
        ("wide xe\u0301z 901", "wide xez 901", (6, 7)),
        ("same", "same", None),
        ("short x", "short y", (6, 7)),
    ],
)
def test_only_changed_cells_are_repainted(before: str, after: str, cells: tuple[int, int] | None) -> None:
    assert changed_ranges([Segment(before)], [Segment(after)], 12) == ([cells] if cells else [])


def test_changes_far_apart_are_two_ranges() -> None:
    def line(first: str, last: str) -> list[Segment]:
        return [Segment(first), Segment("." * 20), Segment(last)]

    assert changed_ranges(line("ab", "yz"), line("ac", "xz"), 24) == [(1, 2), (22, 23)]


GIB = 2.0**30
KNOWN = {"run_allocated": 28.2 * GIB, "run_reserved": 37.6 * GIB, "run_used": 38.2 * GIB, "memory_reserved": 0.5 * GIB}


def holding(used: float, total: float = 79.5 * GIB, **known: float) -> Sample:
    return sample(0, memory_used=used, memory_total=total, **known)


@pytest.mark.parametrize("cells", [1, 3, 6, 7, 40, 157])
@pytest.mark.parametrize("used", [0.0, 0.001, 3.0, 47.0, 79.5])
def test_parts_of_memory_fill_their_bar(used: float, cells: int) -> None:
    for known in ({}, KNOWN):
        line = memory_bar(holding(used * GIB, **known), cells)
        assert len(plain(line)) == cells
        in_use = sum(len(part.text) for part in line if part.style != TINTS["free"])
        assert abs(in_use - cells * used / 79.5) <= 0.5


def test_memory_of_which_nothing_is_known_is_no_bar() -> None:
    assert memory_bar(holding(nan), 8) == memory_bar(holding(3 * GIB, nan), 8) == []


def test_each_part_of_memory_that_is_in_use_has_a_color_of_its_own() -> None:
    assert [part.name for part in PARTS] == list(MemoryBreakdown._fields) == list(TINTS)
    assert len({*TINTS.values(), WHOLE}) == len(PARTS), "what is free and what the driver keeps have the empty track"


@pytest.mark.parametrize("cells", [60, 80, 100, 160])
def test_the_parts_of_memory_are_named_with_their_sizes(cells: int) -> None:
    text = plain(legend(holding(47.0 * GIB, **KNOWN), None, cells))
    assert width(text) <= cells
    assert "allocated 28.2" in text
    assert "free 32.0" in text
    assert ("context and libraries" in text) == (cells >= 160)


def test_no_memory_of_a_gpu_that_mig_divides_is_called_free() -> None:
    whole = holding(3 * GIB, 80 * GIB, memory_reserved=0.0)
    assert "free" in plain(legend(whole, None, 100))
    of_instances = {PROCESSES: Availability.OF_INSTANCES}
    text = plain(legend(whole._replace(device=whole.device._replace(missing=of_instances)), None, 100))
    assert "divided" in text
    assert "free" not in text
    assert "80.0" not in text


def test_what_is_not_known_of_memory_is_left_out() -> None:
    text = plain(legend(holding(3 * GIB), None, 160))
    assert "allocated" not in text
    assert "in use 3.0" in text, "other than whose?"
    assert "unknown" in plain(legend(holding(nan), None, 80))


def test_only_thresholds_of_the_table_are_yellow_and_red() -> None:
    assert level(BY_NAME["gpu.utilization"], 1.0) == FINE
    assert level(BY_NAME["gpu.temperature"], 84.0) == WARN
    assert level(BY_NAME["gpu.temperature"], 91.0) == CRITICAL
    assert level(BY_NAME["gpu.memory_used"], 95.0, 100.0) == WARN
    assert level(BY_NAME["gpu.memory_used"], 95.0, nan) == FINE


def test_a_table_drops_columns_by_their_worth() -> None:
    columns_ = (TableColumn("A", 5, keep=1), TableColumn("B", 5, keep=9), TableColumn("C", 0, keep=5))
    row = Cell("one"), Cell("two"), Cell("three")

    def drawn(cells: int) -> str:
        placed = fit_columns(columns_, 1, cells - 1)
        return plain(row_line(placed_cells(row, placed), placed, cells, mark=MARK))

    assert drawn(40).split() == ["▌one", "two", "three"]
    assert drawn(21).split() == ["▌two", "three"]


def test_names_and_heads_take_the_columns_that_are_free_and_no_others() -> None:
    columns_ = (
        TableColumn("run", 10, keep=9, preferred=30), TableColumn("ID", 5, keep=1),
        TableColumn("learning_rate", 8, right=True, keep=5, preferred=13),
        TableColumn("verdict", 0, keep=8, preferred=20),
    )  # fmt: skip

    def cells_of(cells: int) -> dict[str, int]:
        return {column.title: column.cells for _, _, column in fit_columns(columns_, 1, cells - 1)}

    assert cells_of(80) == {"run": 30, "ID": 5, "learning_rate": 13, "verdict": 24}
    assert cells_of(60) == {"run": 19, "ID": 5, "learning_rate": 8, "verdict": 20}
    assert cells_of(48) == {"run": 10, "ID": 5, "learning_rate": 8, "verdict": 17}, "where nothing is free, as before"
    assert cells_of(36) == {"run": 10, "learning_rate": 8, "verdict": 12}
