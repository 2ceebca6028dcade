"""On 40 columns no sentence loses its end, and no number its unit."""

from __future__ import annotations

import re
from typing import Any

from textual.pilot import Pilot

from gpumon.live import LiveState
from gpumon_tui.app import GpumonApp
from tests.tui.fakes import FakeFeed
from tests.tui.screen import play, text


def log(**changes: Any) -> FakeFeed:
    """A log of nvidia-smi that plays."""
    played = LiveState(True, "replayed", 1.0)
    feed = FakeFeed(source="replay", label="REPLAY x.csv", seconds=0, processes_count=0, live=played, **changes)
    feed.runs = lambda second: ()  # type: ignore[method-assign]
    feed.advance(60)
    return feed


def test_why_pages_of_a_log_are_empty_is_said_to_the_end() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for key, end in (("4", "has no run data"), ("5", "these events come from its frames")):
            await pilot.press(key)
            await pilot.pause()
            told = " ".join(" ".join(text(app)[1:-1]).split())
            assert end in told, told

    play(log(), (40, 20), script)


def test_a_chart_of_memory_has_its_unit_and_a_readout_its_highest_value() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", "m")
        await pilot.pause()
        assert re.search(r"Memory +GPU 0 +\d+\.\d GiB", text(app)[1]), "the value of now, not its unit alone"
        await pilot.press("left")
        await pilot.pause()
        line = text(app)[2]
        assert re.search(r"min \d+\.\d +mean \d+\.\d +max \d+\.\d", line), line
        assert "…" not in line

    play(log(), (40, 20), script)
