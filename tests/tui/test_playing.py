"""A recording in the terminal view: it stands still with the picture, and goes where the keys take it."""

from __future__ import annotations

from typing import Any

from textual.pilot import Pilot

from gpumon_tui.app import GpumonApp
from tests.tui.fakes import FakeFeed
from tests.tui.screen import play, text


class FakePlayer:
    """A player that notes what it is asked."""

    def __init__(self) -> None:
        self.is_paused = False
        self.can_seek = True
        self.turns = 0
        self.asked: list[float] = []

    def seek(self, seconds: float) -> None:
        self.asked.append(seconds)


def test_keys_take_a_recording_back_and_forward() -> None:
    player = FakePlayer()

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("left_square_bracket", "right_square_bracket", "left_curly_bracket", "right_curly_bracket")

    play(FakeFeed(), (80, 24), script, player=player)
    assert player.asked == [-60, 60, -600, 600]


def test_a_log_and_live_data_go_nowhere() -> None:
    player = FakePlayer()
    player.can_seek = False

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("right_square_bracket", "space")

    play(FakeFeed(), (80, 24), script, player=player)
    assert (player.asked, player.is_paused) == ([], False)
    assert "‖ paused" in play(FakeFeed(), (80, 24), script)[0]


def test_a_recording_stands_still_with_the_picture() -> None:
    player = FakePlayer()

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("space")
        assert player.is_paused
        assert "‖ paused" in text(app)[0]
        await pilot.press("space")
        assert not player.is_paused

    assert "paused" not in play(FakeFeed(), (80, 24), script, player=player)[0]


def test_another_place_has_a_history_of_its_own_also_while_paused() -> None:
    player, feed = FakePlayer(), FakeFeed(seconds=700)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("tab", "space")
        before = app.view.frame
        # As a source does: the ring that held 700 frames begins anew with 100.
        del feed.frames[100:]
        player.turns += 1
        app.poll()
        await pilot.pause()
        after = app.view.frame
        assert before is not None
        assert after is not None
        assert after.number == 100 < before.number
        assert app.view.paused
        assert app.page.active is app.pages["Overview"].runs

    screen = play(feed, (120, 40), script, player=player)
    assert "‖ paused" in screen[0]
