"""What a frame does not prove is claimed by no line, no card and no screen of the terminal view."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.live import LiveState
from gpumon.model.frame import Frame, Tick
from gpumon.model.metrics import Availability
from gpumon.model.origin import Driver, Origin
from gpumon_tui.app import GpumonApp
from tests.builders import TIME
from tests.crossed import crossed
from tests.tui.fakes import LIVE, FakeFeed
from tests.tui.screen import play, text
from tests.unknowns import any_tick, same_tick, through_a_ring, wrong

SCREENS = 40


@dataclass
class Frames:
    """A feed of frames made elsewhere."""

    frames: list[Frame]
    live: LiveState = LIVE
    problem: str = ""

    def since(self, number: int) -> list[Frame]:
        return [frame for frame in self.frames if frame.number > number]

    def origin(self) -> Origin:
        return Origin("nvml", "", self.problem)

    def writer(self) -> None:
        return None

    def driver(self) -> Driver:
        return Driver()

    def hostname(self) -> str:
        return "node"

    def history_file(self) -> str:
        return ""

    def state(self) -> LiveState:
        return self.live


def each_screen(size: tuple[int, int], gpus: int, check: Callable[[Tick, list[str]], None]) -> None:
    """Show frames of which anything is unknown, one after the other, in one view."""
    chance = random.Random(f"{size} {gpus}")
    feed = Frames([through_a_ring(any_tick(chance, 1, gpus))])

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for number in range(2, 2 + SCREENS):
            # Far enough apart that no state follows from the frame before.
            now = same_tick(any_tick(chance, 1, gpus), 100 * number)
            feed.frames.append(through_a_ring(now, number))
            app.poll()
            await pilot.pause()
            check(now, text(app))

    play(feed, size, script)


UNITS = {"°C": " °C", "W": " W", "GiB": "G"}
"""Of the columns: in a row the heading has them."""


def with_units(row: str, heading: str) -> str:
    """The row with the unit of each number behind it."""
    for name, unit in UNITS.items():
        if name not in heading:
            continue
        end = re.search(rf"{name}( of [\d.]+)?", heading).end()  # type: ignore[union-attr]
        if name == "GiB":  # it stands over the bar and the number
            end = re.search(r"°C", heading).start() - 1 if "°C" in heading else end  # type: ignore[union-attr]
            end -= len(row[:end]) - len(row[:end].rstrip())
        if row[end - 1 : end].isdigit():
            row = row[:end] + unit.ljust(len(unit)) + row[end:]
            heading = heading[:end] + " " * len(unit) + heading[end:]
    return row


@pytest.mark.parametrize(("size", "gpus"), crossed([(40, 20), (60, 20), (80, 24), (110, 30), (200, 50)], [8, 3]))
def test_a_line_claims_nothing_that_the_frame_does_not_prove(size: tuple[int, int], gpus: int) -> None:
    def check(now: Tick, screen: list[str]) -> None:
        heading = next((line for line in screen if "user" in line and "GiB" in line), "")
        for one in now.samples:
            row = next(line for line in screen if re.match(rf"[▌ ] *{one.device.index}  ?[▁▂▃▄▅▆▇·]", line))
            said = with_units(row, heading)
            assert wrong(said[4:], one, now.processes) == [], said
            if size[0] >= 80:
                for name, key, scale in (("°C", "temperature", 1.0), ("W", "power", 1.0)):
                    value, end = one.value(f"gpu.{key}"), heading.index(name) + len(name)
                    shown = isfinite(value) and one.state in (Availability.OK, Availability.STALE)
                    expected = f"{value / scale:.0f}" if shown else "–"
                    assert row[end - len(expected) - 1 : end] == f" {expected}", row

    each_screen(size, gpus, check)


def test_units_that_a_row_lacks_are_found_in_its_heading() -> None:
    lines = play(FakeFeed(seconds=100), (120, 40))
    heading, row = lines[2], lines[3]
    assert re.search(r"\d\.\dG +\d+ °C +\d+ W ", with_units(row, heading))


@pytest.mark.parametrize("size", [(60, 20), (200, 50)])
def test_a_screen_whose_source_went_silent_calls_nothing_busy_free_or_live(size: tuple[int, int]) -> None:
    feed = FakeFeed(seconds=100)
    said = "stale: the daemon has been silent for 15 s"
    feed.live = LiveState(False, said, 1.0, age=15.0, since=TIME / 1e9, stale=True)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        assert not re.search(r"\b(busy|free now|live)\b", "\n".join(text(app)))

    screen = "\n".join(play(feed, size, script))
    assert "stale" in screen
    assert "15 s" in screen
