"""The list on the runs page: order, filter, cursor, and the visible rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from rich.segment import Segment

from gpumon.common.numbers import NAN, is_known
from gpumon.common.program import callable_commands
from gpumon.model import units
from gpumon.model.origin import Capability
from gpumon_tui import theme
from gpumon_tui.data.run_rows import ListedRun
from gpumon_tui.memo import Memo
from gpumon_tui.render import run_list
from gpumon_tui.render.findings import wrap_words
from gpumon_tui.render.run_detail import STRONG
from gpumon_tui.render.run_list import ORDERS, UNSEEN
from gpumon_tui.render.section import column_at, fit_columns, heading, hidden_rows, keys, margin, row_lines, section
from gpumon_tui.render.table import LazyRows, Row, TableColumn
from gpumon_tui.render.text_width import (
    NO_RUN_DATA,
    NO_RUN_SIMULATED,
    READING_LEDGER,
    SHOW_ALL,
    Line,
    hidden_text,
    safe,
)
from gpumon_tui.state import View

HEAD = 2
"""Lines above the rows: title and heading."""
WRITTEN_FROM = 110
"""Width from which the time of the ledger data for active runs is shown."""
MOST = 80
"""Maximum length of a filter."""
PlacedColumns = tuple[tuple[int, TableColumn], ...]


class _PastRuns(NamedTuple):
    """Matching runs of the ledgers, with totals computed once per answer and filter."""

    runs: Sequence[ListedRun] = ()
    places: Mapping[str, int] = {}
    """Indexes by run id."""
    running: int = 0
    unseen: int = 0
    written: float = NAN
    """Time of the ledger data for active runs (s since 1970); NaN if there are none."""
    most_energy: float = 0.0
    known: frozenset[str] = frozenset()
    """Titles of columns for which any run has a value."""


class RunPicker:
    """Runs from frames and ledgers; the cursor stays on its run when the order changes."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.order = 0
        """Index into `ORDERS`."""
        self.words = ""
        """Words of the filter."""
        self.typing = False
        self.run = ""
        """Id of the run under the cursor."""
        self._selected: str | None = None
        """Id of the run selected when the list was last drawn; another page may have selected a different run since."""
        self.shown: list[ListedRun] = []
        self._past = _PastRuns()
        """Runs in `shown` that no frame contains."""
        self._live: Sequence[tuple[int, ListedRun]] = ()
        """The other runs, each with its index among all rows."""
        self.page = 1
        """Rows on screen."""
        self._cursor = self._top = 0
        self._hidden = 0
        self._most_energy = 0.0
        """Largest energy in the list (J), which determines the unit of all."""
        self._kept: Memo[list[ListedRun]] = Memo()
        self._sorted: Memo[list[ListedRun]] = Memo()
        self._counted: Memo[_PastRuns] = Memo()
        self._drawn: Memo[Line] = Memo()
        self._heading: Memo[Line] = Memo()
        self._cells: Memo[Row] = Memo()
        self._places: Memo[tuple[tuple[TableColumn, ...], PlacedColumns]] = Memo()
        self._had: frozenset[str] = frozenset()
        """Titles of columns for which a run in frames has or had a value; a column is not removed when its values
        disappear.
        """

    def find(self, run_id: str) -> ListedRun | None:
        """Return the run with an id, if it is shown."""
        place = self._place_of(run_id)
        return self.shown[place] if place is not None else None

    def _place_of(self, run_id: str) -> int | None:
        """Return the index of a run among the shown ones."""
        for place, run in self._live:
            if run.id == run_id:
                return place
        at = self._past.places.get(run_id)
        if at is None:
            return None
        for place, _ in self._live:  # ordered by index
            at += place <= at
        return at

    def is_over(self, run_id: str) -> bool:
        """Whether a run is not known to be active."""
        run = self.find(run_id)
        return run is None or run.is_over

    def follow(self, *, keep: bool) -> None:
        """Update the list; with `keep`, the run under the cursor stays selected even if the filter hides it."""
        if self._selected is not None and self.view.selected_run != self._selected:
            self.run = self.view.selected_run or self.run
        self.shown = self._runs()
        place = self._place_of(self.run)
        self._cursor = place if place is not None else max(0, min(self._cursor, len(self.shown) - 1))
        if self.shown and not (place is None and keep):
            self.run = self.shown[self._cursor].id
        if any(ranks.first.id == self.run for ranks in self.view.ranks):
            self.view.selected_run = self.run
        self._selected = self.view.selected_run

    def move(self, step: int) -> None:
        """Move the cursor within the rows."""
        if self.shown:
            self._cursor = max(0, min(len(self.shown) - 1, self._cursor + step))
            self.run = self.shown[self._cursor].id

    def move_beside(self, run_id: str) -> None:
        """Move the cursor to the row after a run, or to the one before if it is the last."""
        self._cursor = place = self._place_of(run_id) or 0
        self.move(1 if place + 1 < len(self.shown) else -1)

    def turn_order(self, step: int) -> None:
        """Switch to the next sort order."""
        self.order = (self.order + step) % len(ORDERS)

    def type_in(self, key: str, character: str) -> bool:
        """Handle a key typed into the filter; return whether it was one."""
        if not self.typing:
            return False
        if key in ("enter", "escape", "up", "down", "ctrl+c"):
            self.typing = False
            self.words = "" if key == "escape" else self.words
            return key in ("enter", "escape")
        if key == "backspace":
            self.words = self.words[:-1]
        elif key == "ctrl+u":
            self.words = ""
        elif key == "ctrl+w":
            self.words = self.words.rstrip().rpartition(" ")[0]
        elif character.isprintable():
            self.words = (self.words + character)[:MOST]
        return True

    def paste(self, text: str) -> None:
        """Insert pasted text while the filter is being typed."""
        if self.typing:
            self.words = (self.words + text)[:MOST]

    def press_heading(self, cells: int, x: int) -> None:
        """Sort by the clicked column, if there is such an order."""
        columns, chosen = self._columns(cells)
        place = column_at(chosen, cells, x)
        title = columns[place].title if place >= 0 else ""
        self.order = next((i for i, order in enumerate(ORDERS) if order.column == title), self.order)

    def press(self, row: int) -> bool:
        """Select the clicked row, counted from the first on screen; return whether it was already selected."""
        place = self._top + row
        was_there = self._cursor == place
        self.move(place - self._cursor)
        return was_there

    def row_text(self) -> Row:
        """The row under the cursor; empty if there is none."""
        run = self.find(self.run)
        return self._row(run, run_list.UNLIMITED, is_open=False) if run is not None else ()

    def lines(self, cells: int, height: int, *, opened: str, has_keys: bool, choosing: str) -> list[Line]:
        """Return the list in at most `height` lines.

        `opened` and `choosing`: ids of the opened run, and of the run marked for comparison; empty for none.
        """
        shown = self.shown
        columns, chosen = self._columns(cells)
        room = max(1, height - HEAD)
        rest = len(shown) > room
        room -= rest and room > 1
        self.page = room
        self._top = max(0, min(self._top, self._cursor, len(shown) - room), self._cursor - room + 1)
        self._cells.keep({run.id for run in shown[self._top : self._top + room]})
        by = next((place for place, column in enumerate(columns) if column.title == ORDERS[self.order].column), -1)
        falls = ORDERS[self.order].falls
        names = self._heading.get(0, (chosen, cells, by, falls), lambda: heading(chosen, cells, by, falls=falls))
        lines = [self._title(cells, choosing), *([names] if shown else [])]
        verdict = next((column.cells for _, column in chosen if column.title == run_list.VERDICT), run_list.UNLIMITED)

        def row(place: int) -> Row:
            return self._row(shown[place], cells, is_open=shown[place].id == opened, room=verdict)

        of = LazyRows(len(shown), row)
        lines += row_lines(
            chosen, of, cells, top=self._top, height=room, cursor=self._cursor, has_keys=has_keys, cache=self._drawn,
        )  # fmt: skip
        if not shown:
            side = margin(cells)
            told = wrap_words(safe(callable_commands(self._why_empty())), cells - 2 * side)
            lines += [[Segment(" " * side), Segment(part, theme.DIM)] for part in told]
        elif rest:
            lines.append(hidden_rows(len(shown) - self._top - room, self._top, cells))
        return lines[:height]

    def _columns(self, cells: int) -> tuple[tuple[TableColumn, ...], PlacedColumns]:
        """Return all columns, and those that have values and fit."""
        self._had |= run_list.keys_with_values([run for _, run in self._live])
        known = self._past.known | self._had

        def found() -> tuple[tuple[TableColumn, ...], PlacedColumns]:
            columns = run_list.columns(cells)
            return columns, fit_columns(columns, cells, run_list.empty_columns(known))

        return self._places.get(0, (known, cells), found)

    def _runs(self) -> list[ListedRun]:
        """Return the runs in order; runs of the frame on screen show their live state, the others the ledger's."""
        view, order = self.view, ORDERS[self.order]
        answer = view.kept.listed()
        kept = answer.found or []
        live_ids = {ranks.first.id for ranks in view.ranks}

        known = answer.until, live_ids
        others = self._kept.get(0, known, lambda: [run for run in kept if run.id not in live_ids])
        by_id = self._kept.get(1, known, lambda: [run for run in kept if run.id in live_ids]) if live_ids else []
        # An answer without news is the same object, so it is neither sorted nor counted again.
        past = self._sorted.get(0, (others, self.order), lambda: sorted(others, key=order.by))
        self._past = self._counted.get(0, (past, self.words), lambda: _counted(run_list.filter_runs(past, self.words)))
        of_kept = {run.id: run for run in by_id}
        live = [
            run_list.from_frame(
                ranks, of_kept.get(ranks.first.id), view.epochs, view.now, view.monotonic_ns, is_old=view.age > 0
            )
            for ranks in view.ranks
        ]
        found, places = list(self._past.runs), []
        for before, run in enumerate(sorted(run_list.filter_runs(live, self.words), key=order.by)):
            places.append((bisect_left(self._past.runs, order.by(run), key=order.by) + before, run))
            found.insert(*places[-1])
        self._live = places
        self._hidden = len(past) + len(live) - len(found)
        self._most_energy = max(self._past.most_energy, _most_energy(live))
        return found

    def _title(self, cells: int, choosing: str) -> Line:
        view, shown = self.view, self.shown
        more_past = "" if self.view.kept.is_all_listed else "+"  # the remaining runs are still being read
        answer = self.view.kept.listed()
        is_unread = answer.found is None and not answer.problem
        live = _counted([run for _, run in self._live])
        running, lost = live.running + self._past.running, live.unseen + self._past.unseen
        past = "…" if is_unread else f"{len(shown) - running - lost}{more_past}"
        told = [(str(running), view.running)] if running or not lost else []
        told += [(str(lost), UNSEEN)] if lost else []
        told += [(past, "past")] if view.kept.can_read or past != "0" else []
        detail: Line = []
        for count, what in told if view.tells_processes else ():
            detail += [Segment("  " if detail else ""), Segment(count, STRONG), Segment(f" {what}", theme.DIM)]
        written = min(filter(is_known, (live.written, self._past.written)), default=NAN)
        if cells >= WRITTEN_FROM and is_known(written):  # values from frames have the time of the header
            detail += [Segment(f"  ·  util, wait and energy until {units.clock(written)}", theme.DIM)]
        if choosing:
            run = self.find(choosing)
            name = safe(run.name if run is not None else choosing)
            detail = [Segment("compare ", theme.DIM), Segment(name, theme.RUN), Segment(" with …", theme.DIM)]
        if self.typing or self.words:
            detail = [
                Segment("/ ", theme.TITLE), Segment(safe(self.words) if self.words else "", STRONG),
                Segment("▏" if self.typing else "", theme.GOOD),
                Segment(f"  {len(shown)} of {len(shown) + self._hidden}{more_past}", theme.DIM),
            ]  # fmt: skip
        is_listed = bool(shown or self._hidden or self.typing or self.words)
        offered = keys(("/", "filter"), ("o", ORDERS[self.order].name)) if is_listed else []
        return section("Runs", detail, offered, cells, hairline=False)

    def _why_empty(self) -> str:
        answer, can = self.view.kept.listed(), self.view.origin.capabilities
        if self._hidden:
            return f"{hidden_text('run', self._hidden)}; {SHOW_ALL}"
        if Capability.NOW not in can and Capability.PROCESSES not in can:
            return NO_RUN_DATA
        if Capability.NOW not in can:
            return "no run in this recording until here"
        if answer.found is None and not answer.problem:
            return READING_LEDGER
        from gpumon.storage.ledger.reader import NOTHING

        told = answer.problem or NOTHING
        return NO_RUN_SIMULATED if told == NOTHING and not self.view.is_recorded else told

    def _row(self, run: ListedRun, cells: int, *, is_open: bool, room: int = run_list.UNLIMITED) -> Row:
        detail = self.view.kept.detail(run.id, is_over=run.is_over).found if run.is_kept else None
        most = self._most_energy
        shows = run, detail, is_open, cells, room, most
        draw = partial(
            run_list.row, run, detail, self.view.now, is_open=is_open, cells=cells, room=room, largest_energy=most
        )
        return self._cells.get(run.id, shows, draw)


def _counted(runs: Sequence[ListedRun]) -> _PastRuns:
    going_on = [run for run in runs if not run.is_over]
    return _PastRuns(
        runs, {run.id: place for place, run in enumerate(runs)}, len(going_on),
        sum(run.state == UNSEEN for run in runs),
        min((run.written for run in going_on if is_known(run.written)), default=NAN),
        _most_energy(runs), run_list.keys_with_values(runs),
    )  # fmt: skip


def _most_energy(runs: Sequence[ListedRun]) -> float:
    return max((run.energy for run in runs if is_known(run.energy)), default=0.0)
