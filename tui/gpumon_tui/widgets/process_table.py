"""The table of processes: filtered and sorted, as a list, as a tree, or as totals by user."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from rich.segment import Segment

from gpumon.common.text import clean
from gpumon.model import units
from gpumon.model.process import Process
from gpumon_tui import theme
from gpumon_tui.data.process_history import NONE_LEFT_OUT, LeftOutReader
from gpumon_tui.data.processes import (
    ParentProcess,
    Parents,
    ProcessTags,
    Term,
    TreeRow,
    build_tree,
    count_hidden,
    matching,
    parse_terms,
)
from gpumon_tui.data.user_totals import NO_MONTHS, KnownSum, MonthReader, UserTotal, memory_by_user, user_totals
from gpumon_tui.render.process_columns import (
    COLUMNS,
    DEFAULT_ORDER,
    USER_COLUMNS,
    ProcessColumn,
    fit_epoch_column,
    needed_columns,
    place_columns,
    sort_rows,
)
from gpumon_tui.render.process_head import empty_text, sums_line
from gpumon_tui.render.table import Cell, PlacedColumn, Row, margin
from gpumon_tui.render.text_width import NO_PROCESS_DATA, SHOW_ALL, Line, fit, hidden_text, safe
from gpumon_tui.state import View
from gpumon_tui.widgets.live_table import LiveTable

RowKey = tuple[int, str]
"""PID and UUID of the GPU (a process has one row per GPU), or 0 and the name for a user."""


PROCESS_ORDER, USER_ORDER = "processes sorted", "users sorted"
"""Names of the stored preferences."""
DOWN, UP = "down", "up"
TREE_BRANCH = "└ "
_DIM, _KEY, _PARENT = theme.ink("dim"), theme.ink("key"), theme.ink("faint")
_TAGGED = Segment("+", theme.ink("key", bold=True))


class RowOrder(NamedTuple):
    """The column and direction by which rows are sorted."""

    name: str = DEFAULT_ORDER
    falls: bool = True

    def next(self, column: ProcessColumn[Any]) -> RowOrder:
        """Return the order after a column was chosen: its default direction, or reversed if it is already the sort
        column.
        """
        return RowOrder(column.name, not self.falls if column.name == self.name else column.falls)


def _parse_order(text: str, columns: Sequence[ProcessColumn[Any]]) -> RowOrder:
    """Parse an order such as `cpu down`; returns the default if it names none of these columns."""
    name, _, direction = text.partition(" ")
    is_column = any(column.name == name and column.order for column in columns)
    return RowOrder(name, direction != UP) if is_column else RowOrder()


class ProcessTable(LiveTable):
    """The filtered and sorted processes of a view, with the GPU memory by user below."""

    def __init__(self, view: View, parents: Parents | None = None) -> None:
        super().__init__(view, id="processes-table")
        self.process_order = _parse_order(view.preferences.get(PROCESS_ORDER), COLUMNS)
        self.user_order = _parse_order(view.preferences.get(USER_ORDER), USER_COLUMNS)
        self.filter = ""
        self.is_tree = False
        self.is_by_user = False
        self.has_sums = True
        """Whether there is a line below the rows."""
        self.message = ""
        """Text in place of the sums."""
        self.all: Sequence[Process] = ()
        self.columns = needed_columns(())
        """Columns for which any process has or had a value; a column is not removed when its values disappear."""
        self.matched: Sequence[Process] = ()
        self._rows: Sequence[Process | TreeRow | UserTotal] = ()
        self.totals: Sequence[UserTotal] = ()
        """Totals by user of the matching processes; empty while processes are shown."""
        self.memory: Sequence[tuple[str, KnownSum]] = ()
        """GPU memory by user of the matching processes, largest first; empty while totals are shown."""
        self.terms: tuple[Term, ...] = ()
        self.parents = parents or Parents()
        self.tags = ProcessTags()
        self.left_out_reader = LeftOutReader(lambda: view.ledger_runs.queries.on_answer())
        self._price_columns: tuple[ProcessColumn[UserTotal], ...] = ()
        self.months = MonthReader(lambda: view.ledger_runs.queries.on_answer())
        self.left_out = NONE_LEFT_OUT
        """Processes in `all` that come from stored history, not from the frame."""
        self._inputs: Hashable = None
        self._placed_columns: tuple[ProcessColumn[Any], ...] = ()

    @property
    def order(self) -> RowOrder:
        """Sort order of the rows on screen."""
        return self.user_order if self.is_by_user else self.process_order

    @property
    def orders(self) -> tuple[ProcessColumn[Any], ...]:
        """Columns on screen that can be sorted by."""
        return tuple(column for column in (self.user_columns if self.is_by_user else self.columns) if column.order)

    @property
    def user_columns(self) -> tuple[ProcessColumn[UserTotal], ...]:
        """Columns of the totals by user, including the costs of this month if prices are configured."""
        if self.view.ledger_runs.prices is not None and not self._price_columns:
            from gpumon_tui.render.month_columns import month_columns

            self._price_columns = month_columns(self.view.ledger_runs.prices)
        return self._price_columns or USER_COLUMNS

    def sort_by(self, name: str, *, default_direction: bool = False) -> None:
        """Sort by a column.

        Sorting by the same column again reverses the order, or restores its default direction with `default_direction`.
        """
        # Columns without values are allowed: CPU use is unknown until the second sample, and the key may be pressed
        # before.
        sortable = self.user_columns if self.is_by_user else COLUMNS
        column = next((column for column in sortable if column.name == name and column.order), None)
        if column is None:
            return
        order = RowOrder(name, column.falls) if default_direction else self.order.next(column)
        if self.is_by_user:
            self.user_order = order
        else:
            self.process_order = order
        preference = USER_ORDER if self.is_by_user else PROCESS_ORDER
        self.view.preferences.set(preference, f"{order.name} {DOWN if order.falls else UP}")

    def sort_by_neighbor(self, step: int) -> None:
        """Sort by the next or previous column, wrapping around."""
        names = [column.name for column in self.orders]
        index = names.index(self.order.name) if self.order.name in names else 0
        self.sort_by(names[(index + step) % len(names)], default_direction=True)

    def follow(self) -> None:
        """Update the rows from the frame on screen; the cursor stays on its row."""
        view, facts = self.view, self.view.process_facts()
        left_out = NONE_LEFT_OUT
        if view.frame is not None and view.frame.dropped:
            left_out = self.left_out_reader.processes(view.history_path, view.now, view.processes)
        filters = self.order, self.filter, self.is_tree, self.is_by_user
        prices, months = view.ledger_runs.prices, NO_MONTHS
        if self.is_by_user and prices is not None and view.is_recorded:
            months = self.months.by_user(view.history_path, view.now, prices)
        inputs = (view.frame, view.is_loading, facts.me, left_out.until, len(left_out.processes), filters, id(months))
        if inputs == self._inputs:
            self._follow_selection()
            return
        key = view.selected_process or self.key
        self._inputs = inputs
        self.terms = parse_terms(self.filter)
        self.left_out = left_out
        self.all = (*view.processes, *left_out.processes) if left_out.processes else view.processes
        self.columns = needed_columns(self.all, self.columns)
        if view.frame is not None:
            self.tags.follow(self.all)
        self.matched = matching(self.all, self.terms, facts) if self.terms else self.all
        self.totals, self.memory = (), ()
        name, falls = self.order
        if self.is_by_user:
            user_column = next((column for column in self.user_columns if column.name == name), USER_COLUMNS[0])
            totals = [total._replace(month=months.get(total.user)) for total in user_totals(self.matched)]
            self._rows = self.totals = sort_rows(totals, user_column, falls, facts, lambda total: total.user)
        else:
            self.memory = memory_by_user(self.matched)
            column = next(column for column in COLUMNS if column.name == name)
            positions, unknown_position = facts.positions, len(facts.positions)
            ordered = sort_rows(
                self.matched,
                column,
                falls,
                facts,
                lambda process: (positions.get(process.uuid, unknown_position), process.pid),
            )
            self._rows = build_tree(ordered, self.parents.above) if self.is_tree else ordered
        self._go_to(key)
        self.cursor = max(0, min(self.cursor, self.row_count - 1))

    def _follow_selection(self) -> None:
        """Move the cursor to the process that was selected on another page."""
        selected = self.view.selected_process
        if selected != self.key:
            self._go_to(selected)

    def _go_to(self, key: RowKey | None) -> None:
        """Move the cursor to the row with a key, if there is one."""
        if key is not None and key != self.key:
            self.cursor = next((index for index in range(self.row_count) if self._key_at(index) == key), self.cursor)

    @property
    def row_count(self) -> int:
        return len(self._rows)

    def place(self, cells: int) -> Sequence[PlacedColumn]:
        if not self.view.has_processes:  # there will never be rows, so headings would be pointless
            return ()
        columns: tuple[ProcessColumn[Any], ...] = self.user_columns
        if not self.is_by_user:
            columns = fit_epoch_column(self.columns, self.view.process_facts())
        self._placed_columns = columns
        return place_columns(columns, cells, self.order.name)

    def row(self, index: int) -> Row:
        facts, columns = self.view.process_facts(), [self._placed_columns[item.column_index] for item in self.placed]
        if self.is_by_user:
            return tuple(column.cell(self.totals[index], facts) for column in columns)
        depth, process, parent = self.tree_row(index)
        if process is not None:
            row = [column.cell(process, facts) for column in columns]
        else:
            row = [_parent_cell(column.name, parent) for column in columns]
        if depth:
            row[-1] = row[-1]._replace(text="  " * (depth - 1) + TREE_BRANCH + row[-1].text)
        return tuple(row)

    def mark(self, index: int) -> Segment:
        process = self.tree_row(index).process if self.tags and not self.is_by_user else None
        return _TAGGED if process is not None and process in self.tags else super().mark(index)

    def foot_rows(self, room: int) -> int:
        return int(self.has_sums and self.view.has_processes)

    def foot(self, above: int, below: int, cells: int) -> Line:
        edge = margin(cells)
        if self.message:
            return [Segment(" " * edge), Segment(fit(clean(self.message), cells - 2 * edge), _KEY)]
        gpus = [sample for sample in self.view.samples if not sample.device.is_instance]
        total = sum(sample.value("gpu.memory_total") for sample in gpus)
        return sums_line(self.memory, total, below, edge, cells)

    def empty(self, cells: int) -> list[Line]:
        return [[Segment(" " * margin(cells) + text, _DIM)] for text in self._empty_texts()]

    def _empty_texts(self) -> list[str]:
        view = self.view
        if view.frame is None:
            return [view.freshness.text]
        if not view.has_processes:
            return [NO_PROCESS_DATA]
        if not self.all:
            last_time = units.clock(view.now) if view.age > 0 else ""
            sentence = empty_text(view.samples, view.origin.problem, last_time)
            return [sentence, view.origin.notice] if view.origin.notice else [sentence]
        hidden = count_hidden(self.all, self.terms, view.process_facts())
        reasons = ", ".join(f"{safe(text)} hides {number}" for text, number in hidden)
        return [hidden_text("process", len(self.all), reasons), SHOW_ALL]

    @property
    def text(self) -> str:
        """The cells of the tagged rows, or of the row under the cursor, separated by tabs."""
        facts = self.view.process_facts()
        if self.is_by_user:
            chosen = [[column.cell(total, facts) for column in self.user_columns if column.title]
                      for total in self.totals[self.cursor : self.cursor + 1]]  # fmt: skip
        else:
            columns = [column for column in self.columns if column.title]
            chosen = [[column.cell(process, facts) for column in columns] for process in self.targets]
        return "\n".join("\t".join(cell.text for cell in cells) for cells in chosen)

    def tree_row(self, index: int) -> TreeRow:
        """Return a row of the process table; not valid for totals by user."""
        row = self._rows[index]
        return row if isinstance(row, TreeRow) else TreeRow(0, row if isinstance(row, Process) else None)

    def _key_at(self, index: int) -> RowKey:
        row = self._rows[index]
        if isinstance(row, UserTotal):
            return 0, row.user
        process = row.process if isinstance(row, TreeRow) else row
        if process is not None:
            return process.pid, process.uuid
        return (row.parent.pid if isinstance(row, TreeRow) and row.parent else 0), ""

    @property
    def key(self) -> RowKey | None:
        """Key of the row under the cursor."""
        return self._key_at(self.cursor) if self.cursor < self.row_count else None

    @property
    def process(self) -> Process | None:
        """The process under the cursor."""
        return self.tree_row(self.cursor).process if self.cursor < self.row_count else None

    @property
    def targets(self) -> Sequence[Process]:
        """Processes that a signal or copy applies to: the tagged ones on the page, or the one under the cursor."""
        if self.tags:
            return self._tagged_here
        return (self.process,) if self.process is not None else ()

    @property
    def hidden_tags(self) -> int:
        """Number of tagged processes hidden by the filter or by the totals."""
        return len(self.tags) - len(self._tagged_here) if self.tags else 0

    @property
    def _tagged_here(self) -> Sequence[Process]:
        pids = set() if self.is_by_user else {process.pid for process in self.matched}
        return [process for process in self.tags.processes if process.pid in pids]

    def find(self, key: RowKey) -> Process | None:
        """Return the process with a key, regardless of the filter."""
        return next((process for process in self.all if (process.pid, process.uuid) == key), None)

    def move(self, step: int) -> None:
        """Move the cursor within the rows, and select the GPU under it."""
        super().move(step)
        if not self.is_by_user:
            self.view.selected_process = self.key
        process = self.process
        if process is not None and process.uuid in self.view.process_facts().devices:
            self.view.select(process.uuid)


def _parent_cell(name: str, parent: ParentProcess | None) -> Cell:
    """Return a cell for a parent of several processes, which is on no GPU itself; its name is readable by every
    user.
    """
    texts = {"pid": str(parent.pid), "program": safe(parent.name)} if parent else {}
    return Cell(texts.get(name, ""), _PARENT)
