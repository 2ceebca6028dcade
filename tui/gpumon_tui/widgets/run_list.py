"""The table of runs: from frames and ledgers, ordered and filtered; the cursor stays on its run."""

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
from gpumon_tui.render.run_detail import STRONG
from gpumon_tui.render.run_list import ORDERS, UNSEEN
from gpumon_tui.render.table import (
    PlacedColumn,
    Row,
    fit_columns,
    hidden_rows,
    keys,
    margin,
    placed_cells,
    section,
)
from gpumon_tui.render.text_width import (
    NO_RUN_DATA,
    NO_RUN_SIMULATED,
    READING_LEDGER,
    READING_OLDER,
    SHOW_ALL,
    Line,
    hidden_text,
    safe,
    wrap_words,
)
from gpumon_tui.state import View
from gpumon_tui.widgets.filter_field import FilterField
from gpumon_tui.widgets.live_table import LiveTable

HEAD_ROWS = 2
"""Lines above the rows: title and heading."""
WRITTEN_FROM = 110
"""Minimum width, in columns, at which the time of the ledger data for active runs is shown."""


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


class RunTable(LiveTable):
    """Runs from frames and ledgers; the cursor stays on its run when the order changes."""

    head_rows = 1

    def __init__(self, view: View) -> None:
        super().__init__(view, id="runs-table")
        self.opened = self.choosing = ""
        """Ids of the opened run, and of the run marked for comparison; empty for none."""
        self.filter_field = FilterField(self)
        self._row_counts: Cache[_LedgerRows] = Cache()
        self._ledger_rows: Cache[list[ListedRun]] = Cache()
        self._sorted: Cache[list[ListedRun]] = Cache()
        self._cells: Cache[Row] = Cache()
        self.forget()

    def forget(self) -> None:
        """Reset for another machine or source."""
        self.cursor = self.top = 0
        self._order = 0
        """Index into `ORDERS`."""
        self.filter = ""
        """Words that a run must contain."""
        self.filter_field.is_active = False
        self.run = ""
        """Id of the run under the cursor."""
        self._selected: str | None = None
        """Id of the run selected when the list was last drawn; another page may have selected a different run since."""
        self.shown: list[ListedRun] = []
        self._past = _LedgerRows()
        """Runs in `shown` that no frame contains."""
        self._live: Sequence[tuple[int, ListedRun]] = ()
        """The other runs, each with its index among all rows."""
        self._hidden = 0
        self._max_energy = 0.0
        """Largest energy in the list (J), which determines the unit of all."""
        self._verdict_cells = run_list.UNLIMITED
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
        self.cursor = index if index is not None else max(0, min(self.cursor, len(self.shown) - 1))
        if self.shown and not (index is None and keep):
            self.run = self.shown[self.cursor].id
        if any(ranks.first.id == self.run for ranks in self.view.ranks):
            self.view.selected_run = self.run
        self._selected = self.view.selected_run

    def move(self, step: int) -> None:
        """Move the cursor within the rows."""
        if self.shown:
            super().move(step)
            self.run = self.shown[self.cursor].id

    def move_beside(self, run_id: str) -> None:
        """Move the cursor to the row after a run, or to the one before if it is the last."""
        self.cursor = index = self._index_of(run_id) or 0
        self.move(1 if index + 1 < len(self.shown) else -1)

    def turn_order(self, step: int) -> None:
        """Switch to the next sort order."""
        self._order = (self._order + step) % len(ORDERS)

    def sort_by(self, key: str) -> None:
        """Sort by a column, if there is such an order."""
        self._order = next((index for index, order in enumerate(ORDERS) if order.key == key), self._order)

    @property
    def order(self) -> tuple[str, bool]:
        order = ORDERS[self._order]
        return order.key, order.falls

    @property
    def row_count(self) -> int:
        return len(self.shown)

    def place(self, cells: int) -> Sequence[PlacedColumn]:
        if not self.shown:
            return ()
        self._seen_columns |= run_list.keys_with_values([run for _, run in self._live])
        side, empty = margin(cells), run_list.empty_columns(self._past.column_keys | self._seen_columns)
        placed = fit_columns(run_list.columns(cells), side, cells - side, empty=empty)
        verdict = (item.column.cells for item in placed if item.column.key == "verdict")
        self._verdict_cells = next(verdict, run_list.UNLIMITED)
        return placed

    def row(self, index: int) -> Row:
        run = self.shown[index]
        row = self._run_row(run, self.cells, is_open=run.id == self.opened, room=self._verdict_cells)
        return placed_cells(row, self.placed)

    def draw(self, cells: int, height: int) -> list[Line]:
        lines = super().draw(cells, height)
        self._cells.keep({self.shown[index].id for index in self.on_screen})
        return lines

    def needed_rows(self, cells: int) -> int:
        """Return the rows with which everything is on screen."""
        return HEAD_ROWS + len(self.shown) if self.shown else 1 + len(self.empty(cells))

    def empty(self, cells: int) -> list[Line]:
        side = margin(cells)
        reason_lines = wrap_words(safe(callable_commands(self._empty_reason())), cells - 2 * side)
        return [[Segment(" " * side), Segment(part, theme.DIM)] for part in reason_lines]

    def foot_rows(self, room: int) -> int:
        return int(len(self.shown) > room > 1)

    def foot(self, above: int, below: int, cells: int) -> Line:
        return hidden_rows(below, above, cells)

    def row_text(self) -> Row:
        """The row under the cursor; empty if there is none."""
        run = self.find(self.run)
        return self._run_row(run, run_list.UNLIMITED, is_open=False) if run is not None else ()

    def _runs(self) -> list[ListedRun]:
        """Return the runs in order; runs of the frame on screen show their live state, the others the ledger's."""
        view, order = self.view, ORDERS[self._order]
        answer = view.ledger_runs.listed()
        listed = answer.result or []
        live_ids = {ranks.first.id for ranks in view.ranks}

        version = answer.expires, live_ids
        past_only = self._ledger_rows.get(0, version, lambda: [run for run in listed if run.id not in live_ids])
        live_listed = (
            self._ledger_rows.get(1, version, lambda: [run for run in listed if run.id in live_ids]) if live_ids else []
        )
        # An answer without news is the same object, so it is neither sorted nor counted again.
        sorted_past = self._sorted.get(0, (past_only, self._order), lambda: sorted(past_only, key=order.by))
        self._past = self._row_counts.get(
            0, (sorted_past, self.filter), lambda: _count_runs(run_list.filter_runs(sorted_past, self.filter))
        )
        ledger_runs = {run.id: run for run in live_listed}
        live = [
            run_list.from_frame(
                ranks, ledger_runs.get(ranks.first.id), view.epochs, view.now, view.monotonic_ns, is_old=view.age > 0
            )
            for ranks in view.ranks
        ]
        merged, live_rows = list(self._past.runs), []
        for count_before, run in enumerate(sorted(run_list.filter_runs(live, self.filter), key=order.by)):
            live_rows.append((bisect_left(self._past.runs, order.by(run), key=order.by) + count_before, run))
            merged.insert(*live_rows[-1])
        self._live = live_rows
        self._hidden = len(sorted_past) + len(live) - len(merged)
        self._max_energy = max(self._past.max_energy, _largest_energy(live))
        return merged

    def head(self, cells: int) -> list[Line]:
        view, runs, choosing = self.view, self.shown, self.choosing
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
        if self.filter_field.is_active or self.filter:
            detail = [
                Segment("/ ", theme.TITLE), Segment(safe(self.filter) if self.filter else "", STRONG),
                Segment("▏" if self.filter_field.is_active else "", theme.GOOD),
                Segment(f"  {len(runs)} of {len(runs) + self._hidden}{more_mark}", theme.DIM),
            ]  # fmt: skip
        is_listed = bool(runs or self._hidden or self.filter_field.is_active or self.filter)
        key_hints = keys(("/", "filter"), ("o", ORDERS[self._order].name)) if is_listed else []
        return [section("Runs", detail, key_hints, cells, hairline=False)]

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

    def _run_row(self, run: ListedRun, cells: int, *, is_open: bool, room: int = run_list.UNLIMITED) -> Row:
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
