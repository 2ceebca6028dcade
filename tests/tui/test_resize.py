"""Every layout into every other: a screen of any size draws, whatever it was before."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot

from gpumon.live import WAITING, LiveState
from gpumon_tui.app import GpumonApp
from tests.tui.fakes import FakeFeed
from tests.tui.screen import play, text

LAYOUTS = (
    (8, 3), (20, 8), (40, 10), (40, 20), (60, 15), (80, 24), (120, 40), (160, 50), (200, 50), (250, 70), (320, 90),
)  # fmt: skip
"""One size for each way in which the parts of the screen stand."""
MOST_GPUS = 32
Step = tuple[tuple[int, int], int]
"""A size of the terminal, and how many GPUs there are then."""


def random_steps(seed: int, count: int) -> list[Step]:
    """Known layouts, and any sizes between them."""
    chance = random.Random(seed)
    steps = []
    for _ in range(count):
        anywhere = chance.randint(8, 320), chance.randint(3, 90)
        steps.append(
            (chance.choice((anywhere, chance.choice(LAYOUTS))), chance.choice((0, 1, 8, 16, 32, chance.randint(0, 32))))
        )
    return steps


def walk(steps: Iterable[Step]) -> None:
    """Resize through all steps; an exception in the app fails the test."""
    feed = FakeFeed(gpus=MOST_GPUS, seconds=40, processes_count=12)
    all_devices = feed.devices

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for (columns, rows), gpus in steps:
            if gpus != len(feed.devices):
                feed.gpus, feed.devices = gpus, all_devices[:gpus]
                feed.advance()
                app.poll()
                await pilot.pause()
            await pilot.resize_terminal(columns, rows)
            while app.screen._compositor.size != (columns, rows):
                await pilot.pause()
            lines = text(app)
            assert len(lines) == rows
            assert lines[0].startswith(" gpumon")

    play(feed, (320, 90), script)


def test_a_screen_that_narrows_draws_on() -> None:
    walk([((160, 50), 8), ((40, 20), 8), ((200, 50), 8), ((9, 20), 8), ((320, 90), 16), ((80, 24), 16), ((8, 3), 16)])


def test_random_resizes_raise_nothing() -> None:
    walk(random_steps(1, 50))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 6))
def test_two_hundred_random_resizes_raise_nothing(seed: int) -> None:
    walk(random_steps(seed, 200))


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [0, 1, 8, 16, 32])
def test_every_layout_can_become_every_other(gpus: int) -> None:
    walk((size, gpus) for pair in product(LAYOUTS, LAYOUTS) for size in pair)


def test_the_first_frame_is_on_screen_only_once_it_is_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    feed, shown = FakeFeed(seconds=0), []
    display = App._display

    def seen(app: GpumonApp, *of: Any) -> None:
        shown.append(app.page.is_laid_out)
        display(app, *of)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.pause()  # the picture of a view that waits for its first frame
        monkeypatch.setattr(App, "_display", seen)
        feed.advance(3)
        app.poll()
        while not (app.page.is_laid_out and shown):
            await pilot.pause()

    play(feed, (160, 50), script)
    assert all(shown)


def test_each_page_says_that_it_waits() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for key in "1235":
            await pilot.press(key)
            assert any(WAITING in line for line in text(app)[1:]), key

    play(FakeFeed(seconds=0, live=LiveState(False, WAITING, 1.0)), (100, 30), script)
