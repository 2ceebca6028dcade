"""Chart documents as figures of Plotly: gaps, smoothing, logarithmic axes, units and texts of strangers."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from gpumon.reports.figures.plotly_figure import (
    VALUE,
    Look,
    count_not_positive,
    plotly_figure,
    smoothed,
    unseen_spans,
    write,
    y_axis,
)


def panel(key: str = "logged.loss", unit: str = "plain", **fields: Any) -> dict[str, Any]:
    line = {"x": 0, "mean": [4.0, 2.0, 1.0], "role": "s0", "label": "A first", "mark": "A", "joined": True}
    return {"key": key, "title": "loss", "unit": unit, "zero": False, "limits": [], "lines": [line], **fields}


def line(values: list[float | None], **fields: Any) -> dict[str, Any]:
    return {**panel()["lines"][0], "mean": values, **fields}


def document(*panels: dict[str, Any], times: list[float] | None = None, **fields: Any) -> dict[str, Any]:
    positions = times or [0.0, 1.0, 2.0]
    return {
        "axis": "epochs", "begin": 0.0, "end": positions[-1], "interval": 0.0, "times": [positions], "runs": [],
        "events": [], "held": [], "panels": list(panels), **fields,
    }  # fmt: skip


class TestLines:
    def test_unknown_value_is_a_gap(self) -> None:
        (trace,) = plotly_figure(document(panel(lines=[line([4.0, 3.0, None, 1.0, 0.5])]), times=[0, 1, 2, 3, 4]))[
            "data"
        ]
        assert trace["y"] == [4.0, 3.0, None, 1.0, 0.5]
        assert trace["connectgaps"] is False

    def test_missed_samples_are_a_gap(self) -> None:
        sampled = line([1.0, 1.0, 1.0, 1.0], joined=False, step=1.0)
        trace, *_ = plotly_figure(document(panel(lines=[sampled]), times=[0, 1, 9, 10]))["data"]
        assert (trace["x"], trace["y"]) == ([0, 1, 5, 9, 10], [1.0, 1.0, None, 1.0, 1.0])

    def test_logged_values_are_joined(self) -> None:
        (trace,) = plotly_figure(document(panel(lines=[line([1.0, 1.0])]), times=[0, 900]))["data"]
        assert trace["y"] == [1.0, 1.0]

    def test_value_between_gaps_is_a_dot(self) -> None:
        figure = plotly_figure(document(panel(lines=[line([1.0, None, 3.0])])))
        assert [(trace["mode"], trace["y"]) for trace in figure["data"][1:]] == [("markers", [1.0, 3.0])]

    def test_each_panel_has_its_axis(self) -> None:
        figure = plotly_figure(document(panel(), panel("gpu.power", "watts", zero=True), panel("energy", "joules")))
        assert [trace["yaxis"] for trace in figure["data"]] == ["y", "y2", "y3"]
        domains = [figure["layout"][name]["domain"] for name in ("yaxis", "yaxis2", "yaxis3")]
        assert domains == sorted(domains, reverse=True)
        assert all(low < high for low, high in domains)
        assert all(above[0] > below[1] for above, below in pairwise(domains))

    def test_only_chosen_panels(self) -> None:
        figure = plotly_figure(document(panel(), panel("gpu.power", "watts")), Look(panels=["gpu.power"]))
        assert len(figure["data"]) == 1
        assert "yaxis2" not in figure["layout"]


def sampled(values: list[float | None], **fields: Any) -> dict[str, Any]:
    return {"x": 0, "mean": values, "step": 1.0, **fields}


class TestTimes:
    """Documents of a GPU or a run, over time."""

    def chart(self, *lines: dict[str, Any], **fields: Any) -> dict[str, Any]:
        times = [100.0, 101.0, 102.0, 103.0]
        return document(panel("gpu.power", "watts", zero=True, lines=lines), times=times, axis="time", **fields)

    def test_are_milliseconds(self) -> None:
        figure = plotly_figure(self.chart(sampled([1.0] * 4, role="s0")))
        assert figure["data"][0]["x"] == [100_000, 101_000, 102_000, 103_000]
        assert figure["layout"]["xaxis"]["type"] == "date"

    def test_line_has_the_colors_of_its_holders(self) -> None:
        held = [[99.0, 101.5, "alice"], [101.5, 102.5, "bob"]]
        figure = plotly_figure(self.chart(sampled([1.0, 2.0, 3.0, 4.0]), held=held))
        lines = [(trace["line"]["color"], trace["y"]) for trace in figure["data"] if trace["mode"] == "lines"]
        assert lines == [
            ("@holder0", [1.0, 2.0, 3.0, None]), ("@holder1", [None, None, 3.0, 4.0]), ("@mut", [None, None, None, 4.0])
        ]  # fmt: skip
        assert figure["layout"]["meta"]["holders"] == ["alice", "bob"]

    def test_range_is_not_filled_across_a_gap(self) -> None:
        low, high = [0.0, 1.0, None, 2.0], [2.0, 3.0, None, 4.0]
        figure = plotly_figure(self.chart(sampled([1.0, 2.0, None, 3.0], low=low, high=high, role="s0")))
        areas = [trace for trace in figure["data"] if trace.get("fill")]
        assert [(area["x"], area["y"]) for area in areas] == [([100_000, 101_000], [0.0, 1.0]), ([103_000], [2.0])]

    def test_gap_is_shaded(self) -> None:
        chart = self.chart(sampled([1.0, None, None, 3.0], role="s0"))
        assert unseen_spans(chart) == [(100.0, 103.0)]
        assert unseen_spans({**chart, "unseen": [[101.0, 102.0]]}) == [(101.0, 102.0)]

    def test_epochs_phases_events_and_limits(self) -> None:
        run = {
            "name": "net", "bands": [[100.0, 101.0, 0], [101.0, 102.0, 1], [102.0, 103.0, 2, "", 9]],
            "phases": [[100.5, 101.0, "validate"]],
        }  # fmt: skip
        events = [{"time": 101.0, "level": "bad", "text": "out of <memory>"}]
        chart = self.chart(sampled([1.0] * 4, role="s0"), runs=[run], events=events)
        chart["panels"][0]["limits"] = [{"at": 700.0, "text": "power limit"}]
        figure = plotly_figure(chart)
        shapes = figure["layout"]["shapes"]
        bands = [(shape["x0"], shape["x1"]) for shape in shapes if shape["type"] == "rect"]
        assert bands == [(100_000, 101_000), (102_000, 103_000), (100_500, 101_000)]
        assert [shape["x0"] for shape in shapes if shape["type"] == "line" and shape["xref"] == "x"] == [101_000]
        assert [shape["y0"] for shape in shapes if shape.get("yref") == "y"] == [700.0]
        texts = [trace["text"] for trace in figure["data"] if "text" in trace]
        assert texts == [["epoch 0", "epoch 1", "epochs 2 to 9", "epochs 2 to 9"], ["out of &lt;memory&gt;"]]


class TestSmoothing:
    def test_first_value_has_no_bias(self) -> None:
        assert smoothed([5.0, 5.0, 5.0], 0.9) == [pytest.approx(5.0)] * 3

    def test_starts_again_after_a_gap(self) -> None:
        assert smoothed([9.0, 9.0, None, 1.0], 0.9) == [9.0, 9.0, None, pytest.approx(1.0)]

    def test_later_values_weigh_less(self) -> None:
        assert smoothed([0.0, 1.0], 0.5) == [0.0, pytest.approx(2 / 3)]

    def test_is_drawn_over_the_values(self) -> None:
        raw, mean = plotly_figure(document(panel()), Look(smoothing=0.5))["data"]
        assert raw["y"] == [4.0, 2.0, 1.0]
        assert mean["y"] == smoothed([4.0, 2.0, 1.0], 0.5)
        assert raw["hoverinfo"] == "skip"

    def test_is_of_logged_values_alone(self) -> None:
        assert len(plotly_figure(document(panel("gpu.power", "watts")), Look(smoothing=0.5))["data"]) == 1


class TestLogarithmicAxis:
    def test_is_of_logged_values_alone(self) -> None:
        layout = plotly_figure(document(panel(), panel("gpu.power", "watts")), Look(is_log=True))["layout"]
        assert layout["yaxis"]["type"] == "log"
        assert "type" not in layout["yaxis2"]

    def test_leaves_out_what_is_not_positive_and_counts_it(self) -> None:
        chart = document(panel(lines=[line([4.0, 0.0, -1.0])]))
        look = Look(["logged.loss"], is_log=True)
        assert plotly_figure(chart, look)["data"][0]["y"] == [4.0, None, None]
        assert count_not_positive(chart, look) == 2
        assert count_not_positive(chart, Look(["logged.loss"])) == 0

    def test_is_linear_without_positive_values(self) -> None:
        chart = document(panel(lines=[line([0.0, -1.0, -2.0])]))
        assert "type" not in plotly_figure(chart, Look(is_log=True))["layout"]["yaxis"]


class TestUnits:
    @pytest.mark.parametrize(
        ("unit", "value", "shown", "suffix"),
        [
            ("ratio", 0.5, 50.0, " %"), ("bytes", 2.0**31, 2.0, " GiB"), ("watts", 300.0, 300.0, " W"),
            ("joules", 7200.0, 2.0, " Wh"), ("joules", 7.2e6, 2.0, " kWh"), ("hertz", 1.5e9, 1.5, " GHz"),
            ("seconds", 0.5, 0.5, " s"), ("plain", 3.0, 3.0, ""), ("joules_per_second", 300.0, 300.0, " W"),
            ("bytes_per_second", 2.0**21, 2.0, " MiB/s"),
        ],
    )  # fmt: skip
    def test_axis(self, unit: str, value: float, shown: float, suffix: str) -> None:
        axis = y_axis(panel(unit=unit, lines=[line([value])]))
        assert axis.suffix == suffix
        assert value * axis.factor == pytest.approx(shown)

    def test_text_is_that_of_tables(self) -> None:
        assert [write(*value) for value in ((0.5, "ratio"), (300.0, "joules_per_second"), (None, "watts"))] == [
            "50 %", "300 W", "–"
        ]  # fmt: skip

    def test_time_is_in_the_unit_that_fits(self) -> None:
        figure = plotly_figure(document(panel(), times=[0.0, 300.0, 600.0], axis="since"))
        assert figure["data"][0]["x"] == [0.0, pytest.approx(5.0), pytest.approx(10.0)]
        assert figure["layout"]["xaxis"]["range"] == [0.0, pytest.approx(10.0)]


class TestLastValues:
    @pytest.mark.parametrize(
        ("fields", "text"),
        [({}, "A 1"), ({"odd": [2.0, "NaN"]}, "A NaN"), ({"lost": {"at": 2, "text": "unknown"}}, "A –")],
    )
    def test_value(self, fields: dict[str, Any], text: str) -> None:
        figure = plotly_figure(document(panel(lines=[line([4.0, 2.0, 1.0], **fields)])))
        assert [note["text"] for note in figure["layout"]["annotations"] if note.get("name") == VALUE] == [text]


def test_texts_of_strangers_are_literal() -> None:
    hostile = "<a href='javascript:x'>%{y}</a>"
    figure = plotly_figure(document(panel(title=hostile, lines=[line([1.0], label=hostile, mark="<b>")]), times=[0.0]))
    assert "<" not in json.dumps([figure["layout"]["annotations"], [trace["name"] for trace in figure["data"]]])
