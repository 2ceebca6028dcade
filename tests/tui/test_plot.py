"""What charts draw is what was measured: to a cell, in every window, at every moment."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import floor, inf, nan, pi, sin
from pathlib import Path
from typing import NamedTuple

import pytest
from rich.segment import Segment

from gpumon.analysis.rank_epochs import Span
from gpumon.analysis.run_epochs import EpochMark, EpochMarks, every_nth
from gpumon.model.frame import Boundary, Frame, Mark
from gpumon.model.metrics import BY_NAME, GPU_INDEX, Metric, Unit
from gpumon.storage.history.buckets import SHORT_WINDOWS, WINDOWS, ChartWindow, Grid
from gpumon.storage.history.open import open_history
from gpumon.storage.history.tiered_history import TieredHistory
from gpumon.storage.history.tiers import SHAPES
from gpumon_tui.render.axis import logged_axis, number_format, value_axis
from gpumon_tui.render.cells import PaintedCell, Row, Tint, to_line
from gpumon_tui.render.gpu_columns import epoch_ticks, gpu_columns
from gpumon_tui.render.line_plot import BAND, EIGHTHS, FILL, Columns, LimitLine, OverlaidLine, PlotCurve, plot
from gpumon_tui.render.strip import heat_strip, strip_grid
from gpumon_tui.render.time_axis import (
    MAX_EXCESS,
    column_text,
    epochs_above,
    halves,
    live_columns,
    past_columns,
    phases_below,
    step_of,
    times_below,
    window_text,
)
from tests.builders import boundary, frame_of, sample, tick
from tests.instructions import instructions
from tests.months import fill

NAME = "gpu.utilization"
UTILIZATION = BY_NAME[NAME]
AXIS = value_axis(UTILIZATION, 1.0)
UUID = sample().device.uuid
NOW = 1_790_003_601.0
ROWS = 17
Wave = Callable[[float], float]


def wave(time: float) -> float:
    """Slow and fast at once: 0 to 1."""
    return 0.5 + 0.3 * sin(2 * pi * time / 611) + 0.2 * sin(2 * pi * time / 37)


def stalled(time: float) -> float:
    """Busy, but for a second every ten minutes."""
    return 0.0 if time % 600 == 17 else 0.9


def second(time: float, value: float) -> Frame:
    number = int(time)
    one = sample(utilization=value)
    return frame_of(tick(samples=(one,), time_ns=number * 10**9, monotonic_ns=number * 10**9), number)


def recorded(of: Wave, begin: float, end: float) -> TieredHistory:
    """A history of one sample a second."""
    history = open_history()
    add(history, of, begin, end)
    return history


def add(history: TieredHistory, of: Wave, begin: float, end: float) -> None:
    for time in range(int(begin), int(end)):
        history.add(second(float(time), of(float(time))))


class Seen(NamedTuple):
    """What a column shows, in rows from the bottom."""

    low: float
    """The lower edge of the band; NaN where there is none, or the line hides all of it."""
    high: float
    line: list[float]
    """Of all dots."""


def seen(picture: list[Row], column: int) -> Seen:
    """Read a column back from its cells."""
    rows = len(picture)
    low, high, line = inf, -inf, []
    for at, row in enumerate(picture):
        glyph, ink, ground = row[column]
        base = rows - 1 - at
        if "\u2800" <= glyph <= "\u28ff":
            dots = ord(glyph) - 0x2800
            bits = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
            line += [base + (3.5 - place) / 4 for place, pair in enumerate(bits) if dots & (pair[0] | pair[1])]
        band = Tint("util", BAND)
        if glyph in EIGHTHS[1:] and band in (ink, ground):
            edge = base + EIGHTHS.index(glyph) / 8
            low, high = (min(low, base), max(high, edge)) if ink == band else (min(low, edge), max(high, base + 1))
        elif ground == band:
            low, high = min(low, base), max(high, base + 1)
    return Seen(low, high, line) if high > low else Seen(nan, nan, line)


def drawn(history: TieredHistory, grid: Grid, until: float, columns: Columns | None = None) -> list[Row]:
    found = (columns or Columns()).get(history, UUID, [NAME], grid, until=until, interval=1.0)[NAME]
    return plot(found, AXIS, ROWS, "util")


def truth(of: Wave, begin: float, step: float) -> tuple[float, float, float]:
    """Lowest, mean and highest sample of a column; the one before it, where it has none."""
    times = [float(time) for time in range(int(begin) - 1, int(begin + step) + 2) if begin <= time < begin + step]
    values = [of(time) for time in times] or [of(float(floor(begin)))]
    return min(values), sum(values) / len(values), max(values)


@pytest.fixture(scope="module")
def hour() -> TieredHistory:
    return recorded(wave, NOW - 3600, NOW)


@pytest.mark.parametrize("cells", [32, 72, 120, 264])
@pytest.mark.parametrize("window", [one.seconds for one in (*SHORT_WINDOWS, *WINDOWS) if one.seconds <= 3600])
def test_a_known_wave_is_drawn_within_a_cell_in_every_window(window: int, cells: int, hour: TieredHistory) -> None:
    grid = live_columns(window, cells, NOW - 1)
    picture = drawn(hour, grid, NOW)
    checked = 0
    for column in range(1, cells):
        begin = grid.begin + column * grid.step
        if begin < NOW - 3590 + grid.step or begin + grid.step > NOW - 2:
            continue
        both = [truth(wave, begin + half * grid.step / 2, grid.step / 2) for half in (0, 1)]  # a line has two points
        low, high = min(low for low, _, _ in both), max(high for _, _, high in both)
        found = seen(picture, column)
        if found.low == found.low:
            assert abs(found.low - ROWS * low) <= 1, (window, cells, column)
            assert abs(found.high - ROWS * high) <= 1
        else:
            assert ROWS * (high - low) <= 2, "only the line can hide a band"
        means = [truth(wave, begin + place * grid.step / 2, grid.step / 2)[1] for place in (-1, 0, 1)]
        assert all(min(abs(dot - ROWS * mean) for dot in found.line) <= 1 for mean in means[1:])
        assert all(ROWS * min(means) - 1 <= dot <= ROWS * max(means) + 1 for dot in found.line)
        checked += 1
    assert checked > cells / 3


@pytest.mark.parametrize("cells", [32, 72, 120, 264])
def test_a_second_of_stall_is_seen_in_an_hour_and_nowhere_else(cells: int) -> None:
    history = recorded(stalled, NOW - 3600, NOW)
    grid = live_columns(3600, cells, NOW - 1)
    picture = drawn(history, grid, NOW)
    for column in range(cells):
        begin = grid.begin + column * grid.step
        if begin < NOW - 3600 or begin + grid.step > NOW:
            continue
        low, _, _ = truth(stalled, begin, grid.step)
        found = seen(picture, column)
        assert (found.low < 1) == (low == 0.0)
        assert max(found.line) >= ROWS * 0.9 - 2


@pytest.mark.parametrize("cells", [72, 120, 264])
def test_a_second_of_stall_is_seen_in_a_month(cells: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o700)
    path = str(tmp_path / "history.sqlite")
    cell = float(SHAPES[-1].step)
    at = (NOW - 20 * 86400) // cell * cell

    def busy(subject: str, name: str, time: float) -> tuple[float, float, float]:
        if name != NAME or not subject:
            return nan, nan, nan
        return (0.0, 0.9 - 0.9 / cell, 0.9) if time == at else (0.9, 0.9, 0.9)

    fill(path, [UUID], NOW, busy, SHAPES[2:])
    monkeypatch.setattr("time.time", lambda: NOW + 1)
    history = open_history()
    history.set_path(path)
    history.add(second(NOW, 0.9))
    grid = live_columns(31 * 86400, cells, NOW)
    picture = drawn(history, grid, NOW)
    stalls = [column for column in range(cells) if seen(picture, column).low < 1]
    assert stalls == [grid.at(at)]


def completed(picture: list[Row], grid: Grid, until: float) -> dict[int, tuple[PaintedCell, ...]]:
    """Columns that are complete, by their number since 1970, as far as no neighbor is part of them."""
    last = grid.at(until - 2.5) - 1  # a sample stands for columns finer than the distance to the next one
    return {
        grid.first + column: tuple(row[column] for row in picture) for column in range(1, min(last, grid.buckets - 1))
    }


@pytest.mark.parametrize("window", [10, 60, 300, 600, 1800])
@pytest.mark.parametrize("is_kept", [True, False])
def test_scrolling_changes_no_completed_column(window: int, is_kept: bool) -> None:
    history = recorded(wave, NOW - 1200, NOW)
    columns = Columns()
    before: dict[int, tuple[PaintedCell, ...]] = {}
    moved = set()
    for now in range(int(NOW), int(NOW) + 150):
        add(history, wave, now, now + 1)
        grid = live_columns(window, 60, now)
        picture = drawn(history, grid, now + grid.step, columns if is_kept else None)
        found = completed(picture, grid, now)
        assert all(before[number] == column for number, column in found.items() if number in before)
        before = found
        moved.add(grid.first)
    assert len(moved) > 1 or window > 600


def test_kept_columns_are_those_that_a_fresh_look_gives() -> None:
    history = recorded(wave, NOW - 700, NOW)
    columns = Columns()
    for now in range(int(NOW), int(NOW) + 90):
        add(history, wave, now, now + 1)
        for grid in (live_columns(300, 60, now), past_columns(120, 60, NOW - 100)):
            kept = columns.get(history, UUID, [NAME], grid, until=now + 1, interval=1.0)[NAME]
            fresh = Columns().get(history, UUID, [NAME], grid, until=now + 1, interval=1.0)[NAME]
            assert str(kept) == str(fresh)


def test_columns_that_the_history_has_forgotten_are_no_longer_drawn(tmp_path: Path) -> None:
    history = recorded(wave, NOW - 3600, NOW)
    history.set_path(str(tmp_path / "none"))  # of a daemon: what it keeps is not kept here
    columns = Columns()
    grid = past_columns(3600, 60, NOW)
    columns.get(history, UUID, [NAME], grid, until=NOW, interval=1.0)
    add(history, wave, NOW, NOW + 600)
    oldest = history.begin
    assert oldest > grid.begin + 60
    found = columns.get(history, UUID, [NAME], grid, until=NOW + 600, interval=1.0)[NAME]
    first = next(place for place, value in enumerate(found.mean) if value == value)
    assert first == halves(grid).at(oldest)


def test_columns_are_of_round_length_at_multiples_of_it() -> None:
    for window in (one.seconds for one in (*SHORT_WINDOWS, *WINDOWS)):
        for cells in (30, 72, 120, 264):
            grid = live_columns(window, cells, NOW)
            assert float(f"{grid.step:.2g}") == grid.step or grid.step % 10 == 0
            assert grid.begin == pytest.approx(grid.first * grid.step)
            assert grid.end > NOW
            assert grid.end - NOW <= grid.step * (cells // 24 + 1)
    assert [column_text(step_of(600, cells)) for cells in (120, 94, 39)] == ["5 s", "7 s", "16 s"]
    assert [column_text(step_of(86400, cells)) for cells in (72, 94, 15)] == ["20 min", "16 min", "1 h 40 min"]
    assert column_text(step_of(2, 94)) == "0.022 s"


@pytest.mark.parametrize("window", [*SHORT_WINDOWS, *WINDOWS])
def test_the_window_that_is_written_is_the_one_that_is_drawn(window: ChartWindow) -> None:
    for cells in range(8, 321):
        assert 1 - 1e-5 <= step_of(window.seconds, cells) * cells / window.seconds <= 1 + MAX_EXCESS
        assert strip_grid(window.seconds, cells, NOW).step == step_of(window.seconds, cells)
    assert window_text(window.seconds) == window.title


def test_the_length_of_a_column_is_written_to_the_second() -> None:
    said = [column_text(step) for step in (0.5, 6.5, 65.0, 720.0, 6600.0, 104400.0, 86400.0)]
    assert said == ["0.5 s", "6.5 s", "1 min 5 s", "12 min", "1 h 50 min", "1 d 5 h", "1 d"]


def test_columns_stand_still_until_several_have_passed_and_then_move_on_together() -> None:
    early, late = live_columns(600, 120, 1000.0), live_columns(600, 120, 1024.9)
    assert early == late
    assert live_columns(600, 120, 1025.0).begin == early.begin + 25
    for now in range(1000, 1100):
        grid = live_columns(600, 120, float(now))
        assert 0 < grid.end - now <= 600 / 24, "now is always in the picture, and near its end"


def test_a_window_that_stands_still_ends_where_it_should_to_a_column() -> None:
    for end in (1_790_000_000.0, 1_790_000_000.7):
        for window in (2, 600, 31 * 86400):
            grid = past_columns(window, 94, end)
            assert -1e-3 < grid.end - end <= grid.step
    assert past_columns(60, 0, 100.0).buckets == 1


def curve(*values: float) -> PlotCurve:
    return PlotCurve(values, values, values)


def texts(picture: list[Row]) -> list[str]:
    return ["".join(cell.glyph for cell in row) for row in picture]


def test_the_line_is_one_dot_thick_and_steps_are_joined() -> None:
    assert texts(plot(curve(0.0, 0.0, 1.0, 1.0), AXIS, 2, "util")) == [" ⡏", "⣀⠇"]


def test_nothing_is_drawn_over_a_gap() -> None:
    picture = plot(curve(0.5, 0.5, nan, nan, 0.5, 0.5), AXIS, 4, "util")
    assert all(row[1] == PaintedCell(" ") for row in picture)
    assert seen(picture, 0).line == seen(picture, 2).line


def test_zero_is_seen_and_more_than_full_scale_stays_in_the_chart() -> None:
    assert texts(plot(curve(0.0, 0.0), AXIS, 1, "util")) == ["⣀"]
    assert plot(curve(5.0, 5.0), AXIS, 3, "util") == plot(curve(1.0, 1.0), AXIS, 3, "util")


def test_only_an_axis_that_begins_at_zero_has_an_area() -> None:
    warm = value_axis(BY_NAME["gpu.temperature"], 70.0)
    assert warm.low > 0
    hot = plot(curve(60.0, 60.0), warm, 4, "temp")
    busy = plot(curve(0.6, 0.6), AXIS, 4, "util")
    assert not any(cell.ground for row in hot for cell in row)
    assert busy[-1][0].ground == Tint("util", FILL)


def test_lines_at_limits_go_behind_the_curve() -> None:
    picture = plot(curve(0.5, 0.5, 0.9, 0.9), AXIS, 4, "util", limits=[LimitLine(0.9, "warn")])
    assert picture[0][0].glyph == "─"
    assert picture[0][1].glyph != "─"
    assert "─" not in "".join(texts(plot(curve(0.5, 0.5), AXIS, 4, "util", limits=[LimitLine(1.7, "warn")])))


def test_the_own_line_is_over_the_others() -> None:
    (row,) = plot(curve(0.5, 0.5), AXIS, 1, "util", [OverlaidLine((0.5, 0.5), "faint")])
    assert row[0].ink == Tint("util")


def test_axes_have_round_numbers() -> None:
    gib = 2.0**30
    assert value_axis(BY_NAME["gpu.memory_used"], 10 * gib, 79.6 * gib).labels(17, 7)[0] == "80 GiB"
    assert value_axis(BY_NAME["gpu.power"], 400.0, 700.0).labels(17, 7) == {
        0: "800 W", 4: "600", 8: "400", 12: "200", 16: "0",
    }  # fmt: skip
    assert value_axis(BY_NAME["gpu.temperature"], 70.0).labels(9, 7)[8] == "20"
    assert value_axis(UTILIZATION, nan).labels(2, 7) == {0: "100 %", 1: "0"}
    assert value_axis(BY_NAME["gpu.pcie_sent"], nan).high > 0
    assert value_axis(BY_NAME["gpu.clock_sm"], 3.1e9).high == pytest.approx(3.2e9)


def test_a_unit_without_room_beside_the_topmost_number_stands_below_it() -> None:
    traffic = value_axis(BY_NAME["gpu.pcie_received"], 2.1 * 2.0**30)
    assert traffic.labels(17, 7) == {0: "2.4", 1: "GiB/s", 4: "1.8", 8: "1.2", 12: "0.6", 16: "0"}
    assert traffic.labels(4, 5) == {0: "2.4", 1: "GiB/s", 3: "0"}
    assert "GiB/s" not in traffic.labels(2, 7).values(), "each of two rows has its number"
    assert traffic.labels(17, 9)[0] == "2.4 GiB/s"
    assert 1 not in traffic.labels(17, 9)


@pytest.mark.parametrize(
    "values",
    [(1.54e-4, 6.8e-5), (7.5e-5, 6e-5), (-1.5e-4, 1.2e-4), (1.00001, 1.00009), (0.99986, 1.0), (1234567.0, 2345678.0),
     (101234.0, 101240.0), (2.3, 0.5)],
)  # fmt: skip
@pytest.mark.parametrize("cells", [4, 5, 6, 7])
@pytest.mark.parametrize("rows", [2, 5, 10, 20])
def test_a_number_beside_an_axis_is_that_of_its_row_or_is_left_out(
    values: tuple[float, float], cells: int, rows: int
) -> None:
    axis = logged_axis(values)
    labels = axis.labels(rows, cells)
    assert all(len(text) <= cells for text in labels.values())
    a_row = (axis.high - axis.low) / (rows - 1)
    for row, text in labels.items():
        assert float(text.replace("−", "-")) == pytest.approx(axis.high - row * a_row, abs=0.51 * a_row)
    assert len({*labels.values()}) == len(labels), "no two alike"


def test_an_axis_whose_top_has_no_room_keeps_two_numbers() -> None:
    assert logged_axis((1.54e-4, 6.8e-5)).labels(10, 6) == {9: "5e-5", 7: "7.5e-5", 5: "0.0001", 2: "1.5e-4"}


@pytest.mark.parametrize(
    "metric", [one for one in BY_NAME.values() if one.unit is Unit.HERTZ], ids=lambda one: one.name
)
def test_clocks_have_one_unit_in_charts_and_in_their_column(metric: Metric) -> None:
    assert {number_format(metric, top).unit for top in (346e6, 1.98e9)} == {"GHz"}


def test_near_epochs_are_thinned_and_named_by_round_numbers() -> None:
    grid = Grid(0, 1.0, 80)
    marks = [EpochMark(4.0 * number, number, "run") for number in range(20)]
    row = "".join(part for part, _, _ in epochs_above(marks, grid))
    assert row.split() == [f"╷e{number}" for number in range(0, 20, 2)]
    assert row.index("╷e10") == 40
    few = "".join(part for part, _, _ in epochs_above(marks[::5], grid))
    assert few.split() == ["╷e0", "╷e5", "╷e10", "╷e15"]


def test_names_of_epochs_do_not_come_and_go_while_they_move() -> None:
    marks = [EpochMark(7.9 * number + number % 3, number, "run") for number in range(60)]
    rows = [epochs_above(marks, Grid(first, 1.0, 80)) for first in range(100, 300)]
    for row in rows:
        names = "".join(part for part, _, _ in row).replace("╷", " ").split()
        assert all(int(name[1:]) % 2 == 0 for name in names if name != "e"), names


@pytest.mark.parametrize("work", [
    lambda drawn, grid: epochs_above(drawn.marks, grid),
    lambda drawn, grid: phases_below(drawn.spans_within(grid.begin, grid.end), grid, grid.end),
    lambda drawn, grid: epoch_ticks(gpu_columns(160), grid, drawn.marks, "vit"),
], ids=["above a chart", "phases", "below strips"])  # fmt: skip
def test_marks_of_a_window_take_as_long_after_thousands_of_epochs(work: Callable[[EpochMarks, Grid], object]) -> None:
    spent = []
    for epochs in (1_100, 110_000):
        marks = [EpochMark(10.0 * number, number, "run") for number in range(epochs)]
        spans = [Span(10.0 * number + 8.0, 10.0 * number + 10.0, "validate") for number in range(epochs)]
        drawn, grid = EpochMarks(marks, [spans], []), Grid(10 * epochs - 5400, 1.0, 80)
        work(drawn, grid)
        spent.append(instructions(lambda drawn=drawn, grid=grid: work(drawn, grid)))  # type: ignore[misc]
    assert spent[1] < 1.5 * spent[0] + 300, "a bisection takes a few steps more"


@pytest.mark.parametrize("work", [
    epochs_above, lambda marks, grid: epoch_ticks(gpu_columns(160), grid, marks, "vit"),
], ids=["above a chart", "below strips"])  # fmt: skip
def test_epochs_of_a_window_are_named_as_fast_where_there_are_thousands(
    work: Callable[[Sequence[EpochMark], Grid], object],
) -> None:
    spent = []
    for epochs in (1_000, 10_000):
        marks = [EpochMark(3600 / epochs * number, number, "run") for number in range(epochs)]
        spent.append(instructions(lambda marks=marks: work(marks, Grid(0, 30.0, 120))))  # type: ignore[misc]
    assert spent[1] < 2 * spent[0], spent


def test_multiples_are_found_among_epochs_of_several_runs_and_repeated_ones() -> None:
    numbers = [*(("a", number) for number in range(3, 48)), *(("b", number) for number in (0, 1, 5, 9, 10, 11, 20))]
    numbers += [("c", number) for number in (*range(25), *range(19, 33))]
    marks = [EpochMark(float(time), number, run) for time, (run, number) in enumerate(numbers)]
    for every in (1, 2, 5, 10, 20, 1000):
        assert [*every_nth(marks, every)] == [mark for mark in marks if mark.epoch % every == 0]


def test_spans_of_a_window_are_those_that_have_a_part_in_it() -> None:
    spans = [Span(10.0 * number, 10.0 * number + 4.0, "validate") for number in range(9)]
    drawn = EpochMarks([], [spans, [Span(85.0, inf, "test")]], [])
    assert [span.begin for span in drawn.spans_within(12.0, 31.0)] == [10.0, 20.0, 30.0]
    assert [span.begin for span in drawn.spans_within(90.0, 95.0)] == [85.0]
    assert [span.begin for span in drawn.spans_within(-inf, inf)] == [*(span.begin for span in spans), 85.0]


def oom(time: float) -> Boundary:
    return boundary(1, mark=Mark.OUT_OF_MEMORY)._replace(time_ns=int(time * 1e9))


@pytest.mark.parametrize(
    ("times", "row"),
    [
        ((5,), "     ▲ OOM"),
        ((18,), "                  ▲"),
        ((2, 4, 9), "  ▲ ▲    ▲ OOM"),
        ((15,), "               ▲ OOM"),
    ],
)
def test_lost_memory_is_marked_also_near_others_and_at_the_end(times: tuple[float, ...], row: str) -> None:
    grid = Grid(0, 1.0, 20)
    alone = epochs_above([], grid, [oom(time) for time in times])
    assert "".join(part for part, _, _ in alone).rstrip() == row
    crowded = epochs_above(
        [EpochMark(float(time), time, "run") for time in range(20)], grid, [oom(time) for time in times]
    )
    assert all("".join(part for part, _, _ in crowded)[int(time)] == "▲" for time in times), "before any epoch"


def test_a_phase_is_painted_where_it_takes_half_of_a_cell() -> None:
    grid = Grid(0, 10.0, 10)
    spans = [Span(14.0, 36.0, "validate"), Span(14.5, 36.0, "validate"), Span(60.0, 64.0, "checkpoint")]
    line = phases_below(spans, grid, 100.0)
    assert "".join(part for part, _, _ in line) == " ▀▀▀      ", "20 to 30 whole, 14 and 36 more than half"
    together = [Span(20.0, 24.0, "validate")] * 8
    assert phases_below(together, grid, 100.0) == phases_below([], grid, 100.0), "ranks together are one phase"
    assert phases_below([Span(80.0, inf, "validate")], grid, 90.0)[-2].text == "▀", "no further than now"


def test_the_time_of_now_stands_at_now(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = live_columns(600, 120, NOW)
    (text,) = ["".join(part for part, _, _ in times_below(grid, NOW, "now"))]
    assert text.rindex("now") + 3 == grid.at(NOW) + 1
    assert "now" not in "".join(part for part, _, _ in times_below(grid, NOW + 9000, "now"))


def test_times_below_a_chart_are_apart() -> None:
    for cells in (40, 72, 150):
        for window in (60, 600, 86400):
            text = "".join(part for part, _, _ in times_below(live_columns(window, cells, NOW), NOW, "now"))
            begins = [found.start() for found in re.finditer(r"\S+", text)]
            assert all(later - earlier >= 8 for earlier, later in pairwise(begins)), text


def test_a_heat_strip_has_two_values_a_cell_and_shows_gaps() -> None:
    line = heat_strip([0.0, 0.0, 0.0, 1.0, nan, nan, nan, 1.0])
    assert "".join(part for part, _, _ in line) == "▌▌·▌"
    assert len({style for _, style, _ in line}) == 4


def test_halves_are_the_same_time() -> None:
    grid = live_columns(600, 120, NOW)
    assert (halves(grid).begin, halves(grid).end) == (grid.begin, grid.end)


def test_cells_of_one_style_are_one_segment() -> None:
    row = [PaintedCell("a", Tint("util")), PaintedCell("b", Tint("util")), PaintedCell(" ")]
    assert [part.text for part in to_line(row)] == ["ab", " "]
    assert to_line(row)[1] == Segment(" ")


def test_the_metric_is_in_the_table() -> None:
    assert NAME in GPU_INDEX
