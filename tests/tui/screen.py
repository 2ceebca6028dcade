"""An app on a fake feed, and its screen as text."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any

from textual.pilot import Pilot

from gpumon.common.clock import SystemClock
from gpumon_tui.app import GpumonApp
from tests.programs import PATIENCE
from tests.tui.fakes import FakeFeed

Script = Callable[[GpumonApp, Pilot[Any]], Awaitable[None]]


class FeedClock(SystemClock):
    """A clock by which the newest frame of a feed has just come, however long a busy machine takes to draw it."""

    def __init__(self, feed: FakeFeed) -> None:
        self._feed = feed

    def monotonic(self) -> int:
        return self._feed.frames[-1].monotonic_ns if self._feed.frames else 0


def text(app: GpumonApp) -> list[str]:
    """The lines on screen."""
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


async def appears(app: GpumonApp, pilot: Pilot[Any], words: str) -> None:
    """Wait until `words` are on screen: on a busy machine a page may come a moment after its key."""
    until = time.monotonic() + PATIENCE
    while not any(words in line for line in text(app)):
        assert time.monotonic() < until, f"no {words!r} on screen:\n" + "\n".join(text(app))
        await pilot.pause(0.05)


def play(
    feed: FakeFeed, size: tuple[int, int], script: Script | None = None, *,
    before: Callable[[GpumonApp], object] = bool, **options: Any,
) -> list[str]:  # fmt: skip
    """Start an app whose timer is off, run `script`, and give the lines on screen; `before`: it begins."""

    async def session() -> list[str]:
        app = GpumonApp(feed, live=False, **{"clock": FeedClock(feed), **options})
        app.frame_queue.step_seconds = inf  # all frames at once, however busy the machine is
        before(app)
        async with app.run_test(size=size) as pilot:
            while app.view.is_loading:
                await pilot.pause()
            app.draw()
            await pilot.pause()
            if script is not None:
                await script(app, pilot)
                await pilot.pause()
            return text(app)

    return asyncio.run(session())
