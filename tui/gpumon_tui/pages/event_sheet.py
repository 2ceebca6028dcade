"""The sheet of the page of events: which rows stand there, the cursor in them, and the lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from operator import attrgetter

from rich.segment import Segment
from textual import events
from textual.message import Message

from gpumon import units
from gpumon.origin import Capability
from gpumon_tui import palette
from gpumon_tui.memo import Memo
from gpumon_tui.pages.page import TerminalPage
from gpumon_tui.pages.process_typing import FilterField
from gpumon_tui.renderables.event_lines import (
    STRIP_FROM,
    EventHead,
    EventPlace,
    columns,
    day,
    edge,
    head,
    heading,
    row_line,
)
from gpumon_tui.renderables.event_rows import ALL, GROUPS, EventRow, is_of, joined, matching, rows_of
from gpumon_tui.renderables.text_width import Line, fit, safe
from gpumon_tui.view import View
from gpumon_tui.widgets.lines import Lines

_DIM, _KEY, _WARN = palette.ink("dim"), palette.ink("key"), palette.ink("warn")
_ROOMY = 24
"""Rows from which blank ones stand between the parts."""
_DAY_FROM = 20
"""Rows from which the day is drawn."""


class EventChosen(Message):
    """An event is to be shown on the chart."""


class EventSheet(Lines):
    """All of the page."""

    DEFAULT_CSS = "EventSheet { height: 1fr; }"

    def __init__(self, view: View) -> None:
        super().__init__(view, id="event-sheet")
        self.filter = ""
        self.group = ALL
        self.gpu = ""
        """Number of the GPU whose events are shown; empty for all."""
        self.cursor = 0
        self.rows: Sequence[EventRow] = ()
        self.problem = ""
        """Why there is no log; empty where there is one."""
        self.page = 1
        """Rows of the table on screen."""
        self.typing = FilterField(self)
        self._all: Sequence[EventRow] = ()
        self._counts: Counter[str] = Counter()
        self._of: Hashable = None
        self._chosen_of: Hashable = None
        self._logged: object = None
        self._top = 0
        self._first = 0
        self._places: Sequence[EventPlace] = ()
        self._drawn: Memo[Line] = Memo()
        self._head: Memo[tuple[Line, list[EventPlace]]] = Memo()
        self._day: Memo[list[Line]] = Memo()

    @property
    def row(self) -> EventRow | None:
        """The one under the cursor."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def move(self, step: int) -> None:
        """Move the cursor, and select its GPU."""
        self.cursor = max(0, min(len(self.rows) - 1, self.cursor + step))

    def next_alike(self, step: int) -> None:
        """Move to the next event of the same kind, if there is one."""
        row = self.row
        place = self.cursor + step
        while row and 0 <= place < len(self.rows):
            if self.rows[place].event.kind == row.event.kind:
                self.cursor = place
                return
            place += step

    def next_group(self, step: int) -> None:
        """Show another group."""
        names = [name for name in GROUPS if self._counts[name] or name in (ALL, self.group)]
        self.group = names[(names.index(self.group) + step) % len(names)]

    def next_gpu(self, step: int) -> None:
        """Show the events of another GPU, or of all again."""
        labels = ["", *[sample.device.label for sample in self.view.samples]]
        place = labels.index(self.gpu) if self.gpu in labels else 0
        self.gpu = labels[(place + step) % len(labels)]

    def show_all(self) -> None:
        """Take back the filter; then the group and the GPU."""
        if self.filter:
            self.filter = ""
        else:
            self.group, self.gpu = ALL, ""

    def follow(self) -> None:
        """Take what is known by now. The cursor stays on its event; on the newest, it stays there."""
        view, happened = self.view, self.view.happened
        seen = happened.all_seen()
        is_here = Capability.LIVE in view.origin.capabilities
        answer = happened.logged(view.history_file) if is_here else None
        logged = (answer.found if answer else None) or ()
        labels = {sample.device.uuid: sample.device.label for sample in view.samples}
        of = (tuple(labels.items()), len(seen), seen[-1:])
        if of != self._of or logged is not self._logged:
            self._of, self._logged = of, logged
            self._all = rows_of(joined(logged, seen), labels)
            self._counts = Counter({name: sum(is_of(row, name) for row in self._all) for name in GROUPS})
            self._chosen_of = None
        self.problem = self._why(is_here, answer.problem if answer else "", answer is None or answer.found is None)
        chosen_of = self.filter, self.group, self.gpu
        if chosen_of != self._chosen_of:
            key = self.row.key if self.row and self.cursor else None
            self._chosen_of = chosen_of
            self.rows = matching(self._all, self.group, self.gpu, self.filter)
            keys = map(attrgetter("key"), self.rows)
            self.cursor = next((place for place, one in enumerate(keys) if one == key), 0) if key else 0

    def _why(self, is_here: bool, problem: str, is_missing: bool) -> str:
        """Why the log is not among the rows."""
        if not is_here:
            return "these values are not of this machine, and no log is kept of them"
        if problem:
            return problem
        if not self.view.happened.can_read:
            return "no event log here"
        return "reading the log" if is_missing else ""

    def lines(self) -> list[Line]:
        """Title, the day, headings, rows, and where they end."""
        cells, height = self.size
        self.follow()
        view, rows, side = self.view, self.rows, edge(cells)
        of = EventHead(
            shown=len(rows), there=len(self._all), group=self.group, counts=dict(self._counts), gpu=self.gpu,
            text=self.filter, is_typed=self.typing.is_typed,
        )  # fmt: skip
        title, self._places = self._head.get(0, (of, cells), lambda: head(of, cells))
        blank: list[Line] = [[]] if height >= _ROOMY else []
        lines: list[Line] = [title, *blank]
        if height >= _DAY_FROM and cells >= STRIP_FROM:
            shows = (id(rows), len(rows), rows[:1], int(view.now // 900), cells)
            lines += [*self._day.get(0, shows, lambda: day(rows, view.now, cells)), *blank]
        if self.problem:
            since = _since(view.happened.since) if self._all else ""
            lines.append([Segment(fit(" " * side + safe(f"{since}{self.problem}"), cells), _WARN)])
        room = columns(cells)
        lines.append(heading(room, cells))
        self._first = len(lines)
        self.page = max(1, height - len(lines) - 1)
        most = max(0, len(rows) - self.page)
        self._top = max(0, min(self._top, self.cursor, most), self.cursor - self.page + 1)
        shown = range(self._top, min(self._top + self.page, len(rows)))
        me = view.process_facts().me
        for place in shown:
            row, chosen = rows[place], place == self.cursor
            own = bool(me) and row.user == me
            look = row, cells, chosen, own, int(view.now // 86400)
            lines.append(self._drawn.get(place - self._top, look, lambda look=look: row_line(  # type: ignore[misc]
                look[0], room, cells, view.now, chosen=look[2], own=look[3])))  # fmt: skip
        if not rows:
            lines += [[Segment(" " * side + text, _DIM)] for text in self._empty()]
        below = len(rows) - shown.stop
        if below > 0:
            lines.append([Segment(fit(f"+{below} ▼", cells - side, right=True), _KEY)])
        return lines[:height]

    def _empty(self) -> list[str]:
        """Sentences in the place of rows."""
        if self._all:
            return [f"no event matches: of {len(self._all)}, all are hidden", "Esc shows all"]
        return ["nothing has happened" + (" since the view began" if self.problem else "")]

    def on_click(self, event: events.Click) -> None:
        """Take the row under the mouse, open it where it is taken already, or do what stands there."""
        if event.y == 0:
            for begin, end, group in self._places:
                if begin <= event.x < end:
                    if group:
                        self.group = group
                    else:
                        self.typing.begin()
        elif self._first <= event.y < self._first + self.page:
            place = event.y - self._first + self._top
            if place < len(self.rows):
                if place == self.cursor:
                    self.post_message(EventChosen())
                self.cursor = place
        self.post_message(TerminalPage.Changed())

    def on_mouse_scroll_down(self) -> None:
        """Three rows, as elsewhere."""
        self.move(3)
        self.show()

    def on_mouse_scroll_up(self) -> None:
        """Three rows, as elsewhere."""
        self.move(-3)
        self.show()


def _since(time: float) -> str:
    """The begin of what is known without a log."""
    return f"only since {units.clock(time)}: " if time else ""
