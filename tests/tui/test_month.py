"""A full month in the terminal view: opened by key, shortened to a minute, and back."""

from __future__ import annotations

from math import nan
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.history.tiers import SHAPES
from gpumon_tui.app import GpumonApp
from tests.months import fill
from tests.tui.fakes import START, FakeFeed
from tests.tui.screen import play_former as play
from tests.tui.screen import text

SECONDS = 120
NOW = float(START + SECONDS)
DAY = 86400
GAP = (NOW - 15 * DAY, NOW - 10 * DAY)


def busy(subject: str, name: str, at: float) -> tuple[float, float, float]:
    """Always 0.9, but for five days without a daemon."""
    if name != "gpu.utilization" or not subject or GAP[0] <= at < GAP[1]:
        return nan, nan, nan
    return 0.9, 0.9, 0.9


def drawn(app: GpumonApp) -> tuple[str, str, str]:
    """The title of the first chart, its lowest line, and its axis."""
    lines = text(app)
    at = next(place for place, line in enumerate(lines) if "─ Utilization" in line)
    axis = next(place for place in range(at, len(lines)) if lines[place].rstrip("─ ").endswith("now"))
    return lines[at], lines[axis - 1], lines[axis]


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
def test_a_month_is_opened_shortened_to_a_minute_and_opened_again(
    size: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    path = tmp_path / "history.sqlite"
    fill(str(path), ["GPU-0000"], NOW, busy, SHAPES[2:])
    monkeypatch.setattr("time.time", lambda: NOW + 1)
    found: list[tuple[str, str, str]] = []

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for keys in (["minus"] * 14, ["plus"] * 13, ["minus"] * 14):
            await pilot.press(*keys)
            await pilot.pause()
            found.append(drawn(app))

    play(FakeFeed(gpus=1, seconds=SECONDS, kept_in=str(path)), size, script)
    month, minute, again = found
    assert "last 31d" in month[0]
    assert "-5d" in month[2]
    area = month[1].split("%", 1)[1][: 80 if size[0] == 80 else 90]
    assert " " * 8 in area.rstrip(), "five days of no samples are a gap"
    assert "last 1m" in minute[0]
    assert "d" not in minute[2].replace("─", "").replace("now", "")
    assert (month[0].split("last")[1][:5], month[2]) == (again[0].split("last")[1][:5], again[2])
