"""Restarting the daemon from the view: only where it does not answer, only after a Yes, never with --readonly."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.common.errors import GpumonError
from gpumon.live import LiveState
from gpumon_tui.app import GpumonApp
from tests.tui.fakes import FakeFeed
from tests.tui.screen import play, text

SILENT = LiveState(False, "stale: last seen 14:24:19 (15 s ago)", 1.0, 15.0)


def after(
    keys: tuple[str, ...], *, is_readonly: bool = False, live: bool = False, problem: str = "",
    size: tuple[int, int] = (120, 40),
) -> tuple[Any, ...]:  # fmt: skip
    """What the screen says in the end, and how often the daemon was restarted."""
    calls: list[int] = []
    seen: list[list[str]] = []

    def restart() -> str:
        calls.append(1)
        if problem:
            raise GpumonError(problem)
        return "gpumon daemon 4711: nvml: 8 GPUs"

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        app.restart.by, app.view.is_readonly = restart, is_readonly
        app.draw()
        for key in keys:
            seen.append(text(app))
            await pilot.press(key)
            await pilot.pause()
        for _ in range(200):
            if "restarting" not in app.view.said:
                break
            await pilot.pause(0.01)
        app.draw()

    feed = FakeFeed(seconds=5, source="nvml", label="")
    if not live:
        feed.live = SILENT
    return play(feed, size, script), len(calls), seen


def test_a_silent_daemon_is_restarted_after_a_yes() -> None:
    lines, calls, seen = after(("R", "y"))
    assert "R restart daemon" in seen[0][-1]
    assert any("Restart the daemon?" in line for line in seen[1])
    assert any("last seen 14:24:19" in line for line in seen[1])
    assert calls == 1
    assert "gpumon daemon 4711" in lines[-1]


def test_a_narrow_screen_offers_the_restart_too() -> None:
    foot = after(("R", "n"), size=(40, 20))[2][0][-1]
    assert foot.endswith("R restart daemon  q ?"), foot


def test_of_a_daemon_that_is_gone_it_is_said_that_its_options_are_not_known() -> None:
    assert any("its options with it" in line for line in after(("R", "n"))[2][1])


@pytest.mark.parametrize("key", ["enter", "escape", "n", "q"])
def test_any_other_answer_is_a_no(key: str) -> None:
    assert after(("R", key))[1] == 0


def test_a_failure_is_said() -> None:
    assert "belongs to root" in after(("R", "y"), problem="the daemon belongs to root")[0][-1]


def test_nothing_is_restarted_with_readonly_nor_where_the_daemon_answers() -> None:
    _, calls, seen = after(("R", "y"), is_readonly=True)
    assert calls == 0
    assert "R restart" not in seen[0][-1]
    _, calls, seen = after(("R", "y"), live=True)
    assert calls == 0
    assert "the daemon answers" in seen[1][-1], "before `y`, which copies a row"
