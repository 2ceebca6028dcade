"""The columns of the totals by user."""

from __future__ import annotations

from gpumon.model import units
from gpumon_tui import palette
from gpumon_tui.process_list.facts import ProcessFacts
from gpumon_tui.process_list.user_totals import KnownSum, UserTotal
from gpumon_tui.renderables.process_columns import BAR_CELLS, WIDE, ProcessColumn, titled
from gpumon_tui.renderables.process_head import at_least
from gpumon_tui.renderables.table import Cell
from gpumon_tui.renderables.text_width import safe

_PLAIN, _DIM, _STRONG = palette.ink("text"), palette.ink("dim"), palette.ink("strong", bold=True)


def _user(total: UserTotal, facts: ProcessFacts) -> Cell:
    is_own = not facts.me or total.user == facts.me
    return Cell(safe(total.user) or "unknown", _PLAIN if is_own else _DIM)


def _bar(total: UserTotal, facts: ProcessFacts) -> Cell:
    there = sum(size for size in facts.memory.values() if size > 0)
    share = total.memory.value / there if there else 0.0
    return Cell("▆" * round(min(1.0, share) * BAR_CELLS) if share > 0 else "", palette.tinted("memory", 0.62))


def _gibibytes(of: KnownSum) -> Cell:
    return Cell(at_least(of, units.gibibytes), _PLAIN)


def _percent(of: KnownSum) -> Cell:
    return Cell(at_least(of, lambda value: units.rounded(value * 100)), _PLAIN)


def _gpus(total: UserTotal, facts: ProcessFacts) -> Cell:
    places = sorted(total.gpus, key=lambda uuid: facts.places.get(uuid, len(facts.places)))
    labels = [facts.devices[uuid].label for uuid in places if uuid in facts.devices]
    return Cell(" ".join(label or units.MISSING for label in labels), _PLAIN)


USER_COLUMNS: tuple[ProcessColumn[UserTotal], ...] = (
    ProcessColumn("user", titled("user"), 16, 10, lambda t, f: t.user.casefold(), _user, False, False, brief_cells=10),
    ProcessColumn(
        "processes", "processes", 9, 5, lambda t, f: t.processes, lambda t, f: Cell(str(t.processes), _PLAIN)
    ),
    ProcessColumn("bar", "", BAR_CELLS, 0, None, _bar, right=False, from_cells=WIDE),
    ProcessColumn(
        "mem", titled("memory_used"), 8, 12, lambda t, f: t.memory.value,
        lambda t, f: Cell(at_least(t.memory, units.gibibytes), _STRONG), brief="GiB", brief_cells=7,
    ),
    ProcessColumn("sm", titled("sm_utilization"), 5, 8, lambda t, f: t.sm.value, lambda t, f: _percent(t.sm)),
    ProcessColumn("cpu", titled("cpu_utilization"), 6, 7, lambda t, f: t.cpu.value, lambda t, f: _percent(t.cpu)),
    ProcessColumn(
        "host", titled("host_memory"), 9, 2, lambda t, f: t.host_memory.value, lambda t, f: _gibibytes(t.host_memory)
    ),
    ProcessColumn("gpus", "GPUs", 0, 11, lambda t, f: len(t.gpus), _gpus, right=False),
)  # fmt: skip
