"""The columns of this month's hours and costs among the totals by user, where anything has a price."""

from __future__ import annotations

from typing import Any

from rich.style import Style

from gpumon.common.config import Prices
from gpumon.common.numbers import NAN
from gpumon.cost import UNKNOWN, Amount
from gpumon.model import units
from gpumon.model.columns import PROCESS_BY_KEY
from gpumon.reports import charges
from gpumon.reports.usage import hours_text
from gpumon_tui import palette
from gpumon_tui.data.process_facts import ProcessFacts
from gpumon_tui.data.user_totals import UserTotal
from gpumon_tui.render.process_columns import BAR_CELLS, WIDE, ProcessColumn, described
from gpumon_tui.render.process_head import at_least
from gpumon_tui.render.table import Cell
from gpumon_tui.render.text_width import safe

_PLAIN, _DIM, _STRONG = palette.ink("text"), palette.ink("dim"), palette.ink("strong", bold=True)


def _user(total: UserTotal, facts: ProcessFacts) -> Cell:
    is_own = not facts.me or total.user == facts.me
    return Cell(safe(total.user) or "unknown", _PLAIN if is_own else _DIM)


def _bar(total: UserTotal, facts: ProcessFacts) -> Cell:
    there = sum(size for size in facts.memory.values() if size > 0)
    share = total.memory.value / there if there else 0.0
    return Cell("▆" * round(min(1.0, share) * BAR_CELLS) if share > 0 else "", palette.tinted("memory", 0.62))


def _gpus(total: UserTotal, facts: ProcessFacts) -> Cell:
    places = sorted(total.gpus, key=lambda uuid: facts.places.get(uuid, len(facts.places)))
    labels = [facts.devices[uuid].label for uuid in places if uuid in facts.devices]
    return Cell(" ".join(label or units.MISSING for label in labels), _PLAIN)


def _sums(
    name: str, field: str, key: str, cells: int, keep: float, style: Style = _PLAIN, **layout: Any
) -> ProcessColumn[UserTotal]:
    """The column of the sum `field` of a user's processes, of the column `key` of processes."""
    column = PROCESS_BY_KEY[key]

    def cell(total: UserTotal, facts: ProcessFacts) -> Cell:
        return Cell(at_least(getattr(total, field), column.write_without_unit), style)

    return described(name, column, cells, keep, lambda t, f: getattr(t, field).value, cell, **{"brief": "", **layout})


USER_COLUMNS: tuple[ProcessColumn[UserTotal], ...] = (
    described("user", PROCESS_BY_KEY["user"], 16, 10, lambda t, f: t.user.casefold(), _user, brief_cells=10),
    ProcessColumn(
        "processes", "processes", 9, 5, lambda t, f: t.processes, lambda t, f: Cell(str(t.processes), _PLAIN)
    ),
    ProcessColumn("bar", "", BAR_CELLS, 0, None, _bar, right=False, from_cells=WIDE),
    _sums("mem", "memory", "memory_used", 8, 12, _STRONG, brief="GiB", brief_cells=7),
    _sums("sm", "sm", "sm_utilization", 5, 8),
    _sums("cpu", "cpu", "cpu_utilization", 6, 7),
    _sums("host", "host_memory", "host_memory", 9, 2),
    ProcessColumn("gpus", "GPUs", 0, 11, lambda t, f: len(t.gpus), _gpus, right=False),
)  # fmt: skip


_MONTH_STYLE = palette.ink("text")
_MONTH: ProcessColumn[UserTotal] = ProcessColumn(
    "month", "this month", 10, 6.5, lambda t, f: t.month.held if t.month else NAN,
    lambda t, f: Cell(hours_text(t.month.held) if t.month else units.MISSING, _MONTH_STYLE),
)  # fmt: skip


def with_costs(prices: Prices) -> tuple[ProcessColumn[UserTotal], ...]:
    """The columns of totals by user, with these before the last one, which takes what room is left."""
    costs = [_cost(column.short, column.key, place, prices) for place, column in enumerate(charges.priced(prices))]
    return (*USER_COLUMNS[:-1], _MONTH, *costs, USER_COLUMNS[-1])


def _cost(title: str, name: str, place: int, prices: Prices) -> ProcessColumn[UserTotal]:
    """The column of an amount of a charge, by its name."""

    def amount(total: UserTotal) -> Amount:
        found: Amount = getattr(total.month.charge, name) if total.month else UNKNOWN
        return found

    return ProcessColumn(
        name, title, 12, 6.0 - place, lambda t, f: amount(t).value,
        lambda t, f: Cell(charges.text(amount(t), name, prices), _MONTH_STYLE),
    )  # fmt: skip
