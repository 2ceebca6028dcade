"""Accounts of users in the terminal view: the numbers of the command and of the browser, windows, rows and keys."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.cli import main
from gpumon.common.clock import SECOND
from gpumon.common.config import Prices, read_prices
from gpumon.common.paths import HISTORY
from gpumon.reports.history import NO_HARDWARE, NOT_YET
from gpumon.storage.sqlite.read import LockTimeout, set_lock_timeout
from gpumon.storage.usage.period_totals import WINDOW_PERIODS, parse_window
from gpumon_tui.app import GpumonApp
from gpumon_tui.appearance import Appearance
from gpumon_tui.background_queries import PENDING as NOT_ASKED
from gpumon_tui.render.accounts import TITLES
from gpumon_tui.render.text_width import width
from gpumon_tui.screens.accounts import AccountsScreen
from gpumon_tui.widgets.account_table import READING
from gpumon_web.pages.users import kept
from gpumon_web.stored.user_hours import read_hours
from tests.fakes import FakeClock
from tests.tui.fakes import FakeFeed
from tests.tui.golden_scenes import settle
from tests.tui.kept_accounts import GPUS, accounts_until
from tests.tui.screen import Script, appears, play, text

NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC).timestamp()
"""A Saturday, at an hour that is over."""
WIDE = 200, 50
PRICES = read_prices({"currency": "EUR", "gpu-hour": {"default": 2.0}, "kwh": 0.5, "co2": 400})


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return accounts_until(tmp_path_factory.mktemp("state") / HISTORY, NOW)


def feed_of(path: Path | str, **options: Any) -> FakeFeed:
    """Three processes of alice and others on four GPUs, and a file of history."""
    given = {"gpus": GPUS, "seconds": 20, "source": "nvml", "label": "", "kept_in": str(path), "processes_count": 2}
    return FakeFeed(**{**given, **options})


async def press(app: GpumonApp, pilot: Pilot[Any], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
    await settle(app, pilot)


def shown(
    feed: FakeFeed, *keys: str, size: tuple[int, int] = WIDE, script: Script | None = None,
    prices: Prices | None = None, look: Appearance | None = None,
) -> list[str]:  # fmt: skip
    """The screen of accounts after some keys."""

    async def session(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "3", "A", *keys)
        if script is not None:
            await script(app, pilot)
            await settle(app, pilot)

    def before(app: GpumonApp) -> None:
        app.view.ledger_runs.prices = prices

    return play(feed, size, session, before=before, appearance=look, clock=clock_of(feed))


def clock_of(feed: FakeFeed) -> FakeClock:
    """A clock by which the newest frame has just come."""
    return FakeClock(start=feed.frames[-1].monotonic_ns, time=round(NOW * SECOND))


def cells(lines: list[str], name: str) -> list[str]:
    """The cells of a row, without the mark of the cursor and the bar."""
    row = next(line for line in lines if line.lstrip("▌ ").startswith(name))
    return [cell.strip(" ▌▆") for cell in row.split("  ") if cell.strip(" ▌▆")]


def headline(lines: list[str], title: str) -> str:
    return " ".join(next(line for line in lines if line.strip().startswith(title)).split()).removeprefix(f"{title} ")


@pytest.mark.parametrize("period", WINDOW_PERIODS)
def test_hours_are_those_of_the_command_and_of_the_browser(
    history: Path, period: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = shown(feed_of(history), period[0], prices=PRICES)
    browser = kept(replace(read_hours([str(history)], period, "", "", "", NOW, {}), prices=PRICES)).values
    rows: Mapping[str, Any] = {row["key"].strip(): row for row in browser["users"]}
    assert {"bob", "carol", "dave", "unknown"} <= set(rows)
    for user, row in rows.items():
        found = cells(lines, user)
        told = [row[name] for name in ("used", "idle", "energy", "held_cost", "idle_cost", "energy_cost", "co2")]
        if user == "unknown":
            told[0] = "–"  # its work stands in the note
        assert found[3:10] == told, user
    of_web = (browser[name] for name in ("held", "held_below", "used", "used_below", "idle", "idle_below", "unseen"))
    told_of_all = " ".join(part for part in of_web if part)
    assert " ".join(" ".join(headline(lines, title).split()) for title in TITLES).startswith(
        " ".join(told_of_all.split())
    )

    monkeypatch.setattr(time, "time", lambda: NOW)
    window = parse_window(period, "", "", NOW)
    monkeypatch.setenv("GPUMON_DIR", str(tmp_path))
    monkeypatch.setenv("GPUMON_STATE_DIR", str(history.parent))
    assert main(["history", "accounts", "--since", f"{datetime.fromtimestamp(window.begin, UTC):%Y-%m-%d}"]) == 0
    command = capsys.readouterr().out.splitlines()
    assert main(
        ["history", "accounts", "--since", f"{datetime.fromtimestamp(window.begin, UTC):%Y-%m-%d}", "--json"]
    ) == 0  # fmt: skip
    [group] = json.loads(capsys.readouterr().out)["groups"]
    assert {one["user"] for one in group["accounts"]} == {*rows} - {"unknown"}
    for user in rows:
        row_of = next(line for line in command if line.startswith(f"({user})" if user == "unknown" else user))
        held, _, *rest = [cell.strip() for cell in row_of.split("  ") if cell.strip()][1:]
        found = cells(lines, user)
        assert (found[2], found[5]) == (held, rest[-1]), user
    seen = next((line.split("  ")[-1].strip() for line in command if line.startswith("(not seen)")), "none")
    assert headline(lines, "Not seen").startswith(seen)


def test_a_sum_of_which_a_part_is_not_known_says_so_and_an_unknown_holder_has_a_row(history: Path) -> None:
    lines = shown(feed_of(history))
    assert cells(lines, "dave")[2:] == ["132.0 h", "0 %", "132.0 h", "39.60 kWh", "idle for 100 % of the held time"]
    assert cells(lines, "bob")[2:5] == ["132.0 h", "–", "–"], "nobody knows whose the work was"
    assert cells(lines, "unknown")[2:4] == ["12.0 h", "–"]
    assert "excluding" in headline(lines, "Used")


def test_time_that_nobody_watched_is_said(history: Path) -> None:
    lines = shown(feed_of(history), "m")
    assert headline(lines, "Not seen").endswith("recorded since Thu 19 Nov 00:00")
    assert headline(lines, "Not seen").startswith("1,824.3 h no daemon was running, or a GPU did not answer")
    assert headline(shown(feed_of(history)), "Not seen").startswith("none every GPU was sampled")


def test_who_holds_a_gpu_now_stands_there_even_without_hours(history: Path) -> None:
    lines = shown(feed_of(history, users=("erin",)))
    assert cells(lines, "erin")[:5] == ["erin", "0–3", "–", "–", "–"]
    assert cells(lines, "alice")[1] == "none"
    assert "erin" not in "\n".join(shown(feed_of(history, users=("erin",)), "left")), "of now, not of then"


def test_of_a_stale_frame_nobody_holds_anything_now(history: Path) -> None:
    feed = feed_of(history)

    async def silent(app: GpumonApp, pilot: Pilot[Any]) -> None:
        app._clock.advance(60)  # type: ignore[attr-defined]
        app.poll()

    assert cells(shown(feed), "alice")[1] != "–"
    lines = shown(feed, script=silent)
    assert [cells(lines, user)[1] for user in ("alice", "dave")] == ["–", "–"]


def test_keys_lead_to_windows_of_the_calendar_up_to_that_of_now(history: Path) -> None:
    titles = {
        "left": "‹ 16–22 Nov 2026 ›", "right": "‹ 23–29 Nov 2026 ›", "right_square_bracket": "‹ 23–29 Nov 2026 ›",
        "d": "‹ Sat 28 Nov 2026 ›", "left_square_bracket": "‹ Fri 27 Nov 2026 ›", "m": "‹ November 2026 ›",
        "w": "‹ 23–29 Nov 2026 ›",
    }  # fmt: skip

    async def turns(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for key, title in titles.items():
            await press(app, pilot, key)
            assert text(app)[0].endswith(title), key
        await press(app, pilot, "left", "d")
        assert text(app)[0].endswith("‹ Mon 16 Nov 2026 ›"), "a day of the week that is shown"

    assert shown(feed_of(history))[0].endswith("‹ 23–29 Nov 2026 ›")
    shown(feed_of(history), script=turns)


def test_a_window_before_the_first_account_is_not_claimed_to_be_free(history: Path) -> None:
    lines = shown(feed_of(history), "m", "left")
    assert "No data was recorded in this window." in "\n".join(lines)
    assert not any(title in "\n".join(lines) for title in TITLES)


def names(lines: list[str]) -> list[str]:
    first = next(place for place, line in enumerate(lines) if "GPU-hours" in line and "held" not in line)
    return [line.lstrip("▌ ").split("  ")[0].strip() for line in lines[first + 1 :] if line.strip("▌ ")][:-1]


def test_rows_are_sorted_by_any_column_and_what_is_unknown_stands_last(history: Path) -> None:
    async def sorts(app: GpumonApp, pilot: Pilot[Any]) -> None:
        assert names(text(app)) == ["bob", "carol", "dave", "alice", "unknown"]
        await press(app, pilot, "o")
        assert "used▼" in "".join(text(app))
        assert names(text(app)) == ["alice", "dave", "bob", "carol", "unknown"]
        await press(app, pilot, "I")
        assert names(text(app)) == ["dave", "alice", "bob", "carol", "unknown"], "the other way round"
        await press(app, pilot, "O", "O", "O")
        assert names(text(app)) == ["alice", "bob", "carol", "dave", "unknown"], "by name, beyond GPUs now"
        await press(app, pilot, "o")
        assert "GPUs now▼" in "".join(text(app))
        await press(app, pilot, "left")
        assert "GPU-hours▼" in "".join(text(app)), "a week of the past has no column of now"

    shown(feed_of(history), script=sorts)


def test_enter_shows_the_gpus_of_a_user_and_tab_the_days_which_add_up_to_the_same(history: Path) -> None:
    lines = shown(feed_of(history), "down", "down", "enter")
    assert lines[0].startswith(" Accounts › dave ")
    assert cells(lines, "GPU 2")[2:5] == ["132.0 h", "0 %", "132.0 h"]
    assert names(lines) == ["GPU 2"]
    days = shown(feed_of(history), "down", "down", "enter", "tab")
    assert names(days) == [f"{day} Nov" for day in ("Sat 28", "Fri 27", "Thu 26", "Wed 25", "Tue 24", "Mon 23")]
    assert [cells(days, day)[1] for day in ("Sat 28", "Fri 27")] == ["12.0 h", "24.0 h"]
    hours = shown(feed_of(history), "down", "down", "enter", "tab", "d")
    assert names(hours)[0] == "11:00"
    assert "by hour" in "".join(hours)


def test_a_day_without_a_daemon_is_not_seen_in_the_days_of_a_user(history: Path) -> None:
    days = shown(feed_of(history), "left", "down", "down", "enter", "tab")
    assert cells(days, "Sat 21 Nov") == ["Sat 21 Nov", "–", "–", "–", "–", "96.0 h"]


def test_escape_leads_back_to_all_users_and_then_to_the_page(history: Path) -> None:
    assert shown(feed_of(history), "enter", "escape")[0].startswith(" Accounts    d Day")
    assert "Processes" in "".join(shown(feed_of(history), "enter", "escape", "escape")[:4])
    assert "Runs" in "".join(shown(feed_of(history), "4")[:4])


def test_the_palette_and_the_help_know_the_screen(history: Path) -> None:
    feed = feed_of(history)
    found = play(feed, WIDE, _palette, clock=clock_of(feed))
    assert found[0].startswith(" Accounts ")

    async def help_of(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "3", "question_mark")

    assert any("A accounts: GPU hours by user" in line for line in play(feed_of(history), (120, 60), help_of))


async def _palette(app: GpumonApp, pilot: Pilot[Any]) -> None:
    await press(app, pilot, "3", "colon", *"hours", "enter")


def line_of(lines: list[str], words: str) -> tuple[int, int]:
    """Column and row at which words begin."""
    row = next((place for place, line in enumerate(lines) if words in line), -1)
    assert row >= 0, f"no {words!r} on screen:\n" + "\n".join(lines)
    return lines[row].index(words), row


@pytest.mark.parametrize("size", [(80, 24), WIDE])
def test_windows_headings_rows_and_keys_can_be_clicked(history: Path, size: tuple[int, int]) -> None:
    async def clicks(app: GpumonApp, pilot: Pilot[Any]) -> None:
        seen: list[str] = []
        for words in ("Month", "‹", "›", "used", "carol", "carol", "by day", "Esc"):
            assert await pilot.click(offset=line_of(text(app), words))
            await settle(app, pilot)
            seen.append("\n".join(text(app)))
        month, earlier, later, sorted_by, under, opened, days, back = seen
        assert "‹ November 2026 ›" in month
        assert "‹ October 2026 ›" in earlier
        assert "‹ November 2026 ›" in later
        assert "used▼" in sorted_by
        assert "▌carol" in under.replace("▌ ", "▌")
        assert "Accounts › carol" in opened
        assert "Sat 28 Nov" in days
        assert "Accounts ›" not in back

    shown(feed_of(history), size=size, script=clicks)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kept_in": ""}, NOT_YET),
        ({"source": "sim", "label": "SIMULATED", "kept_in": ""}, NO_HARDWARE),
        ({"source": "replay", "label": "REPLAY x.csv.gz", "kept_in": ""}, NO_HARDWARE),
    ],
)
def test_it_says_why_there_are_no_accounts_and_what_to_do(options: dict[str, Any], words: str) -> None:
    lines = shown(feed_of("", **options), size=(80, 24))
    assert words in " ".join(" ".join(lines).split())
    assert "GPU-hours" not in "".join(lines)


def test_a_damaged_file_is_a_line_and_no_crash(tmp_path: Path) -> None:
    (tmp_path / HISTORY).write_bytes(b"no database" * 1000)
    assert "The history cannot be read now: " in "".join(shown(feed_of(tmp_path / HISTORY)))


@pytest.fixture
def short_patience() -> Iterator[None]:
    """A file that is locked is waited for as long as a view may wait, and no longer."""
    usual = LockTimeout.seconds
    set_lock_timeout(0.5)
    yield
    set_lock_timeout(usual)


@pytest.mark.usefixtures("short_patience")
def test_a_file_that_somebody_locks_is_a_line_and_holds_up_no_key(tmp_path: Path) -> None:
    path = accounts_until(tmp_path / HISTORY, NOW, 1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("UPDATE account SET held = held")

        async def while_locked(app: GpumonApp, pilot: Pilot[Any]) -> None:
            await pilot.press("3", "A")
            await appears(app, pilot, READING)
            await pilot.press("left", "d")
            assert "‹ Mon 16 Nov 2026 ›" in text(app)[0], "SQLite still waits for the lock"
            await appears(app, pilot, "The history cannot be read now: ")

        feed = feed_of(path)
        play(feed, WIDE, while_locked, clock=clock_of(feed))


def test_a_daemon_of_this_minute_has_no_hours_yet(tmp_path: Path) -> None:
    path = accounts_until(tmp_path / HISTORY, NOW, 1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("DELETE FROM account")
        other.execute("UPDATE device_hour SET observed = 0, metered = 0, held = 0, free = 0")
    lines = shown(feed_of(path))
    assert NOT_YET in "".join(lines)
    assert cells(lines, "alice")[1:3] == ["0–3", "–"], "but who holds one"


@pytest.mark.parametrize("cells_wide", [20, 60])
def test_no_line_is_wider_than_the_screen_and_escape_is_always_named(history: Path, cells_wide: int) -> None:
    async def walk(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for key in ("w", "m", "enter", "tab", "d"):
            await press(app, pilot, key)
            lines = text(app)
            assert all(width(line) <= cells_wide for line in lines)
            assert "Esc" in lines[-1]
            assert "GPU-hours" in "".join(lines)

    shown(feed_of(history), size=(cells_wide, 20), prices=PRICES, script=walk)


def test_a_long_or_hostile_name_neither_moves_a_column_nor_reaches_the_terminal(tmp_path: Path) -> None:
    path = accounts_until(tmp_path / HISTORY, NOW, 1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE account SET user = ? WHERE user = 'dave'", ("\x1b]0;x\x07日本語の長い名前" * 4,))
    for keys in ((), ("down", "down", "enter"), ("down", "down", "enter", "tab")):
        lines = shown(feed_of(path), *keys, size=(80, 24))
        assert "\x1b" not in "".join(lines)
        assert all(width(line) <= 80 for line in lines)


def test_in_ascii_it_says_the_same(history: Path) -> None:
    lines = shown(feed_of(history), "m", look=Appearance(is_ascii=True))
    assert all(line.isascii() for line in lines)
    assert lines[0].endswith("< November 2026 >")


def test_a_row_is_copied_with_all_its_columns(history: Path) -> None:
    async def copied(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await press(app, pilot, "y")
        assert app.clipboard.split("\t")[0::2] == ["bob", "132.0 h", "–", ""]
        assert "copied" in text(app)[-1]
        await press(app, pilot, "down")
        assert "copied" not in text(app)[-1]

    shown(feed_of(history), size=(40, 20), script=copied)


def test_what_was_read_is_forgotten_when_the_screen_closes(history: Path) -> None:
    async def closed(app: GpumonApp, pilot: Pilot[Any]) -> None:
        assert isinstance(app.screen, AccountsScreen)
        asked = app.screen.table._queries
        assert [one for one in asked if app.view.ledger_runs.queries.cached(one).result is not None]
        await press(app, pilot, "escape")
        assert all(app.view.ledger_runs.queries.cached(one) is NOT_ASKED for one in asked)

    shown(feed_of(history), script=closed)


def test_the_view_imports_nothing_of_it_before_it_is_opened() -> None:
    ask = "import gpumon_tui.app, sys; print(*[one for one in sys.modules if 'account' in one or 'zoneinfo' in one])"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
