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
from gpumon_tui.cache import Cache
from gpumon_tui.data.run_rows import ListedRun
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
    READING_OLDER,
    SHOW_ALL,
    Line,
    hidden_text,
    safe,
)
from gpumon_tui.state import View

HEAD_ROWS = 2
"""Lines above the rows: title and heading."""
WRITTEN_FROM = 110
"""Minimum width, in columns, at which the time of the ledger data for active runs is shown."""
MAX_FILTER = 80
"""Maximum length of a filter."""
FittedColumns = tuple[tuple[int, TableColumn], ...]


class _LedgerRows(NamedTuple):
    """Matching runs of the ledgers, with totals computed once per answer and filter."""

    runs: Sequence[ListedRun] = ()
    indexes: Mapping[str, int] = {}
    """Indexes by run id."""
    running: int = 0
    unseen: int = 0
    written: float = NAN
    """Time of the ledger data for active runs (s since 1970); NaN if there are none."""
    max_energy: float = 0.0
    column_keys: frozenset[str] = frozenset()
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
        self._past = _LedgerRows()
        """Runs in `shown` that no frame contains."""
        self._live: Sequence[tuple[int, ListedRun]] = ()
        """The other runs, each with its index among all rows."""
        self.page = 1
        """Rows on screen."""
        self._cursor = self._top = 0
        self._hidden = 0
        self._max_energy = 0.0
        """Largest energy in the list (J), which determines the unit of all."""
        self._ledger_rows: Cache[list[ListedRun]] = Cache()
        self._sorted: Cache[list[ListedRun]] = Cache()
        self._row_counts: Cache[_LedgerRows] = Cache()
        self._row_cache: Cache[Line] = Cache()
        self._heading: Cache[Line] = Cache()
        self._cells: Cache[Row] = Cache()
        self._fitted: Cache[tuple[tuple[TableColumn, ...], FittedColumns]] = Cache()
        self._seen_columns: frozenset[str] = frozenset()
        """Titles of columns for which a run in frames has or had a value; a column is not removed when its values
        disappear.
        """

    def find(self, run_id: str) -> ListedRun | None:
        """Return the run with an id, if it is shown."""
        index = self._index_of(run_id)
        return self.shown[index] if index is not None else None

    def _index_of(self, run_id: str) -> int | None:
        """Return the index of a run among the shown ones."""
        for live_index, run in self._live:
            if run.id == run_id:
                return live_index
        index = self._past.indexes.get(run_id)
        if index is None:
            return None
        for live_index, _ in self._live:  # ordered by index
            index += live_index <= index
        return index

    @property
    def selected(self) -> str:
        """Id of the run under the cursor; empty if no run matches the filter."""
        self.follow(keep=False)  # the filter may have changed since the list was drawn
        return self.run if self.shown else ""

    def is_over(self, run_id: str) -> bool:
        """Whether a run has ended, or is not in the list."""
        run = self.find(run_id)
        return run is None or run.is_over

    def follow(self, *, keep: bool) -> None:
        """Update the list; with `keep`, the run under the cursor stays selected even if the filter hides it."""
        if self._selected is not None and self.view.selected_run != self._selected:
            self.run = self.view.selected_run or self.run
        self.shown = self._runs()
        index = self._index_of(self.run)
        self._cursor = index if index is not None else max(0, min(self._cursor, len(self.shown) - 1))
        if self.shown and not (index is None and keep):
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
        self._cursor = index = self._index_of(run_id) or 0
        self.move(1 if index + 1 < len(self.shown) else -1)

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
            self.words = (self.words + character)[:MAX_FILTER]
        return True

    def paste(self, text: str) -> None:
        """Insert pasted text while the filter is being typed."""
        if self.typing:
            self.words = (self.words + text)[:MAX_FILTER]

    def press_heading(self, cells: int, x: int) -> None:
        """Sort by the clicked column, if there is such an order."""
        columns, fitted = self._columns(cells)
        index = column_at(fitted, cells, x)
        title = columns[index].title if index >= 0 else ""
        self.order = next((position for position, order in enumerate(ORDERS) if order.column == title), self.order)

    def press(self, row: int) -> bool:
        """Select the clicked row, counted from the first on screen; return whether it was already selected."""
        index = self._top + row
        was_selected = self._cursor == index
        self.move(index - self._cursor)
        return was_selected

    def row_text(self) -> Row:
        """The row under the cursor; empty if there is none."""
        run = self.find(self.run)
        return self._row(run, run_list.UNLIMITED, is_open=False) if run is not None else ()

    def lines(self, cells: int, height: int, *, opened: str, has_keys: bool, choosing: str) -> list[Line]:
        """Return the list in at most `height` lines.

        `opened` and `choosing`: ids of the opened run, and of the run marked for comparison; empty for none.
        """
        runs = self.shown
        columns, fitted = self._columns(cells)
        room = max(1, height - HEAD_ROWS)
        has_hidden = len(runs) > room
        room -= has_hidden and room > 1
        self.page = room
        self._top = max(0, min(self._top, self._cursor, len(runs) - room), self._cursor - room + 1)
        self._cells.keep({run.id for run in runs[self._top : self._top + room]})
        sort_column = next(
            (index for index, column in enumerate(columns) if column.title == ORDERS[self.order].column), -1
        )
        falls = ORDERS[self.order].falls
        heading_line = self._heading.get(
            0, (fitted, cells, sort_column, falls), lambda: heading(fitted, cells, sort_column, falls=falls)
        )
        lines = [self._title(cells, choosing), *([heading_line] if runs else [])]
        verdict = next((column.cells for _, column in fitted if column.title == run_list.VERDICT), run_list.UNLIMITED)

        def row(index: int) -> Row:
            return self._row(runs[index], cells, is_open=runs[index].id == opened, room=verdict)

        table_rows = LazyRows(len(runs), row)
        lines += row_lines(
            fitted, table_rows, cells, top=self._top, height=room, cursor=self._cursor, has_keys=has_keys,
            cache=self._row_cache,
        )  # fmt: skip
        if not runs:
            left_margin = margin(cells)
            reason_lines = wrap_words(safe(callable_commands(self._empty_reason())), cells - 2 * left_margin)
            lines += [[Segment(" " * left_margin), Segment(part, theme.DIM)] for part in reason_lines]
        elif has_hidden:
            lines.append(hidden_rows(len(runs) - self._top - room, self._top, cells))
        return lines[:height]

    def _columns(self, cells: int) -> tuple[tuple[TableColumn, ...], FittedColumns]:
        """Return all columns, and the columns that have values and fit."""
        self._seen_columns |= run_list.keys_with_values([run for _, run in self._live])
        keys = self._past.column_keys | self._seen_columns

        def fit() -> tuple[tuple[TableColumn, ...], FittedColumns]:
            columns = run_list.columns(cells)
            return columns, fit_columns(columns, cells, run_list.empty_columns(keys))

        return self._fitted.get(0, (keys, cells), fit)

    def _runs(self) -> list[ListedRun]:
        """Return the runs in order; runs of the frame on screen show their live state, the others the ledger's."""
        view, order = self.view, ORDERS[self.order]
        answer = view.ledger_runs.listed()
        listed = answer.result or []
        live_ids = {ranks.first.id for ranks in view.ranks}

        version = answer.expires, live_ids
        past_only = self._ledger_rows.get(0, version, lambda: [run for run in listed if run.id not in live_ids])
        live_listed = (
            self._ledger_rows.get(1, version, lambda: [run for run in listed if run.id in live_ids]) if live_ids else []
        )
        # An answer without news is the same object, so it is neither sorted nor counted again.
        sorted_past = self._sorted.get(0, (past_only, self.order), lambda: sorted(past_only, key=order.by))
        self._past = self._row_counts.get(
            0, (sorted_past, self.words), lambda: _count_runs(run_list.filter_runs(sorted_past, self.words))
        )
        ledger_runs = {run.id: run for run in live_listed}
        live = [
            run_list.from_frame(
                ranks, ledger_runs.get(ranks.first.id), view.epochs, view.now, view.monotonic_ns, is_old=view.age > 0
            )
            for ranks in view.ranks
        ]
        merged, live_rows = list(self._past.runs), []
        for count_before, run in enumerate(sorted(run_list.filter_runs(live, self.words), key=order.by)):
            live_rows.append((bisect_left(self._past.runs, order.by(run), key=order.by) + count_before, run))
            merged.insert(*live_rows[-1])
        self._live = live_rows
        self._hidden = len(sorted_past) + len(live) - len(merged)
        self._max_energy = max(self._past.max_energy, _largest_energy(live))
        return merged

    def _title(self, cells: int, choosing: str) -> Line:
        view, runs = self.view, self.shown
        more_mark = "+" if self._has_unread else ""
        answer = self.view.ledger_runs.listed()
        is_reading = answer.result is None and not answer.problem
        live = _count_runs([run for _, run in self._live])
        running, unseen = live.running + self._past.running, live.unseen + self._past.unseen
        past_count = "…" if is_reading else f"{len(runs) - running - unseen}{more_mark}"
        counts = [(str(running), view.running_text)] if running or not unseen else []
        counts += [(str(unseen), UNSEEN)] if unseen else []
        counts += [(past_count, "past")] if view.ledger_runs.can_read or past_count != "0" else []
        detail: Line = []
        for count, label in counts if view.has_processes else ():
            detail += [Segment("  " if detail else ""), Segment(count, STRONG), Segment(f" {label}", theme.DIM)]
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
                Segment(f"  {len(runs)} of {len(runs) + self._hidden}{more_mark}", theme.DIM),
            ]  # fmt: skip
        is_listed = bool(runs or self._hidden or self.typing or self.words)
        key_hints = keys(("/", "filter"), ("o", ORDERS[self.order].name)) if is_listed else []
        return section("Runs", detail, key_hints, cells, hairline=False)

    @property
    def _has_unread(self) -> bool:
        """Whether runs of the ledgers are still being read."""
        answer = self.view.ledger_runs.listed()
        is_read = answer.result is not None and self.view.ledger_runs.is_all_listed
        return self.view.ledger_runs.can_read and not answer.problem and not is_read

    def _empty_reason(self) -> str:
        answer, capabilities = self.view.ledger_runs.listed(), self.view.origin.capabilities
        if self._hidden and self._has_unread:
            return READING_OLDER
        if self._hidden:
            return f"{hidden_text('run', self._hidden)}; {SHOW_ALL}"
        if Capability.NOW not in capabilities and Capability.PROCESSES not in capabilities:
            return NO_RUN_DATA
        if Capability.NOW not in capabilities:
            return "no run in this recording until here"
        if answer.result is None and not answer.problem:
            return READING_LEDGER
        from gpumon.storage.ledger.reader import NOTHING

        reason = answer.problem or NOTHING
        return NO_RUN_SIMULATED if reason == NOTHING and not self.view.is_recorded else reason

    def _row(self, run: ListedRun, cells: int, *, is_open: bool, room: int = run_list.UNLIMITED) -> Row:
        detail = self.view.ledger_runs.detail(run.id, is_over=run.is_over).result if run.is_kept else None
        largest_energy = self._max_energy
        inputs = run, detail, is_open, cells, room, largest_energy
        draw = partial(
            run_list.row,
            run,
            detail,
            self.view.now,
            is_open=is_open,
            cells=cells,
            room=room,
            largest_energy=largest_energy,
        )
        return self._cells.get(run.id, inputs, draw)


def _count_runs(runs: Sequence[ListedRun]) -> _LedgerRows:
    active = [run for run in runs if not run.is_over]
    return _LedgerRows(
        runs, {run.id: index for index, run in enumerate(runs)}, len(active),
        sum(run.state == UNSEEN for run in runs),
        min((run.written for run in active if is_known(run.written)), default=NAN),
        _largest_energy(runs), run_list.keys_with_values(runs),
    )  # fmt: skip


def _largest_energy(runs: Sequence[ListedRun]) -> float:
    return max((run.energy for run in runs if is_known(run.energy)), default=0.0)
