"""The page of runs: what it tells is what `gpumon runs` tells, at every size, and it waits for no disk."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from dataclasses import replace
from itertools import pairwise
from math import inf, nan
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.common.errors import GpumonError
from gpumon.diagnosis.advice import MORE_WORKERS, choose
from gpumon.live import LiveState
from gpumon.model import units
from gpumon.model.frame import RunState
from gpumon.reports import compare, run_text
from gpumon.storage.ledger.reader import NOTHING, Ledger, Ledgers
from gpumon.storage.ledger.row_keys import OUTSIDE_EPOCHS, WHOLE_EPOCH, WHOLE_RUN
from gpumon_tui.app import GpumonApp
from gpumon_tui.appearance import Appearance, ColorDepth
from gpumon_tui.background_queries import ACTIVE_VALID_FOR
from gpumon_tui.data.run_ledger import FRESH, OPENED_KEPT, LedgerRuns
from gpumon_tui.data.run_reader import _compared_row, compare_runs, open_run
from gpumon_tui.data.run_rows import EpochCurve
from gpumon_tui.keybindings import RUNS
from gpumon_tui.render import run_compare, run_detail
from gpumon_tui.render.axis import logged_axis
from gpumon_tui.render.run_compare import headlines
from gpumon_tui.render.run_curves import (
    LABELS,
    _time_points,
    curves,
    epoch_cell,
    extreme_points,
    interpolated_points,
    level_points,
)
from gpumon_tui.render.run_list import ORDERS
from gpumon_tui.render.text_width import NO_RUN_SIMULATED
from tests.fakes import FakeClock
from tests.instructions import instructions
from tests.programs import until
from tests.runs import BEGAN, HOSTILE, Book, measured, training
from tests.tui.fakes import START, FakeFeed, FakePlayer, recent
from tests.tui.screen import Script, appears, play, runs_page, text

SECOND = 10**9
SIZES = [(40, 20), (160, 50)]
NOW = BEGAN + 700


def beside(book: Book, key: str, uuid: str, *phases: tuple[str, float]) -> None:
    """Phases between the epochs of a rank."""
    whole = sum(seconds for _, seconds in phases)
    for place, (phase, seconds) in enumerate(((WHOLE_EPOCH, whole), *phases)):
        book.add("outside", rank=key, phase=phase, place=place, seconds=seconds, times=3, steps=0)
        book.usage(key, OUTSIDE_EPOCHS, uuid, phase, **measured(seconds, 0.4 if place < 2 else 0.02))


def parameter(book: Book, run: str, place: int, name: str, value: str) -> None:
    book.add("parameter", run=run, kind=0, name=name, place=place, value=value, rank=0)


def five_runs(directory: Path) -> str:
    """Two runs of one model, one that waits for data, one that died, and one that was interrupted."""
    with Book(directory) as book:
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


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    return five_runs(tmp_path)


async def settled(app: GpumonApp, pilot: Pilot[Any]) -> None:
    """Until all is read that is on screen."""
    while True:
        await pilot.pause()
        app.draw()
        if app.view.ledger_runs.queries.is_idle:
            break
        await pilot.pause(0.005)
    await pilot.pause()
    app.draw()
    await pilot.pause()


def shown(
    ledger: str, size: tuple[int, int], *keys: str, feed: FakeFeed | None = None, now: float = NOW, **options: Any
) -> list[str]:
    """The page after some keys; each waits until all that it asked for is there."""

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for key in ("4", *keys):
            await pilot.press(key)
            await settled(app, pilot)

    given = feed or recent(gpus=5)
    clock = FakeClock(time=round(now * SECOND))
    return play(given, size, script, ledgers=lambda: Ledgers([ledger]), clock=clock, **options)


def cells(row: str) -> list[str]:
    for unit in ("s", "Wh", "GiB", "%"):
        row = re.sub(rf"(\d) {unit}\b" if unit != "%" else r"(\d) %", rf"\1{unit}", row)
    return row.strip("▌ ").split()


OPENED = ("down", "down", "down", "down", "down", "enter")
"""The run with phases between its epochs: two of the frame and three that began later stand above it."""
COMPARED = ("down", "down", "down", "down", "down", "v", "enter")


def test_lists_live_and_past_runs_once(ledger: str) -> None:
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


def test_a_run_in_frames_and_ledger_is_one_row(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "id-0", 3, course=False, state=RunState.RUNNING)
    lines = shown(str(book.path), (160, 50))
    (row,) = (line for line in lines if " resnet50 " in line)
    assert "8/90" in row, "as the frame tells"
    assert "90%" in row, "as the ledger has measured"


def test_runs_of_a_silent_daemon_are_unseen() -> None:
    silent = LiveState(False, "stale: last seen 14:24:59 (15 s ago)", 1.0, 15.0)
    lines = play(recent(live=silent), (160, 50), keys_then("4"))
    rows = [line for line in lines if re.match(r"^[▌ ] [▸●▲○] ", line)]
    assert rows
    assert all(row.endswith(" unseen") for row in rows)
    assert "2 unseen" in "\n".join(lines)
    assert "2 last seen running" in "\n".join(play(recent(live=silent), (160, 50)))


def keys_then(*keys: str) -> Script:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press(*keys)

    return script


def test_opened_run_of_a_recording_uses_the_clock_of_the_recording(tmp_path: Path) -> None:
    """Its ledger was written 5 s before the moment on screen, and is not older at its end, nor hours later."""
    end = float(START + 699)
    with Book(tmp_path) as book:
        training(book, "id-0", 3, began=end - 35, course=False, state=RunState.RUNNING, seconds=10)
        book.db.execute("UPDATE epoch SET ended = NULL WHERE ordinal = 2")
        book.db.execute("UPDATE run SET updated = ?, seconds = 30", (round((end - 5) * SECOND),))
    label = "REPLAY x.gpumon"
    plays = recent(gpus=5, source="replay", label=label)
    ended = recent(gpus=5, source="replay", label=label, ended=True, live=LiveState(False, "ended", 1.0))
    for feed, word in ((plays, "running"), (ended, "running at the end")):
        lines = shown(str(book.path), (160, 50), "down", "enter", feed=feed, player=FakePlayer(), now=end + 7200)
        assert re.search(rf"{word}  ·  30(\.0)? s  ·", "\n".join(lines))
        assert f"until {units.clock(end - 5)}" in "\n".join(lines), "\n".join(lines)
        assert "unseen" not in "\n".join(lines)
        assert "not finished" not in "\n".join(lines)


def test_an_epoch_is_not_running_while_the_daemon_is_silent(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "id-0", 3, began=NOW - 35, course=False, state=RunState.RUNNING, seconds=10)
        book.db.execute("UPDATE epoch SET ended = NULL WHERE ordinal = 2")
        book.db.execute(f"UPDATE run SET updated = {NOW * SECOND}")
    silent = LiveState(False, "stale: last seen 14:24:59 (15 s ago)", 1.0, 15.0)
    for state, verdict, sign in ((recent(gpus=5), "running", "▸"), (recent(gpus=5, live=silent), "unseen", "…")):
        lines = shown(str(book.path), (80, 24), "down", "enter", feed=state)
        (row,) = (line for line in lines if re.match(rf"^[▌ ] *e2 {sign} ", line))
        assert row.split()[-1] == verdict, lines


def of_frames_and_ledger(directory: Path, feed: FakeFeed, player: FakePlayer | None, *keys: str) -> list[str]:
    """The rows of epochs of a run that both tell of, whose ledger was read as its eighth one began."""
    end, told = float(START + 699), {"label": feed.label, "state": RunState.RUNNING}
    with Book(directory) as book:
        training(book, "id-0", 8, began=float(START), course=False, utilization=0.31, **told)
        book.db.execute("UPDATE epoch SET ended = NULL, seconds = 0.035 WHERE ordinal = 7")
        book.db.execute(f"UPDATE run SET updated = {round(end) * SECOND}")
    lines = shown(str(book.path), (160, 50), "down", *keys, feed=feed, player=player, now=end)
    return [line for line in lines if re.match(r"^[▌ ] *e\d+ ", line)]


def test_epochs_below_the_list_come_from_the_ledger_of_a_recording(tmp_path: Path) -> None:
    feed = recent(gpus=5, source="replay", label="REPLAY x.gpumon")
    below = of_frames_and_ledger(tmp_path, feed, FakePlayer())
    assert any(re.search(r"e2 .* 3\d%", line) for line in below), below


def test_seek_drops_answers_of_the_previous_ledger(tmp_path: Path) -> None:
    paths = []
    for run_id in ("beyond-1", "past-2"):
        with Book(tmp_path / run_id) as book:
            training(book, run_id, 3, began=float(START), course=False)
        paths.append(str(book.path))
    player, feed = FakePlayer(), recent(gpus=5, source="replay", label="REPLAY x.gpumon")

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        await appears(app, pilot, "beyond")
        del paths[0]
        player.seeks += 1
        app.poll()
        await pilot.pause()
        assert "beyond" not in "\n".join(text(app))
        await appears(app, pilot, "past")
        assert "beyond" not in "\n".join(text(app))

    play(feed, (160, 50), script, player=player, ledgers=lambda: Ledgers(paths[:1]))


def test_open_epoch_below_the_list_follows_the_frames(tmp_path: Path) -> None:
    """A ledger is read every ten seconds, and may have been read as the epoch began."""
    (row, *_) = of_frames_and_ledger(tmp_path, recent(gpus=5), None)
    assert re.match(r"^ +e7 ▸ +20 s ", row), row


def test_values_of_an_open_epoch_are_of_one_time(tmp_path: Path) -> None:
    (row, before, *_) = of_frames_and_ledger(tmp_path, recent(gpus=5), None, "enter", "enter")
    assert re.match(r"^[▌ ] +e7 ▸ +35 ms ", row), "its energy is not of the 20 s that frames tell of"
    assert re.match(r"^ +e6 +10 s ", before)


def test_list_shows_the_time_of_the_ledger_values(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "open-1", 3, began=NOW - 100, state=RunState.RUNNING)
        book.db.execute("UPDATE run SET updated = ?", (round((NOW - 7) * SECOND),))
        training(book, "over-1", 3, began=NOW - 3000)
    title = next(line for line in shown(str(book.path), (160, 50)) if line.startswith("  Runs "))
    assert f" past  ·  util, wait and energy until {units.clock(NOW - 7)}" in title
    over = shown(str(book.path), (160, 50), "slash", *"over-1", "enter")
    assert not any("until" in line for line in over)


def test_run_without_ledger_shows_epochs_of_frames() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("tab", "down", "enter")
        await pilot.pause()
        assert app.page.page_name == RUNS
        lines = text(app)
        screen = "\n".join(lines)
        assert re.search(r"── +Esc close", screen), "what was selected on the overview is open"
        assert re.search(r"^ +e\d+ ▸ +\d", screen, re.MULTILINE)
        assert "epoch on chart" not in lines[-1]
        await pilot.press("escape", "v")
        await pilot.pause()
        assert "in no ledger: it cannot be compared" in text(app)[-1]
        assert re.search(r"^ +e\d+ ▸ +\d", "\n".join(text(app)), re.MULTILINE), "also below the list"

    play(recent(), (160, 50), script)


def test_live_run_shows_ranks_memory_and_resumption(ledger: str) -> None:
    lines = shown(ledger, (160, 50))
    (facts,) = (line for line in lines if "1 rank on GPU 4" in line)
    assert "resumed from epoch" in facts
    assert "1 out-of-memory error" in facts
    assert "held by the framework" in facts
    lines = shown(ledger, (160, 50), "down")
    assert sum(bool(re.match(r"^ +[0-3] +\d+  [0-3] +\d \(\d/90\)  train ", line)) for line in lines) == 4, "its ranks"


def test_past_run_under_the_cursor_is_previewed(ledger: str) -> None:
    lines = shown(ledger, (160, 50), *OPENED[:-1])
    list_ends = next(place for place, line in enumerate(lines) if "↵ open" in line)
    below = "\n".join(lines[list_ends:])
    assert "resnet50-9c1e" in lines[list_ends]
    assert "33 epochs" in below
    assert re.search(r"^ +e32 +\d+", below, re.MULTILINE), "its newest epoch stands first"
    assert not any(line.startswith("▌") for line in lines[list_ends:]), "keys go to the list"
    assert "Utilization" in below, "curves, as of the opened run"
    lines = shown(ledger, (80, 24), *OPENED[:-1])
    assert any(re.match(r"^ +e32 +\d+", line) for line in lines)


def test_runs_passed_by_the_cursor_are_not_read(ledger: str) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        await settled(app, pilot)
        page, read = runs_page(app), []
        for _ in range(5):
            page.action_move(1)
            page.area.lines()
            read.append(page._preview_run.id)
        assert len({*read} - {""}) < 3, "the first is read meanwhile"
        await settled(app, pilot)
        assert page._preview_run.detail is not None
        assert page._preview_run.detail.record.run.id == page.table.run == "resnet50-9c1e"

    play(recent(gpus=5), (160, 50), script, ledgers=lambda: Ledgers([ledger]), clock=FakeClock(time=NOW * SECOND))


def test_only_the_last_opened_runs_stay_cached(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        for place in range(OPENED_KEPT + 2):
            training(book, f"r-{place}", 1, began=BEGAN - 100 * place, course=False)
    kept = LedgerRuns(lambda: Ledgers([str(book.path)]), lambda: float(NOW))
    for place in range(OPENED_KEPT + 2):
        kept.opened(f"r-{place}", is_over=True)
        until(lambda: kept.queries.is_idle)
    known = [kept.queries.cached(("opened", f"r-{place}", True)).result for place in range(OPENED_KEPT + 2)]
    assert [one is not None for one in known] == [False, False, *[True] * OPENED_KEPT]


def test_empty_columns_are_left_out() -> None:
    lines = play(recent(), (200, 50), keys_then("4"))
    (heading,) = (line for line in lines if "started" in line)
    assert not {"util", "wait", "energy"} & set(heading.split()), "no ledger"


def test_only_settled_runs_are_cached_for_long(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "over-1", 2, course=False)
        training(book, "open-1", 2, course=False, state=RunState.RUNNING)
    kept = LedgerRuns(lambda: Ledgers([str(book.path)]), lambda: float(NOW))
    for run in ("over-1", "open-1"):
        kept.opened(run, is_over=True)
    until(lambda: kept.queries.is_idle)
    now = monotonic()
    over, goes_on = (kept.opened(run, is_over=True).expires - now for run in ("over-1", "open-1"))
    assert over > 60
    assert goes_on < 60, "a frame may know of an end before the ledger has its last loss"
    fresh = LedgerRuns(lambda: Ledgers([str(book.path)]), lambda: float(NOW))
    fresh.opened("open-1", is_over=False, valid_for=FRESH)
    until(lambda: fresh.queries.is_idle)
    now = monotonic()
    assert fresh.opened("open-1", is_over=False).expires - now < ACTIVE_VALID_FOR, "beside its row in the list"


def test_a_killed_run_is_read_until_its_ledger_is_complete(
    tmp_path: Path,
) -> None:
    with Book(tmp_path) as book:
        training(book, "dead-1", 2, course=False, state=RunState.DIED)
    with Ledgers([str(book.path)]) as ledgers:
        (listed,) = ledgers.runs(limit=1)
    now = [listed.run.updated + 5]
    kept = LedgerRuns(lambda: Ledgers([str(book.path)]), lambda: now[0])
    kept.opened("dead-1", is_over=True)
    kept.detail("dead-1", is_over=True)
    until(lambda: kept.queries.is_idle)
    for question in ("opened", "detail"):
        assert kept.queries.cached((question, "dead-1", True)).expires - monotonic() <= ACTIVE_VALID_FOR
    now[0] += 600
    kept.forget()
    kept.opened("dead-1", is_over=True)
    until(lambda: kept.queries.is_idle)
    assert kept.queries.cached(("opened", "dead-1", True)).expires - monotonic() > ACTIVE_VALID_FOR


def test_opening_a_run_reads_it_again(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "open-1", 2, course=False, state=RunState.RUNNING)
        training(book, "over-1", 2, course=False)
    kept = LedgerRuns(lambda: Ledgers([str(book.path)]), lambda: float(NOW))
    for run, is_over in (("open-1", False), ("over-1", True)):
        kept.opened(run, is_over=is_over)
        until(lambda: kept.queries.is_idle)
        kept.expire(run)
    is_due = [
        kept.queries.cached(("opened", run, run == "over-1")).expires < monotonic() for run in ("open-1", "over-1")
    ]
    assert is_due == [True, False]
    assert kept.queries.cached(("opened", "open-1", False)).result, "which is shown until then"


def test_opened_active_run_shows_the_time_of_its_ledger(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "open-1", 2, course=False, state=RunState.RUNNING)
        training(book, "over-1", 2, course=False, began=BEGAN - 4000)
        book.db.execute(f"UPDATE run SET updated = {(NOW - 7) * SECOND} WHERE id = 'open-1'")
    for size in ((160, 50), (80, 24)):
        lines = shown(str(book.path), size, "slash", *"open-1", "enter", "enter")
        assert any(f"until {units.clock(NOW - 7)}" in line for line in lines), lines
    assert not any("until" in line for line in shown(str(book.path), (160, 50), "slash", *"over-1", "enter", "enter"))


def test_verdict_drops_its_share_before_its_subject(ledger: str) -> None:
    def verdict(width: int) -> str:
        (line,) = (line for line in shown(ledger, (width, 24)) if "vit-base" in line)
        return line[line.index("waits") :].strip()

    assert verdict(320) == "waits for data 31 % of the time"
    assert verdict(80) == "waits for data"


def test_energies_of_the_list_have_one_unit(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        for name, seconds in (("large-1", 20.0), ("small-2", 0.02)):
            training(book, name, 5, seconds=seconds)
    for size in ((80, 24), (160, 40)):
        page = "\n".join(shown(str(book.path), size, feed=FakeFeed(gpus=0)))
        large, small = (re.search(rf"{name} .*? (<?[\d.]+ (?:k?Wh|J)) ", page) for name in ("large", "small"))
        assert large
        assert small
        assert {large[1][-2:], small[1][-2:]} == {"Wh"}, page
    page = "\n".join(shown(str(book.path), (80, 24), "slash", *"small", "enter", feed=FakeFeed(gpus=0)))
    assert re.search(r"small .*? [\d.]+ J ", page), "by itself it has a unit of its own"


def test_opened_run_has_the_rows_of_runs_show(ledger: str) -> None:
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


def test_energy_of_an_epoch_is_visible_beside_a_long_run(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "long-1", 1200, course=False)
    lines = shown(str(book.path), (160, 50), "end", "enter")
    (row,) = (line for line in lines if re.match(r"^[▌ ] *e1190 ", line))
    assert re.search(r"\b1\.4\d? Wh", row)
    assert any(re.search(r"^ +all .* kWh", line) for line in lines)


def test_simulation_says_that_epochs_are_not_recorded(tmp_path: Path) -> None:
    lines = shown(str(tmp_path / "none.sqlite"), (160, 50), "enter", feed=recent(gpus=5, source="sim"))
    assert any("No ledger has the epochs of a simulation or a recording" in line for line in lines)
    assert not any("start 'gpumon daemon'" in line for line in lines)


def test_epoch_shows_its_change(ledger: str) -> None:
    lines = [line[:150] for line in shown(ledger, (320, 90), *OPENED)]
    (row,) = (cells(line) for line in lines if re.match(r"^[▌ ] *e1 ", line))
    with Ledger(ledger) as opened:
        first, second = opened.record("resnet50-9c1e").epochs[:2]
    wanted = (second.seconds / first.seconds - 1) * 100
    assert f"−{abs(wanted):.0f}%" in row
    (oldest,) = (cells(line) for line in lines if re.match(r"^[▌ ] *e0 ", line))
    assert not any(cell.startswith(("+", "−")) for cell in oldest), "the first has none before"


def test_verdict_is_shown_in_rows_and_above_the_table(ledger: str) -> None:
    lines = shown(ledger, (160, 50), "down", "down", "down", "down", "enter")
    assert any("△ Waits for data 3" in line and "Add DataLoader workers" in line for line in lines)
    assert sum("waits for data" in line for line in lines if re.match(r"^[▌ ] *e\d+ ", line)) == 12
    lines = shown(ledger, (160, 50), "down", "down", "down", "enter")
    assert any("▲ Died in epoch" in line for line in lines)


def test_sentences_are_whole_on_a_narrow_screen(ledger: str) -> None:
    def said(*keys: str) -> str:
        return " ".join(" ".join(shown(ledger, (80, 60), *keys)).split())

    opened = said("down", "down", "down", "down", "enter")
    assert re.search(rf"△ Waits for data 3\d % of the time\. {re.escape(choose(MORE_WORKERS, 'torch'))}", opened)
    compared = said(*COMPARED)
    assert "95 % interval of the difference, by the epochs of each run." in compared
    assert "no daemon read the CPU packages during most of them" in compared or "CPU energy" not in compared


def test_cursor_of_table_and_curves_agree(ledger: str) -> None:
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

    play(recent(gpus=5), (160, 50), script, ledgers=lambda: Ledgers([ledger]), clock=FakeClock(time=NOW * SECOND))


def test_curves_in_place_of_the_table_keep_the_margins(ledger: str) -> None:
    size, margin = (120, 40), 2
    lines = shown(ledger, size, *OPENED, "c")
    curves = lines[next(place for place, line in enumerate(lines) if "by epoch" in line) : -1]
    assert len(curves) > 10
    assert all(line[:margin].strip() == "" and len(line) <= size[0] - margin for line in curves)


def test_comparison_matches_runs_compare(ledger: str) -> None:
    lines = shown(ledger, (160, 50), *COMPARED)
    screen = "\n".join(lines)
    with Ledger(ledger) as opened:
        records = [opened.record(run, phases=False) for run in ("resnet50-77ab", "resnet50-9c1e")]
    found = compare.compare(records)
    for line in found.lines:
        (row,) = (one for one in lines if one.strip().startswith(f"{line.measure.title}  "))
        for value in line.measure.texts(line.medians):
            assert value in row
        assert compare.verdict(line.differences[0], line.measure) in row
    for told in ("lr 0.8 was 0.4", "batch 512 was 256", "precision bf16 was fp32", "1 parameter is the same"):
        assert told in screen
    assert "Loss by time" in screen
    swapped = "\n".join(shown(ledger, (160, 50), *COMPARED, "x"))
    assert "lr 0.4 was 0.8" in swapped
    assert "+60" in swapped or "+6" in swapped


@pytest.mark.parametrize("is_ascii", [False, True])
def test_comparison_marks_lines_by_letters_without_colors(ledger: str, is_ascii: bool) -> None:
    look = Appearance(depth=ColorDepth.NONE, is_ascii=is_ascii)
    plain = shown(ledger, (160, 60), *COMPARED, appearance=look)
    who = [line for line in plain if "resnet50-" in line and "epochs" in line][:2]
    assert [re.match(r" *([AB]) \S([AB])\S ", line).groups() for line in who] == [("B", "B"), ("A", "A")]  # type: ignore[union-attr]
    first = next(place for place, line in enumerate(plain) if "Loss by time" in line)
    for of_picture in (slice(0, 80), slice(80, 160)):
        letters = "".join(line[of_picture] for line in plain[first + 1 :])
        assert letters.count("A") > 2
        assert letters.count("B") > 2
    colored = shown(ledger, (160, 60), *COMPARED)
    assert not re.search("[AB]", "".join(colored[first + 1 : -1])), "colors tell them apart"


def test_headlines_match_the_comparison_table(ledger: str) -> None:
    lines = shown(ledger, (160, 50), *COMPARED)
    with Ledger(ledger) as opened:
        records = [opened.record(run, phases=False) for run in ("resnet50-77ab", "resnet50-9c1e")]
    runs = compare_runs(*records)
    found = {one.description: one for one in headlines(runs)}
    rows = {line.measure.name: line for line in compare.compare(records).lines}
    base, own = rows["seconds"].medians
    fast = found["as fast an epoch"]
    assert (fast.number, fast.unit, fast.is_clear) == (f"{base / own:.2f}", "×", True)
    assert found["less energy an epoch"].number == f"{abs(rows['energy'].differences[0].share) * 100:.0f}"
    assert found["as much memory"][:2] == ("0", "GiB")
    learned = found["lower loss after 33 epochs"]
    assert not learned.is_clear, "one value of each"
    for name in found:
        assert any(name in line for line in lines)
    swapped = {one.description: one for one in headlines(compare_runs(*reversed(records)))}
    assert swapped["as long an epoch"].number == fast.number
    assert swapped["more energy an epoch"].is_clear
    lines = shown(ledger, (80, 24), *COMPARED)
    assert not any("as fast" in line for line in lines), "a small screen has the table first"
    assert lines[2].endswith(" epochs"), "what has no room is left out, not cut"
    assert lines[3].endswith(" epochs")


def test_noise_between_epochs_is_no_headline(ledger: str) -> None:
    with Ledger(ledger) as opened:
        record = opened.record("resnet50-9c1e", phases=False)
    epochs = [epoch._replace(seconds=epoch.seconds + 0.01 * (epoch.ordinal % 3 - 1)) for epoch in record.epochs]
    found = compare_runs(record, replace(record, epochs=epochs))
    noisy = [epoch._replace(seconds=epoch.seconds + 0.3 * (epoch.ordinal % 3 - 1)) for epoch in record.epochs[:-1]]
    unclear = compare_runs(replace(record, epochs=noisy), record)
    (row,) = (one for one in unclear.rows if one.name == "seconds")
    assert row.share
    assert row.verdict == "no clear difference"
    assert not any(one.is_clear for one in headlines(found) if "epoch" in one.description)
    assert not any(one.unit == "×" for one in headlines(unclear)), "the table has it"


def test_compared_values_share_unit_and_precision(ledger: str) -> None:
    with Ledger(ledger) as opened:
        first, other = (opened.record(run, phases=False) for run in ("resnet50-77ab", "resnet50-9c1e"))
    comparison = compare.compare((first, other))
    energy = next(line for line in comparison.lines if line.measure.name == "energy")
    pace = next(line for line in comparison.lines if line.measure.name == "steps_per_second")
    assert _compared_row(replace(energy, medians=(2472.0, 4128.0)), single=False).values == ("0.69 Wh", "1.15 Wh")
    assert _compared_row(replace(pace, medians=(4.0, 11.5)), single=False).values == ("4.00", "11.50")


def test_equal_settings_are_hidden_until_asked_for(ledger: str) -> None:
    hidden, told = shown(ledger, (80, 24), *COMPARED), shown(ledger, (80, 24), *COMPARED, "d")
    assert not any("optimizer sgd" in line for line in hidden)
    assert any("optimizer sgd" in line for line in told)
    (line,) = (line for line in told if "lr 0.8 was 0.4" in line)
    assert line.index("batch") < line.index("lr") < line.index("precision")
    assert shown(ledger, (80, 24), *COMPARED, "d", "d") == hidden


@pytest.mark.parametrize("width", [38, 80])
def test_comparison_of_few_epochs_says_so(tmp_path: Path, width: int) -> None:
    with Book(tmp_path) as book:
        for run, seconds in (("a-1", 10), ("b-2", 13)):
            training(book, run, 2, seconds=seconds)
    lines = shown(str(book.path), (width, 24), "down", "v", "enter", feed=FakeFeed(gpus=0))
    changes = [line for line in lines if re.search(r"[+−][\d.]+ (%|points)", line) and "B − A" not in line]
    assert len(changes) > 3
    assert all(re.search(r", too few( epochs)?( |$)", line) for line in changes), "\n".join(changes)
    text = " ".join(" ".join(lines).split())
    assert compare.NO_INTERVAL[:24] in text
    assert "In brackets" not in text, "there are none"


def test_long_comparison_scrolls(ledger: str) -> None:
    first = shown(ledger, (80, 24), *COMPARED)
    assert re.fullmatch(r" +\+\d+ ▼", first[-2])
    last = shown(ledger, (80, 24), *COMPARED, "end")
    assert re.fullmatch(r" +\+\d+ ▲", last[-2])
    assert any("Loss by epoch" in line for line in last)
    assert not any("▼" in line or "▲" in line for line in shown(ledger, (160, 50), *COMPARED)[2:-1])


def test_escape_closes_the_innermost_part(ledger: str) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for key in ("4", *COMPARED):
            await pilot.press(key)
            await settled(app, pilot)
        page = runs_page(app)
        assert page.pair == ("resnet50-77ab", "resnet50-9c1e")
        await pilot.press("escape")
        assert page.pair is None
        await pilot.press("v", "escape")
        assert not page.choosing
        await pilot.press("enter", "escape")
        assert not page.opened.id
        await pilot.press("slash", "v", "i", "t", "enter")
        assert page.table.filter == "vit"
        await pilot.press("escape")
        assert page.table.filter == ""

    play(recent(gpus=5), (80, 24), script, ledgers=lambda: Ledgers([ledger]), clock=FakeClock(time=NOW * SECOND))


def test_filter_counts_matches_while_typing(ledger: str) -> None:
    lines = shown(ledger, (80, 24), "slash", "f", "r", "a", "n", "k")
    assert "/ frank▏  2 of 7" in "\n".join(lines)
    assert not any("resnet50" in line for line in lines)
    none = shown(ledger, (80, 24), "slash", "q", "q")
    assert any("no run matches: of 7, all are hidden" in line for line in none), "and q did not quit"
    assert not any(" now ──" in line for line in none), "of a run that is hidden nothing stands below"


def test_runs_sort_by_key_and_by_click(ledger: str) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        await settled(app, pilot)
        page = runs_page(app)
        for order in (*ORDERS[1:], ORDERS[0]):
            await pilot.press("o")
            await settled(app, pilot)
            keys = [order.by(run) for run in page.table.shown]
            assert keys == sorted(keys), order.name
            assert order.name in text(app)[2]
        heading = text(app)[3]
        await pilot.click(offset=(heading.index("energy") + 2, 3))
        assert page.table.order == ("energy", True)
        energies = [run.energy for run in page.table.shown if run.energy == run.energy]
        await settled(app, pilot)
        energies = [run.energy for run in page.table.shown if run.energy == run.energy]
        assert energies == sorted(energies, reverse=True)

    play(recent(gpus=5), (160, 50), script, ledgers=lambda: Ledgers([ledger]), clock=FakeClock(time=NOW * SECOND))


def test_each_report_is_a_new_file(ledger: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_unwritable_report_says_why(ledger: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getcwd", lambda: "/nowhere/at/all")
    screen = "\n".join(shown(ledger, (200, 50), *OPENED, "r"))
    assert "cannot write /nowhere/at/all/gpumon-resnet50-9c1e.html" in screen
    assert "gpumon runs report resnet50-9c1e -o FILE" in screen
    tmp_path.chmod(0o500)
    if os.access(tmp_path, os.W_OK):  # root may write everywhere
        monkeypatch.setattr("builtins.open", refusing(str(tmp_path)))
    monkeypatch.setattr(os, "getcwd", lambda: str(tmp_path))
    screen = "\n".join(shown(ledger, (320, 50), *OPENED, "r"))
    assert f"cannot write {tmp_path}/gpumon-resnet50-9c1e.html: Permission denied" in screen
    tmp_path.chmod(0o700)


def refusing(directory: str) -> Any:
    """`open` as one who may not write to a directory has it."""
    real = open

    def opened(path: Any, *args: Any, **kwargs: Any) -> Any:
        if str(path).startswith(directory) and args[:1] == ("x",):
            raise PermissionError(13, "Permission denied", path)
        return real(path, *args, **kwargs)

    return opened


def test_no_report_without_a_working_directory(ledger: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> str:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "getcwd", gone)
    assert "no report: the working directory no longer exists" in shown(ledger, (160, 50), *OPENED, "r")[-1]


def test_report_shows_its_file_name_first(ledger: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 60)
    deep.mkdir()
    monkeypatch.chdir(deep)
    assert any("Report: gpumon-resnet50-9c1e.html in /" in line for line in shown(ledger, (80, 24), *OPENED, "r"))


def test_page_without_a_ledger_has_the_live_runs(tmp_path: Path) -> None:
    lines = shown(str(tmp_path / "none.sqlite"), (80, 24))
    assert sum(line[2:3] == "▸" or line[1:2] == "▸" for line in lines) == 2
    opened = "\n".join(shown(str(tmp_path / "none.sqlite"), (80, 24), "enter", feed=recent(gpus=5, source="nvml")))
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


def test_diverged_metrics_and_unknown_values_are_gaps(tmp_path: Path) -> None:
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


def test_nothing_unmeasured_is_called_fine(tmp_path: Path) -> None:
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


def test_only_visible_rows_of_thousands_are_drawn(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        book.db.execute("PRAGMA synchronous = OFF")
        for place in range(2000):
            training(book, f"r-{place:04}", 1, began=BEGAN - 100 * place, course=False, phases=False)
        training(book, "big-1", 5000, began=BEGAN + 1, course=False)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        await settled(app, pilot)
        page = runs_page(app)
        for key in ("down", "down", "down", "end", "home", "pagedown"):
            await pilot.press(key)
            assert instructions(page.area.lines) < 500_000, "drawn is what is on screen; usual is a fifth"
        kept, before = app.view.ledger_runs, app.view.ledger_runs.listed()
        kept.queries.expire(("listed",))
        while kept.listed().expires == before.expires or not kept.queries.is_idle:
            await pilot.pause(0.01)
        assert instructions(lambda: page.table.follow(keep=False)) < 100_000, "nothing is sorted or counted again"
        await pilot.press("home", "down", "down", "enter")
        await settled(app, pilot)
        assert page.opened.id == "big-1"
        for step in (1, 1, 1, 5000, -5000):
            page.action_move(step)
            assert instructions(page.area.lines) < 1_000_000, "usual is a third"

    still = FakeClock(time=NOW * SECOND)  # or the frames would be old once all is read
    play(recent(gpus=5), (160, 50), script, ledgers=lambda: Ledgers([str(book.path)]), clock=still)


def test_drawing_does_not_depend_on_the_number_of_epochs(tmp_path: Path) -> None:
    """Drawn for the first time, as after each answer: what takes a look at every epoch is made where it is read."""
    spent = []
    for epochs in (400, 4000):
        with Book(tmp_path / str(epochs)) as book:
            book.db.execute("PRAGMA synchronous = OFF")
            for run_id in ("net-1", "net-2"):
                training(book, run_id, epochs, course=False, gpus=2)
            with Ledger(str(book.path)) as ledger:
                run = open_run(ledger.record("net-1", phases=False, times=True), BEGAN + 10**6)
                both = compare_runs(*(ledger.record(run_id, phases=False) for run_id in ("net-1", "net-2")))
        spent.append([instructions(work) for work in (
            lambda run=run: curves(run, 100, 40), lambda run=run: run_detail.head(run, "finished", 160, 6),
            lambda run=run: (run_detail.columns(run, 160), run_detail.row_scale(run)),
            lambda both=both: run_compare.compare_lines(both, 160, 48, has_equal=False, has_colors=True),
        )])  # fmt: skip
        assert not any((run.record.epochs, run.record.usage, run.record.phases)), "nor to free, when it is read again"
    for few, many in zip(*spent, strict=True):
        assert many < 1.3 * few, spent


def test_comparison_by_time_joins_neighbors_only() -> None:
    curve = EpochCurve([0.0, 1.0, 1.01, 4.0, 5.0, 10.0], [5.0, 3.0, nan, 2.0, 4.0, 9.0], (2.0, 9.0))
    found = _time_points(curve, 10.0, 10)
    assert found[:3] == [5.0, 4.0, 3.0], "an epoch without a value hides no other in its cell"
    assert all(value != value for value in found[3:8]), "no line across what was not logged"
    assert found[8:11] == [2.0, 3.0, 4.0]
    assert found[-1] == 9.0


def test_copied_row_is_separated_by_tabs(ledger: str) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for key in ("4", *OPENED):
            await pilot.press(key)
            await settled(app, pilot)
        await pilot.press("y")
        assert app.clipboard.startswith("e32\t")

    play(recent(gpus=5), (80, 24), script, ledgers=lambda: Ledgers([ledger]), clock=FakeClock(time=NOW * SECOND))


def test_level_points_keep_gaps() -> None:
    assert level_points([0.2, 0.8], 4) == [0.2, 0.2, 0.8, 0.8]
    gap = level_points([0.2, nan, 0.8], 6)
    assert gap[:2] + gap[4:] == [0.2, 0.2, 0.8, 0.8]
    assert all(value != value for value in gap[2:4])
    assert level_points([1.0, 3.0, 5.0, 7.0], 2) == [2.0, 6.0]
    assert extreme_points([1.0, 5.0, nan, 2.0], 2, is_maximum=True) == [5.0, 2.0]
    assert extreme_points([1.0, 5.0], 4, is_maximum=False) == [1.0, 1.0, 5.0, 5.0]
    assert [value == value for value in level_points([inf, 1.0], 2)] == [False, True]
    assert level_points([], 3)[0] != 0.0


def test_interpolated_points_join_neighbors_only() -> None:
    assert interpolated_points([1.0, 3.0], 4) == [1.0, 1.5, 2.5, 3.0]
    assert interpolated_points([1.0, 3.0, 5.0, 7.0], 2) == [2.0, 6.0]
    gap = interpolated_points([1.0, nan, 3.0], 6)
    assert gap[:2] + gap[4:] == [1.0, 1.0, 3.0, 3.0], "no line across what was not logged"
    assert all(value != value for value in gap[2:4])
    assert interpolated_points([2.5], 4) == [2.5] * 4


@pytest.mark.parametrize("many", [1, 2, 7, 40, 80, 81, 5000])
def test_cursor_cell_belongs_to_its_epoch(many: int) -> None:
    cells = 40
    for place in range(0, many, max(1, many // 50)):
        shown = level_points([float(place == one) for one in range(many)], 2 * cells)
        at = epoch_cell(place, many, cells)
        assert max(shown[2 * at : 2 * at + 2]) > 0


def test_logged_axis_has_round_numbers() -> None:
    for values in ([0.22, 2.4], [1.0, 1.0], [-3.0, 8.0], [1e-9, 2e-9], [nan, 0.0], [5e8, 1.9e9], [inf, 0.1, 3.0]):
        axis = logged_axis(values)
        assert all(axis.low <= value <= axis.high for value in values if abs(value) < inf)
        for rows in (3, 5, 8, 12, 30):
            beside = axis.labels(rows, 6)
            assert {0, rows - 1} <= set(beside)
            assert all(one - other >= 2 for other, one in pairwise(sorted(beside)))
            assert all(len(text) <= 6 and not re.search(r"e[-+]?$", text) for text in beside.values()), beside
    assert logged_axis([0.22, 2.4]).labels(12, 6) == {0: "3", 4: "2", 7: "1", 11: "0"}


def test_unmeasured_epochs_are_a_gap_in_the_curve(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "gap-1", 4, course=False)
        book.db.execute("DELETE FROM usage WHERE ordinal IN (1, 2)")
    lines = shown(str(book.path), (160, 50), "end", "enter")
    first = next(place for place, line in enumerate(lines) if "Utilization ⠒⠒" in line)
    begin = lines[first].index("Utilization") + LABELS
    picture = [line[begin:] for line in lines[first + 1 : first + 12]]
    used = {place for row in picture for place, letter in enumerate(row) if letter not in " │"}
    wide = max(used) + 1
    assert not any(wide / 4 + 1 < place < wide * 3 / 4 - 1 for place in used), "nothing over the middle half"
    assert min(used) == 0


def test_log_without_runs_says_so() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        await pilot.pause()

    feed = FakeFeed(gpus=0, seconds=2, source="replay", label="REPLAY a.csv")
    feed.runs = lambda second: ()  # type: ignore[method-assign]
    feed.frames = []
    feed.advance(2)
    lines = "\n".join(play(feed, (120, 40), script))
    assert "this recording has no run data" in lines
    assert "filter" not in lines
    assert "start 'gpumon daemon'" not in lines


@pytest.mark.parametrize(("steps", "told"), [(0, "0 of 40 epochs done"), (2016, "– of 40 epochs done")])
def test_opened_run_claims_no_unseen_epochs(tmp_path: Path, steps: int, told: str) -> None:
    with Book(tmp_path) as book:
        book.run(epochs=40, base=0)
        book.rank("resnet50-1a2b", steps=steps)
    assert any(told in line for line in shown(str(book.path), (160, 50), "end", "enter"))
    (row,) = (line for line in shown(str(book.path), (200, 50)) if "resnet50-1a2b" in line)
    assert ("━━━━" in row) == (steps == 0), "an empty bar would say that it has just begun"


@pytest.mark.parametrize(("source", "words"), [("sim", NO_RUN_SIMULATED), ("nvml", NOTHING)])
def test_empty_page_names_no_daemon_to_start(tmp_path: Path, source: str, words: str) -> None:
    """Nobody is told to start a daemon that may run, nor a training that a simulation would not have."""
    with Book(tmp_path) as book:
        pass
    feed = FakeFeed(gpus=1, seconds=2, source=source)
    feed.runs = lambda second: ()  # type: ignore[method-assign]
    feed.frames = []
    feed.advance(2)

    def absent() -> Ledgers:
        raise GpumonError(NOTHING)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("4")
        await settled(app, pilot)

    for ledgers in (lambda: Ledgers([str(book.path)]), absent):
        lines = "\n".join(play(feed, (160, 40), script, ledgers=ledgers))
        assert words in lines
        assert "start 'gpumon daemon'" not in lines


def test_opened_run_says_when_utilization_comes_from_ticks(tmp_path: Path) -> None:
    size = (80, 24)
    with Book(tmp_path) as book:
        training(book, "resnet50-9c1e", 3, course=False)
    opened = "down", "down", "enter"
    assert "by ticks" not in "\n".join(shown(str(book.path), size, *opened)), "the driver's own samples are finer"
    for share, told in ((" WHERE ordinal = 0", "util partly by ticks"), ("", "util by ticks")):
        with sqlite3.connect(book.path) as db:
            db.execute(f"UPDATE usage SET utilization_from = 'ticks'{share}")
        assert told in "\n".join(shown(str(book.path), size, *opened))


def test_epochs_of_a_recording_say_when_utilization_comes_from_ticks(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "id-0", 8, began=float(START), course=False, label="REPLAY x.gpumon", state=RunState.RUNNING)
        book.db.execute("UPDATE usage SET utilization_from = 'ticks'")
    feed = recent(gpus=5, source="replay", label="REPLAY x.gpumon")
    lines = shown(str(book.path), (160, 50), "down", feed=feed, player=FakePlayer(), now=float(START + 699))
    assert any("Epochs" in line and "util by ticks" in line for line in lines), "\n".join(lines)


def test_partly_sampled_epoch_says_so(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "gap-1", 4, course=False)
        book.db.execute("UPDATE usage SET sampled = 0.03 * seconds WHERE ordinal = 1")
    path = str(book.path)
    (row,) = (line for line in shown(path, (200, 50), "end", "enter") if re.match(r"^[▌ ] *e1 ", line[:150]))
    assert "3% sampled" in row
    assert "≥42.0 GiB" in row
    assert "fine" not in row
    assert any("1 epoch partly sampled" in line for line in shown(path, (320, 50)))


def test_partly_sampled_run_says_how_much(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "late-1", 4, course=False)
        book.db.execute("UPDATE usage SET sampled = 0.08 * seconds WHERE ordinal = ?", (WHOLE_RUN,))
    lines = shown(str(book.path), (80, 50), "end", "enter")
    (whole,) = (line[:150] for line in lines if re.match(r"^ *all ", line))
    assert "8% sampled" in whole, "all that was measured is of this part"
    head = next(line for line in lines if "epochs done" in line)
    assert "46 s  ·  8% sampled  ·  4 of" in head
    assert "at most" not in head, "it may have been more"


def test_peak_of_an_active_run_is_a_lower_bound(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "open-1", 3, course=False, state=RunState.RUNNING)
    head = next(line for line in shown(str(book.path), (200, 50), "end", "enter") if "epochs done" in line)
    assert "≥42.0 GiB peak" in head
    assert "at most" not in head


def test_logged_number_in_the_list_is_never_truncated(tmp_path: Path) -> None:
    logged = {"a-1": ('{"loss": 8.17e-5}', "loss 8.17e-05 "), "b-1": ('{"loss": 0.001234}', "loss 0.001234 "),
              "c-1": ('{"perplexity": 12.345}', "perple… 12.35 "),
              "d-1": ('{"train_loss": 8.17e-5}', "trai… 8.17e-5 ")}  # fmt: skip
    with Book(tmp_path) as book:
        for name, (metrics, _) in logged.items():
            training(book, name, 2, course=False)
            book.db.execute("UPDATE rank SET metrics = ? WHERE run = ?", (metrics, name))
    lines = shown(str(book.path), (200, 50))
    for name, (_, told) in logged.items():
        assert any(f" {name} " in line and f" {told}" in line for line in lines), "\n".join(lines)


def test_unsampled_run_is_not_fine(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        training(book, "before-1", 4, course=False)
        for table in ("usage", "epoch"):
            book.db.execute(f"DELETE FROM {table} WHERE ordinal >= 0")
        book.db.execute("UPDATE usage SET sampled = 0, utilization_mean = NULL, idle_share = NULL")
        book.db.execute("UPDATE rank SET wait = 2")
    (row,) = (line for line in shown(str(book.path), (200, 50)) if "before-1" in line and "●" in line)
    assert "fine" not in row
    assert "not sampled" in row
    assert "━" not in row, "how far it came by epochs is not known"


def test_epoch_of_a_dead_run_is_not_marked_as_active(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        for name, state in (("dead-1", RunState.DIED), ("on-2", RunState.RUNNING)):
            training(book, name, 3, course=False, state=state)
            book.db.execute(f"UPDATE run SET updated = {int(NOW) * SECOND} WHERE id = '{name}'")
            book.db.execute(f"UPDATE epoch SET ended = NULL WHERE ordinal = 2 AND rank LIKE '%{name}%'")
    path = str(book.path)
    for name, sign in (("dead-1", "e2 …"), ("on-2", "e2 ▸")):
        lines = [line[:150] for line in shown(path, (200, 50), "slash", *name, "enter", "enter")]
        assert any(re.match(rf"^[▌ ] *{sign} ", line) for line in lines), lines


def test_ranks_of_a_dead_run_are_dated() -> None:
    class Dead(FakeFeed):
        def runs(self, second: int) -> tuple[Any, ...]:
            return tuple(one._replace(state=RunState.DIED) for one in super().runs(second))

    edges = [line for line in play(Dead(first=600), (160, 50), keys_then("4")) if "↵ open" in line]
    assert any("when it died ──" in line for line in edges)
    assert not any(" now ──" in line for line in edges)


def test_unsettled_epoch_marks_its_values(tmp_path: Path) -> None:
    with Book(tmp_path) as book:
        key = book.rank(book.run("net-1"))
        uuid = book.device(key)
        for ordinal in range(2):
            book.epoch(key, ordinal)
            book.usage(key, ordinal, uuid, **measured())
        book.add("progress", rank=key, state=json.dumps({"course": {"next": 2, "epochs": [{"epoch": [1]}]}}))
        with Ledger(str(book.path)) as ledger:
            run = open_run(ledger.record("net-1", phases=False, times=True), BEGAN + 30)
    scale = run_detail.row_scale(run)
    settled, settling = ([cell.text for cell in run_detail.row(one, scale)] for one in run.rows)
    assert ("90%" in settled, "≈90%" in settling, "≈5%" in settling) == (True, True, True)
    assert (settled[-1], settling[-1]) == ("fine", "settling")


@pytest.mark.parametrize("size", [(160, 50), (200, 50)])
def test_long_run_name_is_whole_where_there_is_room(size: tuple[int, int]) -> None:
    name = "llama-3-8b-instruct-lora-rank-64"
    feed = recent(run_names=(name, "resnet50"))
    pages = (play(feed, size, keys_then(page)) for page in ("1", "4"))
    overview, runs = ("\n".join(lines) for lines in pages)
    assert name in runs
    if size[0] == 160:
        assert name in overview[overview.index("Runs ") : overview.index("Processes ")]
        assert name in overview[overview.index("Processes ") :]
