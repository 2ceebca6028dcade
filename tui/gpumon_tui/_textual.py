"""All private names of Textual that the view uses; no other module contains one.

Each part below says why the public API does not suffice. Costs were measured with Textual 8. If the installed Textual
lacks a name, the view uses Textual's own code instead, which is slower or less smooth but shows the same. `missing`
returns the names that are absent or take other parameters.

- `TextualApp` holds frames back, writes escape sequences, and exits without a traceback.
- `CellDiffUpdate` sends only changed cells.
- `WaitingDriver` reads keys in a thread that sleeps.
"""

from __future__ import annotations

import os
import select
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from inspect import signature
from time import monotonic
from typing import Any

from rich.color import ColorSystem
from rich.console import Console, RenderableType
from textual.app import App
from textual.driver import Driver
from textual.messages import TerminalSupportsSynchronizedOutput
from textual.screen import Screen

from gpumon_tui.render.cells import CellWriter

try:
    from textual._compositor import ChopsUpdate, CompositorUpdate
    from textual._xterm_parser import XTermParser
    from textual.drivers.linux_driver import LinuxDriver
except ImportError:  # another Textual or another system: `missing` reports it, and nothing below is used
    ChopsUpdate = CompositorUpdate = XTermParser = LinuxDriver = object  # type: ignore[assignment,misc]

PrivateNames = Sequence[tuple[str, str, tuple[str, ...]]]
"""Module, name and required parameters."""
UPDATE_NAMES: PrivateNames = (
    ("textual._compositor", "CompositorUpdate.render_segments", ("console",)),
    ("textual._compositor", "ChopsUpdate", ("chops", "spans", "chop_ends")),
    ("textual.app", "App._display", ("screen", "renderable")),
)
"""Names used for updates of the screen."""
INPUT_NAMES: PrivateNames = (
    ("textual._xterm_parser", "XTermParser", ("debug",)),
    ("textual._xterm_parser", "XTermParser.feed", ("data",)),
    ("textual._xterm_parser", "XTermParser.tick", ()),
    ("textual.drivers.linux_driver", "LinuxDriver.run_input_thread", ()),
    ("textual.drivers.linux_driver", "LinuxDriver.disable_input", ()),
    ("textual.drivers.linux_driver", "LinuxDriver.process_message", ("message",)),
)
"""Names used for reading keys."""


def missing(names: PrivateNames = UPDATE_NAMES) -> list[str]:
    """Return the `names` that the installed Textual lacks or defines with other parameters."""
    return [f"{module}.{name}" for module, name, parameters in names if not _has(module, name, parameters)]


def _has(module: str, name: str, parameters: Sequence[str]) -> bool:
    try:
        member: Any = import_module(module)
        for part in name.split("."):
            member = getattr(member, part)
        return set(parameters) <= set(signature(member).parameters)
    except (ImportError, AttributeError, TypeError, ValueError):
        return False


MAX_HOLD = 1.0
"""Maximum seconds to keep the old screen while a page is laid out again."""


class TextualApp(App[None]):
    """A Textual app that can hold frames back, write escape sequences, and exit without a traceback."""

    def __init__(self) -> None:
        super().__init__(ansi_color=True)  # colors are already converted for the terminal
        self._is_holding = False
        self._convert_update = partial_updates()

    def get_driver_class(self) -> type[Driver]:
        """Return Textual's driver class, with a key thread that sleeps."""
        return waiting_driver(super().get_driver_class())

    @property
    def failure(self) -> Exception | None:
        """The exception that crashed the view, or None. Textual has no public name for it."""
        return getattr(self, "_exception", None)

    def end_before_start(self, code: int) -> None:
        """Exit with the given code as soon as the app starts: `App.exit` works only while it runs."""
        self._exit, self._return_code = True, code

    def write_escape(self, text: str) -> bool:
        """Write an escape sequence that draws nothing, after everything drawn so far.

        `App` has no method for this, and printing would mix with Textual's output thread. Without a driver the sequence
        is dropped, and False is returned.
        """
        driver = getattr(self, "_driver", None)
        if driver is None:
            return False
        driver.write(text)
        return True

    def _fatal_error(self) -> None:
        """Exit without Textual's traceback, which would print local variables, including process names of other
        users. There is no public hook; a Textual without this name prints its traceback.
        """
        self._close_messages_no_wait()

    def panic(self, *_: RenderableType) -> None:
        """Exit without a traceback, for example when the terminal can no longer be read."""
        self._return_code = 1
        self._close_messages_no_wait()

    def hold_until(self, is_drawn: Callable[[], bool]) -> None:
        """Keep the current screen until `is_drawn` is true, for at most `MAX_HOLD` seconds.

        `App.batch_update` would also delay the layout that is waited for.
        """
        if not self._is_holding:
            self._is_holding = True
            self.call_later(self._check_hold, is_drawn, monotonic() + MAX_HOLD)

    def _check_hold(self, is_drawn: Callable[[], bool], deadline: float) -> None:
        if is_drawn() or monotonic() > deadline:
            self._is_holding = False
            self.refresh(layout=True)
        else:
            self.set_timer(0.005, partial(self._check_hold, is_drawn, deadline))

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        """Send an update to the terminal, unless frames are held back. A Textual without this name shows all."""
        if not self._is_holding:
            super()._display(screen, self._convert_update(renderable))


def partial_updates(names: PrivateNames = UPDATE_NAMES) -> Callable[[RenderableType | None], Any]:
    """Return a function that converts every update before it is sent to the terminal; the identity if a part is
    missing.
    """
    return _unchanged if missing(names) else cell_diff


def _unchanged(renderable: RenderableType | None) -> RenderableType | None:
    return renderable


def cell_diff(renderable: RenderableType | None) -> Any:
    """Return a partial update that sends only changed cells; anything else is returned unchanged."""
    return CellDiffUpdate(renderable) if isinstance(renderable, ChopsUpdate) else renderable


def _console_colors(console: Console) -> ColorSystem:
    """Return the color system of a console; its public property is only a name."""
    return getattr(console, "_color_system", None) or ColorSystem.TRUECOLOR


class CellDiffUpdate(CompositorUpdate):
    """A partial update in which each range starts at its own first cell.

    Textual starts each range at the first cell of its widget. On a line of cards that is most of the line, and thus
    most of the output.
    """

    def __init__(self, update: ChopsUpdate) -> None:
        self._update = update

    def render_segments(self, console: Console) -> str:
        """Return the escape sequences and text for the terminal."""
        update, writer = self._update, CellWriter(_console_colors(console))
        for row, begin, end in update.spans:
            for right, (left, strip) in zip(update.chop_ends[row], update.chops[row].items(), strict=False):
                if strip is None or left >= end or right <= begin:
                    continue
                first, last = max(left, begin), min(right, end)
                writer.write(row, first, ((text, style) for text, style, _ in strip), first - left, last - left)
        return writer.output()


def waiting_driver(driver: type[Driver], names: PrivateNames = INPUT_NAMES) -> type[Driver]:
    """Return the driver class that blocks while waiting for keys, if `driver` is Textual's Linux driver; otherwise
    `driver`.
    """
    is_linux_driver = driver.__module__ == "textual.drivers.linux_driver"
    if not is_linux_driver or sys.platform != "linux" or missing(names):  # elsewhere terminals cannot be polled
        return driver
    return WaitingDriver


POLL_MS = 100
"""Polling interval in milliseconds while an unfinished escape sequence may be a key of its own."""
_CHUNK = 4096
_ANSWERS = frozenset(b"\x1b[?2026;%d$y" % mode for mode in (1, 2, 3, 4))
"""Answers of terminals that know synchronized output; parsing one cost as much as drawing a row."""


class WaitingDriver(LinuxDriver):
    """Textual's driver with a key thread that blocks.

    Textual's key thread wakes up ten times a second to check whether it should stop and whether an escape is a key of
    its own; this took a tenth of the view's CPU time when idle.
    """

    def __init__(self, *values: Any, **named: Any) -> None:
        super().__init__(*values, **named)
        self._wake_read, self._wake_write = os.pipe()

    def disable_input(self) -> None:
        """Stop the key thread, before the terminal is restored."""
        if self._key_thread is not None and self._key_thread.is_alive():
            os.write(self._wake_write, b"\0")
        super().disable_input()

    def run_input_thread(self) -> None:
        """Forward terminal input until the thread is stopped."""
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        poller = select.poll()
        poller.register(self._wake_read, select.POLLIN)
        poller.register(self.fileno, select.POLLIN)
        while True:
            has_begun = getattr(parser, "_timeout_time", POLL_MS) is not None
            ready = [descriptor for descriptor, _ in poller.poll(POLL_MS if has_begun else None)]
            if self._wake_read in ready:
                os.read(self._wake_read, _CHUNK)
                return
            data = self._read() if ready else None
            if data in _ANSWERS and not has_begun:
                self.process_message(TerminalSupportsSynchronizedOutput())  # the query follows each frame
            elif data == b"":
                poller.unregister(self.fileno)  # the terminal is gone; `terminal_guard` ends the view
            elif data:
                for message in parser.feed(decode(data)):
                    self.process_message(message)
            for message in parser.tick():
                self.process_message(message)

    def _read(self) -> bytes:
        """Return the available bytes; empty if the terminal is gone."""
        try:
            return os.read(self.fileno, _CHUNK)
        except OSError:
            return b""
