"""Rows of the screen of accounts: of which window and which user, in which order, and where the cursor is in them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from gpumon.analysis.holders import devices_by_user
from gpumon.common.numbers import NAN
from gpumon.cost import NO_CHARGE
from gpumon.model import units
from gpumon.model.device import Device
from gpumon.reports.missing_history import NO_HARDWARE, NOT_YET
from gpumon.reports.usage import Headlines, unreadable
from gpumon.storage.usage.account import Account
from gpumon.storage.usage.period_totals import DEFAULT_PERIOD, UserWindow, parse_window
from gpumon_tui.data.accounts import GPUS, LATER, SOON, TIMES, AccountRow, WindowAccounts, read_window
from gpumon_tui.render.accounts import HELD, PLACE, AccountColumn, ShownAccount, columns
from gpumon_tui.render.gpu_columns import numbers
from gpumon_tui.render.process_columns import in_order
from gpumon_tui.screens.process_rows import RowOrder
from gpumon_tui.state import View

READING = "reading the accounts …"
_FIRST = 5.0
"""Seconds for which an answer without any hours is good: a daemon may just have begun."""
_FIRST_ORDERS = {"": RowOrder(HELD), GPUS: RowOrder(PLACE, falls=False), TIMES: RowOrder(PLACE)}
"""The most hours first; GPUs by number; the newest day first."""


class AccountSelection:
    """The accounts of a window, of everybody or of one user."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.period = DEFAULT_PERIOD
        self.user = ""
        """The one whose GPUs and days are shown; empty for everybody."""
        self.way = GPUS
        self.rows: Sequence[ShownAccount] = ()
        self.headlines: Headlines | None = None
        self.why = ""
        """Words in the place of rows, or above those of who only holds a GPU now."""
        self.cursor = 0
        self._day = ""
        """A day of the window; empty for the one of now."""
        self._orders = dict(_FIRST_ORDERS)
        self._chosen: dict[str, str] = {}
        """Names of the rows under the cursors."""
        self._asked: set[Hashable] = set()
        self._columns: dict[Hashable, tuple[AccountColumn, ...]] = {}

    @property
    def _table(self) -> str:
        """The table on screen: "" has the users."""
        return self.way if self.user else ""

    @property
    def order(self) -> RowOrder:
        """That of the table; the first one where its column is not on screen, as that of now in the past."""
        order = self._orders[self._table]
        return order if any(column.name == order.name for column in self.columns) else _FIRST_ORDERS[self._table]

    @property
    def window(self) -> UserWindow:
        """The window on screen, of the calendar of this machine."""
        return parse_window(self.period, self._day, "", self.view.kept.now())

    @property
    def is_of_now(self) -> bool:
        """Whether the window goes on."""
        return self.window.end > self.view.kept.now()

    def choose(self, period: str) -> None:
        """Show the day, the week or the month that the begin of the window lies in; of now, that of now."""
        self._day = "" if self.is_of_now else self.window.first_day
        self.period = period

    def turn(self, later: int) -> None:
        """Show an earlier (-1) or a later window, up to that of now."""
        neighbor = self.window.neighbor(later)
        now = self.view.kept.now()
        if neighbor.begin <= now:
            self._day = neighbor.first_day if neighbor.end <= now else ""

    def open(self) -> None:
        """Show the GPUs of the user under the cursor."""
        row = self._row
        if not self.user and row is not None and row.name:
            self.user = row.name

    def close(self) -> bool:
        """Go back to all users; whether one was open."""
        was_open, self.user = bool(self.user), ""
        self._chosen = {"": self._chosen.get("", "")}
        return was_open

    def turn_way(self) -> None:
        """Show the days of a user, or the GPUs again."""
        if self.user:
            self.way = TIMES if self.way == GPUS else GPUS

    def sort_by(self, column: AccountColumn) -> None:
        """Sort by a column; again by the same: the other way round."""
        self._orders[self._table] = self.order.next(column)

    def sort_beside(self, step: int) -> None:
        """Sort by a neighbor of the column."""
        sortable = [column for column in self.columns if column.order]
        at = [column.name for column in sortable].index(self.order.name)
        column = sortable[(at + step) % len(sortable)]
        self._orders[self._table] = RowOrder(column.name, column.falls)

    def reverse(self) -> None:
        """Turn the order."""
        name, falls = self.order
        self._orders[self._table] = RowOrder(name, not falls)

    def move(self, step: int) -> None:
        """Move the cursor."""
        self.cursor = max(0, min(len(self.rows) - 1, self.cursor + step))
        if self._row is not None:
            self._chosen[self._table] = self._row.name

    def row_text(self) -> str:
        """Return the cells of the row under the cursor, separated by tabs."""
        facts, titled = self.view.process_facts(), [column for column in self.columns if column.title]
        chosen = self.rows[self.cursor : self.cursor + 1]
        return "\n".join("\t".join(column.cell(row, facts).text for column in titled) for row in chosen)

    def drop(self) -> None:
        """Keep nothing of what was read."""
        for question in self._asked:
            self.view.kept.asked.drop(question)

    @property
    def _row(self) -> AccountRow | None:
        return self.rows[self.cursor].row if self.cursor < len(self.rows) else None

    @property
    def columns(self) -> tuple[AccountColumn, ...]:
        """Of the table, whether or not they have room."""
        step, is_times, is_of_now = self.window.step, self._table == TIMES, self.is_of_now
        kind = self._table, step, is_of_now
        if kind not in self._columns:
            of = step if is_times else "GPU" if self.user else "user"
            has_now = is_of_now and not is_times
            self._columns[kind] = columns(of, self.view.kept.prices, has_now=has_now, has_times=is_times)
        return self._columns[kind]

    def follow(self) -> None:
        """Take what is known by now. The cursor stays on its row."""
        found, self.why = self._read()
        self.headlines = found.headlines if found else None
        self.rows = self._shown(found)
        names, chosen = [one.row.name for one in self.rows], self._chosen.get(self._table)
        self.cursor = names.index(chosen) if chosen in names else min(self.cursor, max(0, len(names) - 1))
        if chosen is None:
            self.cursor = 0

    def _read(self) -> tuple[WindowAccounts | None, str]:
        """The accounts of the window, or why there are none."""
        view, window, user = self.view, self.window, self.user
        if view.frame is None:
            return None, view.freshness.text
        if not view.is_recorded:
            return None, NO_HARDWARE
        path, now, prices = view.history_path, view.kept.now(), view.kept.prices
        if not path:
            return None, NOT_YET
        question = "accounts", path, window.period, window.begin, user
        self._asked.add(question)
        until = SOON if self.is_of_now else LATER
        answer = view.kept.asked.ask(
            question,
            lambda: read_window(path, window, now, user, prices),
            lambda found: until if found.headlines else _FIRST,
        )
        if answer.found is None:
            return None, unreadable(answer.problem) if answer.problem else READING
        return answer.found, answer.found.why

    def _shown(self, found: WindowAccounts | None) -> list[ShownAccount]:
        """The rows of a table, in their order."""
        if found is None:
            return []
        holding = self._holding()
        rows = [*found.rows.get(self._table, ())]
        if not self.user:
            there = {row.name for row in rows}
            rows += [
                AccountRow(user, float(len(rows)), Account(user), NO_CHARGE, is_of_window=False)
                for user in sorted(holding) if user and user not in there
            ]  # fmt: skip
        most = max((row.account.held for row in rows), default=0.0)
        shown = [ShownAccount(row, row.account.held / most if most else 0.0, *self._now(row, holding)) for row in rows]
        name, falls = self.order
        by = next(column for column in self.columns if column.name == name)
        return in_order(shown, by, falls, self.view.process_facts(), lambda one: one.row.place)

    def _holding(self) -> Mapping[str, Sequence[Device]]:
        """The GPUs that each user holds now; empty where nobody knows."""
        view = self.view
        is_now = view.frame is not None and not view.age > 0 and not view.paused and not view.filling
        return devices_by_user(view.statuses) if self.is_of_now and is_now else {}

    def _now(self, row: AccountRow, holding: Mapping[str, Sequence[Device]]) -> tuple[str, float]:
        """The GPUs that are held now, in words, and how many they are."""
        if not holding:
            return units.MISSING, NAN
        if not self.user:
            devices = holding.get(row.name, ())
            named = numbers([one.uuid for one in devices], {one.uuid: one.label for one in devices})
            words = f"GPU {named}" if named.isdecimal() else named or units.MISSING  # else it could be how many
            return words if devices else "none", float(len(devices))
        own, unknown = ([one.uuid for one in holding.get(who, ())] for who in (self.user, ""))
        if row.device in own:
            return "held", 1.0
        return (units.MISSING, NAN) if row.device in unknown else ("not held", 0.0)
