"""An app on a fake feed, its screen as text, and a pilot that waits no longer than necessary."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot

from gpumon.common.clock import SystemClock
from gpumon_tui.app import GpumonApp
from gpumon_tui.keybindings import RUNS
from gpumon_tui.screens.runs import RunsPage
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


def runs_page(app: GpumonApp) -> RunsPage:
    page = app.pages[RUNS]
    assert isinstance(page, RunsPage)
    return page


async def appears(app: GpumonApp, pilot: Pilot[Any], words: str) -> None:
    """Wait until `words` are on screen: on a busy machine a page may come a moment after its key."""
    until = time.monotonic() + PATIENCE
    while not any(words in line for line in text(app)):
        assert time.monotonic() < until, f"no {words!r} on screen:\n" + "\n".join(text(app))
        await pilot.pause(0.05)


SLICE = 0.004
"""Seconds between two looks."""
BUSY = 0.1
"""Share of a look from which the process counts as busy, for example with a query in the background."""


def has_messages(app: App[Any]) -> bool:
    """Whether a widget has a message left, or the app holds the screen back until a page is laid out."""
    screens = [screen for stack in app._screen_stacks.values() for screen in stack]
    pumps = [app, *screens, *(widget for screen in screens for widget in screen.walk_children())]
    return getattr(app, "_is_holding", False) or any(
        not pump._message_queue.empty() or pump._next_callbacks for pump in pumps if pump._is_mounted
    )


@contextmanager
def quick_waits(app: App[Any]) -> Iterator[None]:
    """Let the pilot of an app wait some milliseconds for each key; Textual waits at least three times 20 ms."""

    async def wait_for_idle(min_sleep: float = 0.0, max_sleep: float = 1.0) -> None:
        end = time.monotonic() + max_sleep
        while time.monotonic() < end:
            before = time.process_time()
            await asyncio.sleep(SLICE)
            if time.process_time() - before < BUSY * SLICE and not has_messages(app):
                return

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("textual.app.wait_for_idle", wait_for_idle)
        patch.setattr("textual.pilot.wait_for_idle", wait_for_idle)
        yield


def play(
    feed: FakeFeed, size: tuple[int, int], script: Script | None = None, *,
    before: Callable[[GpumonApp], object] = bool, **options: Any,
) -> list[str]:  # fmt: skip
    """Start an app whose timer is off, run `script`, and give the lines on screen; `before`: it begins."""

    async def session() -> list[str]:
        app = GpumonApp(feed, live=False, **{"clock": FeedClock(feed), **options})
        app.frame_queue.step_seconds = inf  # all frames at once, however busy the machine is
        before(app)
        with quick_waits(app):
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
