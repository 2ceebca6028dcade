"""Columns of the totals by user."""

from __future__ import annotations

from typing import Any

from rich.style import Style

from gpumon.model import units
from gpumon.model.columns import PROCESS_BY_KEY
from gpumon_tui import palette
from gpumon_tui.data.process_facts import ProcessFacts
from gpumon_tui.data.user_totals import UserTotal
from gpumon_tui.render.process_columns import BAR_CELLS, WIDE, ProcessColumn, table_column_of
from gpumon_tui.render.process_head import at_least
from gpumon_tui.render.table import Cell
from gpumon_tui.render.text_width import safe

_PLAIN, _DIM, _STRONG = palette.ink("text"), palette.ink("dim"), palette.ink("strong", bold=True)


def _user(total: UserTotal, facts: ProcessFacts) -> Cell:
    is_own = not facts.me or total.user == facts.me
    return Cell(safe(total.user) or "unknown", _PLAIN if is_own else _DIM)


def _bar(total: UserTotal, facts: ProcessFacts) -> Cell:
    total_memory = sum(size for size in facts.memory.values() if size > 0)
    share = total.memory.value / total_memory if total_memory else 0.0
    return Cell("▆" * round(min(1.0, share) * BAR_CELLS) if share > 0 else "", palette.tint("memory", 0.62))


def _gpus(total: UserTotal, facts: ProcessFacts) -> Cell:
    uuids = sorted(total.gpus, key=lambda uuid: facts.positions.get(uuid, len(facts.positions)))
    labels = [facts.devices[uuid].label for uuid in uuids if uuid in facts.devices]
    return Cell(" ".join(label or units.MISSING for label in labels), _PLAIN)


def _sums(
    name: str, field: str, key: str, cells: int, keep: float, style: Style = _PLAIN, **layout: Any
) -> ProcessColumn[UserTotal]:
    """Return the column for the sum `field` of a user's processes, based on the process column `key`."""
    column = PROCESS_BY_KEY[key]

    def cell(total: UserTotal, facts: ProcessFacts) -> Cell:
        return Cell(at_least(getattr(total, field), column.write_without_unit), style)

    return table_column_of(
        name, column, cells, keep, lambda t, f: getattr(t, field).value, cell, **{"brief": "", **layout}
    )


USER_COLUMNS: tuple[ProcessColumn[UserTotal], ...] = (
    table_column_of("user", PROCESS_BY_KEY["user"], 16, 10, lambda t, f: t.user.casefold(), _user, brief_cells=10),
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
