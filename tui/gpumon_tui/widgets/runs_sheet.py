"""All of the page of runs as lines: the list, the opened run below or in its place, or a comparison."""

from __future__ import annotations

import os

from rich.segment import Segment
from textual import events

from gpumon_tui import theme
from gpumon_tui.memo import Memo
from gpumon_tui.renderables import run_compared
from gpumon_tui.renderables.section import keys, margin, section
from gpumon_tui.renderables.text_width import Line, cut, safe
from gpumon_tui.view import View
from gpumon_tui.widgets.lines import Lines
from gpumon_tui.widgets.opened_run import CURVES_FROM, OpenedRun
from gpumon_tui.widgets.run_picker import HEAD, RunPicker

BOTH_FROM = 36
"""Rows from which the list stays above the opened run."""
AIRY_FROM = 30
"""Rows from which a line is left empty below the header."""
WHEEL = 3


class RunsSheet(Lines):
    """Keys go to the list, to the opened run, or to a comparison: to the innermost."""

    DEFAULT_CSS = "RunsSheet { height: 1fr; }"

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.forget()

    def forget(self) -> None:
        """Begin anew, as on another machine."""
        self.list = RunPicker(self.view)
        self.opened = OpenedRun(self.view)
        self.in_list = True
        """Whether keys go to the list, where the opened run is on screen too."""
        self.choosing = ""
        """Id of the run that waits to be compared with another."""
        self.pair: tuple[str, str] | None = None
        """The compared runs, the baseline first."""
        self._report: tuple[str, int] | None = None
        """Run and number of the report that was asked for last."""
        self._reports = 0
        self._list_rows = self._opened_at = self._above = self._compare_top = 0
        self._compare_page = 1
        self._pictures: Memo[list[Line]] = Memo()

    def lines(self) -> list[Line]:
        cells, height = self.size
        self._above = 1 if height >= AIRY_FROM else 0
        foot = self._foot(cells)
        room = max(1, height - self._above - len(foot))
        body = self._body(cells, room)[:room]
        return [*([[]] * self._above), *body, *([[]] * (room - len(body)) if foot else []), *foot][:height]

    @property
    def offered(self) -> tuple[tuple[str, str], ...]:
        """Keys for where the page is."""
        if self.list.typing:
            return (("↵", "filter"), ("Esc", "clear"))
        if self.pair is not None:
            return (("x", "swap"), ("Esc", "close"), ("r", "report"))
        if self.choosing:
            return (("↵", "compare with it"), ("Esc", "not now"))
        common = (("v", "compare"), ("r", "report"))
        if not self.opened.id:
            return (("↵", "open"), *common, ("/", "filter"), ("o", "order"), ("y", "copy"))
        return (
            ("Esc", "close"),
            *common,
            *((("c", "curves"),) if self.size.width < CURVES_FROM else ()),
            ("y", "copy"),
        )

    @property
    def page(self) -> int:
        """Rows by which a page moves."""
        if self.pair is not None:
            return self._compare_page
        return max(1, self.list.page if self._keys_in_list else self.opened.page)

    @property
    def _keys_in_list(self) -> bool:
        return self.in_list or not self.opened.id

    def move(self, step: int) -> None:
        """Move the cursor of the innermost thing."""
        self._report = None
        if self.pair is not None:
            self._compare_top = max(0, self._compare_top + step)
        elif not self._keys_in_list:
            self.opened.move(step)
        else:
            self.list.move(step)
            if self.opened.id:
                self.opened.open(self.list.run)

    def open(self) -> None:
        """Open the run under the cursor, or end a choice with it."""
        if self.pair is not None or not self.list.run:
            return
        if not self.choosing:
            self.opened.open(self.list.run)
            self.in_list = False
        elif self.list.run != self.choosing:
            self.pair, self.choosing, self._compare_top = (self.list.run, self.choosing), "", 0

    def close(self) -> None:
        """Close the innermost thing."""
        if self.pair is not None:
            self.list.run = self.pair[1]
            self.pair = None
        elif self.choosing:
            self.choosing = ""
        elif self._report is not None:
            self._report = None
        elif self.opened.id:
            self.opened.open("")
            self.in_list = True
        else:
            self.list.words = ""

    def switch(self) -> None:
        """Send keys to the list, or to the run below it."""
        if self.opened.id and self.pair is None:
            self.in_list = not self.in_list

    def begin_filter(self) -> None:
        """Type what runs must have."""
        if self.pair is None:
            self.list.typing, self.in_list = True, True
            self.opened.open("")

    def type_in(self, key: str, character: str) -> bool:
        """Take a letter of the filter; whether it was one."""
        return self.list.type_in(key, character)

    def turn_order(self, step: int) -> None:
        """Sort the list by the next order."""
        if self.pair is None:
            self.list.turn_order(step)

    def begin_comparison(self) -> None:
        """Choose a run in the list to compare this one with."""
        subject = self.opened.id or self.list.run
        if self.pair is None and subject:
            self.choosing, self.in_list = subject, True
            self.opened.open("")
            self.list.move_beside(subject)

    def swap(self) -> None:
        """Take the other run as the baseline."""
        if self.pair is not None:
            self.pair = self.pair[1], self.pair[0]

    def write_report(self) -> None:
        """Write the report of the run: its path is said when it is there."""
        subject = self.pair[1] if self.pair is not None else self.opened.id or self.list.run
        if subject:
            self._reports += 1
            self._report = subject, self._reports

    def toggle_curves(self) -> None:
        """Show curves in the place of the table, or the table again."""
        self.opened.curves_only = not self.opened.curves_only

    def row_text(self) -> str:
        """The row under the cursor, for the clipboard: cells apart by tabs."""
        row = self.list.row_text() if self._keys_in_list else self.opened.row_text()
        return "\t".join(cell.text for cell in row if not cell.parts)

    def on_click(self, event: events.Click) -> None:
        """Take the row under the mouse; a heading sorts, a second click on a run opens it."""
        y = event.y - self._above - HEAD
        if y == -1 and self._list_rows:
            self.list.press_heading(self.size.width, event.x)
        elif 0 <= y < self._list_rows and y < len(self.list.shown):
            self.in_list = True
            if self.list.press(y) or self.opened.id:
                self.open()
        row = event.y - self._above - self._opened_at - self.opened.rows_at
        if self.opened.id and self.pair is None and 0 <= row < self.opened.page:
            self.in_list = False
            self.opened.press(row)
        self.show()

    def on_mouse_scroll_down(self) -> None:
        """Three rows, as elsewhere."""
        self.move(WHEEL)
        self.show()

    def on_mouse_scroll_up(self) -> None:
        """Three rows, as elsewhere."""
        self.move(-WHEEL)
        self.show()

    def _body(self, cells: int, room: int) -> list[Line]:
        self._list_rows = 0
        if self.pair is not None:
            return self._comparison(self.pair, cells, room)
        runs, opened = self.list, self.opened
        runs.follow(keep=bool(opened.id))
        above: list[Line] = []
        if not opened.id or room >= BOTH_FROM:
            height = min(len(runs.shown) + HEAD, max(6, room // 5)) if opened.id else room
            above = runs.lines(
                cells, height, opened=opened.id, has_keys=self._keys_in_list, choosing=self.choosing
            )  # fmt: skip
            self._list_rows = runs.page
        if not opened.id:
            return above
        above += [[]] if above else []
        self._opened_at = len(above)
        run = runs.find(opened.id)
        below = opened.lines(
            cells, room - len(above), name=run.name if run is not None else opened.id,
            is_over=runs.is_over(opened.id), has_keys=not self.in_list,
        )  # fmt: skip
        return [*above, *below]

    def _comparison(self, pair: tuple[str, str], cells: int, room: int) -> list[Line]:
        answer = self.view.kept.compared(*pair)
        self._compare_page = max(1, room - 2)
        found = answer.found
        if found is None:
            text = answer.problem or "Reading both runs …"
            title = section("Compare", [], keys(("Esc", "close")), cells)
            return [title, cut([Segment(" " * (margin(cells) + 1)), Segment(safe(text), theme.DIM)], cells)]
        shows = answer.until, pair, cells, room
        whole = self._pictures.get("compared", shows, lambda: run_compared.compared(found, cells, room))
        self._compare_top = max(0, min(self._compare_top, len(whole) - room))
        return whole[self._compare_top :]

    def _foot(self, cells: int) -> list[Line]:
        """The result of the report that was asked for."""
        if self._report is None:
            return []
        answer = self.view.kept.report(*self._report, os.getcwd())
        text, style = "Writing the report …", theme.DIM
        if answer.found is not None:
            text, style = f"Report written: {answer.found}", theme.GOOD
        elif answer.problem:
            text, style = answer.problem, theme.WARN
        return [cut([Segment(" " * margin(cells)), Segment(safe(text), style)], cells)]
