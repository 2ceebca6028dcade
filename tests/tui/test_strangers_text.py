"""Names that other people chose, on every page: nothing escapes to the terminal, nothing grows, nothing moves."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from textual.pilot import Pilot

from gpumon.common.clock import SECOND
from gpumon.storage.events.query import LoggedEvent
from gpumon.storage.ledger.reader import Ledgers
from gpumon_tui.app import GpumonApp
from tests.fakes import FakeClock
from tests.runs import BEGAN, Book, training
from tests.tui.fakes import FakeFeed
from tests.tui.golden_scenes import settle
from tests.tui.screen import play, text
from tests.tui.test_events_page import LOG, event

FAMILY = "👩‍👩‍👧‍👦"
NAMES = (
    "日本語の訓練プロセス" * 4,
    f"{FAMILY}train{FAMILY}",
    "\u202eesrever \u05d0\u05d1\u05d2 \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "\x1b]0;title\x07\x1b[2J\x9b31m\r\n\t",
    "x" * 300,
    "e\u0301\u0327" * 40,
    "🇩🇪🏳️‍🌈⚠️",
    "\udce9\u200b\ufeff\u2066",
)
PLAIN = ("alice", "bob", "carol", "dmitri", "erin", "frank", "grace", "heidi")
HEADINGS = {"user", "GPU"}
"""In the headings of tables whose columns do not depend on what stands in them."""
PAGES = ("1", "2", "3", "4", "5")
SIZES = ((40, 20), (160, 50))


def strangers(names: Sequence[str]) -> FakeFeed:
    """Return a machine whose programs, users and runs have these names."""
    return FakeFeed(
        source="nvml", label="", names=tuple(names), users=tuple(names[::-1]), run_names=(names[0], names[1])
    )


def told(names: Sequence[str]) -> list[LoggedEvent]:
    """Return events in which the names stand."""
    bad = [event(5 + place, "run_died", user=name, run=name, name=name) for place, name in enumerate(names)]
    return [*bad, event(4, "gpu_lost", 1, reason=names[0]), *LOG[:2]]


def screens(names: Sequence[str], size: tuple[int, int], directory: Path) -> dict[str, list[str]]:
    """Return every page, and what opens on it."""
    found: dict[str, list[str]] = {}
    with Book(directory) as book:
        for place, name in enumerate(names):
            kept = name.encode("utf-8", "replace").decode()  # a ledger keeps no half letters
            training(book, f"run-{place}", 3, course=False, began=BEGAN - 100 * place, name=kept, user=kept)
        path = str(book.path)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for page in PAGES:
            for keys in ((page,), ("down", "enter")) if page in "34" else ((page,),):
                await pilot.press(*keys)
                await settle(app, pilot)
                found[f"{page} {' '.join(keys)}"] = text(app)
            await pilot.press("exclamation_mark")
            await settle(app, pilot)
            found[f"{page} attention"] = text(app)
            await pilot.press("x")

    events = told(names)
    play(strangers(names), size, script, ledgers=lambda: Ledgers([path]), read_events=lambda _: events,
         clock=FakeClock(time=(BEGAN + 700) * SECOND))  # fmt: skip
    return found


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_on_no_page_do_strangers_names_escape_grow_or_move_anything(size: tuple[int, int], tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "odd").mkdir()
    usual, odd = screens(PLAIN, size, tmp_path / "plain"), screens(NAMES, size, tmp_path / "odd")
    for page, lines in odd.items():
        assert len(lines) == size[1], page
        for number, line in enumerate(lines):
            assert cell_len(line) <= size[0], f"{page}, row {number}"
            assert not [one for one in line if unicodedata.category(one) in ("Cc", "Cs", "Co")], f"{page}, row {number}"
            assert not set(line) & set("\u200b\u200d\u200e\u200f\u202e\u2066\ufeff"), f"{page}, row {number}"
        if "attention" not in page:
            assert lines[0] == usual[page][0], f"{page}: the header"
            assert lines[-1] == usual[page][-1], f"{page}: the footer"
            heads = [line for line in usual[page] if set(line.split()) >= HEADINGS]
            assert [line for line in heads if line not in lines] == [], f"{page}: headings"
