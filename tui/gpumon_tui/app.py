"""The Textual application: polls the feed, updates the state and redraws the pages."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from textual import events
from textual.actions import ActionParseResult
from textual.dom import DOMNode
from textual.geometry import Size

from gpumon.common.clock import SECOND, Clock, SystemClock
from gpumon.model.frame import Frame
from gpumon.model.origin import Capability
from gpumon_tui.appearance import Appearance
from gpumon_tui.chart_window import ReturnTarget
from gpumon_tui.data.events import EventHistory, OpenEvents
from gpumon_tui.data.run_ledger import LedgerRuns, OpenLedgers
from gpumon_tui.feed import FindDaemon, FrameFeed, FrameSource, Past, Player, PollTimer, Simulation
from gpumon_tui.frame_queue import FrameQueue, SeekState
from gpumon_tui.freshness import END, freshness
from gpumon_tui.keybindings import OVERVIEW, PAGE_CLASSES, PAGES, action_name, page_keys, press_key
from gpumon_tui.screens.findings import FindingsWindow
from gpumon_tui.screens.help import HelpWindow
from gpumon_tui.screens.page import TerminalPage, page_class
from gpumon_tui.screens.window import ModalWindow, paint_ground
from gpumon_tui.state import RECENT_FRAMES, View
from gpumon_tui.terminal_app import TerminalApp
from gpumon_tui.terminal_guard import suspend_job
from gpumon_tui.theme import next_theme
from gpumon_tui.widgets.bars import KEY_NAMES, Footer, state_keys
from gpumon_tui.widgets.filter_field import one_line

if TYPE_CHECKING:
    from gpumon.storage.ledger.records import RunSummary


_DRAW_DELAY = 0.05
"""Answers of the background thread that arrive within this many seconds are drawn together."""

KEYS_WHILE_TYPING = ("ctrl+c", "ctrl+q", "ctrl+z")
"""Keys that keep their meaning while text is typed."""


class GpumonApp(TerminalApp):
    """The terminal application. With `live=False` the caller polls the feed itself (for tests).

    `simulation` and `past` are used on machines without a readable GPU.
    """

    DEFAULT_MODE = OVERVIEW

    def __init__(
        self, feed: FrameFeed, *, interval: float = 1.0, live: bool = True, clock: Clock | None = None,
        simulation: Simulation | None = None, past: Past | None = None, player: Player | None = None,
        ledgers: OpenLedgers | None = None, read_events: OpenEvents | None = None,
        pages: Mapping[str, str] = PAGE_CLASSES, appearance: Appearance | None = None, daemon: FindDaemon | None = None,
    ) -> None:  # fmt: skip
        super().__init__(View(interval), appearance)
        self.source = FrameSource(feed, simulation, past, daemon)
        self.interval = interval
        self.view.ledger_runs = LedgerRuns(ledgers, self._now)
        self.view.ledger_runs.is_simulation = lambda: self.source.is_simulated
        self.view.ledger_runs.queries.on_answer = self._draw_soon
        self.seek_state = SeekState(self.view, player)
        self.view.ledger_runs.queries.is_paused = self.seek_state.is_holding
        self.view.events = EventHistory(self.view.ledger_runs.queries, read_events)
        self._player = self.view.player = player
        self._live = live
        self._clock = clock or SystemClock()
        self._last_arrival = self._clock.monotonic()
        self._poll_timer = PollTimer(min(interval, 0.5))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._newest = self._processed = 0
        self.view.recent_frames = lambda: self.source.feed.since(max(0, self._newest - RECENT_FRAMES))
        self._latest: Frame | None = None
        self._answered_at = 0.0
        """Monotonic time at which the last background answer was drawn."""
        self._is_draw_scheduled = False
        """True while a delayed redraw for further answers is scheduled."""
        self._state_keys: Sequence[tuple[str, str]] = ()
        self.frame_queue = FrameQueue(self.view)
        self._page_classes = pages
        for name in pages:
            self.add_mode(name, partial(self._make_page, name))

    @property
    def page(self) -> TerminalPage:
        """The current page, which may be below a window."""
        return self.pages[self.current_mode]

    def _make_page(self, name: str) -> TerminalPage:
        """Create a page when it is opened for the first time."""
        page = self.pages[name] = page_class(name, self._page_classes)(self.view)
        page.footer.pages = tuple(self._page_classes)
        paint_ground(page, self.view.appearance)
        return page

    def on_mount(self) -> None:
        """Start with the frames the feed already has."""
        self._loop = asyncio.get_running_loop()
        self.query_width()
        self.view.restore_window()
        self.hold_until(lambda: self.page.is_laid_out)
        self.poll()
        if self._live:
            self.set_timer(min(self.interval, 0.5), self._poll_again)

    def _poll_again(self) -> None:
        """Poll the feed and schedule the next poll."""
        self.poll()
        newest = self._latest.monotonic_ns if self._latest else 0
        self.set_timer(
            self._poll_timer.wait(newest, self.view.state.interval, self._clock.monotonic()), self._poll_again
        )

    def poll(self) -> None:
        """Read new frames and redraw, unless the terminal is still busy with earlier output."""
        view, feed, player = self.view, self.source.feed, self._player
        if problem := view.preferences.pop_problem():
            view.show_message(problem)
        if view.expire_message(monotonic()):
            self.page.footer.show()
        if self.seek_state.has_arrived(feed):
            self._restart()
            view.paused = bool(player and player.is_paused)
            self.draw()
            return
        if self.seek_state.is_seeking:
            self.draw()
            return
        if not view.paused and (source_message := self.source.check_source(self._clock.monotonic() / SECOND)):
            subject = view.chosen_subject
            self._restart()
            view.select(subject)
            view.show_message(source_message)
            self.draw()
            return
        view.origin, view.driver = feed.origin(), feed.driver()
        view.hostname, view.state = feed.hostname(), feed.state()
        view.history_path = feed.history_file()
        view.history.set_path(view.history_path)
        view.events.set_writer(feed.writer())
        frames = self.source.since(self._newest)
        if frames:
            self._last_arrival = self._clock.monotonic()
            self._newest = frames[-1].number
            self._latest = frames[-1]
            # While paused, the feed buffers new frames. A paused recording stops producing frames itself.
            if not view.paused or (player and player.is_paused):
                self._processed = self._newest
                view.events.add(frames, view.origin, view.driver, () if view.is_loading else view.statuses, view.now)
                if view.frame is None and not frames[-1].samples:
                    self.source.read_past(self._show_past)
                self.frame_queue.add(frames)
        self._process_queue()
        if view.is_loading:
            view.recent_activity.add(frames)
        has_aged = self._update_freshness()
        self.notifier.update(view)
        if not has_aged and not frames and view.frame is not None:
            self.page.header.show()
            self.page.reason.show()
        elif self.flow.is_ready(monotonic()):
            self._paint()
            self.call_after_refresh(self.request_reply)

    def end(self, code: int) -> None:
        """Exit with the given code; safe to call from a signal handler or another thread."""
        if self._loop is None:
            self.end_before_start(code)
            return
        with suppress(RuntimeError):  # the event loop has already ended
            self._loop.call_soon_threadsafe(self.exit, None, code)

    def draw(self) -> None:
        """Redraw the current state."""
        self._update_freshness()
        self._paint()

    def _paint(self) -> None:
        if not self.screen_stack:  # shutting down
            return
        page = self.page
        page.reason.display = bool(self.view.freshness.reason)
        was_laid_out = page.is_laid_out
        page.lay_out(self._room(self.size))
        if was_laid_out and not page.is_laid_out:  # layout changed: wait for it before drawing
            self.hold_until(lambda: page.is_laid_out)
        page.header.show()
        page.reason.show()
        page.show()
        page.footer.extra_keys = (*self._state_keys, *page.extra_keys)  # drawing the page may change its keys
        page.footer.hidden_keys = page.hidden_keys | self._ineffective_keys
        page.footer.show()
        if isinstance(self.screen, ModalWindow) and self.screen.follows:
            self.screen.show()

    @property
    def _ineffective_keys(self) -> frozenset[str]:
        """Displayed names of the keys that currently have no effect on any page, such as pause once a recording has
        ended.
        """
        if self.view.paused or self.view.freshness.edge != END:
            return frozenset()
        return frozenset(key.key_display or "" for key in page_keys(self.page.page_name) if action_name(key) == "pause")

    def on_resize(self, event: events.Resize) -> None:
        """Recompute the layout before the widgets receive their new sizes."""
        self.page.lay_out(self._room(event.size))

    def _room(self, size: Size) -> Size:
        return Size(size.width, max(1, size.height - 2 - self.page.reason.display))

    async def on_event(self, event: events.Event) -> None:
        """Handle keys and pasted text here, in the order in which they were typed.

        Textual forwards them through the queue of the screen or of the focused widget. After a key that opens a page or
        a window, the next one would take another queue, and might overtake those before it.
        """
        if isinstance(event, events.Key):
            await self._handle_key(event)
        elif isinstance(event, events.Paste):
            self._receiver.paste(one_line(event.text))
            self.draw()
        else:
            await super().on_event(event)

    @property
    def _receiver(self) -> TerminalPage | ModalWindow:
        """The page or window that receives keys."""
        screen = self.screen
        return screen if isinstance(screen, ModalWindow) else self.page

    async def _handle_key(self, press: events.Key) -> None:
        receiver = self._receiver
        if press.key not in KEYS_WHILE_TYPING and receiver.take_key(press):
            self.draw()
        elif not await press_key(self.screen, press.key) and isinstance(receiver, ModalWindow):
            receiver.on_unbound_key()

    async def run_action(
        self, action: str | ActionParseResult, default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:  # fmt: skip
        """Run an action, and draw its effect."""
        self.view.message = ""  # clear the message of the previous key
        was_run = await super().run_action(action, default_namespace, namespaces)
        self.draw()
        return was_run

    async def on_footer_pressed(self, message: Footer.Pressed) -> None:
        """Handle a click on a key or page name in the footer."""
        await press_key(self.screen, message.key)

    def on_terminal_page_changed(self, message: TerminalPage.Changed) -> None:
        """Redraw after a page reported a change."""
        self.draw()

    def on_terminal_page_open_requested(self, message: TerminalPage.OpenRequested) -> None:
        """Open the page that another page links to."""
        self.action_open_page(message.number, message.return_target)
        if message.opens:
            self.page.open_selected()
        self.draw()

    async def on_terminal_page_key_clicked(self, message: TerminalPage.KeyClicked) -> None:
        """Handle a click on a key shown in a page."""
        await press_key(self.screen, KEY_NAMES.get(message.key, message.key))

    def action_open_page(self, number: int, return_target: ReturnTarget | None = None) -> None:
        """Open another page, keeping the selected GPU and run."""
        name = PAGES[number - 1]
        if name not in self._page_classes or isinstance(self.screen, ModalWindow):
            return
        if name != self.current_mode:
            self.switch_mode(name)
        page = self.page
        self.view.may_show_past, self.view.return_target = page.has_past, return_target
        page.lay_out(self._room(self.size))
        self.hold_until(lambda: page.is_laid_out)

    def action_pause(self) -> None:
        """Pause the view, or resume with the newest frame. A recording is paused as well, unless it has ended."""
        self.view.paused = not (self.view.paused or self._ineffective_keys)
        if self._player and self._player.can_pause:
            self._player.is_paused = self.view.paused
        if not self.view.paused:
            self._newest = self._processed
            self.poll()
            if not self.view.plays_recording:
                self.view.frame = self._latest  # works even if the feed has gone away in the meantime

    def action_seek(self, seconds: int) -> None:
        """Move a recording by a number of seconds."""
        self.seek_state.seek(seconds)

    def action_theme(self) -> None:
        """Switch to the next theme."""
        theme = next_theme(self.view.appearance.theme)
        self.set_appearance(self.view.appearance._replace(theme=theme))
        self.view.preferences.set("theme", theme.name)
        self.view.show_message(f"theme: {theme.name}")

    def action_simulate(self) -> None:
        """Switch between the simulation and this machine; offered on machines without a GPU."""
        if self.view.has_simulation or self.source.is_simulated:
            self.source.toggle_simulation()
            self._restart()

    def action_redraw(self) -> None:
        """Redraw the whole screen, for example after another program wrote over it."""
        self.refresh(layout=True)

    def action_suspend(self) -> None:
        """Suspend to the shell (Ctrl-Z)."""
        with self.suspend():
            suspend_job()

    def action_help(self) -> None:
        """Show the help: keys, colors and terms."""
        self.open_window(partial(HelpWindow, page=self.page.page_name))

    def action_commands(self) -> None:
        """Open the command palette."""
        from gpumon_tui.screens.commands import CommandWindow  # imported late: most sessions never use it

        self.open_window(partial(CommandWindow, page=self.page.page_name, pages=tuple(self._page_classes)))

    def action_attention(self) -> None:
        """Show the findings."""
        self.open_window(FindingsWindow)

    def _restart(self) -> None:
        """Discard the state of the previous source or recording position and start over."""
        self._newest, self._processed, self._latest = 0, 0, None
        self.frame_queue.forget()
        self.view.forget()
        self.view.ledger_runs.forget()
        self.notifier.forget()
        self._last_arrival = self._clock.monotonic()
        for page in self.pages.values():
            page.forget()
        self.poll()

    def _show_past(self, runs: Sequence[RunSummary]) -> None:
        self.view.past_runs = runs
        with suppress(RuntimeError):  # the app has ended in the meantime
            self.call_from_thread(self.draw)

    def _now(self) -> float:
        """Reference time (s since 1970) for the age of runs; a recording uses its own clock."""
        view = self.view
        return view.now if self._player and view.frame is not None else self._clock.time() / SECOND

    def _draw_soon(self) -> None:
        """Schedule a redraw; called from another thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the app has ended in the meantime
                # as a message of the app, so that an error in it ends the app like an error in any other message
                self._loop.call_soon_threadsafe(self.call_later, self._draw_answer)

    def _draw_answer(self) -> None:
        """Redraw now, or together with answers arriving shortly: a list queries each of its rows separately."""
        wait = self._answered_at + _DRAW_DELAY - monotonic()
        if wait <= 0:
            self._answered_at = monotonic()
            self.draw()
        elif not self._is_draw_scheduled:
            self._is_draw_scheduled = True
            self.set_timer(wait, self._draw_scheduled)

    def _draw_scheduled(self) -> None:
        self._is_draw_scheduled, self._answered_at = False, monotonic()
        self.draw()

    def _update_freshness(self) -> bool:
        """Update the freshness; return whether the displayed state or age has changed."""
        view = self.view
        silence = self._silence()
        behind = (
            self._latest.time - view.frame.time if self._latest and view.frame and not view.plays_recording else 0.0
        )
        previous = view.freshness
        writer = self.source.feed.writer()
        is_of_daemon = writer is not None and writer.pid != os.getpid()
        current = freshness(
            view.state, view.origin, view.frame, view.paused, silence, behind,
            remedy="try 'gpumon daemon restart'" if is_of_daemon else "",
        )  # fmt: skip
        view.freshness = self.seek_state.adjust(current)
        view.has_simulation = self.source.has_simulation and view.frame is not None and not view.samples
        self._state_keys = state_keys(
            view, self.page.page_name, is_simulated=self.source.is_simulated,
            can_seek=bool(self._player and self._player.can_seek),
        )  # fmt: skip
        return previous[:2] != view.freshness[:2] or previous.seconds != view.freshness.seconds

    def _silence(self) -> float:
        """Return the seconds since the feed's last new frame."""
        if self._player:  # a recording has no driver that could be silent
            return 0.0
        now, arrived, latest = self._clock.monotonic(), self._last_arrival, self._latest
        if now - arrived > self.view.state.interval * SECOND and (newer := self.source.feed.since(self._newest)):
            arrived, latest = now, newer[-1]  # frames are waiting: the view is late, not the feed
        silence = (now - arrived) / SECOND
        if latest is not None and Capability.LIVE in self.view.origin.capabilities:
            silence = max(silence, (now - latest.monotonic_ns) / SECOND)  # measured with this machine's monotonic clock
        return silence

    def _process_queue(self) -> None:
        """Process waiting frames step by step, and redraw after the last."""
        if self.frame_queue.process():
            self.draw()
        elif self.frame_queue.is_behind:
            self.call_later(self._process_queue)
