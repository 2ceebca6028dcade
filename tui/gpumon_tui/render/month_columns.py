"""Columns of this month's hours and costs for the totals by user; imported only if prices are configured."""

from __future__ import annotations

from gpumon.common.config import Prices
from gpumon.common.numbers import NAN
from gpumon.cost import UNKNOWN, Amount
from gpumon.model import units
from gpumon.reports import charges
from gpumon.reports.usage import hours_text
from gpumon_tui import theme
from gpumon_tui.data.user_totals import UserTotal
from gpumon_tui.render.process_columns import USER_COLUMNS, ProcessColumn
from gpumon_tui.render.table import Cell

_PLAIN = theme.ink("text")
_HOURS: ProcessColumn[UserTotal] = ProcessColumn(
    "month", "this month", 10, 6.5, lambda t, f: t.month.held if t.month else NAN,
    lambda t, f: Cell(hours_text(t.month.held) if t.month else units.MISSING, _PLAIN),
)  # fmt: skip


def month_columns(prices: Prices) -> tuple[ProcessColumn[UserTotal], ...]:
    """Return the columns of totals by user, with the cost columns before the last, which takes the remaining room."""
    costs = [_cost(column.short, column.key, index, prices) for index, column in enumerate(charges.priced(prices))]
    return (*USER_COLUMNS[:-1], _HOURS, *costs, USER_COLUMNS[-1])


def _cost(title: str, name: str, index: int, prices: Prices) -> ProcessColumn[UserTotal]:
    """Return the column of a named amount of a charge."""

    def amount(total: UserTotal) -> Amount:
        charge_amount: Amount = getattr(total.month.charge, name) if total.month else UNKNOWN
        return charge_amount

    return ProcessColumn(
        name, title, 12, 6.0 - index, lambda t, f: amount(t).value,
        lambda t, f: Cell(charges.text(amount(t), name, prices), _PLAIN),
    )  # fmt: skip
