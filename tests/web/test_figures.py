"""Figures as data: what Plotly is told to draw, without Plotly."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from gpumon.figures.bands import AXIS, Band, band_trace
from gpumon.figures.escape import LONGEST, literal
from gpumon.figures.extremes import line_values
from gpumon.figures.gpu import gpu_figure
from gpumon.figures.scales import scale_of
from gpumon.frame import Mark, RunState
from gpumon.history.query import Series
from gpumon.metrics import Unit
from gpumon.panels import GPU_PANELS
from tests.builders import TIME, boundary, device, run, sample, tick
from tests.web.served import Served

BEGIN = TIME / 1e9
GIB = 2.0**30


def figure(
    ticks: list[Any], begin: float = BEGIN, end: float = BEGIN + 100, points: int = 2000, run: str = ""
) -> dict[str, Any]:
    served = Served(ticks)
    served.feed.refresh()
    assert served.feed.frame is not None
    return gpu_figure(served.feed.history, served.feed.epochs, served.feed.frame.samples[0], begin, end, points, run)


def lines(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The lines by metric."""
    return {trace["meta"]["metric"]: trace for trace in found["data"] if trace["meta"]["what"] == "line"}


def test_each_metric_that_the_card_gives_has_a_panel_in_the_unit_of_its_axis() -> None:
    found = figure([tick(n, [sample(0, utilization=0.5, memory_used=3 * GIB, memory_total=80 * GIB)]) for n in (1, 2)])
    drawn = lines(found)
    assert list(drawn) == ["gpu.utilization", "gpu.memory_used"]
    assert drawn["gpu.utilization"]["y"] == [50.0, 50.0]
    assert drawn["gpu.memory_used"]["y"] == [3.0, 3.0]
    assert drawn["gpu.memory_used"]["x"] == [round((BEGIN + n) * 1000) for n in (1, 2)]
    axes = [found["layout"]["yaxis" + drawn[name]["yaxis"][1:]] for name in drawn]
    assert [axis["ticksuffix"] for axis in axes] == [" %", " GiB"]
    assert axes[1]["range"][1] == pytest.approx(80, rel=0.05)
    assert len({trace["yaxis"] for trace in drawn.values()} | {AXIS}) == 3


def test_panels_lie_below_each_other_and_do_not_touch() -> None:
    values: dict[str, Any] = {panel.metric.name.partition(".")[2]: 1.0 for panel in GPU_PANELS if not panel.is_rate}
    found = figure([tick(n, [sample(0, **values)]) for n in (1, 2)])
    domains = [axis["domain"] for name, axis in found["layout"].items() if name.startswith("yaxis") and name != "yaxis"]
    assert len(domains) == len(values)
    for above, below in pairwise(domains):
        assert above[0] > below[1] > below[0] >= 0


def test_what_is_missing_is_a_gap_and_never_nothing() -> None:
    found = figure([tick(1, [sample(0, utilization=0.5)]), tick(2, [sample(0)]), tick(3, [sample(0, utilization=0.0)])])
    assert lines(found)["gpu.utilization"]["y"] == [50.0, None, 0.0]
    json.dumps(found, allow_nan=False)


def test_no_line_has_more_points_than_asked() -> None:
    found = figure([tick(n, [sample(0, utilization=n % 2)]) for n in range(1, 500)], end=BEGIN + 1000, points=40)
    assert len(lines(found)["gpu.utilization"]["x"]) <= 40


def test_a_stall_of_one_sample_is_in_the_line_of_any_window() -> None:
    found = figure([tick(n, [sample(0, utilization=n != 333)]) for n in range(1, 500)], end=BEGIN + 1000, points=40)
    line = lines(found)["gpu.utilization"]
    assert min(line["y"]) == 0
    assert max(line["y"]) == 100
    assert line["x"] == sorted(line["x"])
    assert line["x"][0] >= (BEGIN + 1) * 1000
    assert line["x"][-1] <= (BEGIN + 499) * 1000, "what comes next is put behind it"


def test_a_bucket_shows_its_lowest_first_where_the_line_rises_and_its_highest_first_where_it_falls() -> None:
    low, mean, high = [0.0, 0.2, 0.5, 0.1], [0.1, 0.4, 0.6, 0.2], [0.2, 0.6, 0.9, 0.4]
    assert line_values(Series([], low, mean, high, step=4.0)) == [0.0, 0.2, 0.2, 0.6, 0.9, 0.5, 0.4, 0.1]
    assert line_values(Series([], low, mean, high)) == mean, "samples that are no buckets"


def training(last: int, **fields: Any) -> list[Any]:
    going = run(gpus=(device().uuid,), **fields)
    begins = [boundary(number, epoch=number) for number in range(1, last, 10)]
    return [
        tick(n, [sample(0, utilization=0.5, run=going.key)], runs=[going], boundaries=begins if n == last - 1 else [])
        for n in range(1, last)
    ]


def test_epochs_lie_behind_the_lines_from_begin_to_begin_and_the_last_up_to_now() -> None:
    found = figure(training(30), end=BEGIN + 29)
    assert found["bands"] == [[BEGIN + 1, BEGIN + 11, 1], [BEGIN + 11, BEGIN + 21, 11], [BEGIN + 21, BEGIN + 29, 21]]
    assert found["data"][0]["meta"]["what"] == "band"
    assert found["data"][0]["yaxis"] == AXIS == "y"


def two_runs(second_begins: int) -> list[Any]:
    """Two runs of thirty seconds on one GPU, each with an epoch every ten."""
    runs = [run(key, id=key, name=key, gpus=(device().uuid,), state=RunState.FINISHED, updated=BEGIN + begin + 30)
            for key, begin in (("first", 1), ("second", second_begins))]  # fmt: skip
    begins = [
        boundary(number + 1, number, key=key)._replace(time_ns=TIME + (begin + 10 * number) * 10**9)
        for key, begin in (("first", 1), ("second", second_begins)) for number in range(3)
    ]  # fmt: skip
    return [
        tick(n, [sample(0, utilization=0.5)], runs=runs, boundaries=begins if n == 99 else []) for n in range(1, 100)
    ]


def test_of_runs_that_overlap_one_has_its_bands_and_all_are_named() -> None:
    found = figure(two_runs(5))
    assert [(one["id"], one["drawn"]) for one in found["runs"]] == [("first", False), ("second", True)]
    assert [band[0] - BEGIN for band in found["bands"]] == [5, 15, 25]
    chosen = figure(two_runs(5), run="first")
    assert [band[0] - BEGIN for band in chosen["bands"]] == [1, 11, 21]


def test_runs_one_after_another_all_have_their_bands() -> None:
    found = figure(two_runs(40))
    assert [one["drawn"] for one in found["runs"]] == [True, True]
    assert [band[0] - BEGIN for band in found["bands"]] == [1, 11, 21, 40, 50, 60]


def test_an_epoch_that_goes_on_ends_where_the_samples_end() -> None:
    assert figure(training(30), end=BEGIN + 1000)["bands"][-1][1] == BEGIN + 29


def test_the_last_epoch_of_a_run_that_is_over_ends_with_it() -> None:
    found = figure(training(30, state=RunState.FINISHED, updated=BEGIN + 25), end=BEGIN + 29)
    assert found["bands"][-1] == [BEGIN + 21, BEGIN + 25, 21]


def test_a_window_shows_only_what_lies_in_it() -> None:
    found = figure(training(30), BEGIN + 15, BEGIN + 18)
    assert found["bands"] == [[BEGIN + 15, BEGIN + 18, 11]]
    assert len(lines(found)["gpu.utilization"]["x"]) == 4


def test_thousands_of_epochs_are_one_trace() -> None:
    trace = band_trace([Band(float(n), n + 1.0, n) for n in range(5000)])
    assert len(trace["x"]) == len(trace["y"]) == 10000
    assert trace["y"][:4] == [0, 0, 1, 0]


def test_an_out_of_memory_error_is_marked_where_it_was() -> None:
    working = run(gpus=(device().uuid,))
    oom = boundary(2, 0, Mark.OUT_OF_MEMORY)
    found = figure([tick(n, [sample(0, utilization=0.5)], runs=[working], boundaries=[oom]) for n in (1, 2, 3)])
    (shape,) = found["layout"]["shapes"]
    assert shape["x0"] == shape["x1"] == round((BEGIN + 2) * 1000)
    assert any(note["text"] == "out of memory" for note in found["layout"]["annotations"])


def test_a_figure_has_roles_and_no_colors() -> None:
    def colors(value: Any, key: str = "") -> list[str]:
        if isinstance(value, dict):
            return [found for name, one in value.items() for found in colors(one, name)]
        if isinstance(value, list):
            return [found for one in value for found in colors(one, key)]
        return [value] if key.endswith("color") else []

    found = colors(figure(training(30)))
    assert len(found) > 3
    assert all(color.startswith("@") for color in found)


@pytest.mark.parametrize("unit", list(Unit))
@pytest.mark.parametrize("rate", [False, True])
def test_every_unit_has_a_scale(unit: Unit, rate: bool) -> None:
    scale = scale_of(unit, rate=rate)
    assert scale.factor > 0
    assert scale.suffix == "" or scale.suffix.startswith(" ")


def test_a_strangers_text_is_letters_in_a_figure() -> None:
    assert literal("<b>x</b>\x1b[31m") == "&lt;b&gt;x&lt;/b&gt;\\x1b[31m"
    assert len(literal("a" * 1000)) <= LONGEST
    assert literal("&lt;") == "&amp;lt;"
