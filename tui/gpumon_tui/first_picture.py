"""The first picture, written before Textual is imported, which costs more than all else at the start.

It is what the view shows first, cell by cell: of the same queries, in the same look. Only the overview is drawn so, and
only where there is a frame: else the view's own first picture is the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import NamedTuple

from rich.color import ColorSystem

from gpumon.common.clock import SECOND
from gpumon.model.origin import Capability
from gpumon_tui.feed import FrameFeed
from gpumon_tui.freshness import freshness
from gpumon_tui.instead import RestartDaemon
from gpumon_tui.keys import OVERVIEW, PAGES, offered
from gpumon_tui.look import TerminalLook, of_terminal
from gpumon_tui.pictures.bars import FooterPicture, HeaderPicture, ReasonPicture, offered_now
from gpumon_tui.pictures.overview import OverviewPicture
from gpumon_tui.pictures.picture import Picture, Room
from gpumon_tui.pictures.style_cache import StyleCache
from gpumon_tui.remembered import Remembered
from gpumon_tui.restarting import DaemonRestart
from gpumon_tui.textual_private.pen import Pen
from gpumon_tui.themes import BY_NAME as THEMES
from gpumon_tui.view import TAKES, View

FEWEST, MOST = Room(20, 6), Room(600, 300)
"""Sizes of a terminal between which a first picture is drawn."""
_COLORS = {"256color": ColorSystem.EIGHT_BIT, "kitty": ColorSystem.EIGHT_BIT}
_HIDDEN = "\x1b[?2026h", "\x1b[?2026l"
"""Around what is to appear at once."""


class FirstTerminal(NamedTuple):
    """The terminal for which a first picture is drawn."""

    size: Room
    colors: ColorSystem
    look: TerminalLook


def first_terminal(env: Mapping[str, str], encoding: str, theme: str, size: tuple[int, int]) -> FirstTerminal:
    """Return what the environment tells of a terminal, as Rich reads it."""
    if env.get("COLORTERM", "").strip().lower() in ("truecolor", "24bit"):
        colors = ColorSystem.TRUECOLOR
    else:
        colors = _COLORS.get(env.get("TERM", "").strip().lower().rpartition("-")[2], ColorSystem.STANDARD)
    look = of_terminal(env, colors.name.lower(), encoding)
    return FirstTerminal(Room(*size), colors, look._replace(theme=THEMES.get(theme, look.theme)))


def first_view(
    feed: FrameFeed, look: TerminalLook, remembered: Remembered, *, interval: float, has_simulation: bool = False
) -> View:
    """Return the state of the view with what the feed has."""
    view = View(interval)
    view.look, view.remembered = look, remembered
    view.begin_as_before()
    view.origin, view.driver, view.hostname, view.state = feed.origin(), feed.driver(), feed.hostname(), feed.state()
    view.history_path = feed.history_file()
    view.history.look_in(view.history_path)
    frames = feed.since(0)
    if not frames:
        return view
    view.happened.add(frames, view.origin, view.driver)
    view.frame = frames[-1]
    until = monotonic() + TAKES
    for frame in frames:
        if monotonic() >= until:
            view.filling = True
            view.last_minutes.take(frames)
            break
        view.add(frame)
    silence = 0.0
    if Capability.LIVE in view.origin.capabilities:
        silence = max(silence, monotonic() - view.frame.monotonic_ns / SECOND)
    view.freshness = freshness(view.state, view.origin, view.frame, paused=False, silence=silence)
    view.has_simulation = has_simulation and not view.samples
    return view


def first_picture(view: View, terminal: FirstTerminal, restart: RestartDaemon | None = None) -> str:
    """Return the whole screen for the terminal; nothing where the view begins with something else."""
    cells, rows = terminal.size
    is_sane = all(least <= size <= most for least, size, most in zip(FEWEST, terminal.size, MOST, strict=True))
    if view.frame is None or not is_sane:
        return ""
    asked = DaemonRestart(view, lambda: None)
    asked.by = restart
    foot = FooterPicture(view, PAGES)
    foot.page, foot.bindings = OVERVIEW, offered(OVERVIEW)
    foot.offered = offered_now(view, OVERVIEW, can_restart=asked.is_offered)
    sheet = _Sheet(view, terminal)
    top = 1 + bool(view.freshness.reason)
    room = max(1, rows - 1 - top)
    overview = OverviewPicture(view)
    plan = overview.plan(cells, room)
    sheet.put(HeaderPicture(view), (0, 0), Room(cells, 1), "panel")
    if top > 1:
        sheet.put(ReasonPicture(view), (0, 1), Room(cells, 1), "ground")
    sheet.clear(range(top, top + room))
    is_old = view.age > 0
    for part, place in zip(overview.parts, plan, strict=True):
        if place.rows > 0:
            sheet.put(part, (place.x, top + place.y), Room(place.cells, place.rows), "ground", is_old=is_old)
    foot.withheld = overview.withheld(plan)
    sheet.put(foot, (0, rows - 1), Room(cells, 1), "panel")
    return sheet.pen.written().join(_HIDDEN)


class _Sheet:
    """The screen, on which pictures are put."""

    def __init__(self, view: View, terminal: FirstTerminal) -> None:
        self.pen = Pen(terminal.colors)
        self._view = view
        self._cells = terminal.size.width

    def clear(self, rows: range) -> None:
        """Paint the ground of some rows."""
        blank = [(" " * self._cells, StyleCache(self._view, "ground")[None])]
        for row in rows:
            self.pen.write(row, 0, blank, 0, self._cells)

    def put(self, picture: Picture, at: tuple[int, int], room: Room, ground: str, *, is_old: bool = False) -> None:
        """Write a picture at a column and a row."""
        picture.size = room
        styles = StyleCache(self._view, ground)
        styles.faded = is_old
        lines = picture.lines()
        for row in range(room.height):
            line = lines[row] if row < len(lines) else []
            self.pen.write(at[1] + row, at[0], styles.pieces(line, room.width), 0, room.width)
