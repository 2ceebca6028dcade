"""Changed cells that go straight to the terminal, and when they do not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon_tui._textual import WidgetUpdate
from gpumon_tui.keybindings import CHART
from tests.tui.fakes import FakeFeed, recent
from tests.tui.screen import text
from tests.tui.test_cell_diff import Terminal, Watched

SIZE = (120, 40)


class Seen(Watched):
    """Keeps the kinds of updates that the terminal got."""

    def __init__(self, feed: FakeFeed, terminal: Terminal) -> None:
        self.updates: list[str] = []
        super().__init__(feed, terminal)

    def _display(self, screen: Any, renderable: Any) -> None:
        self.updates.append(type(renderable).__name__)
        super()._display(screen, renderable)


Script = Callable[[Seen, Pilot[Any], FakeFeed], Awaitable[None]]


def play(script: Script) -> None:
    async def session() -> None:
        feed = recent()
        app = Seen(feed, Terminal(*SIZE))
        async with app.run_test(size=SIZE) as pilot:
            while app.view.is_loading:
                await pilot.pause()
            app.refresh()
            await pilot.pause()
            while app.updates:  # the end of its start, on a busy machine
                app.updates.clear()
                await pilot.pause(0.1)
            await script(app, pilot, feed)

    asyncio.run(session())


async def tick(app: Seen, pilot: Pilot[Any], feed: FakeFeed) -> list[str]:
    """The updates of one more frame."""
    app.updates.clear()
    feed.advance()
    app.poll()
    await pilot.pause()
    return [one for one in app.updates if one != "NoneType"]


def test_a_frame_goes_to_the_terminal_in_one_update_of_its_own() -> None:
    async def script(app: Seen, pilot: Pilot[Any], feed: FakeFeed) -> None:
        for _ in range(3):
            assert await tick(app, pilot, feed) == [WidgetUpdate.__name__]
            assert app.terminal.text() == text(app)

    play(script)


def test_a_frame_waits_its_turn_while_parts_move() -> None:
    async def script(app: Seen, pilot: Pilot[Any], feed: FakeFeed) -> None:
        app.updates.clear()
        app.page.line_widgets[0].styles.height = 3
        assert not app.view.painter.is_layout_final
        feed.advance()
        app.poll()
        assert WidgetUpdate.__name__ not in app.updates
        await pilot.pause()
        assert app.terminal.text() == text(app)
        assert app.view.painter.is_layout_final

    play(script)


@pytest.mark.parametrize("keys", [["h"], ["enter"]], ids=["a window", "a pop-up"])
def test_a_frame_goes_below_what_lies_above_the_page(keys: list[str]) -> None:
    async def script(app: Seen, pilot: Pilot[Any], feed: FakeFeed) -> None:
        await pilot.press("2", *keys)
        await pilot.pause()
        assert app.page.page_name == CHART
        assert WidgetUpdate.__name__ not in await tick(app, pilot, feed)
        await pilot.press("escape")
        await pilot.pause()
        await tick(app, pilot, feed)
        assert WidgetUpdate.__name__ in await tick(app, pilot, feed)
        assert app.terminal.text() == text(app)

    play(script)


def test_without_its_private_parts_a_frame_goes_as_textual_has_it() -> None:
    async def script(app: Seen, pilot: Pilot[Any], feed: FakeFeed) -> None:
        app.view.painter.is_supported = False
        found = await tick(app, pilot, feed)
        assert found
        assert WidgetUpdate.__name__ not in found
        assert app.terminal.text() == text(app)

    play(script)
