"""Title of the terminal and notifications: each thing once, nothing old, and no stranger's text obeyed."""

from __future__ import annotations

import re
from typing import Any

import pytest
from textual.pilot import Pilot

from gpumon.live import LiveState
from gpumon.model.frame import RunState
from gpumon_tui.app import GpumonApp
from gpumon_tui.notifications import RESTORE, SAVE, TerminalNotifier, through_tmux
from tests.tui.fakes import FakeFeed
from tests.tui.screen import play

XTERM = {"TERM": "xterm-256color"}
SENT = re.compile("\x1b]9;([^\x1b]*)\x1b\\\\")
TITLE = re.compile("\x1b]2;([^\x1b]*)\x1b\\\\")


class Course(FakeFeed):
    """Run `id-1` ends at second 12 in `course_ends`; GPU 5 is let go at second 14; GPU 7 is free."""

    course_ends = RunState.DIED

    def runs(self, second: int) -> tuple[Any, ...]:
        over = {"state": self.course_ends} if second >= 12 else {}
        return tuple(one._replace(**over) if one.id == "id-1" else one for one in super().runs(second))

    def processes(self, second: int) -> tuple[Any, ...]:
        of_none = self.devices[5].uuid if second >= 14 else ""
        return tuple(one for one in super().processes(second) if one.uuid != of_none)

    def sample(self, device: Any, second: int) -> Any:
        found = super().sample(device, second)
        if device.index == 5 and second >= 14:
            return found._replace(values=super().sample(self.devices[7], second).values)
        return found


def played(feed: FakeFeed, seconds: int, *, notifies: bool = True, env: dict[str, str] = XTERM) -> str:
    """All that is written aside while so many frames come."""
    written: list[str] = []

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        app.notifier = TerminalNotifier(env, written.append, notifies=notifies)
        app.poll()
        for _ in range(seconds):
            feed.advance()
            app.poll()
            await pilot.pause()
        app.notifier.end(written.append)

    play(feed, (80, 24), script)
    return "".join(written)


def test_the_title_of_a_paused_view_claims_nothing_of_now() -> None:
    written: list[str] = []

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        app.notifier = TerminalNotifier(XTERM, written.append)
        await pilot.press("space")
        app.notifier.update(app.view)

    play(course(), (80, 24), script)
    assert TITLE.findall("".join(written))[-1] == "gpumon · paused"


def title(feed: FakeFeed) -> str:
    """The title beside what such a feed shows."""
    written: list[str] = []

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        app.notifier = TerminalNotifier(XTERM, written.append)
        app.notifier.update(app.view)

    play(feed, (80, 24), script)
    return TITLE.findall("".join(written))[-1]


def test_the_title_of_a_recording_that_has_ended_claims_nothing_of_now() -> None:
    over = FakeFeed(seconds=9, source="replay", label="REPLAY x.csv", ended=True, live=LiveState(False, "ended", 1.0))
    assert title(over) == "gpumon · replay x.csv · ended"


def test_the_title_says_that_none_is_free_only_where_that_is_known_of_all() -> None:
    assert "0 free" in title(course(gpus=5))
    assert "free" not in title(course(gpus=5, lost=(1,)))
    assert "1 free" in title(course(lost=(1,)))


def course(**options: Any) -> Course:
    return Course(seconds=8, source="nvml", label="", **options)


@pytest.mark.parametrize(
    ("state", "words"), [(RunState.DIED, "died"), (RunState.FINISHED, "finished"), (RunState.FAILED, "failed")]
)
def test_a_run_that_ends_and_a_gpu_that_becomes_free_are_notified_once_each(state: RunState, words: str) -> None:
    feed = course()
    feed.course_ends = state
    assert SENT.findall(played(feed, 14)) == [f"gpumon: llama-8b-lora {words}", "gpumon: GPU 5 free"]


def test_nothing_is_notified_unless_it_is_asked_for_and_nothing_of_a_simulation() -> None:
    assert not SENT.findall(played(course(), 14, notifies=False))
    assert not SENT.findall(played(Course(seconds=8), 14))


def test_what_was_so_at_the_start_is_no_news() -> None:
    feed = Course(seconds=20, source="nvml", label="")
    assert not SENT.findall(played(feed, 4))


def test_the_title_says_what_is_free_and_how_far_the_first_run_is_and_is_given_back() -> None:
    written = played(course(), 1)
    assert written.startswith(SAVE)
    assert TITLE.findall(written)[0] == "gpumon · 1 free · resnet50 1/90"
    assert written.endswith(RESTORE)


def test_the_title_is_written_only_where_it_changes() -> None:
    assert len(TITLE.findall(played(course(), 3))) == 2  # once, and emptied in the end


def test_a_title_claims_nothing_free_where_no_gpu_answers() -> None:
    written = played(FakeFeed(gpus=0, seconds=3, source="nvml", label="", problem="no driver"), 1)
    assert not any("free" in title for title in TITLE.findall(written))


def test_hostile_names_end_no_sequence() -> None:
    feed = course(run_names=("a\x1b\\\x07\x9c\x1b]0;pwn\x07", "b\x1b]52;c;eA==\x07;x\n"))
    written = played(feed, 14)
    left = re.sub(r"\x1b\](?:2|9|777);[^\x00-\x1f\x7f-\x9f]*\x1b\\|\x1b\[2[23];2t", "", written)
    assert left == ""
    assert SENT.findall(written)


def test_in_tmux_notifications_are_handed_through_and_the_title_is_tmux_s_own() -> None:
    written = played(course(), 14, env={**XTERM, "TMUX": "/tmp/tmux-0/default,1,0"})
    assert through_tmux("\x1b]9;gpumon: GPU 5 free\x1b\\") in written
    assert "\x1bPtmux;\x1b\x1b]9;gpumon: GPU 5 free\x1b\x1b\\\x1b\\" in written
    assert written.startswith(f"{SAVE}\x1b]2;")


@pytest.mark.parametrize("term", ["", "dumb", "linux"])
def test_a_terminal_without_titles_is_left_alone(term: str) -> None:
    assert played(course(), 14, env={"TERM": term}) == ""


def test_a_key_switches_notifications() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        await pilot.press("B")
        assert app.notifier.is_enabled
        assert app.view.message.startswith("notifications on"), "where the rest has no room, that is left"
        await pilot.press("B")
        assert not app.notifier.is_enabled
        assert app.view.message.startswith("notifications off")

    play(FakeFeed(seconds=3), (80, 24), script)
