"""An app on a fake feed, and its screen as text."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from textual.pilot import Pilot

from gpumon_tui.app import GpumonApp
from gpumon_tui.keys import OVERVIEW
from tests.tui.fakes import FakeFeed

Script = Callable[[GpumonApp, Pilot[Any]], Awaitable[None]]


FORMER = {OVERVIEW: "tests.tui.former_page:FormerPage"}
"""The charts and tables of all pages on one, for tests of those parts."""


def text(app: GpumonApp) -> list[str]:
    """The lines on screen."""
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


def play_former(feed: FakeFeed, size: tuple[int, int], script: Script | None = None, **options: Any) -> list[str]:
    """The same on `FORMER`."""
    return play(feed, size, script, pages=FORMER, **options)


def play(feed: FakeFeed, size: tuple[int, int], script: Script | None = None, **options: Any) -> list[str]:
    """Start an app whose timer is off, run `script`, and give the lines on screen."""

    async def session() -> list[str]:
        app = GpumonApp(feed, live=False, **options)
        async with app.run_test(size=size) as pilot:
            while app.view.filling:
                await pilot.pause()
            app.draw()
            await pilot.pause()
            if script is not None:
                await script(app, pilot)
                await pilot.pause()
            return text(app)

    return asyncio.run(session())
