"""Runs over each other: as `gpumon runs compare` has them, on axes that both have, chosen in the address."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from gpumon.common.numbers import NAN
from gpumon.model.frame import RunState
from gpumon.reports import compare
from gpumon.reports.compare_measures import MEASURES, RUN_MEASURES, WHOLE
from gpumon.reports.figures.run_chart import LOGGED
from gpumon.storage.history.envelope import Envelope
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.reader import Ledgers
from gpumon.storage.ledger.records import RunTrace
from gpumon.storage.ledger.summary import EpochSummary
from gpumon_web.charts.compare_chart import EPOCHS, STEPS, TIME, UNMEASURED, axis_of, compare_chart, course_of
from gpumon_web.components.compare_rows import (
    MAX_RUNS,
    Cell,
    csv_name,
    lowest_value,
    measure_rows,
    parse_ids,
    whole_run_notes,
)
from gpumon_web.pages.compare import Choice, outputs
from gpumon_web.stored import comparison
from gpumon_web.stored.comparison import comparison_document
from tests.builders import sample, tick
from tests.runs import BEGAN, Book, training
from tests.web.conftest import PATIENCE_MS, on_a_port, visit
from tests.web.served import Served

expect.set_options(timeout=PATIENCE_MS)

IDS = ("first-1a2b", "second-3c4d", "third-5e6f")
NOW = BEGAN + 5000


def parameter(book: Book, run: str, name: str, value: str) -> None:
    book.add("parameter", run=run, kind=0, name=name, place=0, value=value, rank=0)


def three(directory: Path) -> str:
    """A ledger with a run, one that is slower and longer, and one of two GPUs."""
    with Book(directory) as book:
        training(book, IDS[0], 6, seed=1)
        training(book, IDS[1], 9, seconds=14.0, utilization=0.7, seed=2, began=BEGAN + 900)
        training(book, IDS[2], 6, gpus=2, seed=3, began=BEGAN + 1800)
        for run, rate in zip(IDS, ("0.1", "0.1", "0.2"), strict=True):
            parameter(book, run, "lr", rate)
            parameter(book, run, "batch", "32")
        return str(book.path)


def document(path: str, asked: str = ",".join(IDS), by: str = "") -> dict[str, Any]:
    return comparison_document([path], asked, by, NOW)


def noted(book: Book) -> dict[str, list[str]]:
    """Notes under the comparison of a ledger's runs, by axis."""
    return {axis: document(str(book.path), by=axis)["notes"] for axis in (EPOCHS, TIME)}


def break_off(book: Book, run_id: str, changes: str = "") -> None:
    """Take the end of epoch 5 of a run away."""
    of_run = "ordinal = 5 AND rank IN (SELECT key FROM rank WHERE run = ?)"
    book.db.execute(f"UPDATE epoch SET ended = NULL{changes} WHERE {of_run}", (run_id,))


def test_the_open_epoch_of_a_run_that_goes_on_is_said_to_be_shown_by_time_alone(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, IDS[0], 6)
        training(book, IDS[1], 6, state=RunState.RUNNING, began=BEGAN + 900)
    by = noted(book)
    [note] = [text for text in by[EPOCHS] if "have not ended" in text]
    assert note.startswith("Epochs that have not ended appear only on the time axis: B ")
    assert not any("have not ended" in text for text in by[TIME])
    beside = {axis: document(str(book.path), by=axis)["ends"] for axis in (EPOCHS, TIME)}
    assert beside == {EPOCHS: "B: so far, to the end of the newest finished epoch", TIME: ""}


def test_several_gpus_of_a_run_are_said_to_be_one_line(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, IDS[0], 6)
        training(book, IDS[1], 6, gpus=2)
    assert document(str(book.path))["ends"] == "power and energy are sums of a run's GPUs, the rest their means"


def test_an_epoch_that_broke_off_is_said_to_be_left_out_and_why(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, IDS[0], 6)
        training(book, IDS[1], 6, state=RunState.FAILED, began=BEGAN + 900)
        break_off(book, IDS[1], ", seconds = 4.2, metrics = '{}'")
    by = noted(book)
    for texts in by.values():
        assert "B: epoch 5 stopped early after 4.2 s: excluded from medians." in texts
    [said] = [text for text in by[EPOCHS] if "has an interrupted epoch" in text]
    assert said.startswith("B second")
    assert not any("has an interrupted epoch" in text for text in by[TIME])


def test_the_epoch_that_goes_on_did_not_break_off(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, IDS[0], 6)
        training(book, IDS[1], 6, state=RunState.RUNNING, began=BEGAN + 900)
        break_off(book, IDS[1])
    assert not any("stopped early" in note for note in document(str(book.path))["notes"])


def test_energies_of_a_step_have_one_precision() -> None:
    (measure,) = (one for one in MEASURES if one.name == "energy_per_step")
    assert measure.texts([51.0, 51.1, NAN]) == ["51.0 J", "51.1 J", "–"]
    assert measure.texts([0.00002, 3.0]) == ["<0.01 J", "3.00 J"]


def words(cell: Cell) -> list[str]:
    return [text for text in (cell["text"], cell["note"]) if text]


@pytest.mark.parametrize("by", [EPOCHS, TIME])
def test_the_last_loss_is_that_of_the_last_epoch_where_it_ended_within_a_millisecond(tmp_path: Path, by: str) -> None:
    began = BEGAN + 0.0007
    ends = [began + 4.0 * (place + 1) for place in range(3)]
    epochs = [
        EpochSummary(place, place, 4.0, 40, wait=0.0, ranks=1, utilization_from="", begun=end - 4.0, ended=end,
                     metrics={"loss": 0.3 - place / 10})
        for place, end in enumerate(ends)
    ]  # fmt: skip
    with Book(tmp_path) as book:
        training(book, IDS[0], 3, began=began)
        path = str(book.path)
    with Ledgers([path]) as ledgers:
        record = ledgers.candidates()[0][0].record(IDS[0])
    seen = [0.4] * 4 + [0.3] * 4 + [0.2] * 4
    trace = RunTrace(record.ranks[0].key, "", began, 1.0, len(seen), {"loss": Envelope(seen, seen, seen)})
    record = replace(record, run=record.run._replace(ended=ends[-1]))
    course = course_of("A", record, epochs, axis_of(by, record, epochs), [trace])
    chart = compare_chart([course], by)
    assert chart is not None
    (line,) = next(one["lines"] for one in chart["panels"] if one["title"] == "loss")
    assert line["mean"][-1] == pytest.approx(epochs[-1].metrics["loss"])


def test_the_numbers_are_those_of_the_command(tmp_path: Path) -> None:
    path = three(tmp_path)
    found = document(path)
    with Ledgers([path]) as ledgers:
        rows = {row.id: ledger for ledger, row in ledgers.candidates()}
        told = compare.compare([rows[run].record(run) for run in IDS])
    for line in told.lines:
        (row,) = (one for one in found["numbers"] if one["key"] == f"epochs {line.measure.name}")
        cells = [words(cell) for cell in row["cells"]]
        assert [cell[0] for cell in cells] == line.measure.texts(line.medians)
        assert [cell[1] for cell in cells[1:]] == [compare.verdict(one, line.measure) for one in line.differences]
    (time,) = (one for one in found["numbers"] if one["key"] == "epochs seconds")
    assert [cell["level"] for cell in time["cells"][1:]] == ["warn", "mut"], "slower for certain, and not certain"


def test_the_lowest_loss_has_the_digits_that_its_chart_has(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, IDS[0], 3)
        training(book, IDS[1], 6)
        book.db.execute("UPDATE epoch SET metrics = '{\"loss\": 0.0584612}'")
        found = document(str(book.path), ",".join(IDS[:2]))
    assert found["best"][0]["text"] == "0.05846"


def test_a_measure_of_whole_runs_among_medians_says_that_it_is_one_as_the_command_does(tmp_path: Path) -> None:
    with Ledgers([three(tmp_path)]) as ledgers:
        rows = {row.id: ledger for ledger, row in ledgers.candidates()}
        told = compare.compare([rows[run].record(run) for run in IDS])
    cpu = next(measure for measure in RUN_MEASURES if measure.name == "cpu_seconds")
    differences = [compare.Difference(-0.25, math.nan, math.nan, -0.25)] * 2
    single = replace(told.lines[0], measure=cpu, medians=[0.08, 0.06, 0.06], differences=differences)
    told = replace(told, whole=[single])
    (note,) = whole_run_notes(told)
    assert note in [*compare.lines(told, 0)]
    assert [row["title"] for row in measure_rows(told)][-1] == "CPU time, whole run"
    alone = replace(told, epochs=[0, 0, 0])
    assert [row["title"] for row in measure_rows(alone)] == ["CPU time"], "of which all are"
    assert whole_run_notes(alone) == []


def test_a_value_that_one_of_the_runs_has_not_says_so_once(tmp_path: Path) -> None:
    with Ledgers([three(tmp_path)]) as ledgers:
        rows = {row.id: ledger for ledger, row in ledgers.candidates()}
        told = compare.compare([rows[run].record(run) for run in IDS])
    nothing = compare.Difference(math.nan, math.nan, math.nan, math.nan)
    found = replace(told.lines[0], medians=[1.0, math.nan, math.nan], differences=[nothing, nothing])
    (row, *_) = measure_rows(replace(told, lines=[found]))
    assert [words(cell) for cell in row["cells"][1:]] == [["–"], ["–"]]


def test_parentheses_are_explained_only_where_a_difference_has_them(tmp_path: Path) -> None:
    def shown(path: str, runs: Sequence[str]) -> Any:
        return outputs({"missing": "", **document(path, ",".join(runs))}, Choice(",".join(runs)))

    clear = shown(three(tmp_path), IDS[:2])
    assert " … " in str(clear["numbers"])
    assert clear["intervals"].endswith("in parentheses the 95 % interval of the difference from A")
    with Book(tmp_path / "few") as book:
        training(book, "long-1a2b", 9)
        training(book, "short-3c4d", 2, seconds=20.0)
    few = shown(str(book.path), ("long-1a2b", "short-3c4d"))
    assert "too few epochs" in str(few["numbers"])
    assert few["intervals"] == "medians over epochs"


@pytest.mark.parametrize("width", [1440, 1024])
def test_a_sentence_beside_the_courses_leaves_all_buttons_in_one_row_at_the_end(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    path = three(tmp_path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE run SET state = ?, ended = NULL", (RunState.RUNNING,))
    served = Served([tick(n, [sample(0)]) for n in range(1, 4)], [path])
    with on_a_port(served) as link, visit(browser, link, viewport={"width": width, "height": 900}) as visitor:
        page = visitor.open(f"#/compare?runs={','.join(IDS)}")
        head = page.locator("#page-compare .cardhead", has_text="Courses")
        expect(head).to_contain_text("so far, to the end of the newest finished epoch; power and energy are sums")
        expect(page.locator("#compare-graph .main-svg").first).to_be_visible()
        places = [box for one in head.locator(".seg, .tools, .opens").all() if (box := one.bounding_box())]
        assert len(places) > 2
        middles = [box["y"] + box["height"] / 2 for box in places]
        assert max(middles) - min(middles) < 2
        around = head.bounding_box()
        assert around is not None
        assert around["x"] + around["width"] - max(box["x"] + box["width"] for box in places) < 20


def test_lines_are_told_apart_by_their_colors_also_while_a_daemon_is_silent(browser: Browser, tmp_path: Path) -> None:
    served = Served([tick(n, [sample(0, utilization=0.5)]) for n in range(1, 4)], [three(tmp_path)])
    served.live.age = 42.0
    with on_a_port(served) as link, visit(browser, link) as visitor:
        page = visitor.open(f"#/compare?runs={','.join(IDS)}")
        expect(page.locator("#compare-graph .main-svg").first).to_be_visible()
        expect(page.locator("#compare-graph")).to_have_css("filter", "none")
        expect(page.locator("#compare-graph")).to_have_css("opacity", "0.75")
        page = visitor.open("#/gpu/0")
        expect(page.locator("#page-gpu .plot[data-drawn]")).to_have_css("filter", "grayscale(1)")


def test_a_file_of_the_numbers_is_a_row_for_each_run_in_base_units_with_the_intervals(tmp_path: Path) -> None:
    path = three(tmp_path)
    first, second, third = document(path)["saved"]
    with Ledgers([path]) as ledgers:
        rows = {row.id: ledger for ledger, row in ledgers.candidates()}
        told = compare.compare([rows[run].record(run) for run in IDS])
    assert [row["id"] for row in (first, second, third)] == [*IDS]
    assert {*first} == {*second} == {*third}
    (time,) = (one for one in told.lines if one.measure.name == "seconds")
    assert [row["epoch_seconds"] for row in (first, second, third)] == time.medians
    name = "epoch_seconds_difference"
    assert [first[name], second[f"{name}_low"], third[f"{name}_high"]] == [
        None, time.differences[0].low, time.differences[1].high
    ]  # fmt: skip
    assert second["epochs_compared"] == 8


def test_each_column_of_a_file_of_numbers_names_its_unit() -> None:
    units = ("_seconds", "_per_second", "_ratio", "_bytes", "_joules")
    for measures, single in ((MEASURES, False), (WHOLE, True)):
        columns = [csv_name(one, single=single) for one in measures]
        assert [name for name in columns if not name.endswith(units)] == []
        assert len({*columns}) == len(columns)


def test_no_run_is_the_best_where_the_table_tells_no_clear_difference(tmp_path: Path) -> None:
    path = three(tmp_path)
    _, certain, _ = document(path, ",".join(IDS[:2]))["best"]
    assert certain["run"] == 0
    assert certain["others"].startswith("B ")
    _, doubtful, _ = document(path)["best"]
    assert doubtful["run"] is None
    assert doubtful["others"].startswith("no clear difference from ")


def test_no_run_is_the_best_of_two_that_are_the_same() -> None:
    texts = ["0.25", "0.25", "0.5"]
    assert lowest_value([0.25, 0.25, 0.5], ["A one", "B two", "C three"], texts) == ("0.25", "B 0.25, C 0.5", None)
    assert lowest_value([0.5, 0.25], ["A one", "B two"], ["0.5", "0.25"])[2] == 1


def test_what_differs_is_a_row_and_what_does_not_a_sentence(tmp_path: Path) -> None:
    found = document(three(tmp_path))
    (rate,) = found["differs"]
    assert (rate["title"], [words(cell) for cell in rate["cells"]]) == ("lr", [["0.1"], ["0.1"], ["0.2"]])
    assert found["config_notes"] == ["1 parameter is the same."]


def test_that_nothing_differs_is_said_only_of_config_that_is_known(tmp_path: Path) -> None:
    path = three(tmp_path)
    for left_out, expected in (
        ("name = 'lr'", "No parameter is known to differ."),
        (f"run != '{IDS[1]}'", "The config of B second alone is known."),
        ("TRUE", "No config of these runs is known: run.config(…) records it."),
    ):
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(f"DELETE FROM parameter WHERE {left_out}")
        assert document(path)["alike"] == expected


def test_lines_end_where_the_epochs_of_their_run_do(tmp_path: Path) -> None:
    found = document(three(tmp_path))
    assert (found["axes"], found["axis"]) == ([EPOCHS, STEPS, TIME], EPOCHS)
    chart = found["chart"]
    panels = {one["key"]: one for one in chart["panels"]}
    assert set(panels) >= {"logged.loss", "gpu.utilization", "gpu.memory_used", "gpu.power", "energy"}
    assert (chart["begin"], chart["end"]) == (0, 9)
    for panel in panels.values():
        assert [line["label"] for line in panel["lines"]] == found["names"]
        assert [line["role"] for line in panel["lines"]] == ["s0", "s1", "s2"]
        assert [line["mark"] for line in panel["lines"]] == ["A", "B", "C"]
        for line, epochs in zip(panel["lines"], (6, 9, 6), strict=True):
            x = chart["times"][line["x"]]
            assert x == sorted(x)
            assert x[0] >= 0
            assert x[-1] == pytest.approx(epochs, abs=0.2)


def test_energy_adds_up_to_that_of_all_epochs(tmp_path: Path) -> None:
    path = three(tmp_path)
    chart = document(path)["chart"]
    (panel,) = (one for one in chart["panels"] if one["key"] == "energy")
    with Ledgers([path]) as ledgers:
        for line, run in zip(panel["lines"], IDS, strict=True):
            (record,) = (ledger.record(run) for ledger, row in ledgers.candidates() if row.id == run)
            known = [epoch.value("energy") for epoch in aggregate.epoch_summaries(record)]
            assert line["mean"][-1] == pytest.approx(sum(known), rel=1e-4)
            assert line["mean"] == sorted(line["mean"])
            assert len(line["mean"]) == len(known) + 1


@pytest.mark.parametrize(("by", "ends"), [(TIME, (65, 137, 65)), (STEPS, (600, 900, 600))])
def test_the_same_stands_on_axes_of_time_and_of_steps(tmp_path: Path, by: str, ends: tuple[float, ...]) -> None:
    found = document(three(tmp_path), by=by)
    assert found["axis"] == found["chart"]["axis"] == by
    (panel,) = (one for one in found["chart"]["panels"] if one["key"] == "energy")
    last = [found["chart"]["times"][line["x"]][-1] for line in panel["lines"]]
    assert last == [pytest.approx(end, rel=0.06) for end in ends]


@pytest.mark.parametrize("most", [3, 1000], ids=["a sample of its epochs", "all of its epochs"])
@pytest.mark.parametrize("diverged", ["NaN", "Infinity", "-Infinity"])
def test_a_loss_that_is_no_number_is_not_the_lowest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, diverged: str, most: int
) -> None:
    monkeypatch.setattr(comparison, "LONG", most)
    with Book(tmp_path) as book:
        for place in (0, 1):
            training(book, IDS[place], 12, seed=place)
        [key] = [row[0] for row in book.db.execute("SELECT key FROM rank WHERE run = ?", (IDS[0],))]
        book.db.execute(
            f"""UPDATE epoch SET metrics = '{{"loss": "{diverged}"}}' WHERE rank = ? AND ordinal > 3""", (key,)
        )
    best, *_ = document(str(book.path), ",".join(IDS[:2]), EPOCHS)["best"]
    assert best["run"] == 1
    assert "∞" not in best["text"] + best["others"]


def test_a_run_without_epochs_is_compared_by_time_as_a_whole(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, IDS[0], 3)
        key = book.rank(book.run(IDS[1], epochs=None))
        book.trace(key, book.device(key), {"gpu.power": [(300.0,) * 3] * 20})
        found = document(str(book.path), ",".join(IDS[:2]), EPOCHS)
    assert (found["axes"], found["axis"], found["by_epochs"]) == ([TIME], TIME, False)
    assert found["best"][0]["title"] == "Lowest loss", "a headline without a value has its name"
    assert all(one["key"].startswith("whole ") for one in found["numbers"])
    (energy,) = (one for one in found["chart"]["panels"] if one["key"] == "energy")
    assert energy["lines"][1]["mean"][-1] == pytest.approx(300 * 20)


@pytest.mark.parametrize("seconds", [20, 40])
def test_energy_that_is_still_to_come_is_not_said_to_be_unmeasured(tmp_path: Path, seconds: int) -> None:
    with Book(tmp_path) as book:
        for run in IDS[:2]:
            key = book.rank(book.run(run, state=RunState.RUNNING, ended=None), state=RunState.RUNNING)
            uuid = book.device(key)
            for epoch in range(3):
                book.epoch(key, epoch)
                if epoch < 2:
                    book.usage(key, epoch, uuid, energy=3000.0, seconds=10.0, sampled=10.0)
            book.trace(key, uuid, {"gpu.power": [(300.0,) * 3] * seconds})
        panels = document(str(book.path), ",".join(IDS[:2]))["chart"]["panels"]
    (energy,) = (one for one in panels if one["key"] == "energy")
    for line in energy["lines"]:
        assert ("lost" in line) == (seconds > 30), "behind the newest values of GPUs nothing is lost"
        assert [value for value in line["mean"] if value is not None][-1] == 6000.0


@pytest.mark.parametrize("measured", [False, True])
def test_where_no_energy_is_known_there_is_no_panel_of_it(tmp_path: Path, measured: bool) -> None:
    nothing = (float("nan"),) * 3
    with Book(tmp_path) as book:
        for place, run in enumerate(IDS[:2]):
            key = book.rank(book.run(run, epochs=None))
            watts = (300.0,) * 3 if measured and place else nothing
            book.trace(key, book.device(key), {"gpu.power": [watts, watts], "gpu.utilization": [(0.5,) * 3] * 2})
        panels = {one["key"]: one for one in document(str(book.path), ",".join(IDS[:2]))["chart"]["panels"]}
    assert ("energy" in panels) == measured
    if measured:
        assert panels["energy"]["lines"][-1]["mean"][-1] == 600.0


def test_a_loss_that_was_no_number_and_a_pause_break_the_line(tmp_path: Path) -> None:
    nan = float("nan")
    with Book(tmp_path) as book:
        for run in IDS[:2]:
            key = book.rank(book.run(run))
            uuid = book.device(key)
            for epoch in range(3):
                begun = round((BEGAN + 20 * epoch) * 1e9)
                book.epoch(key, epoch, begun=begun, ended=begun + 20 * 10**9, seconds=20.0)
            book.trace(key, uuid, {"gpu.utilization": [(0.5,) * 3] * 20 + [(nan,) * 3] * 20 + [(0.5,) * 3] * 20})
            odd = (float("-inf"), nan, float("inf"))
            book.trace(key, "", {"loss": [(2.0,) * 3] * 30 + [odd] + [(1.0,) * 3] * 29})
        chart = document(str(book.path), ",".join(IDS[:2]))["chart"]
    for panel in chart["panels"]:
        if panel["key"] in ("logged.loss", "gpu.utilization"):
            assert [line["mean"].count(None) for line in panel["lines"]] == [1, 1], panel["key"]


def test_values_of_steps_of_one_run_do_not_stand_beside_those_of_epochs_of_another(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        for run, within in zip(IDS, (True, False, True), strict=True):
            key = book.rank(book.run(run))
            seen: list[float] = []
            for epoch, loss in enumerate((3.0, 2.0, 1.0)):
                book.epoch(key, epoch, metrics=f'{{"loss": {loss}}}')
                before = seen[-1] if seen else math.nan
                seen += [before] * 2 + [loss + 0.5 if within else before] * 6 + [loss] * 2
            book.trace(key, "", {"loss": [(value,) * 3 for value in seen]})
        path = str(book.path)
    mixed, of_steps = (
        next(one["lines"] for one in document(path, asked)["chart"]["panels"] if one["key"] == "logged.loss")
        for asked in (",".join(IDS), f"{IDS[0]},{IDS[2]}")
    )
    assert [{*line["mean"]} for line in mixed] == [{3.0, 2.0, 1.0}] * 3
    for line in of_steps:
        assert {3.5, 2.5, 1.5} <= {*line["mean"]}
        assert 1.0 not in line["mean"]


@pytest.mark.parametrize("logs_on", [False, True])
def test_a_loss_is_drawn_over_a_pause_only_where_it_was_logged_in_it(tmp_path: Path, logs_on: bool) -> None:
    nothing = (float("nan"),) * 3
    with Book(tmp_path) as book:
        for run in IDS[:2]:
            key = book.rank(book.run(run))
            book.epoch(key, 0, begun=round(BEGAN * 1e9), ended=round((BEGAN + 60) * 1e9), seconds=60.0)
            book.trace(
                key, book.device(key), {"gpu.utilization": [(0.5,) * 3] * 20 + [nothing] * 20 + [(0.5,) * 3] * 20}
            )
            between = [(2.0,) * 3 if logs_on else nothing] * 20
            book.trace(key, "", {"loss": [(2.0,) * 3] * 20 + between + [(1.0,) * 3] * 20})
        chart = document(str(book.path), ",".join(IDS[:2]))["chart"]
    (loss,) = (panel for panel in chart["panels"] if panel["key"] == "logged.loss")
    assert [line["mean"].count(None) for line in loss["lines"]] == [0 if logs_on else 1] * 2


def test_a_loss_that_is_no_number_at_the_end_of_a_run_is_not_told_as_its_last_number(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        for run, last in zip(IDS[:2], ("NaN", "1.0"), strict=True):
            key = book.rank(book.run(run))
            for ordinal, loss in enumerate(("2.0", last)):
                book.epoch(key, ordinal, metrics=f'{{"loss": {loss}}}')
        chart = document(str(book.path), ",".join(IDS[:2]))["chart"]
    (loss,) = (panel for panel in chart["panels"] if panel["key"] == "logged.loss")
    assert [line.get("odd") for line in loss["lines"]] == [[2.0, "NaN"], None]


def test_ids_are_told_apart_whatever_letters_they_have() -> None:
    hostile = ["a,b", "c%2Cd", "<i>", "é #&?"]
    assert parse_ids(",".join(quote(one, safe="") for one in hostile)) == hostile
    assert parse_ids("a,,a,b") == ["a", "b"]
    assert len(parse_ids(",".join(map(str, range(99))))) == MAX_RUNS


def test_runs_without_a_course_have_no_figure(tmp_path: Path) -> None:
    found = {**document(three(tmp_path)), "missing": "", "chart": None}
    shown = outputs(found, Choice(",".join(IDS)))
    assert (shown["figure"], shown["values"], shown["panels"]) == (None, [], [])
    assert "no course" in shown["ends"]


def test_eight_long_runs_have_no_more_points_than_a_screen_shows(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        ids = [training(book, f"net{number}-1a2b", 500, seed=number, phases=False) for number in range(8)]
        chart = document(str(book.path), ",".join(ids))["chart"]
    assert len(chart["panels"][0]["lines"]) == 8
    assert max(map(len, chart["times"])) <= 1000


def test_no_more_than_eight_are_ticked(browser: Browser, tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        for number in range(9):
            training(book, f"net{number}-1a2b", 2, began=BEGAN + 100 * number)
    with on_a_port(Served([tick(1)], [str(book.path)])) as link, visit(browser, link) as visitor:
        page = visitor.open("#/runs")
        for number in range(8):
            page.get_by_role("checkbox", name=f"Compare net{number}").check()
        expect(page.get_by_role("checkbox", name="Compare net8")).to_be_disabled()
        page.get_by_role("button", name="Tick none").click()
        expect(page.get_by_role("checkbox", name="Compare net8")).to_be_enabled()
        expect(page.get_by_role("checkbox", checked=True)).to_have_count(0)


def test_energy_of_which_a_part_was_not_measured_has_no_last_value_and_says_why(tmp_path: Path) -> None:
    path = three(tmp_path)
    with Book(tmp_path / "other") as book:
        training(book, IDS[0], 6)
        training(book, IDS[1], 6, began=BEGAN + 900)
        book.db.execute("UPDATE usage SET energy = NULL WHERE rank LIKE '%' AND ordinal = 3 AND rank IN"
                        " (SELECT key FROM rank WHERE run = ?)", (IDS[1],))  # fmt: skip
        chart = document(str(book.path), ",".join(IDS[:2]))["chart"]
    (panel,) = (one for one in chart["panels"] if one["key"] == "energy")
    whole, broken = panel["lines"]
    assert "lost" not in whole
    assert (broken["lost"]["at"], broken["lost"]["text"]) == (4, UNMEASURED)
    assert [value is None for value in broken["mean"]] == [False] * 4 + [True] * 3
    assert not any("lost" in line for panel in document(path)["chart"]["panels"] for line in panel["lines"])


def test_a_comparison_says_how_many_logged_metrics_it_leaves_out(tmp_path: Path) -> None:
    path = three(tmp_path)
    logged = ", ".join(f'"metric_{number}": 0.5' for number in range(LOGGED + 5))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE epoch SET metrics = '{{{logged}}}'")
        db.execute("DELETE FROM trace WHERE uuid = ''")
    chart = document(path)["chart"]
    assert sum(one["unit"] == "plain" for one in chart["panels"]) == LOGGED
    assert f"{LOGGED} of {LOGGED + 5}" in chart["cut"]


def test_a_table_with_columns_behind_its_edge_shows_that_until_they_are_reached(
    browser: Browser, tmp_path: Path
) -> None:
    with Book(tmp_path) as book:
        ids = [training(book, f"run-{number}", 3) for number in range(MAX_RUNS)]
    served = Served([tick(1, [sample(0)])], [str(book.path)], devices=1)
    with on_a_port(served) as link, visit(browser, link, viewport={"width": 1280, "height": 800}) as visitor:
        page = visitor.open(f"#/compare?runs={','.join(ids)}")
        box = page.locator("#compare-numbers")
        expect(box).to_have_class(re.compile("scrolls"))
        assert box.evaluate("(one) => getComputedStyle(one).maskImage") != "none"
        box.evaluate("(one) => { one.scrollLeft = one.scrollWidth; }")
        expect(box).not_to_have_class(re.compile("scrolls"))
        box.evaluate("(one) => { one.scrollLeft = 0; }")
        expect(box).to_have_class(re.compile("scrolls"))


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((0.001, 0.002), ["0.1 %", "0.2 %"]),
        ((0.424, 0.426, NAN), ["42.4 %", "42.6 %", "–"]),
        ((0.42, 0.46), ["42 %", "46 %"]),
        ((0.42, 0.42), ["42 %", "42 %"]),
    ],
)
def test_ratios_have_the_digits_in_which_they_differ(values: Sequence[float], texts: list[str]) -> None:
    in_points = [one for one in (*MEASURES, *WHOLE) if one.in_points]
    assert len(in_points) > 1
    assert [one.texts(values) for one in in_points] == [texts] * len(in_points)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (compare.Difference(4e-4, 3e-4, 4.9e-4, 0.5), "the same"),
        (compare.Difference(-4e-4, -4.9e-4, -3e-4, -0.5), "the same"),
        (compare.Difference(4e-4, 3e-4, 0.02, 0.5), "0.0 points (0.0 … +2.0)"),
        (compare.Difference(4e-4, -0.02, 0.02, 0.5), "no clear difference"),
    ],
)
def test_a_difference_that_is_0_as_it_is_written_is_none_and_has_no_color(
    tmp_path: Path, found: compare.Difference, text: str
) -> None:
    with Ledgers([three(tmp_path)]) as ledgers:
        rows = {row.id: ledger for ledger, row in ledgers.candidates()}
        told = compare.compare([rows[run].record(run) for run in IDS[:2]])
    wait = next(one for one in told.lines if one.measure.name == "wait_share")
    (row,) = measure_rows(replace(told, lines=[replace(wait, differences=[found])], whole=()))
    cell = row["cells"][1]
    assert cell["note"] == text
    assert (cell["level"] == "mut") == (text != "0.0 points (0.0 … +2.0)")


def test_runs_that_go_on_say_by_how_much_their_gpus_are_older_than_their_losses(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        for place, run in enumerate(IDS[:2]):
            training(book, run, 6, state=RunState.RUNNING, began=BEGAN + 900 * place)
        known = document(str(book.path), ",".join(IDS[:2]))
        book.db.execute("UPDATE trace SET step = step * 0.6 WHERE uuid != ''")
        late = document(str(book.path), ",".join(IDS[:2]), TIME)
    assert not any("late" in panel for panel in known["chart"]["panels"])
    said = {panel["key"]: panel.get("late", "") for panel in late["chart"]["panels"]}
    assert said["logged.loss"] == ""
    assert re.fullmatch(r"2\d s older", said["gpu.power"])
    assert any(note.startswith("Last values of GPUs are up to 2") for note in late["notes"])
