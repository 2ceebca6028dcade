"""Charts as data: what the scripts are told to draw, without a browser."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import nan
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon.diagnosis.finding import Finding, Severity, Subject
from gpumon.model.frame import Mark, RunState
from gpumon.model.metrics import Availability, Unit
from gpumon.model.panels import GPU_PANELS
from gpumon.model.xids import xid_of
from gpumon.reports.figures.document import MARKS, event, marks_on, panel
from gpumon.reports.figures.plotly_figure import LONGEST, literal, y_axis
from gpumon.storage.events.query import EventFilter, read_events
from gpumon_web.charts.gpu_chart import RUNS, USUAL, GpuChartWindow, flat, gpu_chart
from gpumon_web.health import attention, checks
from gpumon_web.pages.gpu import missing_text
from tests.activity import keep
from tests.builders import TIME, boundary, device, process, run, sample, tick
from tests.runs import BEGAN, Book
from tests.web.charted import lines, points
from tests.web.served import Served

BEGIN = TIME / 1e9
GIB = 2.0**30
EVERY = tuple(panel.metric.name for panel in GPU_PANELS)


def chart(
    ticks: list[Any], begin: float = BEGIN, end: float = BEGIN + 100, count: int = 2000, panels: Any = EVERY
) -> dict[str, Any]:
    served = Served(ticks)
    served.feed.refresh()
    feed = served.feed
    assert feed.frame is not None
    window = GpuChartWindow(begin, end, count, panels)
    found = gpu_chart(feed.history, feed.epochs, feed.frame.samples[0], feed.frame.processes, 1.0, "", window)
    json.dumps(found, allow_nan=False)
    return found


def test_each_metric_that_the_card_gives_has_a_panel_with_its_unit_and_its_top() -> None:
    found = chart([tick(n, [sample(0, utilization=0.5, memory_used=3 * GIB, memory_total=80 * GIB)]) for n in (1, 2)])
    panels = {panel["key"]: panel for panel in found["panels"]}
    assert [(one["key"], one["unit"], one["top"], one["zero"]) for one in panels.values()] == [
        ("gpu.utilization", "ratio", 1.0, True), ("gpu.memory_used", "bytes", 80 * GIB, True),
    ]  # fmt: skip
    assert points(found, "gpu.memory_used") == [(BEGIN + n, pytest.approx(3 * GIB, rel=1e-5)) for n in (1, 2)]
    assert len(found["times"]) == 1, "lines of one query share their times"
    assert [one["key"] for one in found["all"]] == list(panels)


def test_only_the_panels_that_are_asked_for_are_answered_and_all_are_named() -> None:
    values: dict[str, Any] = {name.partition(".")[2]: 1.0 for name in EVERY}
    ticks = [tick(n, [sample(0, **values)]) for n in (1, 2)]
    usual = chart(ticks, panels=USUAL)
    assert tuple(one["key"] for one in usual["panels"]) == USUAL
    assert len(usual["all"]) > len(USUAL)
    assert [one["key"] for one in chart(ticks, panels=["gpu.clock_sm"])["panels"]] == ["gpu.clock_sm"]
    assert len(chart(ticks, panels=["nonsense"])["panels"]) == len(USUAL)


def test_thresholds_that_the_card_tells_are_limits_with_words_and_no_others() -> None:
    ticks = [tick(n, [sample(0, power=300.0, power_limit=700.0, temperature=60.0, temperature_slowdown=87.0)])
             for n in (1, 2)]  # fmt: skip
    limits = {one["key"]: one["limits"] for one in chart(ticks)["panels"]}
    assert limits["gpu.power"] == [{"at": 700.0, "text": "power limit 700 W"}]
    assert limits["gpu.temperature"] == [{"at": 87.0, "text": "slowdown at 87 °C"}]
    without = chart([tick(n, [sample(0, power=300.0, temperature=60.0)]) for n in (1, 2)])
    assert [one["limits"] for one in without["panels"]] == [[], []]


def test_what_is_missing_is_a_gap_and_never_nothing() -> None:
    found = chart([tick(1, [sample(0, utilization=0.5)]), tick(2, [sample(0)]), tick(3, [sample(0, utilization=0.0)])])
    assert lines(found)["gpu.utilization"]["mean"] == [0.5, None, 0.0]


def test_a_stall_of_one_sample_is_in_the_envelope_of_any_window() -> None:
    ticks = [tick(n, [sample(0, utilization=n != 333)]) for n in range(1, 500)]
    found = chart(ticks, end=BEGIN + 1000, count=40)
    line = lines(found)["gpu.utilization"]
    assert len(line["x"]) <= 40
    assert (min(line["low"]), max(line["high"])) == (0, 1)
    assert line["x"] == sorted(line["x"])
    assert found["step"] == line["step"] > 1


def training(last: int, **fields: Any) -> list[Any]:
    going = run(gpus=(device().uuid,), **fields)
    begins = [boundary(number, epoch=number) for number in range(1, last, 10)]
    return [
        tick(n, [sample(0, utilization=0.5, run=going.key)], runs=[going], boundaries=begins if n == last - 1 else [])
        for n in range(1, last)
    ]


def test_the_newest_mean_says_of_how_many_seconds_it_is_as_others_come_in_it() -> None:
    ticks = [tick(n, [sample(0, utilization=0.5, power=300.0 if n % 2 else nan)]) for n in range(1, 500)]
    found = chart(ticks, end=BEGIN + 499, count=60)
    of = lines(found)["gpu.utilization"]
    edge = of["x"][-1] - of["step"] / 2
    assert of["step"] > 1
    assert of["filled"] == pytest.approx(BEGIN + 500 - edge, abs=0.01), "a sample lasts as long as others do"
    assert lines(found)["gpu.power"]["filled"] < of["filled"], "of what has values in it alone"
    assert "filled" not in lines(chart(ticks))["gpu.utilization"], "samples by themselves are no means"


def test_epochs_go_from_begin_to_begin_and_the_last_up_to_now() -> None:
    (ribbon,) = chart(training(30), end=BEGIN + 1000)["runs"]
    assert ribbon["bands"] == [[BEGIN + 1, BEGIN + 11, 1], [BEGIN + 11, BEGIN + 21, 11], [BEGIN + 21, BEGIN + 29, 21]]


def test_the_last_epoch_of_a_run_that_is_over_ends_with_it() -> None:
    (ribbon,) = chart(training(30, state=RunState.FINISHED, updated=BEGIN + 25), end=BEGIN + 29)["runs"]
    assert ribbon["bands"][-1] == [BEGIN + 21, BEGIN + 25, 21]


def test_a_window_shows_only_what_lies_in_it() -> None:
    found = chart(training(30), BEGIN + 15, BEGIN + 18)
    assert found["runs"][0]["bands"] == [[BEGIN + 15, BEGIN + 18, 11]]
    assert len(lines(found)["gpu.utilization"]["x"]) == 4
    assert (found["begin"], found["end"]) == (BEGIN + 15, BEGIN + 18)


def test_two_runs_on_one_gpu_have_a_ribbon_each_in_the_order_of_their_begin() -> None:
    runs = [run(key, id=key, name=key, gpus=(device().uuid,), state=RunState.FINISHED, updated=BEGIN + begin + 30)
            for key, begin in (("first", 1), ("second", 5))]  # fmt: skip
    begins = [
        boundary(number + 1, number, key=key)._replace(time_ns=TIME + (begin + 10 * number) * 10**9)
        for key, begin in (("first", 1), ("second", 5)) for number in range(3)
    ]  # fmt: skip
    ticks = [
        tick(n, [sample(0, utilization=0.5)], runs=runs, boundaries=begins if n == 99 else []) for n in range(1, 100)
    ]
    found = chart(ticks)["runs"]
    assert [(one["name"], [band[0] - BEGIN for band in one["bands"]]) for one in found] == [
        ("first", [1, 11, 21]), ("second", [5, 15, 25]),
    ]  # fmt: skip


def test_an_out_of_memory_error_is_an_event_where_it_was() -> None:
    oom = boundary(2, 0, Mark.OUT_OF_MEMORY)
    working = run(gpus=(device().uuid,))
    found = chart([tick(n, [sample(0, utilization=0.5)], runs=[working], boundaries=[oom]) for n in (1, 2, 3)])
    assert found["events"] == [{"time": BEGIN + 2, "level": "bad", "text": "out of memory"}]


class TestManyMarks:
    def test_each_is_in_a_count_at_its_place_with_the_worst_level(self) -> None:
        told = [event(BEGIN + n / 10, "bad" if n == 555 else "warn", "loss is NaN") for n in range(5000)]
        found = marks_on(told, BEGIN, BEGIN + 500)
        assert sum(one["count"] for one in found) == 5000
        assert len(found) <= MARKS + 1
        assert [one["time"] for one in found] == sorted(one["time"] for one in found)
        assert [one["level"] for one in found].count("bad") == 1
        assert found[0]["text"] == f"{found[0]['count']} × loss is NaN"

    def test_few_are_told_one_by_one(self) -> None:
        told = [event(BEGIN + 2, "bad", "two"), event(BEGIN + 1, "", "one")]
        assert marks_on(told, BEGIN, BEGIN + 10) == told[::-1]

    def test_events_that_are_too_many_to_be_read_are_counted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = str(tmp_path / "history.sqlite")
        busy = [
            tick(
                60 * n,
                [sample(0, utilization=float(n // 20 % 2), memory_used=GIB)],
                [process()],
                interval_ns=60 * SECOND,
            )
            for n in range(1, 240)
        ]
        keep(Path(path), busy)
        everything = read_events(path, BEGIN, BEGIN + 4 * 3600, EventFilter(device=device().uuid))
        assert len(everything) > 5
        monkeypatch.setattr("gpumon_web.charts.gpu_chart.EVENTS", 4)
        served = Served(busy)
        served.feed.refresh()
        window = GpuChartWindow(BEGIN, BEGIN + 4 * 3600, 2000, EVERY)
        assert served.feed.frame is not None
        found = gpu_chart(served.feed.history, served.feed.epochs, served.feed.frame.samples[0], (), 60.0, path, window)
        assert sum(one.get("count", 1) for one in found["events"]) == len(everything)

    def test_runs_beyond_those_with_a_ribbon_are_said(self) -> None:
        runs = [run(f"k{n}", id=f"k{n}", name=f"k{n}", gpus=(device().uuid,)) for n in range(RUNS + 2)]
        begins = [boundary(n + 1, key=f"k{n}") for n in range(RUNS + 2)]
        ticks = [tick(n, [sample(0, utilization=0.5)], runs=runs, boundaries=begins if n == 99 else [])
                 for n in range(1, 100)]  # fmt: skip
        found = chart(ticks)
        assert len(found["runs"]) == RUNS
        assert f"{RUNS} of {RUNS + 2} runs" in found["cut"]


def test_lines_have_the_color_of_who_holds_the_gpu_then_and_of_nobody_before() -> None:
    mine = process(started=BEGIN + 5)
    found = chart([tick(n, [sample(0, utilization=0.5)], processes=[mine]) for n in range(1, 20)])
    assert found["held"] == [[BEGIN + 5, BEGIN + 19, "alice"]]


def test_of_holders_that_overlap_the_later_one_stands() -> None:
    assert flat([(0, 10, "a"), (4, 6, "b")], 0, 8) == [(0, 4, "a"), (4, 6, "b"), (6, 8, "a")]
    assert flat([], 0, 8) == []


def test_health_says_what_is_well_what_is_not_and_what_nobody_knows() -> None:
    well = sample(0, event_reasons=0.0, ecc_corrected=1.0, ecc_uncorrected=0.0, xid=0.0, pcie_generation=5.0,
                  pcie_width=16.0, temperature_slowdown=87.0, power_limit=700.0)  # fmt: skip
    assert [one["level"] for one in checks(well)] == ["ok"] * 5
    assert attention(checks(well)) == "as usual"
    ill = sample(0, event_reasons=float(0x20), ecc_uncorrected=2.0, xid=79.0)
    found = {one["title"]: (one["level"], one["text"]) for one in checks(ill)}
    assert found["Throttling"] == ("warn", "clocks held by heat (driver)")
    assert found["ECC"] == ("bad", "2 uncorrected")
    assert found["XID"][0] == "bad"
    assert found["Link"] == found["Thresholds"] == ("unknown", "not reported")
    assert attention(checks(ill)) == "3 of 3 need attention"
    assert attention(checks(sample(0))) == "nothing is reported"
    # What the events tell of counters that grow between two samples is told here too.
    lately = checks(well, {"gpu.throttled_sw_thermal": 0.12, "gpu.throttled_hw_thermal": 0.0})[0]
    assert (lately["level"], lately["text"]) == ("warn", "none now")
    assert lately["more"] == "· in the last 10 s throttled by heat (driver) for up to 12 % of a second"
    assert checks(well, {"gpu.throttled_sw_thermal": 0.0})[0]["text"] == "none"
    silent = {one["title"]: (one["level"], one["more"]) for one in checks(ill._replace(state=Availability.STALE))}
    assert silent["XID"] == ("bad", f"{xid_of(79).meaning} · when it last answered")
    assert attention(checks(well._replace(state=Availability.STALE))) == "nothing is reported"


def test_a_link_is_judged_as_the_findings_do_and_not_called_well_before() -> None:
    def link(found: Sequence[Finding] = (), **values: float) -> tuple[str, str]:
        narrow = sample(0, pcie_generation=5.0, pcie_generation_max=5.0, pcie_width=8.0, pcie_width_max=16.0,
                        nvlink_active=16.0, nvlink_links=18.0, **values)  # fmt: skip
        (one,) = [one for one in checks(narrow, faults=found) if one["title"] == "Link"]
        return one["level"], one["more"]

    subject = Subject("gpu", device(0).uuid, "GPU 0")
    slow, down = (Finding(kind, Severity.WARNING, subject, "", "") for kind in ("slow_link", "nvlink_down"))
    assert link(utilization=0.0) == ("unknown", "of 5.0 ×16; idle links step down")
    assert link(utilization=0.9) == ("unknown", "of 5.0 ×16; judged after 40 s of load")
    assert link([slow], utilization=0.9) == ("warn", "of 5.0 ×16")
    assert link([slow], utilization=0.0) == ("warn", "of 5.0 ×16; slow under load too")
    assert link([down], utilization=0.0) == ("warn", "of 5.0 ×16; idle links step down")


@pytest.mark.parametrize(("gpu", "kind"), [(2, "nvlink_down"), (3, "slow_link")])
def test_health_agrees_with_what_needs_attention_about_a_link(gpu: int, kind: str) -> None:
    links = {"nvlink_active": 16.0 if gpu == 2 else 18.0, "nvlink_links": 18.0}
    values = {"utilization": 0.9, "pcie_generation": 5.0, "pcie_generation_max": 5.0, "pcie_width_max": 16.0}
    other = sample(0, **values, pcie_width=16.0, nvlink_active=18.0, nvlink_links=18.0)
    one = sample(1, **values, pcie_width=8.0 if gpu == 3 else 16.0, **links)
    served = Served([tick(n, [other, one]) for n in range(1, 100)])
    told = served.told("gpu", id="1")["values"]
    assert [note["kind"] for note in told["look"]] == [kind]
    assert {each["title"]: each["level"] for each in told["health"]}["Link"] == "warn"


def together(directory: Path) -> Served:
    """A finished run of two GPUs, one of them busy for half of the time that the other is."""
    with Book(directory) as book:
        rank = book.rank(book.run("net-1a2b", started=BEGAN * 10**9, ended=(BEGAN + 100) * 10**9,
                                  state=RunState.FINISHED), state=RunState.FINISHED)  # fmt: skip
        for place, busy in enumerate((0.4, 0.8)):
            uuid = device(place).uuid
            book.device(rank, place, uuid=uuid)
            values = {"gpu.utilization": [(busy,) * 3] * 10, "gpu.power": [(100.0,) * 3] * 10}
            book.trace(rank, uuid, values, 10.0)
    return Served((), [str(book.path)])


def test_the_gpus_of_a_run_are_shown_as_their_mean_each_or_one(tmp_path: Path) -> None:
    served = together(tmp_path)

    def of(gpu: str) -> tuple[dict[str, Any], list[Any]]:
        found = served.json(f"/api/kept?page=run&id=net-1a2b&gpu={gpu}")
        return found["figures"]["course"], [one["value"] for one in found["values"]["devices"] if one["is_pressed"]]

    mean, pressed = of("")
    assert pressed == ["mean"]
    line = lines(mean)["gpu.utilization"]
    assert [line[name][0] for name in ("low", "mean", "high")] == [0.4, pytest.approx(0.6), 0.8]
    assert lines(mean)["gpu.power"]["mean"][0] == 200.0
    (power,) = [one for one in mean["panels"] if one["key"] == "gpu.power"]
    assert [one["text"] for one in power["limits"]] == ["power limit of 2 GPUs 1,400 W"]
    assert power["title"] == "Power, sum of 2 GPUs"
    (used,) = [one for one in mean["panels"] if one["key"] == "gpu.utilization"]
    assert (used["below"], used["shade"]) == ("mean of 2 GPUs", "lowest to highest")
    each, pressed = of("each")
    assert pressed == ["each"]
    (panel,) = [one for one in each["panels"] if one["key"] == "gpu.utilization"]
    assert [(one["label"], one["mean"][0]) for one in panel["lines"]] == [("GPU 0", 0.4), ("GPU 1", 0.8)]
    assert [one["mark"] for one in panel["lines"]] == ["GPU 0", "GPU 1"], "a color alone names nobody"
    one, pressed = of(device(1).uuid)
    assert pressed == [device(1).uuid]
    assert lines(one)["gpu.utilization"]["mean"][0] == 0.8


@pytest.mark.parametrize("unit", list(Unit))
@pytest.mark.parametrize("suffix", ["", "_per_second"])
def test_every_unit_has_a_scale_in_a_figure(unit: Unit, suffix: str) -> None:
    scale = y_axis(panel("key", "title", f"{unit.value}{suffix}", [{"mean": [1.0]}]))
    assert scale.factor > 0
    assert scale.suffix == "" or scale.suffix.startswith(" ")


def test_a_strangers_text_is_letters_in_a_report() -> None:
    assert literal("<b>x</b>\x1b[31m") == "&lt;b&gt;x&lt;/b&gt;\\x1b[31m"
    assert len(literal("a" * 1000)) <= LONGEST
    assert literal("&lt;") == "&amp;lt;"


def test_what_a_gpu_lacks_is_named_as_its_panels_are_and_what_it_needs_is_true_of_a_hopper_too() -> None:
    lacking = {"gpu.dram_activity": Availability.NOT_SUPPORTED, "gpu.clock_sm": Availability.NOT_RECORDED}
    served = Served([tick(1, [sample(0)._replace(device=device(0, missing=lacking))])])
    said = missing_text(served.known().gpus[0].sample.device)
    assert "SM clock (not in the recording)" in said
    assert "DRAM activity (this GPU or driver does not report it (needs Hopper or newer, and GPM in a driver" in said
