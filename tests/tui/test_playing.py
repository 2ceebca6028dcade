"""A recording in the terminal view: it stands still with the picture, and goes where the keys take it."""

from __future__ import annotations

import re
from math import isnan
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.common.clock import SECOND
from gpumon.live import WAITING, LiveState
from gpumon.model import units
from gpumon.storage.history.query import Query
from gpumon_tui.app import GpumonApp
from tests.fakes import FakeClock
from tests.tui.fakes import START, FakeFeed, FakePlayer, FakeWriter
from tests.tui.screen import play, text


def test_keys_take_a_recording_back_and_forward() -> None:
    player = FakePlayer()

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("left_square_bracket", "right_square_bracket", "left_curly_bracket", "right_curly_bracket")

    play(FakeFeed(), (80, 24), script, player=player)
    assert player.asked == [-60, 60, -600, 600]


def test_a_log_stands_still_and_goes_nowhere() -> None:
    player = FakePlayer()
    player.can_seek = False

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("right_square_bracket")
        assert "a log only plays on" in text(app)[-1]
        await pilot.press("space")

    play(FakeFeed(source="replay", label="REPLAY x.csv"), (80, 24), script, player=player)
    assert (player.asked, player.is_paused) == ([], True)


def test_live_data_go_nowhere() -> None:
    player = FakePlayer()
    player.can_seek = player.can_pause = False

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("right_square_bracket", "space")
        assert "a log only plays on" not in text(app)[-1]

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
        player.seeks += 1
        app.poll()
        await pilot.pause()
        after = app.view.frame
        assert before is not None
        assert after is not None
        assert after.number == 100 < before.number
        assert app.view.paused
        assert app.page.active is app.page.runs

    screen = play(feed, (120, 40), script, player=player)
    assert "‖ paused" in screen[0]


@pytest.mark.parametrize("paused", [False, True])
def test_what_was_on_screen_stays_there_faded_until_all_of_the_other_place_is_there(paused: bool) -> None:
    player, feed = FakePlayer(), FakeFeed(seconds=300, source="replay", label="REPLAY x.gpumon")

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press(*(["space"] if paused else []))
        before = text(app)[2:-1]
        player.arrives, player.seek_target = False, START + 99.0
        player.seeks += 1
        whole = list(feed.frames)
        for frames in (0, 50):  # the ring begins anew, and has not all of them yet
            feed.frames[:] = whole[:frames]
            app.poll()
            await pilot.pause()
            assert "○ seeking" in text(app)[0]
            assert "seeking to 14:14:59" in text(app)[-1]
            assert "REPLAY" in text(app)[0]
            assert text(app)[2:-1] == before
            assert app.view.freshness.is_faded
        feed.frames[:] = whole[:100]
        player.arrives = True
        app.poll()
        await pilot.pause()
        assert app.view.now == START + 99
        assert "seeking" not in text(app)[0]
        assert not app.view.freshness.is_faded
        assert app.view.paused == paused

    play(feed, (120, 40), script, player=player)


def test_nothing_is_said_of_a_driver_where_a_recording_has_no_frame_yet() -> None:
    clock, feed = FakeClock(), FakeFeed(seconds=0, live=LiveState(False, WAITING, 1.0))

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        clock.advance(60)
        app.draw()
        await pilot.pause()
        assert "may hang" not in "\n".join(text(app))

    play(feed, (120, 40), script, player=FakePlayer(), clock=clock)


@pytest.mark.parametrize(
    ("columns", "said"), [(40, ""), (80, "1:39 of 6:39"), (120, "1:39 ━━━━━━━━ 6:39"), (200, " 6:39 ")]
)
def test_the_foot_tells_how_far_a_recording_is(columns: int, said: str) -> None:
    feed = FakeFeed(seconds=100, source="replay", label="REPLAY x.gpumon ×4")
    foot = play(feed, (columns, 24), player=FakePlayer(START, START + 399))[-1]
    assert said in foot
    assert bool(said) == ("1:39" in foot)
    assert "? help" in foot


def test_what_has_been_played_to_its_end_was_played_as_long_as_it_lasts() -> None:
    ended = LiveState(False, "the recording has ended", 1.0)
    feed = FakeFeed(seconds=100, source="replay", label="REPLAY x.csv", ended=True, live=ended)
    assert "1:40 of 1:40" in play(feed, (80, 24), player=FakePlayer(START, START + 99.9))[-1]


def test_a_log_whose_end_is_not_known_says_how_long_it_has_played() -> None:
    feed = FakeFeed(seconds=100, source="replay", label="REPLAY x.csv")
    assert "1:39 played" in play(feed, (80, 24), player=FakePlayer(START))[-1]
    assert "played" not in play(FakeFeed(seconds=100), (120, 24))[-1]


def test_the_foot_offers_the_way_through_a_recording_and_to_go_on() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        assert "[ ] 1 min" in text(app)[-1]
        await pilot.press("2", "space")
        assert "{ } 10 min" in text(app)[-1]
        assert "resume" in text(app)[-1]

    feed = FakeFeed(seconds=100, source="replay", label="REPLAY x.gpumon")
    play(feed, (160, 40), script, player=FakePlayer(START, START + 399))


def test_a_daemon_that_begins_later_is_shown_within_seconds_and_that_is_said() -> None:
    own, clock, daemons = FakeFeed(seconds=5, source="nvml", label=""), FakeClock(start=5 * SECOND), list[FakeFeed]()
    own.live = own.live._replace(text="no daemon: sampling in this process")
    asked = []

    def find() -> FakeFeed | None:
        asked.append(clock.monotonic())
        return daemons[0] if daemons else None

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        assert "own sampler" in text(app)[0]
        app.view.select("GPU-0003")
        app.poll()
        clock.advance(4)
        app.poll()
        daemons.append(FakeFeed(gpus=6, seconds=12, source="nvml", label=""))
        app.poll()
        assert len(asked) == 2, "it is not looked for at each turn"
        clock.advance(4)
        app.poll()
        await pilot.pause()
        assert "● live" in text(app)[0]
        assert "a daemon runs now" in text(app)[-1]
        assert len(app.view.samples) == 6
        assert app.view.subject == "GPU-0003"
        clock.advance(60)
        app.poll()
        assert len(asked) == 3

    play(own, (120, 40), script, daemon=find, clock=clock)


def test_a_daemon_that_begins_later_is_shown_with_its_first_gpu_unless_another_one_was_chosen() -> None:
    own, clock = FakeFeed(gpus=0, seconds=5, source="nvml", label=""), FakeClock(start=2 * SECOND)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        assert not app.view.samples
        clock.advance(4)
        app.poll()
        await pilot.press("2")
        assert app.view.subject == "GPU-0000", "while there was no GPU the machine itself stood there"

    play(own, (120, 40), script, daemon=lambda: FakeFeed(gpus=2, seconds=12, source="nvml", label=""), clock=clock)


@pytest.mark.parametrize(
    ("first", "known", "pauses"), [(80, 80, 1), (60, 100, 0), (30, 100, 0), (0, 100, 0)],
    ids=["after a gap", "at once", "with frames of before", "with all"],
)  # fmt: skip
def test_what_a_view_sampled_itself_stays_before_the_frames_of_a_daemon(first: int, known: int, pauses: int) -> None:
    own, clock = FakeFeed(seconds=60, source="nvml", label=""), FakeClock(start=2 * SECOND)
    later = FakeFeed(first=first, seconds=100, source="nvml", label="")

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        clock.advance(4)
        app.poll()
        await pilot.pause()
        history = app.view.history
        assert history.sampled() == [float(START + second) for second in (*range(60), *range(max(60, first), 100))]
        assert len(history.sampled()) == known, "no moment twice"
        asked = Query("GPU-0000", ("gpu.power",), START + 55.5, START + 84.5)
        line = history.query(asked)["gpu.power"]
        assert sum(map(isnan, line.mean)) == pauses, "a gap between them has no line"
        own.advance(1)
        later.advance(1)
        app.poll()
        assert len(app.view.history.sampled()) == known + 1, "the own sampler is not asked any more"

    play(own, (120, 40), script, daemon=lambda: later, clock=clock)


def test_what_a_view_sampled_itself_is_left_out_where_a_daemon_plays_something() -> None:
    own, clock = FakeFeed(seconds=60, source="nvml", label=""), FakeClock(start=2 * SECOND)
    played = FakeFeed(first=80, seconds=100)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        clock.advance(4)
        app.poll()
        assert len(app.view.history.sampled()) == 20

    play(own, (120, 40), script, daemon=lambda: played, clock=clock)


def _begun_anew(source: str, label: str, seconds: int) -> list[int]:
    """Seconds that a view knows before and after another daemon begins to write the same ring."""
    feed, known = FakeFeed(seconds=300, source=source, label=label), []

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("down", "down")
        known.append(len(app.view.history.sampled()))
        feed.made_by, feed.frames = FakeWriter(pid=4712), FakeFeed(seconds=seconds).frames
        app.poll()
        await pilot.pause()
        known.append(len(app.view.history.sampled()))
        assert app.view.subject == "GPU-0002", "what was selected stays so"
        assert ("another daemon runs now" in text(app)[-1]) == (label != "")

    play(feed, (120, 40), script)
    return known


def test_a_view_forgets_a_simulation_once_another_daemon_plays_one() -> None:
    assert _begun_anew("sim", "SIMULATED", 60) == [300, 60]


def test_a_view_goes_on_with_what_it_knows_of_hardware_once_another_daemon_samples_it() -> None:
    assert _begun_anew("nvml", "", 310) == [300, 310]


def test_a_recording_that_plays_faster_than_it_is_taken_in_shows_no_frame_before_its_history() -> None:
    feed = FakeFeed(seconds=60, source="replay", label="REPLAY x.csv ×30", speed=30.0)

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        app.frame_queue.step_seconds = 0.0  # a frame a step
        feed.advance(40)
        app.poll()
        assert (app.view.now, app.view.history.end) == (START + 60, START + 60)
        assert not app.view.is_loading, "of the frame on screen all that lies before is known"
        assert "no samples" not in "\n".join(text(app))
        while app.frame_queue.is_behind:
            app._process_queue()  # as the app does between two keys, however busy the machine is
            assert app.view.now == app.view.history.end
        assert app.view.now == START + 99
        assert units.clock(START + 99) in text(app)[0], "that is drawn without another frame"

    play(feed, (120, 40), script, player=FakePlayer(START, START + 399))


def test_what_has_been_played_is_not_to_be_paused() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.pause()

    def foot(*, ended: bool) -> str:
        feed = FakeFeed(source="replay", label="REPLAY x.csv", ended=ended)
        return play(feed, (160, 24), script, player=FakePlayer())[-1]

    assert "Space pause" in foot(ended=False)
    assert "Space pause" not in foot(ended=True)


def test_space_leaves_what_has_been_played_as_it_is_at_its_end() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("space")
        await pilot.pause()
        assert not app.view.paused

    feed = FakeFeed(source="replay", label="REPLAY x.csv", ended=True, live=LiveState(False, "ended", 1.0))
    lines = play(feed, (160, 24), script, player=FakePlayer(START, START + 700.4))
    assert "▸ ended" in lines[0]
    assert "resume" not in lines[-1]
    assert re.search(r"11:40 ━+ 11:40", lines[-1]), "the last frame is of a little before the end"


def test_the_help_of_a_log_names_no_key_that_moves_it() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("2", "question_mark")
        await pilot.pause()

    for can_seek in (True, False):
        player = FakePlayer(START, START + 699)
        player.can_seek = can_seek
        feed = FakeFeed(source="replay", label="REPLAY x.csv")
        told = " ".join(" ".join(play(feed, (160, 60), script, player=player)).split())
        assert "back or forward half a window" in told
        assert ("move a recording" in told) is can_seek


def test_a_recording_that_plays_fast_has_no_gaps_between_its_samples() -> None:
    feed = FakeFeed(source="replay", label="REPLAY x.gpumon ×20", speed=20.0, live=LiveState(True, "replayed", 0.05))

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        app.view.chart_time.length = 30
        await pilot.press("2")

    lines = play(feed, (80, 24), script)
    (first,) = (line for line in lines if line.startswith("▌    0"))
    assert first.count("▌") > 60
    assert "·" not in first
    strip = next(line for line in play(feed, (200, 50)) if line.startswith("▌"))
    assert "·" not in strip[:100]
