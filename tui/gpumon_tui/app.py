"""The screen: asks the feed, keeps history, lets the widgets draw."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.geometry import Size

from gpumon.clock import SECOND, Clock, SystemClock
from gpumon.frame import Frame
from gpumon_tui.feed import FrameFeed, Player
from gpumon_tui.freshness import freshness
from gpumon_tui.guard import Guard, stop
from gpumon_tui.happened import Happened, OpenEvents
from gpumon_tui.instead import Instead, Past, Simulation
from gpumon_tui.kept_runs import KeptRuns, OpenLedgers
from gpumon_tui.keys import OVERVIEW, PAGES, offered, pressed
from gpumon_tui.look import TerminalLook, of_terminal
from gpumon_tui.pages.page import TerminalPage
from gpumon_tui.pages.registry import REGISTERED, Pages, page_class
from gpumon_tui.remembered import Remembered
from gpumon_tui.renderables.attention import counted
from gpumon_tui.renderables.footer import KEY_NAMES
from gpumon_tui.screens.attention import Attention
from gpumon_tui.screens.help import Help
from gpumon_tui.screens.scrolled import Scrolled
from gpumon_tui.stage import Stage
from gpumon_tui.terminal_news import TerminalNews, to_terminal
from gpumon_tui.themes import BY_NAME as THEMES
from gpumon_tui.themes import after
from gpumon_tui.view import View
from gpumon_tui.widgets.bars import Footer, HeaderBar, ReasonLine

if TYPE_CHECKING:
    from gpumon.ledger.records import RunSummary

OFFERED = (("s", "simulation"),)
RECENT = 120
"""Frames, some minutes, that a feed has with their processes."""
BUDGET = 0.02
"""Seconds that taking in history may hold up the keys."""
GARBAGE = 10_000
"""New objects after which garbage is looked for: a tick makes and drops hundreds, hardly any of them in a cycle."""


class GpumonApp(Stage):
    """gpumon in a terminal. `live=False` leaves asking the feed to the caller, for tests.

    `simulation` and `past` are for machines on which no GPU can be read.
    """

    def __init__(
        self, feed: FrameFeed, *, interval: float = 1.0, live: bool = True, clock: Clock | None = None,
        simulation: Simulation | None = None, past: Past | None = None, player: Player | None = None,
        ledgers: OpenLedgers | None = None, read_events: OpenEvents | None = None, pages: Pages = REGISTERED,
        look: TerminalLook | None = None,
    ) -> None:  # fmt: skip
        super().__init__(View(interval), look)
        self.instead = Instead(feed, simulation, past)
        self.interval = interval
        self.view.kept = KeptRuns(ledgers, lambda: self._clock.time() / SECOND)
        self.view.kept.asked.told = self._draw_soon
        self.view.happened = Happened(self.view.kept.asked, read_events)
        self._player = player
        self._turns = player.turns if player else 0
        self._live = live
        self._clock = clock or SystemClock()
        self._came = self._clock.monotonic()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._newest = self._taken = 0
        self.view.recent = lambda: self.instead.feed.since(max(0, self._newest - RECENT))
        self._latest: Frame | None = None
        self._waiting: deque[Frame] = deque()
        self.header = HeaderBar(self.view)
        self.reason = ReasonLine(self.view)
        self.footer = Footer(self.view, tuple(pages))
        self._registered = pages
        self.page = page_class(OVERVIEW, pages)(self.view)
        self.pages: dict[str, TerminalPage] = {OVERVIEW: self.page}
        """Those that have been opened, by name."""

    def compose(self) -> ComposeResult:
        yield from (self.header, self.reason, self.page, self.footer)

    def on_mount(self) -> None:
        """Begin with what the feed has."""
        self._loop = asyncio.get_running_loop()
        self.ask_width()
        self.paint_ground(self.screen)
        last = self.view.remembered.get("page", OVERVIEW)
        self._open(last if last in self._registered else OVERVIEW)
        self.poll()
        if self._live:
            self.set_interval(min(self.interval, 0.5), self.poll)

    def poll(self) -> None:
        """Take in new frames and draw, if the terminal keeps up."""
        view, feed, player = self.view, self.instead.feed, self._player
        if problem := view.remembered.take_problem():
            view.say(problem)
        if view.forget_said(monotonic()):
            self.footer.show()
        if player and player.turns != self._turns:
            self._turns = player.turns
            self._begin_anew()
            view.paused = player.is_paused
            self.draw()
            return
        view.origin, view.driver = feed.origin(), feed.driver()
        view.hostname, view.state = feed.hostname(), feed.state()
        view.history_path = feed.history_file()
        view.history.look_in(view.history_path)
        frames = feed.since(self._newest)
        if frames:
            self._came = self._clock.monotonic()
            self._newest = frames[-1].number
            self._latest = frames[-1]
            # A picture that is held is held whole; the feed keeps what comes meanwhile. A recording holds itself.
            if not view.paused or (player and player.is_paused):
                self._taken = self._newest
                self._waiting.extend(frames)
                view.happened.add(frames, view.origin, view.driver)
                if view.frame is None and not frames[-1].samples:
                    self.instead.read_past(self._take_past)
                view.frame = frames[-1]
        self._take_in()
        has_aged = self._judge_freshness()
        self.news.take(view)
        if not has_aged and not frames and view.frame is not None:
            self.header.show()
            self.reason.show()
        elif self.flow.ready(monotonic()):
            self._paint()
            self.call_after_refresh(self.ask)

    def end(self, code: int) -> None:
        """End with an exit code; from a signal handler or another thread too."""
        if self._loop is None:
            self._exit, self._return_code = True, code  # the view has not begun: it will not
            return
        with suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(self.exit, None, code)

    def draw(self) -> None:
        """Show the view as it is now."""
        self._judge_freshness()
        self._paint()

    def _paint(self) -> None:
        self.reason.display = bool(self.view.freshness.reason)
        self.page.share_out(self._room(self.size))
        self.header.show()
        self.reason.show()
        self.page.show()
        self.footer.show()
        if isinstance(self.screen, Attention):
            self.screen.show()

    def on_resize(self, event: events.Resize) -> None:
        """Share the screen out anew, before any widget hears of its new size."""
        self.page.share_out(self._room(event.size))

    def _room(self, size: Size) -> Size:
        return Size(size.width, max(1, size.height - 2 - self.reason.display))

    def on_key(self, event: events.Key) -> None:
        """Do what the page or the app does on a key."""
        if not isinstance(self.screen, Scrolled):
            if self.page.take(event):
                self.draw()
            else:
                self.press(event.key)

    def press(self, name: str) -> None:
        """Do what a key does on the page on screen, if anything."""
        key = pressed(self.page.name_shown, name)
        if key is None:
            return
        of = self.page if hasattr(self.page, f"do_{key.action}") else self
        do = getattr(of, f"do_{key.action}", None)
        if do is None:
            return
        do() if key.by is None else do(key.by)
        if of is self.page:
            self.draw()

    def on_footer_pressed(self, message: Footer.Pressed) -> None:
        """A key or a page at the foot was clicked."""
        self.press(message.key)

    def on_terminal_page_changed(self, message: TerminalPage.Changed) -> None:
        """A page has something new."""
        self.draw()

    def on_terminal_page_wanted(self, message: TerminalPage.Wanted) -> None:
        """A page leads to another one."""
        self.do_open_page(message.number)

    def on_terminal_page_clicked(self, message: TerminalPage.Clicked) -> None:
        """A key on a page was clicked."""
        self.press(KEY_NAMES.get(message.key, message.key))

    def do_open_page(self, number: int) -> None:
        """Another page, on the same GPU and run."""
        name = PAGES[number - 1]
        if name in self._registered and not isinstance(self.screen, Scrolled):
            self._open(name)
            self.view.remembered.keep("page", name)
            self.draw()

    def _open(self, name: str) -> None:
        if name not in self.pages:
            self.pages[name] = page_class(name, self._registered)(self.view)
            self.mount(self.pages[name], before=self.footer)
        self.page = self.pages[name]
        for page in self.pages.values():
            page.display = page is self.page
        self.footer.page, self.footer.bindings = name, offered(name)
        self.page.share_out(self._room(self.size))

    def do_subject(self, step: int) -> None:
        """Another GPU, or the host."""
        self.view.step_subject(step)
        self.draw()

    def do_zoom(self, step: int) -> None:
        """A shorter or a longer window."""
        self.view.zoom(step)
        self.draw()

    def do_pan(self, halves: int) -> None:
        """An earlier or a later window."""
        self.view.pan(halves)
        self.draw()

    def do_to_now(self) -> None:
        """The window that ends now."""
        self.view.shown.to_now()
        self.draw()

    def do_pause(self) -> None:
        """Hold the picture, or go on with the newest; a recording stands still meanwhile."""
        self.view.paused = not self.view.paused
        if self._player and self._player.can_seek:
            self._player.is_paused = self.view.paused
        if not self.view.paused:
            self._newest = self._taken
            self.poll()
            self.view.frame = self._latest  # also of a feed that is gone meanwhile
        self.draw()

    def do_seek(self, seconds: int) -> None:
        """Another place of a recording."""
        if self._player and self._player.can_seek:
            self._player.seek(seconds)

    def do_theme(self) -> None:
        """The next theme."""
        chosen = after(self.view.look.theme)
        self.show_in(self.view.look._replace(theme=chosen))
        self.view.remembered.keep("theme", chosen.name)
        self.view.say(f"theme: {chosen.name}")
        self.draw()

    def do_quit(self) -> None:
        """The end."""
        self.exit()

    def do_simulate(self) -> None:
        """A simulation in the place of a machine without a GPU, and back."""
        if self.view.has_simulation or self.instead.is_simulated:
            self.instead.switch()
            self._begin_anew()

    def do_suspend(self) -> None:
        """Back to the shell, which lets the view go on."""
        with self.suspend():
            stop()

    def do_help(self) -> None:
        """Keys, colors and words."""
        self.put_above(partial(Help, page=self.page.name_shown))

    def do_commands(self) -> None:
        """All that can be done here, by its letters."""
        from gpumon_tui.screens.commands import Commands  # most sessions never need it

        self.put_above(partial(Commands, page=self.page.name_shown, pages=tuple(self._registered)))

    def do_attention(self) -> None:
        """Show what needs attention."""
        self.put_above(Attention)

    def _begin_anew(self) -> None:
        """Show another source, or another place of a recording, from now on."""
        self._newest, self._taken, self._latest = 0, 0, None
        self._waiting.clear()
        self.view.forget()
        self.news.forget()
        self._came = self._clock.monotonic()
        for page in self.pages.values():
            page.forget()
        self.poll()

    def _take_past(self, runs: Sequence[RunSummary]) -> None:
        self.view.past = runs
        with suppress(RuntimeError):  # the view has ended meanwhile
            self.call_from_thread(self.draw)

    def _draw_soon(self) -> None:
        """Draw again, from another thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the view has ended meanwhile
                self._loop.call_soon_threadsafe(self.draw)

    def _judge_freshness(self) -> bool:
        """Whether the screen shows another age now than before."""
        view = self.view
        silence = (self._clock.monotonic() - self._came) / SECOND
        behind = self._latest.time - view.frame.time if self._latest and view.frame else 0.0
        before = view.freshness
        view.freshness = freshness(
            state=view.state, origin=view.origin, frame=view.frame, paused=view.paused, silence=silence, behind=behind
        )
        view.has_simulation = self.instead.has_simulation and view.frame is not None and not view.samples
        offered = (("s", "back"),) if self.instead.is_simulated else OFFERED if view.has_simulation else ()
        if view.shown.is_past:
            offered = (("0", "to now"), *offered)
        if told := counted(view.findings()):
            offered = (*offered, ("a", told))
        self.footer.offered = (*offered, *self.page.offered)
        return before[:2] != view.freshness[:2] or before.seconds != view.freshness.seconds

    def _take_in(self) -> None:
        """Add waiting frames to the history, an hour of them in many small steps."""
        until = monotonic() + BUDGET
        while self._waiting and monotonic() < until:
            frame = self._waiting.popleft()
            self.view.history.add(frame)
            self.view.epochs.add(frame)
            self.view.activity.add(frame)
        was_filling, self.view.filling = self.view.filling, bool(self._waiting)
        if self._waiting:
            self.call_later(self._take_in)
        elif was_filling:
            self.draw()


def run(
    feed: FrameFeed,
    *,
    interval: float = 1.0, simulation: Simulation | None = None, past: Past | None = None, player: Player | None = None,
    ledgers: OpenLedgers | None = None,
    readonly: bool = False,
    read_events: OpenEvents | None = None,
    remembered: Remembered | None = None,
    notify: bool = False,
) -> int:  # fmt: skip
    """Show `feed` until the user quits, or until a signal or the end of the terminal ends it; the exit code.

    `readonly`: no signal is sent to a process.
    `notify`: the terminal is asked to notify of runs that end and GPUs that become free.
    Raises what crashed the view; the terminal is given back before.
    """
    gc.set_threshold(GARBAGE)
    app = GpumonApp(
        feed, interval=interval, simulation=simulation, past=past, player=player, ledgers=ledgers,
        read_events=read_events,
    )  # fmt: skip
    app.view.is_readonly = readonly
    encoding = sys.__stderr__.encoding if sys.__stderr__ is not None else ""
    app.view.remembered = remembered or app.view.remembered
    look = of_terminal(os.environ, app.console.color_system, encoding)
    app.view.look = look._replace(theme=THEMES.get(app.view.remembered.get("theme"), look.theme))
    app.news = TerminalNews(os.environ, app.write_aside, notifies=notify)
    gc.freeze()  # modules stay: to walk through them again and again would find nothing, and hold up the keys
    with Guard(app.end).watching():
        app.run()
    app.news.end(to_terminal)
    app.instead.close()
    app.view.remembered.close()
    if app.failure is not None:
        raise app.failure
    return app.return_code or 0
