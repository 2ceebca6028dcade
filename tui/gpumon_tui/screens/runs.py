"""The runs page: the list, one opened run, and the comparison of two runs."""

from __future__ import annotations

import os
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size

from gpumon.model.frame import RunState
from gpumon_tui import theme
from gpumon_tui.appearance import ColorDepth
from gpumon_tui.cache import Cache
from gpumon_tui.keybindings import CHART, PAGES, RUNS
from gpumon_tui.render import run_compare, run_detail
from gpumon_tui.render.table import hidden_rows, keys, margin, section
from gpumon_tui.render.text_width import SENTENCE, Line, cut, safe, width
from gpumon_tui.screens.page import TablePage
from gpumon_tui.state import View
from gpumon_tui.widgets.lines import Lines
from gpumon_tui.widgets.live_table import WHEEL, LiveTable
from gpumon_tui.widgets.opened_run import CURVES_FROM, OpenedRun, epoch_on_chart
from gpumon_tui.widgets.overview_past import EpochSection
from gpumon_tui.widgets.run_list import HEAD_ROWS, RunTable

BLANK_FROM = 30
"""Page height from which a blank row follows the header."""
LIST_AND_RUN_FROM = 36
"""Page height from which the list stays visible above the opened run."""
LIVE_FROM, LIVE_ROWS = 30, 8
"""Height of an opened run from which its ranks are shown above its epochs, and the maximum rows for them."""
EPOCHS_FROM = 6
"""Free rows below the list from which the newest epochs of the selected run are shown there."""
PREVIEW_FROM, PREVIEW_ROWS = 8, 20
"""Free rows below the list from which a selected past run is previewed there, and rows reserved for it on a tall
page.
"""
END_LABELS = {
    RunState.DIED: "when it died", RunState.FAILED: "when it failed", RunState.INTERRUPTED: "when it was interrupted",
    RunState.STOPPED: "when it was stopped", RunState.FINISHED: "when it finished",
}  # fmt: skip
"""Time label of the rank rows of an ended run, whose values are older than the frame."""
MAX_EXAMINED = 50
"""Maximum number of runs examined when looking for one to compare with."""


class RunArea(Lines):
    """The part of the page below the list, or in its place; the page draws it."""

    DEFAULT_CSS = "RunArea { height: 1fr; }"

    def __init__(self, page: RunsPage) -> None:
        super().__init__(page.view)
        self._page = page

    def draw(self, cells: int, height: int) -> list[Line]:
        return self._page.area_lines(cells, height)

    def on_click(self, event: events.Click) -> None:
        self._page.select_epoch(event.y)

    def on_mouse_scroll_down(self) -> None:
        self._page.scroll_area(WHEEL)

    def on_mouse_scroll_up(self) -> None:
        self._page.scroll_area(-WHEEL)


class RunsPage(TablePage):
    """Live and past runs, from frames and from the ledgers the user can read.

    Keys act on the innermost of list, opened run and comparison.
    """

    table: RunTable
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab,shift+tab", "table", "table", key_display="Tab",
            tooltip="move in the list of runs, or in the run below it"),
        Binding("enter", "open", key_display="↵", tooltip="open a run: its epochs, the time between them, curves"),
        Binding("escape,backspace", "back", key_display="Esc", tooltip="close what was opened last, then the filter"),
        Binding("slash,f3,f4,backslash", "filter", key_display="/",
            tooltip="only runs with these words in name, id, user, framework, state or tag"),
        Binding("o,f6", "order(1)", key_display="o O", tooltip="another order; also a click on a heading"),
        Binding("O", "order(-1)"),
        Binding("v", "compare", key_display="v",
            tooltip="compare a run with another; x swaps them, d shows equal settings"),
        Binding("x", "swap"),
        Binding("d", "equal"),
        Binding("e", "on_chart", key_display="e", tooltip="an epoch on the chart: its time, its GPUs; Esc leads back"),
        Binding("r", "report", key_display="r",
            tooltip="write the report of a run to a new file in the working directory"),
        Binding("c", "curves", key_display="c", tooltip="curves of a run in place of its table, on a narrow screen"),
        Binding("y", "copy", key_display="y", tooltip="copy the row under the cursor"),
        Binding("n", "move(1)"),
        Binding("N", "move(-1)"),
        Binding("g", "move(-1_000_000)", key_display="g G", tooltip="the first or last row"),
        Binding("G", "move(1_000_000)"),
    ]  # fmt: skip
    page_name: ClassVar[str] = RUNS

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.table = RunTable(view)
        self.filter_field = self.table.filter_field
        self.area = RunArea(self)
        self.forget()

    def forget(self) -> None:
        """Reset for frames of another source."""
        self.table.forget()
        self.opened = OpenedRun(self.view)
        self.in_list = True
        """Whether the list has the focus while the opened run is on screen too."""
        self.choosing = ""
        """Id of the run marked for comparison with another."""
        self.pair: tuple[str, str] | None = None
        """The compared runs, baseline first."""
        self.has_equal = False
        """Whether the comparison shows equal settings too."""
        self._report: tuple[str, int, str] | None = None
        """Run and number of the last requested report, and its target directory."""
        self._reports = 0
        self._opened_at = self._compare_top = self._cells = 0
        self._has_list = True
        self._compare_page = 1
        self._pictures: Cache[list[Line]] = Cache()
        self._rank_cache: Cache[Line] = Cache()
        self._preview_run = OpenedRun(self.view, is_preview=True)
        self._newest = EpochSection(self.view, names_run=False)
        self._newest.opens = "", ""

    @property
    def line_widgets(self) -> tuple[Lines, ...]:
        return self.table, self.area

    def lay_out(self, size: Size) -> None:
        """Update the list, and divide the page between it and the part below."""
        self.set_top_padding(size, BLANK_FROM)
        height = size.height - self.body.styles.padding.top
        list_rows = self._list_rows(size.width, height)
        self.set_heights((self.table, list_rows), (self.area, height - list_rows))

    def _list_rows(self, cells: int, height: int) -> int:
        """Update the list, and return its number of rows on a page of a size."""
        runs, opened, self._cells = self.table, self.opened, cells
        runs.opened, runs.choosing, runs.has_keys = opened.id, self.choosing, self._keys_in_list
        if self.pair is not None:
            return 0
        runs.follow(keep=bool(opened.id))
        room = max(1, height - len(self._report_lines(cells)))
        is_tall = room >= LIST_AND_RUN_FROM
        self._has_list = is_tall or not opened.id
        if not self._has_list:
            return 0
        limit = max(6, room // 5) if opened.id else room - PREVIEW_ROWS if is_tall else room
        return min(limit, runs.needed_rows(cells))

    def area_lines(self, cells: int, height: int) -> list[Line]:
        """Return the lines below the list, or in its place."""
        foot = self._report_lines(cells)
        room = max(0, height - len(foot))
        body = self._body(cells, room)[:room]
        return [*body, *([[]] * (room - len(body)) if foot else []), *foot][:height]

    @property
    def extra_keys(self) -> tuple[tuple[str, str], ...]:
        """Keys for the current mode: list, run or comparison."""
        if self.table.filter_field.is_active:
            return (("↵", "filter"), ("Esc", "clear"))
        if self.pair is not None:
            comparison = self.view.ledger_runs.compared(*self.pair).result
            equal = (("d", "equal settings"),) if comparison is not None and comparison.equal else ()
            return (("x", "swap"), *equal, ("Esc", "close"), ("r", "report"))
        if self.choosing:
            return (("↵", "compare with it"), ("Esc", "not now"))
        is_kept = (run := self.table.find(self.opened.id or self.table.run)) is not None and run.is_kept
        has_others = sum(listed_run.is_kept for listed_run in self.table.shown[:MAX_EXAMINED]) > 1
        common = ((("v", "compare"),) if is_kept and has_others else ()) + ((("r", "report"),) if is_kept else ())
        if not self.opened.id:
            if not self.table.shown:
                return (("/", "filter"),) if self.table.filter else ()
            return (("↵", "open"), *common, ("/", "filter"), ("o", "order"), ("y", "copy"))
        return (
            ("Esc", "close"),
            *common,
            *((("e", "epoch on chart"),) if self.opened.row is not None else ()),
            *((("c", "curves"),) if self._cells < CURVES_FROM else ()),
            ("y", "copy"),
        )

    @property
    def hidden_keys(self) -> frozenset[str]:
        """The key that switches tables, if there is only one table."""
        return frozenset() if self.opened.id and self.pair is None else frozenset(("Tab",))

    @property
    def page_rows(self) -> int:
        if self.pair is not None:
            return self._compare_page
        return max(1, self.table.page if self._keys_in_list else self.opened.page)

    @property
    def _keys_in_list(self) -> bool:
        return self.in_list or not self.opened.id

    @property
    def _run(self) -> str:
        """Id of the opened run, or of the run under the cursor; empty if the list has no run."""
        return self.opened.id or self.table.selected

    def on_live_table_moved(self, message: LiveTable.Moved) -> None:
        """Give the list the focus after a click on a row; an opened run follows the cursor. The base class redraws."""
        if message.is_row:
            self.in_list = True
            if self.opened.id:
                self.action_open()

    def select_epoch(self, row: int) -> None:
        """Select the epoch that was clicked in a row of the area."""
        row -= self._opened_at + self.opened.rows_at
        if self.opened.id and self.pair is None and 0 <= row < self.opened.page:
            self.in_list = False
            self.opened.press(row)
        self.post_message(self.Changed())

    def scroll_area(self, rows: int) -> None:
        """Move the cursor of the innermost part by some rows, after a step of the mouse wheel on the area."""
        self.action_move(rows)
        self.post_message(self.Changed())

    def action_move(self, step: int) -> None:
        """Move the cursor of the innermost part."""
        self._report = None
        if self.pair is not None:
            self._compare_top = max(0, self._compare_top + step)
        elif not self._keys_in_list:
            self.opened.move(step)
        else:
            self.table.move(step)
            if self.opened.id:
                self.opened.open(self.table.run)

    def action_open(self) -> None:
        """Open the run under the cursor, or choose it for the comparison."""
        run_id = self.table.run if self.opened.id else self.table.selected
        if self.pair is not None or not run_id:
            return
        if not self.choosing:
            self.opened.open(run_id)
            self.in_list = False
        elif run_id != self.choosing:
            self.pair, self.choosing, self._compare_top = (run_id, self.choosing), "", 0

    def open_selected(self) -> None:
        """Open the run that another page has selected, closing whatever is open."""
        run_id = self.view.selected_run
        self.pair, self.choosing, self.table.run = None, "", run_id
        self.opened.open(run_id)
        self.in_list = not run_id

    def action_back(self) -> None:
        """Close the innermost part."""
        if self.pair is not None:
            self.table.run = self.pair[1]
            self.pair = None
        elif self.choosing:
            self.choosing = ""
        elif self._report is not None:
            self._report = None
        elif self.opened.id:
            self.opened.open("")
            self.in_list = True
        else:
            self.table.filter = ""

    def action_table(self) -> None:
        """Move the focus between the list and the run below it."""
        if self.opened.id and self.pair is None:
            self.in_list = not self.in_list

    def action_filter(self) -> None:
        """Start typing a filter."""
        if self.pair is None:
            self.in_list = True
            self.table.filter_field.begin()
            self.opened.open("")

    def action_order(self, step: int) -> None:
        """Switch the list to the next sort order."""
        if self.pair is None:
            self.table.turn_order(step)

    def action_compare(self) -> None:
        """Mark this run, and show the list so that the user can choose another run to compare it with."""
        run_id = self._run
        run = self.table.find(run_id)
        if run is not None and not run.is_kept:
            self.view.show_message("this run is in no ledger: it cannot be compared")
        elif self.pair is None and run_id:
            self.choosing, self.in_list = run_id, True
            self.opened.open("")
            self.table.move_beside(run_id)

    def action_swap(self) -> None:
        """Swap the baseline."""
        if self.pair is not None:
            self.pair = self.pair[1], self.pair[0]

    def action_equal(self) -> None:
        """Show or hide equal settings."""
        self.has_equal = not self.has_equal

    def action_on_chart(self) -> None:
        """Show the epoch under the cursor in the charts, or a message why that is impossible; Escape returns here."""
        run, row = self.opened.detail, self.opened.row
        if self.pair is not None or self.choosing or run is None or row is None:
            return
        return_target, problem = epoch_on_chart(self.view, run, row)
        if return_target is not None:
            self.post_message(self.OpenRequested(PAGES.index(CHART) + 1, return_target))
        else:
            self.view.show_message(problem)

    def action_report(self) -> None:
        """Write the report of the run; a message shows its path when it is done."""
        run_id = self.pair[1] if self.pair is not None else self._run
        if not run_id:
            return
        try:
            directory = os.getcwd()
        except OSError as error:
            self.view.show_message(f"no report: the working directory no longer exists ({error.strerror})")
            return
        self._reports += 1
        self._report = run_id, self._reports, directory

    def action_curves(self) -> None:
        """Toggle between curves and table."""
        self.opened.curves_only = not self.opened.curves_only

    def action_copy(self) -> None:
        """Copy the row under the cursor to the terminal's clipboard."""
        row = self.table.row_text() if self._keys_in_list else self.opened.row_text()
        self.copy("\t".join(cell.text for cell in row if not cell.parts))

    def _body(self, cells: int, room: int) -> list[Line]:
        if self.pair is not None:
            return self._comparison(self.pair, cells, room)
        runs, opened = self.table, self.opened
        if not opened.id and not runs.shown:
            return []  # a run hidden by the filter gets no preview
        if not opened.id:
            lines = self._live(runs.run, cells, room) or self._preview(cells, room)
            return [*lines, *self._epochs(runs.run, cells, room - len(lines))]
        lines = [[]] if self._has_list else []
        self._opened_at = len(lines)
        run = runs.find(opened.id)
        rank_lines = self._live(opened.id, cells, LIVE_ROWS, head=False) if room - len(lines) >= LIVE_FROM else []
        run_lines = opened.lines(
            cells, room - len(lines), rank_lines, name=run.name if run is not None else opened.id,
            is_over=runs.is_over(opened.id), has_keys=not self.in_list,
        )  # fmt: skip
        if opened.detail is None:
            run_lines = [*run_lines, *self._epochs(opened.id, cells, room - len(lines) - len(run_lines))]
        return [*lines, *run_lines]

    def _preview(self, cells: int, height: int) -> list[Line]:
        """Return the preview of the selected past run from its ledger, in at most `height` lines."""
        run = self.table.find(self.table.run)
        if run is None or not run.is_kept or height < PREVIEW_FROM:
            return []
        previewed = self._preview_run
        if previewed.id != run.id and not self.view.ledger_runs.queries.is_idle:
            return []  # runs that the cursor only passes are not read; each answer triggers a redraw
        previewed.open(run.id)
        preview_lines = previewed.lines(cells, height - 1, [], name=run.name, is_over=run.is_over, has_keys=False)
        return [[], *preview_lines]

    def _epochs(self, run_id: str, cells: int, height: int) -> list[Line]:
        """Return the newest epochs of a run that a frame contains, in at most `height` lines."""
        if height < EPOCHS_FROM or run_id != self.view.selected_run:
            return []
        table = self._newest
        count = table.many()
        if not count:
            return []
        table.left = margin(cells)
        return [[], *table.draw(cells, min(height - 1, count + HEAD_ROWS))]

    def _live(self, run_id: str, cells: int, height: int, *, head: bool = True) -> list[Line]:
        """Return the live state of the selected run while it is active, in at most `height` lines."""
        view = self.view
        ranks = next((candidate for candidate in view.ranks if candidate.first.id == run_id), None)
        if ranks is None or height < run_detail.ROWS + 2 * head:
            return []
        labels = {sample.device.uuid: sample.device.label for sample in view.samples}
        opened = view.ledger_runs.opened(run_id, is_over=False).result if self.opened.id else None
        resumes = opened.record.run.resumes if opened is not None else ""
        time_label = END_LABELS.get(ranks.state, view.freshness.edge)
        edge: Line = [Segment(time_label, theme.DIM)]
        key_hints = keys((view.appearance.key("↵"), "open"))
        head_lines = [[], section(safe(ranks.first.name), edge, key_hints, cells)] if head else []
        return [
            *head_lines,
            *run_detail.live_lines(ranks, labels, resumes, cells, height - len(head_lines), self._rank_cache),
        ]

    def _comparison(self, pair: tuple[str, str], cells: int, room: int) -> list[Line]:
        answer = self.view.ledger_runs.compared(*pair)
        comparison = answer.result
        if comparison is None:
            text = answer.problem or "Reading both runs …"
            title = section("Compare", [], keys(("Esc", "close")), cells)
            return [title, cut([Segment(" " * (margin(cells) + 1)), Segment(safe(text), theme.DIM)], cells)]
        has_colors = self.view.appearance.depth is not ColorDepth.NONE
        inputs = answer.expires, pair, cells, room, self.has_equal, has_colors

        def draw() -> list[Line]:
            return run_compare.compare_lines(comparison, cells, room, has_equal=self.has_equal, has_colors=has_colors)

        all_lines = self._pictures.get("compared", inputs, draw)
        visible = room - (len(all_lines) > room)
        self._compare_page = visible
        self._compare_top = max(0, min(self._compare_top, len(all_lines) - visible))
        lines = all_lines[self._compare_top : self._compare_top + visible]
        if len(all_lines) <= room:
            return lines
        return [*lines, hidden_rows(len(all_lines) - self._compare_top - visible, self._compare_top, cells)]

    def _report_lines(self, cells: int) -> list[Line]:
        """Return the result of the requested report."""
        if self._report is None:
            return []
        answer = self.view.ledger_runs.report(*self._report)
        text, style = "Writing the report …", theme.DIM
        if answer.result is not None:
            text, style = f"Report written: {answer.result}", theme.GOOD
            if width(text) > cells - 2 * margin(cells):  # the file name first, because it matters most
                directory, name = os.path.split(answer.result)
                text = f"Report: {name} in {directory}"
        elif answer.problem:
            text, style = answer.problem, theme.WARN
        return [cut([Segment(" " * margin(cells)), Segment(safe(text, SENTENCE), style)], cells)]
