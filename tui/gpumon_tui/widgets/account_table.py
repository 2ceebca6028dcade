"""The table of the accounts screen: GPU hours of a window by user, or of a user by GPU or day."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from gpumon.analysis.holders import devices_by_user
from gpumon.common.numbers import NAN
from gpumon.cost import NO_CHARGE
from gpumon.model import units
from gpumon.model.device import Device
from gpumon.reports.history import NO_HARDWARE, NOT_YET
from gpumon.reports.usage import Headlines, unreadable
from gpumon.storage.usage.account import Account
from gpumon.storage.usage.period_totals import DEFAULT_PERIOD, UserWindow, parse_window
from gpumon_tui.data.accounts import GPUS, LATER, SOON, TIMES, AccountRow, WindowAccounts, read_window
from gpumon_tui.render.accounts import HELD, PLACE, AccountColumn, AccountLine, columns
from gpumon_tui.render.gpu_columns import numbers
from gpumon_tui.render.process_columns import place_columns, sort_rows
from gpumon_tui.render.table import PlacedColumn, Row
from gpumon_tui.state import View
from gpumon_tui.widgets.live_table import LiveTable
from gpumon_tui.widgets.process_table import RowOrder

READING = "reading the accounts …"
_EMPTY_VALID_FOR = 5.0
"""Seconds for which an empty answer stays valid; short, because the daemon may just have started."""
_DEFAULT_ORDERS = {"": RowOrder(HELD), GPUS: RowOrder(PLACE, falls=False), TIMES: RowOrder(PLACE)}
"""Default sort orders: users by hours, GPUs by number, days newest first."""


class AccountTable(LiveTable):
    """Accounts of a time window, for all users or one user."""

    DEFAULT_CSS = "AccountTable { height: 1fr; }"
    dims = False

    def __init__(self, view: View) -> None:
        super().__init__(view, id="accounts-table")
        self.period = DEFAULT_PERIOD
        self.user = ""
        """User whose GPUs and days are shown; empty for all users."""
        self.grouping = GPUS
        self.rows: Sequence[AccountLine] = ()
        self.headlines: Headlines | None = None
        self.note = ""
        """Text shown in place of the rows, or above the rows of users who only hold a GPU now."""
        self._day = ""
        """A day within the window; empty for the current window."""
        self._orders = dict(_DEFAULT_ORDERS)
        self._selected_names: dict[str, str] = {}
        """Names of the rows under the cursors, by table."""
        self._queries: set[Hashable] = set()
        self._columns: dict[Hashable, tuple[AccountColumn, ...]] = {}

    @property
    def row_count(self) -> int:
        return len(self.rows)

    def place(self, cells: int) -> Sequence[PlacedColumn]:
        return place_columns(self.columns, cells, self.order.name) if self.rows else ()

    def row(self, index: int) -> Row:
        facts, columns = self.view.process_facts(), self.columns
        return tuple(columns[placed.column_index].cell(self.rows[index], facts) for placed in self.placed)

    @property
    def _table(self) -> str:
        """Name of the table on screen; "" is the table of users."""
        return self.grouping if self.user else ""

    @property
    def order(self) -> RowOrder:
        """Sort order of the table, or its default if the sort column is not on screen (the past has no column for
        now).
        """
        order = self._orders[self._table]
        return order if any(column.name == order.name for column in self.columns) else _DEFAULT_ORDERS[self._table]

    @property
    def window(self) -> UserWindow:
        """The window on screen, in this machine's local time."""
        return parse_window(self.period, self._day, "", self.view.ledger_runs.now())

    @property
    def is_of_now(self) -> bool:
        """Whether the window contains the present."""
        return self.window.end > self.view.ledger_runs.now()

    def choose(self, period: str) -> None:
        """Show the day, week or month in which the window starts; from the current window, switch to the current
        one.
        """
        self._day = "" if self.is_of_now else self.window.first_day
        self.period = period

    def step_window(self, step: int) -> None:
        """Show the previous (-1) or next window, but none in the future."""
        neighbor = self.window.neighbor(step)
        now = self.view.ledger_runs.now()
        if neighbor.begin <= now:
            self._day = neighbor.first_day if neighbor.end <= now else ""

    def open_user(self) -> None:
        """Show the GPUs of the user under the cursor."""
        row = self._selected
        if not self.user and row is not None and row.name:
            self.user = row.name

    def close_user(self) -> bool:
        """Return to all users; return whether a user was open."""
        was_open, self.user = bool(self.user), ""
        self._selected_names = {"": self._selected_names.get("", "")}
        return was_open

    def toggle_grouping(self) -> None:
        """Toggle between the GPUs and the days of a user."""
        if self.user:
            self.grouping = TIMES if self.grouping == GPUS else GPUS

    def sort_by(self, key: str) -> None:
        """Sort by a column; sorting by the same column again reverses the order."""
        column = next((column for column in self.columns if column.name == key and column.order), None)
        if column is not None:
            self._orders[self._table] = self.order.next(column)

    def sort_by_neighbor(self, step: int) -> None:
        """Sort by the next or previous column."""
        sortable = [column for column in self.columns if column.order]
        index = [column.name for column in sortable].index(self.order.name)
        column = sortable[(index + step) % len(sortable)]
        self._orders[self._table] = RowOrder(column.name, column.falls)

    def reverse(self) -> None:
        """Reverse the sort order."""
        name, falls = self.order
        self._orders[self._table] = RowOrder(name, not falls)

    def move(self, step: int) -> None:
        """Move the cursor."""
        super().move(step)
        if self._selected is not None:
            self._selected_names[self._table] = self._selected.name

    def row_text(self) -> str:
        """Return the cells of the row under the cursor, separated by tabs."""
        facts, titled_columns = self.view.process_facts(), [column for column in self.columns if column.title]
        chosen = self.rows[self.cursor : self.cursor + 1]
        return "\n".join("\t".join(column.cell(row, facts).text for column in titled_columns) for row in chosen)

    def drop(self) -> None:
        """Drop the cached answers."""
        for query in self._queries:
            self.view.ledger_runs.queries.drop(query)

    @property
    def _selected(self) -> AccountRow | None:
        return self.rows[self.cursor].row if self.cursor < len(self.rows) else None

    @property
    def columns(self) -> tuple[AccountColumn, ...]:
        """Columns of the table, including columns that do not fit on screen."""
        step, is_times, is_of_now = self.window.step, self._table == TIMES, self.is_of_now
        key = self._table, step, is_of_now
        if key not in self._columns:
            group = step if is_times else "GPU" if self.user else "user"
            has_now = is_of_now and not is_times
            self._columns[key] = columns(group, self.view.ledger_runs.prices, has_now=has_now, has_times=is_times)
        return self._columns[key]

    def follow(self) -> None:
        """Update the rows from the answers so far; the cursor stays on its row."""
        accounts, self.note = self._read()
        self.headlines = accounts.headlines if accounts else None
        self.rows = self._sorted_lines(accounts)
        names, chosen = [line.row.name for line in self.rows], self._selected_names.get(self._table)
        self.cursor = names.index(chosen) if chosen in names else min(self.cursor, max(0, len(names) - 1))
        if chosen is None:
            self.cursor = 0

    def _read(self) -> tuple[WindowAccounts | None, str]:
        """Return the accounts of the window, or why there are none."""
        view, window, user = self.view, self.window, self.user
        if view.frame is None:
            return None, view.freshness.text
        if not view.is_recorded:
            return None, NO_HARDWARE
        path, now, prices = view.history_path, view.ledger_runs.now(), view.ledger_runs.prices
        if not path:
            return None, NOT_YET
        query = "accounts", path, window.period, window.begin, user
        self._queries.add(query)
        valid_for = SOON if self.is_of_now else LATER
        answer = view.ledger_runs.queries.get(
            query,
            lambda: read_window(path, window, now, user, prices),
            lambda accounts: valid_for if accounts.headlines else _EMPTY_VALID_FOR,
        )
        if answer.result is None:
            return None, unreadable(answer.problem) if answer.problem else READING
        return answer.result, answer.result.empty_text

    def _sorted_lines(self, accounts: WindowAccounts | None) -> list[AccountLine]:
        """Return the rows of the table, sorted."""
        if accounts is None:
            return []
        holding = self._holding()
        rows = [*accounts.rows.get(self._table, ())]
        if not self.user:
            users = {row.name for row in rows}
            rows += [
                AccountRow(user, float(len(rows)), Account(user), NO_CHARGE, is_of_window=False)
                for user in sorted(holding) if user and user not in users
            ]  # fmt: skip
        max_hours = max((row.account.held for row in rows), default=0.0)
        lines = [
            AccountLine(row, row.account.held / max_hours if max_hours else 0.0, *self._now(row, holding))
            for row in rows
        ]
        name, falls = self.order
        sort_column = next(column for column in self.columns if column.name == name)
        return sort_rows(lines, sort_column, falls, self.view.process_facts(), lambda line: line.row.position)

    def _holding(self) -> Mapping[str, Sequence[Device]]:
        """Return the GPUs each user holds now; empty if unknown."""
        view = self.view
        is_now = view.frame is not None and not view.age > 0 and not view.paused and not view.is_loading
        return devices_by_user(view.statuses) if self.is_of_now and is_now else {}

    def _now(self, row: AccountRow, holding: Mapping[str, Sequence[Device]]) -> tuple[str, float]:
        """Return the GPUs a user holds now as text, and their number."""
        if not holding:
            return units.MISSING, NAN
        if not self.user:
            devices = holding.get(row.name, ())
            label = numbers([device.uuid for device in devices], {device.uuid: device.label for device in devices})
            text = f"GPU {label}" if label.isdecimal() else label or units.MISSING  # a bare number looks like a count
            return text if devices else "none", float(len(devices))
        held_here, unknown = ([device.uuid for device in holding.get(user, ())] for user in (self.user, ""))
        if row.device in held_here:
            return "held", 1.0
        return (units.MISSING, NAN) if row.device in unknown else ("not held", 0.0)
