"""The page of runs: what it tells is what `gpumon runs` tells, at every size, and it waits for no disk."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import pairwise
from math import inf, nan
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.frame import RunState
from gpumon.ledger.reader import Ledger, Ledgers
from gpumon.ledger.schema import OUTSIDE_EPOCHS, WHOLE_EPOCH
from gpumon.reports import compare, run_text
from gpumon_tui.app import GpumonApp
from gpumon_tui.renderables.run_list import ORDERS
from gpumon_tui.renderables.run_plot import extremes, numbers, plot, resampled, round_scale
from gpumon_tui.renderables.text_width import length
from gpumon_tui.widgets.runs_sheet import RunsSheet
from tests.fakes import FakeClock
from tests.runs import BEGAN, HOSTILE, Book, measured, training
from tests.tui.fakes import FakeFeed
from tests.tui.screen import play, text

SECOND = 10**9
GOLDEN = Path(__file__).parent / "golden"
SIZES = [(40, 20), (80, 24), (160, 50), (320, 90)]
NOW = BEGAN + 700


def beside(book: Book, key: str, uuid: str, *phases: tuple[str, float]) -> None:
    """Phases between the epochs of a rank."""
    whole = sum(seconds for _, seconds in phases)
    for place, (phase, seconds) in enumerate(((WHOLE_EPOCH, whole), *phases)):
        book.add("outside", rank=key, phase=phase, place=place, seconds=seconds, times=3, steps=0)
        book.usage(key, OUTSIDE_EPOCHS, uuid, phase, **measured(seconds, 0.4 if place < 2 else 0.02))


def parameter(book: Book, run: str, place: int, name: str, value: str) -> None:
    book.add("parameter", run=run, kind=0, name=name, place=place, value=value, rank=0)


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    """Five runs: two of one model, one that waits for data, one that died, and one that was interrupted."""
    with Book(tmp_path) as book:
        first = training(book, "resnet50-77ab", 40, began=BEGAN - 5000, course=False, utilization=0.6, seconds=16)
        second = training(book, "resnet50-9c1e", 33, began=BEGAN - 4000, course=False)
        key = f"tag.1000.4711.{second}"
        beside(book, key, "GPU-00000000-aaaa-bbbb-cccc-dddddddddddd", ("evaluate", 9.0), ("checkpoint", 5.0))
        for run, values in ((first, ("0.4", "256", "fp32")), (second, ("0.8", "512", "bf16"))):
            for place, (name, value) in enumerate(zip(("lr", "batch", "precision"), values, strict=True)):
                parameter(book, run, place, name, f'"{value}"')
            parameter(book, run, 3, "optimizer", '"sgd"')
        slow = training(book, "vit-base-2b", 12, began=BEGAN - 3000, course=False, user="frank")
        book.db.execute(f"UPDATE epoch SET wait = 0.31 * seconds, wait_of = seconds WHERE rank LIKE '%{slow}'")
        book.db.execute(f"UPDATE rank SET wait = 40 WHERE run = '{slow}'")
        training(book, "vit-large-7", 2, began=BEGAN - 2000, course=False, state=RunState.DIED, user="frank")
        book.db.execute("UPDATE run SET epochs = 30 WHERE id = 'vit-large-7'")
        training(book, "bert-11", 3, began=BEGAN - 1000, course=False, state=RunState.INTERRUPTED, user="carol")
        return str(book.path)


async def settled(app: GpumonApp, pilot: Pilot[Any]) -> None:
    """Until all is read that is on screen."""
    while True:
        await pilot.pause()
        app.draw()
        if app.view.kept.asked.is_idle:
            break
        await pilot.pause(0.005)
    await pilot.pause()
    app.draw()
    await pilot.pause()


def sheet(app: GpumonApp) -> RunsSheet:
    return app.query_one(RunsSheet)


def shown(ledger: str, size: tuple[int, int], *keys: str, feed: FakeFeed | None = None) -> list[str]:
    """The page after some keys; each waits until all that it asked for is there."""

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for key in ("4", *keys):
            await pilot.press(key)
            await settled(app, pilot)

    given = feed or FakeFeed(gpus=5)
    return play(given, size, script, ledgers=lambda: Ledgers([ledger]), clock=FakeClock(time=NOW * SECOND))


def cells(row: str) -> list[str]:
    for unit in ("s", "Wh", "GiB", "%"):
        row = re.sub(rf"(\d) {unit}\b" if unit != "%" else r"(\d) %", rf"\1{unit}", row)
    return row.strip("▌ ").split()


OPENED = ("down", "down", "down", "down", "down", "enter")
"""The run with phases between its epochs: two of the frame and three that began later stand above it."""
COMPARED = ("down", "down", "down", "down", "down", "v", "enter")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("name", "keys"), [("list", ()), ("opened", (*OPENED, "down")), ("compared", COMPARED)])
def test_golden(size: tuple[int, int], name: str, keys: Sequence[str], ledger: str) -> None:
    path = GOLDEN / f"runs-{name}-{size[0]}x{size[1]}.txt"
    lines = shown(ledger, size, *keys)[1:-1]  # header and footer are the frame's
    if os.environ.get("GPUMON_REWRITE_GOLDEN"):
        path.write_text("\n".join(lines) + "\n")
    assert lines == path.read_text().splitlines()
    assert all(len(line) <= size[0] for line in lines)


def test_the_list_has_the_live_runs_and_those_of_the_ledger_each_once(ledger: str) -> None:
    lines = shown(ledger, (160, 50))
    assert "2 running  5 past" in "\n".join(lines)
    rows = [line for line in lines if re.match(r"^[▌ ] [▸●▲○] ", line)]
    assert [re.sub(r"^[▌ ] [▸●▲○]  ", "", row).split()[0] for row in rows] == [
        "llama-8b-lora", "resnet50", "bert", "vit-large", "vit-base", "resnet50", "resnet50",
    ]  # fmt: skip
    assert "interrupted" in rows[2]
    assert "died in epoch" in rows[3]
    assert "waits for data" in rows[4]
    assert rows[5].endswith("fine")


def test_a_run_that_frames_and_the_ledger_tell_of_is_one_row_with_what_both_know(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "id-0", 3, course=False, state=RunState.RUNNING)
    lines = shown(str(book.path), (160, 50))
    (row,) = (line for line in lines if " resnet50 " in line)
    assert "8/90" in row, "as the frame tells"
    assert "90%" in row, "as the ledger has measured"


def test_an_opened_run_has_the_rows_of_runs_show(ledger: str) -> None:
    lines = shown(ledger, (320, 90), *OPENED)
    with Ledger(ledger) as opened:
        told = list(run_text.lines(opened.record("resnet50-9c1e", phases=True), float(NOW), 0))
    truth = {line.split()[0]: cells(line) for line in told if re.match(r"^ *(\d+|between|all) ", line)}
    lines = [line[:150] for line in lines]
    rows = {cells(line)[0]: cells(line) for line in lines if re.match(r"^[▌ ] *(e\d+|between|all) ", line)}
    assert len(rows) > 30
    for title, row in rows.items():
        expected = truth[title.removeprefix("e")]
        for place, cell in enumerate(row[1:], 1):
            if cell.endswith(("GiB", "Wh")) or re.fullmatch(r"\d+%|0\.\d{4}", cell):
                assert cell in expected, f"{title}: column {place}"
    assert rows["between"][1] == truth["between"][1] == "14s"
    assert rows["all"][1] == truth["all"][1]
    assert any(line.strip("▌ ").startswith("evaluate ×3") for line in lines), "and each phase of what is between"


def test_an_epoch_has_its_change_against_the_one_before(ledger: str) -> None:
    lines = shown(ledger, (320, 90), *OPENED)
    (row,) = (cells(line) for line in lines if re.match(r"^[▌ ] *e1 ", line))
    with Ledger(ledger) as opened:
        first, second = opened.record("resnet50-9c1e").epochs[:2]
    wanted = (second.seconds / first.seconds - 1) * 100
    assert f"−{abs(wanted):.0f}%" in row
    (oldest,) = (cells(line) for line in lines if re.match(r"^[▌ ] *e0 ", line))
    assert not any(cell.startswith(("+", "−")) for cell in oldest), "the first has none before"


def test_a_verdict_is_that_of_the_house_and_stands_above_the_table_too(ledger: str) -> None:
    lines = shown(ledger, (160, 50), "down", "down", "down", "down", "enter")
    assert any("△ Waits for data 3" in line and "Add DataLoader workers" in line for line in lines)
    assert sum("waits for data" in line for line in lines if re.match(r"^[▌ ] *e\d+ ", line)) == 12
    lines = shown(ledger, (160, 50), "down", "down", "down", "enter")
    assert any("▲ Died in epoch" in line for line in lines)


def test_the_cursor_of_the_table_is_that_of_the_curves(ledger: str) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for key in ("4", *OPENED):
            await pilot.press(key)
            await settled(app, pilot)
        await pilot.press("end")
        await settled(app, pilot)
        columns = {line.index("│") for line in text(app) if "│" in line}
        assert len(columns) == 1, "one line through both curves"
        assert any(line.startswith("▌") and " e0 " in line for line in text(app))
        await pilot.press("home")
        await settled(app, pilot)
        moved = {line.index("│") for line in text(app) if "│" in line}
        assert moved > columns or min(moved) > max(columns)

    play(FakeFeed(gpus=5), (160, 50), script, ledgers=lambda: Ledgers([ledger]), clock=FakeClock(time=NOW * SECOND))


def test_a_comparison_is_that_of_runs_compare_with_what_differs_in_config(ledger: str) -> None:
    lines = shown(ledger, (160, 50), *COMPARED)
    screen = "\n".join(lines)
    with Ledger(ledger) as opened:
        records = [opened.record(run, phases=False) for run in ("resnet50-77ab", "resnet50-9c1e")]
    found = compare.compare(records)
    for line in found.lines:
        (row,) = (one for one in lines if one.strip().startswith(f"{line.measure.title}  "))
        for value in line.medians:
            assert line.measure.write(value) in row
        assert compare.verdict(line.differences[0], line.measure) in row
    for told in ("lr 0.8 was 0.4", "batch 512 was 256", "precision bf16 was fp32", "1 parameter is the same"):
        assert told in screen
    assert "Loss by time" in screen
    swapped = "\n".join(shown(ledger, (160, 50), *COMPARED, "x"))
    assert "lr 0.4 was 0.8" in swapped
    assert "+60" in swapped or "+6" in swapped


def test_escape_closes_the_innermost_thing(ledger: str) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for key in ("4", *COMPARED):
            await pilot.press(key)
            await settled(app, pilot)
        page = sheet(app)
        assert page.pair == ("resnet50-77ab", "resnet50-9c1e")
        await pilot.press("escape")
        assert page.pair is None
        await pilot.press("v", "escape")
        assert not page.choosing
        await pilot.press("enter", "escape")
        assert not page.opened.id
        await pilot.press("slash", "v", "i", "t", "enter")
        assert page.list.words == "vit"
        await pilot.press("escape")
        assert page.list.words == ""

    play(FakeFeed(gpus=5), (80, 24), script, ledgers=lambda: Ledgers([ledger]), clock=FakeClock(time=NOW * SECOND))


def test_a_filter_counts_as_it_is_typed_and_says_what_it_hides(ledger: str) -> None:
    lines = shown(ledger, (80, 24), "slash", "f", "r", "a", "n", "k")
    assert "/ frank▏  2 of 7" in "\n".join(lines)
    assert not any("resnet50" in line for line in lines)
    none = shown(ledger, (80, 24), "slash", "q", "q")
    assert any("The filter hides all 7 runs" in line for line in none), "and q did not quit"


def test_runs_are_sorted_by_a_key_and_by_a_click_on_a_heading(ledger: str) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        await settled(app, pilot)
        page = sheet(app)
        for order in (*ORDERS[1:], ORDERS[0]):
            await pilot.press("o")
            await settled(app, pilot)
            keys = [order.key(run) for run in page.list.shown]
            assert keys == sorted(keys), order.name
            assert order.name in text(app)[2]
        heading = text(app)[3]
        await pilot.click(offset=(heading.index("energy") + 2, 3))
        assert ORDERS[page.list.order].column == "energy"
        energies = [run.energy for run in page.list.shown if run.energy == run.energy]
        await settled(app, pilot)
        energies = [run.energy for run in page.list.shown if run.energy == run.energy]
        assert energies == sorted(energies, reverse=True)

    play(FakeFeed(gpus=5), (160, 50), script, ledgers=lambda: Ledgers([ledger]), clock=FakeClock(time=NOW * SECOND))


def test_a_report_is_a_new_file_each_time_and_its_path_is_said(
    ledger: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    lines = shown(ledger, (160, 50), *OPENED, "r")
    first = here / "gpumon-resnet50-9c1e.html"
    assert f"Report written: {first}" in "\n".join(lines)
    made = first.read_bytes()
    assert b"resnet50-9c1e" in made
    first.write_bytes(b"mine")
    lines = shown(ledger, (160, 50), *OPENED, "r")
    assert f"Report written: {here / 'gpumon-resnet50-9c1e-2.html'}" in "\n".join(lines)
    assert first.read_bytes() == b"mine"


def test_a_report_that_cannot_be_written_says_why(ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getcwd", lambda: "/nowhere/at/all")
    assert "cannot write /nowhere/at/all/gpumon-resnet50-9c1e.html" in "\n".join(shown(ledger, (160, 50), *OPENED, "r"))


def test_where_there_is_no_ledger_the_page_says_so_and_has_the_live_runs(tmp_path: Path) -> None:
    lines = shown(str(tmp_path / "none.sqlite"), (80, 24))
    assert sum(line[2:3] == "▸" or line[1:2] == "▸" for line in lines) == 2
    opened = "\n".join(shown(str(tmp_path / "none.sqlite"), (80, 24), "enter"))
    assert "no ledger has this run" in opened


@pytest.mark.parametrize("size", SIZES)
def test_hostile_text_of_a_ledger_stays_text(size: tuple[int, int], tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        run = training(book, "evil-1", 3, course=False, name=HOSTILE, user=HOSTILE, framework=HOSTILE)
        book.db.execute("UPDATE epoch SET metrics = ?", ('{"\\u001b[31m[red]loss": 1.5, "b": null}',))
        parameter(book, run, 0, HOSTILE, '"\\u001b]0;x\\u0007"')
        training(book, "evil-2", 3, course=False, name=HOSTILE)
    for keys in ((), ("end", "enter"), ("end", "v", "up", "enter"), ("end", "enter", "c")):
        lines = shown(str(book.path), size, *keys)
        assert not any(letter in "".join(lines) for letter in "\x1b\x07\x9b")
        assert all(len(line) <= size[0] for line in lines)


def test_diverged_metrics_and_unknown_values_leave_gaps_and_no_zero(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "nan-1", 6, course=False)
        book.db.execute("UPDATE epoch SET metrics = '{\"loss\": NaN}' WHERE ordinal > 2")
        book.db.execute("UPDATE usage SET utilization_mean = NULL, energy = NULL WHERE ordinal = 1")
    lines = shown(str(book.path), (160, 50), "end", "enter")
    (row,) = (cells(line) for line in lines if re.match(r"^[▌ ] *e1 ", line))
    assert "–" in row
    assert "0%" not in row
    assert sum("nan" in line for line in lines if re.match(r"^[▌ ] *e\d", line)) == 3
    assert any("diverged in 3 epochs" in line for line in lines)


def test_nothing_is_said_to_be_fine_of_which_nothing_was_measured(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "cpu-1", 4, course=False)
        book.db.execute("DELETE FROM usage")
        book.db.execute("UPDATE epoch SET wait = NULL")
        book.db.execute("UPDATE rank SET wait = NULL")
    lines = shown(str(book.path), (160, 50), "end", "enter")
    assert sum(" e" in line[:14] for line in lines) >= 4
    assert not any("fine" in line for line in lines)
    assert any("Loss" in line for line in lines)
    assert not any("Utilization" in line for line in lines), "no empty picture of what nobody measured"


def test_two_thousand_runs_and_five_thousand_epochs_stay_quick(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        book.db.execute("PRAGMA synchronous = OFF")
        for place in range(2000):
            training(book, f"r-{place:04}", 1, began=BEGAN - 100 * place, course=False, phases=False)
        training(book, "big-1", 5000, began=BEGAN + 1, course=False)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        await settled(app, pilot)
        page = sheet(app)
        spent = []
        for key in ("down", "down", "down", "end", "home", "pagedown"):
            await pilot.press(key)
            began = perf_counter()
            page.lines()
            spent.append(perf_counter() - began)
        await pilot.press("home", "down", "down", "enter")
        await settled(app, pilot)
        assert page.opened.id == "big-1"
        for step in (1, 1, 1, 5000, -5000):
            page.move(step)
            began = perf_counter()
            page.lines()
            spent.append(perf_counter() - began)
        assert min(spent) < 0.05
        assert sorted(spent)[len(spent) // 2] < 0.2, "drawn is what is on screen"

    play(FakeFeed(gpus=5), (160, 50), script, ledgers=lambda: Ledgers([str(book.path)]))


def test_a_picture_that_shows_the_same_is_the_same(ledger: str) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for key in ("4", *OPENED):
            await pilot.press(key)
            await settled(app, pilot)
        page = sheet(app)
        before, after = page.lines(), page.lines()
        assert sum(one is other for one, other in zip(before, after, strict=True)) > len(before) * 0.7

    play(FakeFeed(gpus=5), (160, 50), script, ledgers=lambda: Ledgers([ledger]), clock=FakeClock(time=NOW * SECOND))


def test_a_copied_row_has_its_cells_apart_by_tabs(ledger: str) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for key in ("4", *OPENED):
            await pilot.press(key)
            await settled(app, pilot)
        assert sheet(app).row_text().startswith("e32\t")
        await pilot.press("y")
        assert app.clipboard.startswith("e32\t")

    play(FakeFeed(gpus=5), (80, 24), script, ledgers=lambda: Ledgers([ledger]), clock=FakeClock(time=NOW * SECOND))


def test_values_are_resampled_without_inventing_any() -> None:
    assert resampled([1.0, 3.0], 5) == [1.0, 1.5, 2.0, 2.5, 3.0]
    assert resampled([1.0, 3.0, 5.0, 7.0], 2) == [2.0, 6.0]
    gap = resampled([1.0, nan, 3.0], 5)
    assert [value == value for value in gap] == [True, False, False, False, True]
    assert resampled([inf, inf], 2) != [inf, inf]
    assert extremes([1.0, 5.0, nan, 2.0], 2, highest=True) == [5.0, 2.0]
    assert resampled([], 3)[0] != 0.0


def test_an_axis_has_round_numbers_around_all_values() -> None:
    for values in ([0.22, 2.4], [1.0, 1.0], [-3.0, 8.0], [1e-9, 2e-9], [nan, 0.0], [5e8, 1.9e9]):
        low, high, step = round_scale(values)
        assert all(low <= value <= high for value in values if value == value)
        beside = numbers(low, high, step, 12)
        assert beside[0] == high
        assert beside[11] == pytest.approx(low)
        assert all(one - other >= 2 for other, one in pairwise(sorted(beside)))


def test_a_plot_has_the_size_it_was_asked_for_and_a_gap_is_empty() -> None:
    from gpumon_tui import theme

    drawn = plot([([0.5] * 10 + [nan] * 10, theme.RUN)], 10, 4, role="run")
    assert [length(line) for line in drawn] == [10] * 4
    assert all("".join(segment.text for segment in line)[5:].strip() == "" for line in drawn)


def test_the_help_tells_of_the_keys_of_the_page_on_screen() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("question_mark")
        await pilot.pause()
        assert not any("compare a run" in line for line in text(app))
        assert sum("this help" in line for line in text(app)) == 1
        await pilot.press("x", "4", "question_mark")
        await pilot.pause()
        assert any("compare a run" in line for line in text(app))
        assert not any("next or previous metric" in line for line in text(app))

    play(FakeFeed(), (120, 60), script)
