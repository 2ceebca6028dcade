"""The report of a run: its figures, and the page in a real browser."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gpumon.analysis.memory import PARTS
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.model.frame import RunState
from gpumon.reports.figures.plotly_figure import BANDS, in_local_time
from gpumon.reports.figures.run_series import RunSeries, bridge_gaps, run_series, thin
from gpumon.reports.html import chart_of, figure_of, page
from gpumon.storage.history.envelope import Envelope
from gpumon.storage.history.query import MAX_POINTS
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.records import Record, RunTrace
from tests import chromium
from tests.conftest import cannot
from tests.crossed import crossed
from tests.runs import BEGAN, GIB, HOSTILE, Book, measured, training, uuid_of

NOW = BEGAN + 86400.0


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path / "state")


def read(book: Book, run_id: str = "resnet50-1a2b") -> tuple[Record, list[RunTrace]]:
    with Ledger(str(book.path)) as ledger:
        return ledger.record(run_id), ledger.traces(run_id)


def drawn(book: Book, run_id: str = "resnet50-1a2b") -> dict[str, Any]:
    """The figure of the first device."""
    record, traces = read(book, run_id)
    device = record.devices[0] if record.devices else None
    chart = chart_of(record, traces, aggregate.epoch_summaries(record), device)
    return figure_of(chart) if chart else {"data": []}


def test_a_spike_stays_when_points_are_joined() -> None:
    course = Envelope([1.0] * 9 + [NAN] * 3, [2.0] * 9 + [NAN] * 3, [3.0] * 4 + [99.0] + [3.0] * 4 + [NAN] * 3)
    low, mean, high = thin(course, 3)
    assert (low[:3], mean[:3], high[:3]) == ([1.0] * 3, [2.0] * 3, [3.0, 99.0, 3.0])
    assert all(math.isnan(line[3]) for line in (low, mean, high))


def test_a_point_or_two_without_a_sample_are_no_gap_and_three_are() -> None:
    closed = bridge_gaps([1.0, NAN, NAN, 2.0, NAN, NAN, NAN, 3.0, NAN])
    assert closed[:4] == [1.0, 1.0, 1.0, 2.0]
    assert [value == value for value in closed[4:]] == [False, False, False, True, False]


def test_no_line_has_more_points_than_a_screen_can_show(book: Book) -> None:
    training(book, epochs=1, course=False)
    (record, _) = read(book)
    book.trace(record.ranks[0].key, uuid_of(0), {"gpu.utilization": [(0.1, 0.5, 1.0)] * 4096})
    record, traces = read(book)
    found = run_series(record, traces, uuid_of(0))
    assert found.points <= MAX_POINTS
    assert found.points * found.step == pytest.approx(4096, rel=0.01)


def test_the_timeline_of_a_run_without_traces_is_empty(book: Book) -> None:
    training(book, epochs=1, course=False)
    record, traces = read(book)
    assert run_series(record, traces, uuid_of(0)) == RunSeries(record.run.started, 1.0, {})


def test_every_panel_is_on_one_time_axis(book: Book) -> None:
    training(book, epochs=3)
    found = drawn(book)
    titles = [note["text"] for note in found["layout"]["annotations"]]
    assert titles == [
        "epoch 0", "1", "2", "loss", "accuracy", "Utilization", "Device memory", "Power", "power limit 700 W",
        "Temperature",
    ]  # fmt: skip
    assert {line["xaxis"] for line in found["data"]} == {"x"}
    assert {line["yaxis"] for line in found["data"]} == {"y", "y2", "y3", "y4", "y5", "y6"}
    assert max(len(line["y"]) for line in found["data"]) <= MAX_POINTS


def test_phases_that_are_no_training_are_shaded_and_named_under_the_pointer(book: Book) -> None:
    training(book, epochs=2)
    plain = drawn(book)["layout"]["shapes"]
    book.db.execute("UPDATE phase SET spans = '[[8.0, 2.0]]' WHERE phase = 'validate'")
    book.db.commit()
    found = drawn(book)
    shades = [shape for shape in found["layout"]["shapes"] if shape not in plain]
    assert len(shades) == 2
    where = {text for line in found["data"] if "text" in line for text in line["text"]}
    assert {text for text in where if text.startswith("epoch 1")} == {"epoch 1", "epoch 1, validate"}


def test_memory_is_stacked_from_the_bottom_up(book: Book) -> None:
    training(book, epochs=3)
    parts = [line["name"] for line in drawn(book)["data"] if line.get("stackgroup")]
    assert parts == [part.title for part in PARTS if part.name != "driver"], "which this trace does not have"


def test_many_epochs_are_joined_into_few_bands(book: Book) -> None:
    training(book, epochs=5000, seconds=2.0, phases=False)
    layout = drawn(book)["layout"]
    assert 10 < len(layout["shapes"]) <= BANDS
    numbers = [int(note["text"].removeprefix("epoch ")) for note in layout["annotations"] if note["xref"] == "x"]
    assert numbers == sorted(numbers)
    assert 5 <= len(numbers) <= 14


def test_a_gap_is_drawn_as_a_gap(book: Book) -> None:
    training(book, epochs=1, course=False)
    (record, _) = read(book)
    known, nothing = (0.2, 0.5, 0.9), (NAN,) * 3
    points = [known] * 40 + [nothing] * 20 + [known] * 40
    book.trace(record.ranks[0].key, uuid_of(0), {"gpu.utilization": points})
    found = drawn(book)
    mean = next(line["y"] for line in found["data"] if line["name"] == "Utilization")
    assert [value is None for value in mean] == [False] * 40 + [True] * 20 + [False] * 40
    edges = [line for line in found["data"] if line.get("fill") == "tonexty"]
    assert [len(edge["y"]) for edge in edges] == [40, 40], "no band across it"
    assert any(shape.get("label", {}).get("text") == "not sampled" for shape in found["layout"]["shapes"])


def test_strangers_text_is_escaped_for_plotly(book: Book) -> None:
    book.run()
    key = book.rank("resnet50-1a2b")
    book.device(key)
    book.epoch(key, 0, metrics=json.dumps({"<b>loss</b> & <a href=x>": 1.0, "@bad": 2.0}))
    book.trace(key, uuid_of(0), {"gpu.utilization": [(0.5, 0.5, 0.5)] * 5})
    found = drawn(book)
    texts = [note["text"] for note in found["layout"]["annotations"]] + [line["name"] for line in found["data"]]
    assert "&lt;b&gt;loss&lt;/b&gt; &amp; &lt;a href=x&gt;" in texts
    assert not any("<" in text for text in texts)
    assert not any("loss" in line.get("hovertemplate", "") for line in found["data"]), "no %{…} of a stranger is read"


def hostile_run(book: Book) -> str:
    """A run in which every text is an attack."""
    attack = f"</script>{HOSTILE}<img src=http://127.0.0.1:9/x onerror=alert(1)><!--"
    book.run("attack-1", name=attack, user=attack, hostname=attack, framework=attack, label=attack, driver=attack,
             resumes=attack, world_size=2)  # fmt: skip
    for rank in range(2):
        key = book.rank("attack-1", rank)
        uuid = book.device(key, rank, name=attack)
        book.epoch(key, 0, metrics=json.dumps({attack: 1.0, "=1+1": 2.0}))
        book.phase(key, 0, attack, 5.0)
        book.usage(key, 0, uuid, **measured())
        book.usage(key, 0, uuid, attack, **measured(5.0))
        book.trace(key, uuid, {"gpu.utilization": [(0.5, 0.5, 0.5)] * 5, attack: [(1.0, 1.0, 1.0)] * 5})
        book.trace(key, "", {attack: [(1.0, 1.0, 1.0)] * 5})
        book.out_of_memory(key)
    return "attack-1"


def test_the_page_is_whole_in_itself(book: Book) -> None:
    training(book, epochs=3, gpus=2)
    text = page(*read(book), NOW)
    own = re.sub(r"<script>.*?</script>", "", text, flags=re.S)
    assert not re.search(r"https?://|<link|<iframe|<img|@import|url\(", own)
    assert "default-src 'none'" in own
    assert own.count("<button") == 2
    assert own.count("<tr") == 1 + 3 * 3 + 1 + 1 + 2


def test_no_text_of_a_stranger_is_markup(book: Book) -> None:
    text = page(*read(book, hostile_run(book)), NOW)
    assert text.count("<script") == text.count("</script>") == 3, "the figures, Plotly, and ours"
    own = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert "<img" not in own
    assert "\x1b" not in text


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = chromium.program()
    if path is None:
        cannot("no Chromium is installed")
    with sync.sync_playwright() as play:
        found = play.chromium.launch(executable_path=path, args=chromium.ARGUMENTS)
        yield found
        found.close()


@pytest.mark.parametrize(("made", "scheme"), crossed(["training", "hostile", "bare"], ["light", "dark"]))
def test_the_page_opens_in_a_browser_without_a_network(
    book: Book, tmp_path: Path, browser: Any, made: str, scheme: str
) -> None:
    if made == "training":
        run_id = training(book, epochs=5, gpus=2)
    elif made == "hostile":
        run_id = hostile_run(book)
    else:
        run_id = book.run(epochs=None)
    path = tmp_path / "report.html"
    path.write_text(page(*read(book, run_id), NOW), encoding="utf-8")
    view = browser.new_page(color_scheme=scheme)
    told: list[str] = []
    asked: list[str] = []
    view.on("console", lambda message: told.append(message.text))
    view.on("pageerror", lambda error: told.append(str(error)))
    view.on("dialog", lambda dialog: (told.append("a dialog"), dialog.dismiss()))
    view.on("request", lambda request: asked.append(request.url))
    view.goto(path.as_uri())
    if made == "bare":
        assert "No daemon recorded the timeline" in view.inner_text("main")
    else:
        view.wait_for_selector("#timeline .scatterlayer .trace", state="attached")
        view.click(".tabs button:nth-child(2)")
        assert view.get_attribute(".tabs button:nth-child(2)", "aria-pressed") == "true"
        assert view.locator("#timeline .yaxislayer-above, #timeline .xaxislayer-above").count() > 0
    background = view.evaluate("getComputedStyle(document.body).backgroundColor")
    view.close()
    assert told == []
    assert asked == [path.as_uri()]
    assert background == {"light": "rgb(245, 246, 248)", "dark": "rgb(13, 16, 22)"}[scheme]


def test_no_memory_is_claimed_where_none_is_known(book: Book) -> None:
    training(book, epochs=1, course=False, device={"memory_total": None})
    (record, _) = read(book)
    book.trace(record.ranks[0].key, uuid_of(0), {"gpu.memory_used": [(GIB, GIB, GIB)] * 5})
    assert not [line for line in drawn(book)["data"] if line.get("stackgroup")]


def test_times_of_a_figure_are_numbers_and_those_of_a_report_are_this_machines(book: Book) -> None:
    training(book, epochs=3)
    found = drawn(book)
    assert found["layout"]["xaxis"]["range"][0] == BEGAN * 1000
    offset = datetime.fromtimestamp(BEGAN).astimezone().utcoffset()
    assert offset is not None
    local = in_local_time(found)
    assert local["layout"]["xaxis"]["range"][0] == (BEGAN + offset.total_seconds()) * 1000


@pytest.mark.parametrize(
    ("change", "words"), [(1_792_890_000, "UTC+1"), (1_774_746_000, "UTC+2")], ids=["winter", "summer"]
)
def test_where_the_clocks_are_changed_no_time_of_a_report_lies_over_another(
    monkeypatch: pytest.MonkeyPatch, change: int, words: str
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        times = [1000.0 * (change + minute * 60) for minute in range(-90, 91)]
        figure = {
            "data": [{"x": times, "y": [0.0] * len(times)}],
            "layout": {
                "xaxis": {"range": [times[0], times[-1]]}, "annotations": [],
                "shapes": [{"xref": "x", "x0": times[9], "x1": times[99]}],
            },
        }  # fmt: skip
        text = in_local_time(figure)
        early = in_local_time({**figure, "layout": {**figure["layout"], "xaxis": {"range": times[:2]}}})
    finally:
        monkeypatch.undo()
        time.tzset()
    shown = [datetime.fromtimestamp(time / 1000, UTC) for time in text["data"][0]["x"]]
    assert {(after - before).total_seconds() for before, after in pairwise(shown)} == {60.0}
    assert text["data"][0]["x"][0] == text["layout"]["xaxis"]["range"][0]
    assert [text["layout"]["shapes"][0][name] for name in ("x0", "x1")] == [text["data"][0]["x"][n] for n in (9, 99)]
    assert text["layout"]["xaxis"]["title"]["text"] == f"times in {words}: the clocks were changed"
    assert shown[-1].strftime("%H:%M") == ("03:30" if words == "UTC+1" else "04:30")
    assert "title" not in early["layout"]["xaxis"]


def test_memory_is_not_stacked_over_a_time_that_nobody_sampled(book: Book) -> None:
    training(book, epochs=1, course=False)
    (record, _) = read(book)
    whole = [(4e9, 4e9, 4e9)] * 40
    nothing = [(NAN, NAN, NAN)] * 40
    book.trace(record.ranks[0].key, uuid_of(0), {"gpu.memory_used": whole + nothing + whole})
    lines = [line for line in drawn(book)["data"] if line.get("stackgroup")]
    assert len({line["stackgroup"] for line in lines}) == 2
    assert all(None not in line["y"] and len(line["y"]) == 40 for line in lines)
    assert [line["showlegend"] for line in lines if line["name"] == lines[0]["name"]] == [True, False]


def test_a_logged_line_is_joined_over_moments_without_a_value_and_broken_where_nothing_was_sampled(book: Book) -> None:
    training(book, epochs=1, seconds=40.0, course=False)
    (record, _) = read(book)
    book.trace(record.ranks[0].key, uuid_of(0), {
        "gpu.memory_used": [(4e9,) * 3] * 20 + [(NAN,) * 3] * 20 + [(4e9,) * 3] * 20,
    })  # fmt: skip
    every = [(1.0,) * 3 if point % 10 == 0 and not 20 <= point < 40 else (NAN,) * 3 for point in range(60)]
    book.trace(record.ranks[0].key, "", {"loss": every})
    line = next(line for line in drawn(book)["data"] if line.get("name") == "loss")
    assert line["y"] == [1.0, 1.0, None, 1.0, 1.0, None, 2.4], "the last value of the epoch may be a mean"
    assert line["connectgaps"] is False


def broke_off(book: Book, course: bool) -> dict[str, Any]:
    """The line of a run whose second epoch broke off without a value and was made again; `course`: losses by second."""
    rank = book.rank(book.run(ended=(BEGAN + 30) * SECOND, state=RunState.FINISHED))
    book.device(rank)
    book.epoch(rank, 0, metrics='{"loss": 2.0}')
    book.epoch(rank, 1, ended=None, metrics="{}")
    book.epoch(rank, 2, epoch=1, metrics='{"loss": 1.0}')
    if course:
        book.trace(rank, "", {"loss": [(2.0,) * 3] * 25 + [(1.0,) * 3] * 5})
    return next(line for line in drawn(book)["data"] if line["name"].startswith("loss"))


def test_a_logged_line_is_not_carried_through_an_epoch_that_broke_off(book: Book) -> None:
    line = broke_off(book, course=True)
    points = [(at / 1000 - BEGAN, value) for at, value in zip(line["x"], line["y"], strict=True)]
    assert [one for one in points if 9.9 < one[0] < 27] == [(10.0, 2.0), (20.0, None), (25.5, 1.0), (26.5, 1.0)]
    assert points[-1] == (30.0, 1.0), "its end tells it"


def test_a_line_of_ends_of_epochs_has_a_gap_where_one_broke_off(book: Book) -> None:
    line = broke_off(book, course=False)
    assert [(at / 1000 - BEGAN, value) for at, value in zip(line["x"], line["y"], strict=True)] == [
        (10.0, 2.0), (20.0, None), (30.0, 1.0),
    ]  # fmt: skip


def test_a_loss_that_is_no_number_is_marked_and_no_part_of_the_line(book: Book) -> None:
    rank = book.rank(book.run("resnet50-1a2b"))
    for at, loss in enumerate(("0.5", '"NaN"', '"NaN"', "0.4")):
        book.epoch(rank, at, metrics=f'{{"loss": {loss}}}')
    found = drawn(book)
    (marks,) = (line for line in found["data"] if line["mode"] == "markers" and "text" in line)
    assert not any(value is None or math.isnan(value) for value in next(iter(found["data"]))["y"])
    assert marks["text"] == ["loss is NaN"]
    assert marks["marker"]["color"] == ["@bad"]
