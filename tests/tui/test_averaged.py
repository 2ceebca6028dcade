"""A mean names the time that it is of."""

from __future__ import annotations

from math import isnan, nan

import pytest

from gpumon.storage.history.buckets import Grid
from gpumon_tui.render.line_plot import PlotCurve, average, span_text
from tests.tui.fakes import FakeFeed
from tests.tui.screen import play


def flat(*values: float) -> PlotCurve:
    return PlotCurve(values, values, values)


def test_only_what_lies_in_the_window_is_averaged_by_how_long_it_lies_there() -> None:
    columns = Grid(0, 10.0, 3)  # halves of 5 s: from 0 to 30 s
    curve = flat(0.0, 0.2, 0.4, nan, 0.8, 0.9)
    found = average(curve, columns, 6.0, 21.0)
    assert found.seconds == 10.0, "4 s, 5 s, a gap and 1 s"
    assert found.mean == pytest.approx((4 * 0.2 + 5 * 0.4 + 0.8) / 10)
    assert (found.low, found.high) == (0.2, 0.8)
    assert isnan(average(flat(nan, nan), Grid(0, 10.0, 1), 0.0, 10.0).mean)


@pytest.mark.parametrize(
    ("seconds", "window", "said"),
    [
        (318.0, 900, "5 min 18 s"), (318.0, 3600, "5 min 18 s"), (120.0, 120, "2 min"), (119.4, 120, "2 min"),
        (16.0, 60, "16 s"), (3900.0, 10800, "1 h 5 min"), (0.0, 600, "10 min"), (93600.0, 604800, "1 d 2 h"),
    ],
)  # fmt: skip
def test_the_time_that_is_averaged_is_named_and_not_the_window(seconds: float, window: int, said: str) -> None:
    assert span_text(seconds, window, 1.0) == said


@pytest.mark.parametrize("seconds", [46, 318])
def test_the_overview_says_of_how_long_a_mean_is(seconds: int) -> None:
    screen = "\n".join(play(FakeFeed(gpus=1, seconds=seconds + 1, processes_count=2), (120, 40)))
    told = f"{seconds} s" if seconds < 60 else "5 min 18 s"
    assert f" {told:<12}" in screen
    assert "10 min  " not in screen.split("Utilization")[1].split("lowest")[0]
