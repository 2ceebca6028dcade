"""The sheet of accounts: who held how many GPU-hours in a day, a week or a month, and one user's GPUs and days."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from rich.segment import Segment
from textual import events

from gpumon import units
from gpumon.accounting.account import Account
from gpumon.accounting.user_window import USUAL, UserWindow, user_window
from gpumon.analysis.holding import held_now
from gpumon.cost.charge import NO_CHARGE
from gpumon.frame import Device
from gpumon.missing import NAN
from gpumon.reports.account_words import unreadable
from gpumon.reports.not_kept import NO_HARDWARE, NOT_YET
from gpumon_tui import theme
from gpumon_tui.account_reading import GPUS, LATER, SOON, TIMES, AccountRow, WindowAccounts, read_window
from gpumon_tui.pages.process_rows import RowOrder
from gpumon_tui.renderables.account_columns import HELD, PLACE, AccountColumn, ShownAccount, columns
from gpumon_tui.renderables.accounts import (
    AccountPlace,
    Choice,
    choice_line,
    headline_lines,
    key_line,
    said_line,
    window_lines,
)
from gpumon_tui.renderables.attention import wrapped
from gpumon_tui.renderables.gpu_numbers import numbers
from gpumon_tui.renderables.process_columns import in_order
from gpumon_tui.renderables.process_lines import PlacedColumn, heading, laid, placed
from gpumon_tui.renderables.text_width import SENTENCE, Line, safe
from gpumon_tui.screens.scrolled import Text
from gpumon_tui.view import View

READING = "reading the accounts …"
_FIRST = 5.0
"""Seconds for which an answer without any hours is good: a daemon may just have begun."""
_FIRST_ORDERS = {"": RowOrder(HELD), GPUS: RowOrder(PLACE, falls=False), TIMES: RowOrder(PLACE)}


class AccountSheet(Text):
    """All of the screen."""

    DEFAULT_CSS = "AccountSheet { height: 100%; }"
    ground = "ground"
    dims = False

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.period = USUAL
        self.user = ""
        """The one whose GPUs and days are shown; empty for everybody."""
        self.way = GPUS
        self.page = 1
        """Rows on screen."""
        self.said = ""
        """Told below the rows, until the next key."""
        self.rows: Sequence[ShownAccount] = ()
        self._day = ""
        """A day of the window; empty for the one of now."""
        self._orders = dict(_FIRST_ORDERS)
        self._chosen: dict[str, str] = {}
        """Names of the rows under the cursors."""
        self._asked: set[Hashable] = set()
        self._columns: dict[Hashable, tuple[AccountColumn, ...]] = {}
        self._placed: Sequence[PlacedColumn] = ()
        self._places: list[AccountPlace] = []
        self._heading_at, self._first, self._top, self.cursor = -1, 0, 0, 0

    @property
    def _table(self) -> str:
        """The table on screen: "" has the users."""
        return self.way if self.user else ""

    @property
    def _order(self) -> RowOrder:
        """That of the table; the first one where its column is not on screen, as that of now in the past."""
        order = self._orders[self._table]
        return order if any(column.name == order.name for column in self._of_table) else _FIRST_ORDERS[self._table]

    @property
    def window(self) -> UserWindow:
        """The window on screen, of the calendar of this machine."""
        return user_window(self.period, self._day, "", self.view.kept.now())

    def choose(self, period: str) -> None:
        """Show the day, the week or the month that the begin of the window lies in; of now, that of now."""
        self._day = "" if self._is_of_now else self.window.address
        self.period = period

    def turn(self, later: int) -> None:
        """Show an earlier (-1) or a later window, up to that of now."""
        beside = self.window.beside(later)
        if beside.begin <= self.view.kept.now():
            self._day = beside.address

    @property
    def _is_of_now(self) -> bool:
        return self.window.end > self.view.kept.now()

    def open(self) -> None:
        """Show the GPUs of the user under the cursor."""
        row = self._row
        if not self.user and row is not None and row.name:
            self.user = row.name

    def close(self) -> bool:
        """Go back to all users; whether anything was open."""
        was_open, self.user = bool(self.user), ""
        self._chosen = {"": self._chosen.get("", "")}
        return was_open

    def turn_way(self) -> None:
        """Show the days of a user, or the GPUs again."""
        if self.user:
            self.way = TIMES if self.way == GPUS else GPUS

    def sort_beside(self, step: int) -> None:
        """Sort by a neighbor of the column."""
        orders = [column for column in self._of_table if column.order]
        names = [column.name for column in orders]
        at = names.index(self._order.name)
        column = orders[(at + step) % len(orders)]
        self._orders[self._table] = RowOrder(column.name, column.falls)

    def reverse(self) -> None:
        """Turn the order."""
        name, falls = self._order
        self._orders[self._table] = RowOrder(name, not falls)

    def move(self, step: int) -> None:
        """Move the cursor."""
        self.cursor = max(0, min(len(self.rows) - 1, self.cursor + step))
        if self._row is not None:
            self._chosen[self._table] = self._row.name

    def row_text(self) -> str:
        """Return the cells of the row under the cursor, separated by tabs."""
        facts = self.view.process_facts()
        titled = [column for column in self._of_table if column.title]
        return "\n".join(
            "\t".join(column.cell(row, facts).text for column in titled)
            for row in self.rows[self.cursor : self.cursor + 1]
        )

    def drop(self) -> None:
        """Keep nothing of what was read."""
        for question in self._asked:
            self.view.kept.asked.drop(question)

    @property
    def _row(self) -> AccountRow | None:
        return self.rows[self.cursor].row if self.cursor < len(self.rows) else None

    @property
    def _of_table(self) -> tuple[AccountColumn, ...]:
        window, prices = self.window, self.view.kept.prices
        is_times, is_of_now = self._table == TIMES, self._is_of_now
        kind = self._table, window.step, is_of_now
        if kind not in self._columns:
            of = window.step if is_times else "GPU" if self.user else "user"
            found = columns(of, prices, has_now=is_of_now and not is_times, has_times=is_times)
            self._columns[kind] = found
        return self._columns[kind]

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
        until = SOON if self._is_of_now else LATER
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
        table, holding = self._table, self._holding()
        rows = [*(found.rows.get(table, ()) if found else ())]
        if table == "" and found is not None and self.view.is_recorded:
            there = {row.name for row in rows}
            rows += [
                AccountRow(user, float(len(rows)), Account(user), NO_CHARGE, is_of_window=False)
                for user in sorted(holding) if user and user not in there
            ]  # fmt: skip
        most = max((row.account.held for row in rows), default=0.0)
        shown = [ShownAccount(row, row.account.held / most if most else 0.0, *self._now(row, holding)) for row in rows]
        name, falls = self._order
        by = next(column for column in self._of_table if column.name == name)
        return in_order(shown, by, falls, self.view.process_facts(), lambda one: one.row.place)

    def _holding(self) -> Mapping[str, Sequence[Device]]:
        """The GPUs that each user holds now; empty where nobody knows."""
        view = self.view
        is_now = view.frame is not None and not view.age > 0 and not view.paused and not view.filling
        return held_now(view.statuses) if self._is_of_now and is_now else {}

    def _now(self, row: AccountRow, holding: Mapping[str, Sequence[Device]]) -> tuple[str, float]:
        """What is held now, in words, and how many GPUs."""
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

    def lines(self) -> list[Line]:
        """The window, its sums, the rows, and the keys."""
        cells, height = self.size
        window = self.window
        found, why = self._read()
        self.rows = self._shown(found)
        lines, self._places = window_lines(self.user, self.period, window.title, cells, is_newest=self._is_of_now)
        if found is not None and found.headlines is not None:
            lines += [[], *headline_lines(found.headlines, cells), []]
        self._follow()
        self._heading_at = -1
        if self.user and found is not None and found.headlines is not None:
            line, places = choice_line(self._ways(), len(lines), cells)
            lines.append(line)
            self._places += places
        if not self.rows or found is None or found.headlines is None:  # who holds one now may have no hours yet
            lines += [[], *([Segment(f" {part}", theme.DIM)] for part in wrapped(safe(why, SENTENCE), cells - 2)), []]
        if self.rows:
            self._heading_at = len(lines)
            self._placed = placed(self._of_table, cells, self._order.name)
            lines.append(heading(self._placed, cells, *self._order))
        self._first = len(lines)
        self.page = max(1, height - len(lines) - 1)
        lines += self._row_lines(cells)
        lines = [*lines, *([[]] * (height - 1 - len(lines)))][: height - 1]
        if self.said:
            return [*lines, said_line(self.said, cells)]
        last, places = key_line(self._keys(), height - 1, cells, is_ascii=self.view.look.is_ascii)
        self._places += places
        return [*lines, last]

    def _ways(self) -> list[Choice]:
        of = f"by {self.window.step}"
        return [Choice("", GPUS, "tab", self.way == GPUS), Choice("", of, "tab", self.way == TIMES)]

    def _keys(self) -> list[Choice]:
        rows = len(self.rows) > 0
        return [
            *([Choice("↵", "open", "enter")] if rows and not self.user else ()),
            *([Choice("Tab", f"{self.window.step}s" if self.way == GPUS else GPUS, "tab")] if self.user else ()),
            *([Choice("o", "sort", "o"), Choice("I", "turn", "I")] if rows else ()),
            Choice("d w m", "period", ""),
            Choice("← →", "earlier, later", ""),
            *([Choice("y", "copy", "y")] if rows else ()),
            Choice("Esc", "back" if self.user else "close", "escape"),
        ]

    def _follow(self) -> None:
        """The cursor stays on its row."""
        names = [one.row.name for one in self.rows]
        chosen = self._chosen.get(self._table)
        self.cursor = names.index(chosen) if chosen in names else min(self.cursor, max(0, len(names) - 1))
        if chosen is None:
            self.cursor = 0

    def _row_lines(self, cells: int) -> list[Line]:
        most = max(0, len(self.rows) - self.page)
        self._top = max(0, min(self._top, self.cursor, most), self.cursor - self.page + 1)
        facts = self.view.process_facts()
        return [
            laid([column.cell(one, facts) for column, _, _ in self._placed], self._placed, cells, place == self.cursor)
            for place, one in enumerate(self.rows)
            if self._top <= place < self._top + self.page
        ]

    def key_at(self, event: events.Click) -> str:
        """Return the key that a click stands for; one on a row or a heading has done all it does."""
        found = next((one.key for one in self._places if one.row == event.y and one.begin <= event.x < one.end), "")
        if found:
            return found
        if event.y == self._heading_at:
            self._sort_at(event.x)
        elif self._first <= event.y < min(self._first + self.page, self._first + len(self.rows) - self._top):
            place = event.y - self._first + self._top
            was_there = place == self.cursor
            self.move(place - self.cursor)
            return "enter" if was_there else ""
        return ""

    def _sort_at(self, cell: int) -> None:
        column = next((c for c, begin, room in self._placed if begin <= cell <= begin + room and c.order), None)
        if column is not None:
            self._orders[self._table] = self._order.next(column)
