"""What is sent to the terminal, played on a terminal of a few lines."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from textual._compositor import CompositorUpdate

from gpumon_tui._textual import UPDATE_NAMES, cell_diff, missing, partial_updates
from gpumon_tui.app import GpumonApp
from tests.tui.fakes import FakeFeed
from tests.tui.screen import text


class Terminal:
    """Knows moves of the cursor and plain text."""

    def __init__(self, width: int, height: int) -> None:
        self.rows = [[" "] * width for _ in range(height)]
        self.inks: list[list[tuple[str, ...]]] = [[()] * width for _ in range(height)]
        self._ink: tuple[str, ...] = ()
        self.received = 0
        self._x = self._y = 0

    def write(self, sent: str) -> None:
        self.received += len(sent.encode())
        for move, other, plain in re.findall(r"\x1b\[(\d+;\d+)H|(\x1b\[[\d;]*m|\n|\r)|([^\x1b\n\r]+)", sent):
            if move:
                self._y, self._x = (int(number) - 1 for number in move.split(";"))
            elif other == "\n":
                self._x, self._y = 0, self._y + 1
            elif other.endswith("m"):
                self._color(other[2:-1])
            for letter in plain:
                self.rows[self._y][self._x] = letter
                self.inks[self._y][self._x] = self._ink
                self._x += 1

    def _color(self, codes: str) -> None:
        """The last color of either kind and every attribute stand until a reset."""
        for code in re.findall(r"[34]8;2;\d+;\d+;\d+|[34]8;5;\d+|\d+", codes) or ["0"]:
            stays = [one for one in self._ink if _kind(one) != _kind(code)]
            self._ink = () if code == "0" else tuple(sorted([*stays, code]))

    def text(self) -> list[str]:
        return ["".join(row).rstrip() for row in self.rows]


def _kind(code: str) -> str:
    """A color of letters, of the ground, or an attribute by itself."""
    number = int(code.partition(";")[0])
    if 30 <= number < 40 or 90 <= number < 98:
        return "letters"
    return "ground" if 40 <= number < 50 or number >= 100 else code


class Watched(GpumonApp):
    """Headless, and yet drawn on a terminal."""

    def __init__(self, feed: FakeFeed, terminal: Terminal) -> None:
        super().__init__(feed, live=False)
        self.terminal = terminal

    def _display(self, screen: Any, renderable: Any) -> None:
        update = cell_diff(renderable)
        if isinstance(update, CompositorUpdate):
            self.terminal.write(update.render_segments(self.console))


def test_a_terminal_that_gets_only_changes_shows_the_whole_screen() -> None:
    async def session() -> None:
        terminal = Terminal(200, 50)
        feed = FakeFeed()
        app = Watched(feed, terminal)
        async with app.run_test(size=(200, 50)) as pilot:
            await pilot.pause()
            app.refresh()
            await pilot.pause()
            first = terminal.received
            for _ in range(20):
                feed.advance()
                app.poll()
                await pilot.pause()
                assert terminal.text() == text(app)
                whole = Terminal(200, 50)
                for row, strip in enumerate(app.screen._compositor.render_strips()):
                    whole.write(f"\x1b[{row + 1};1H{strip.render(app.console)}")
                assert terminal.inks == whole.inks
            assert (terminal.received - first) / 20 < first / 4
            await pilot.press("g", "m", "tab", "down", "plus")
            await pilot.pause()
            assert terminal.text() == text(app)

    asyncio.run(session())


def test_the_private_parts_of_textual_are_there() -> None:
    assert missing() == [], "pin Textual, or teach gpumon_tui._textual its new names"


def test_without_a_private_part_updates_stay_as_textual_makes_them() -> None:
    for part in (("textual._compositor", "Gone", ()), ("textual.gone", "App", ()), (*UPDATE_NAMES[1][:2], ("other",))):
        assert len(missing([*UPDATE_NAMES, part])) == 1
        update = partial_updates([*UPDATE_NAMES, part])
        assert update("anything") == "anything"
        assert update is not cell_diff


def test_the_view_is_drawn_without_the_private_parts_too() -> None:
    async def lines() -> list[str]:
        app = GpumonApp(FakeFeed(), live=False)
        app._convert_update = partial_updates([("textual.gone", "App", ())])
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.pause()
            return text(app)

    assert any("GPU" in line for line in asyncio.run(lines()))
