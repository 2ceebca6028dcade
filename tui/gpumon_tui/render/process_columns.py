"""Columns of the list of processes and of the totals by user: heading, width, sort order and cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from rich.style import Style

from gpumon.analysis.gpu_state import IdleTime
from gpumon.analysis.processes import job_or_container, uses_video
from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.columns import PROCESS_BY_KEY, Column
from gpumon.model.frame import Run
from gpumon.model.metrics import Unit
from gpumon.model.process import Process
from gpumon_tui import theme
from gpumon_tui.data.processes import ProcessFacts
from gpumon_tui.data.user_totals import UserTotal
from gpumon_tui.render.process_head import at_least
from gpumon_tui.render.table import Cell, PlacedColumn, TableColumn, fit_columns, margin
from gpumon_tui.render.text_width import safe

Item = TypeVar("Item")
_PLAIN, _DIM, _FAINT = theme.ink("text"), theme.ink("dim"), theme.ink("faint")
_STRONG, _BOLD, _RUN, _WARN = (
    theme.ink("strong"), theme.ink("strong", bold=True), theme.ink("run"), theme.ink("warn"),
)  # fmt: skip
IDLE_FROM = 60.0
"""Idle time in seconds of an allocated GPU from which its processes show it."""
_BAR = theme.tint("memory", 0.62)
TIME_CELLS = 8
_EPOCH_CELLS = 5
"""Width of the epoch heading."""
_GPU_CELLS = 3
_UNKNOWN = float("nan")
BAR_CELLS = 6
WIDE = 100
"""Minimum width, in columns, at which table columns are two cells apart and memory has a bar."""
VERY_WIDE = 150
"""Minimum width, in columns, at which names get more room even at the expense of other columns. In less width, names
use only spare room.
"""


MIN_PROGRAM, MIN_CELLS = 14, 10
"""Minimum width of the flexible column: for programs, so that `jupyter-kernel` fits, and for others."""
NAME_CELLS = 20
"""Width at which most program names fit (`finetune_llama_8b.py`), in a wide table."""
DROPPED_FOR_NAME = 2
"""Columns with a `keep` up to this value are dropped to reach that width: the bar, and redundant numbers."""


class ProcessColumn(NamedTuple, Generic[Item]):
    """A column of processes or of users; a `cells` of 0 takes the remaining room."""

    name: str
    """Name in the config file and in `sorted by`."""
    title: str
    cells: int
    """Width of the largest possible value."""
    keep: float
    """Priority: the larger, the longer it is kept when there is no room."""
    order: Callable[[Item, ProcessFacts], float | str] | None
    """Sort key; NaN and empty texts are unknown and come last. None if the column cannot be sorted by."""
    cell: Callable[[Item, ProcessFacts], Cell]
    right: bool = True
    falls: bool = True
    """Whether sorting starts with the largest value."""
    brief: str = ""
    """Heading for narrow columns; `title` if empty."""
    brief_cells: int = 0
    wide_cells: int = 0
    is_needed: Callable[[Sequence[Process]], bool] = bool
    """Whether any of these processes has a value for it."""
    from_cells: int = 0
    """Minimum width of a table that includes it."""

    def in_table(self, cells: int) -> TableColumn:
        """Return the column as it is in a table of a width."""
        is_wide, is_program = cells >= WIDE, self.name == "program"
        own_cells = self.cells if is_wide else self.brief_cells or self.cells
        return TableColumn(
            self.title if is_wide else self.brief or self.title,
            self.wide_cells if cells >= VERY_WIDE and self.wide_cells else own_cells,
            self.right, self.keep, preferred=NAME_CELLS if is_program else self.wide_cells if is_wide else 0,
            minimum=MIN_PROGRAM if is_program else MIN_CELLS, key=self.name, joins=not self.title, overhangs=True,
            displaces=DROPPED_FOR_NAME if is_program and is_wide else -1,
        )  # fmt: skip


def _base(process: Process, facts: ProcessFacts) -> Cell:
    return Cell("", _PLAIN if facts.is_own(process) else _DIM)


def _pid(process: Process, facts: ProcessFacts) -> Cell:
    return _base(process, facts)._replace(text=PROCESS_BY_KEY["pid"].write(process.pid))


def _gpu(process: Process, facts: ProcessFacts) -> Cell:
    label = facts.label(process) or units.MISSING
    if process.uuid not in facts.silent:
        return Cell(label, _BOLD)
    return Cell(f"○{label}" if len(label) < _GPU_CELLS else label, _WARN)


def _user(process: Process, facts: ProcessFacts) -> Cell:
    return _base(process, facts)._replace(text=safe(process.user) or units.MISSING)


def _number(text: str, process: Process, facts: ProcessFacts) -> Cell:
    """Return a number in its style; zero and unknown are dim."""
    is_nothing = text in ("0", "0.0", units.MISSING)
    return Cell(text, _FAINT) if is_nothing else _base(process, facts)._replace(text=text)


def _bar(process: Process, facts: ProcessFacts) -> Cell:
    share = process.memory_used / facts.memory.get(process.uuid, 0.0) if facts.memory.get(process.uuid) else 0.0
    cells = round(min(1.0, max(0.0, share)) * BAR_CELLS) if is_known(share) else 0
    return Cell("▆" * cells, _BAR)


def _share(key: str) -> Callable[[Process, ProcessFacts], Cell]:
    """Return cells for a share of GPU time; unknown while the driver does not respond."""

    def cell(process: Process, facts: ProcessFacts) -> Cell:
        value = _UNKNOWN if process.uuid in facts.silent else getattr(process, key)
        return _number(PROCESS_BY_KEY[key].write_without_unit(value), process, facts)

    return cell


def _measured(key: str) -> Callable[[Process, ProcessFacts], Cell]:
    """Return cells for a number."""
    write = PROCESS_BY_KEY[key].write_without_unit
    return lambda process, facts: _number(write(getattr(process, key)), process, facts)


def _memory(process: Process, facts: ProcessFacts) -> Cell:
    text = PROCESS_BY_KEY["memory_used"].write_without_unit(process.memory_used)
    return Cell(text, _FAINT if text == units.MISSING else _STRONG if facts.is_own(process) else _PLAIN)


def _run(process: Process, facts: ProcessFacts) -> Cell:
    """Return the run; for a process without one, that its GPU is allocated and idle."""
    run, idle = facts.run(process), facts.idle.get(process.uuid)
    if run:
        return Cell(safe(run.name), _RUN)
    text = idle_text(idle)
    return Cell(text, _WARN) if text else Cell("", _RUN)


def idle_text(idle: IdleTime | None) -> str:
    """Return how long a GPU has been allocated and idle, in its largest unit: `idle 3 h`, `idle > 3 h`."""
    if idle is None or idle.seconds < IDLE_FROM:
        return ""
    return f"idle {'> ' if idle.at_least else ''}{' '.join(units.short_duration(idle.seconds).split(' ')[:2])}"


def _epoch(process: Process, facts: ProcessFacts) -> Cell:
    run = facts.run(process)
    if run is None or run.epoch < 0:
        return Cell("", _PLAIN)
    return Cell(units.epoch_position(run.epoch, run.epochs, run.base), _PLAIN)


def _last_epoch(run: Run) -> int:
    """Return the width of the last planned epoch of a run, or of the current one without a plan."""
    number = run.base + run.epochs - 1 if run.epochs else run.epoch
    return len(units.epoch_position(number, run.epochs, run.base))


def _run_order(process: Process, facts: ProcessFacts) -> str:
    run = facts.run(process)
    return run.name.casefold() if run else ""


def _epoch_order(process: Process, facts: ProcessFacts) -> float:
    run = facts.run(process)
    return float(run.epoch) if run and run.epoch >= 0 else _UNKNOWN


def _program(process: Process, facts: ProcessFacts) -> Cell:
    return _base(process, facts)._replace(text=safe(facts.program(process)) or units.MISSING)


def _any_has(name: str) -> Callable[[Sequence[Process]], bool]:
    """Return a predicate: whether any process has a value for a field."""
    return lambda processes: any(is_known(getattr(process, name)) for process in processes)


def table_column_of(
    name: str, column: Column, cells: int, keep: float, order: Callable[[Item, ProcessFacts], float | str],
    cell: Callable[[Item, ProcessFacts], Cell], *, has_units: bool = False, **layout: Any,
) -> ProcessColumn[Item]:  # fmt: skip
    """Return a column of `model.columns` with its heading, alignment and direction; `layout` sets how this table shows
    it.

    `has_units`: cells include units, so the heading does not.
    """
    title = column.short if has_units else column.heading_with_unit
    brief = {"brief": f"{column.short}%"} if column.unit is Unit.RATIO and not has_units else {}
    return ProcessColumn(
        name, title, cells, keep, order, cell, **{"right": column.is_number, "falls": column.falls, **brief, **layout}
    )


def _numbers(
    name: str, key: str, cells: int, keep: float, cell: Callable[[Process, ProcessFacts], Cell], **layout: Any
) -> ProcessColumn[Process]:
    """Return a column that is sorted by its number, and shown if any process has one."""
    layout = {"is_needed": _any_has(key), **layout}
    return table_column_of(name, PROCESS_BY_KEY[key], cells, keep, lambda p, f: getattr(p, key), cell, **layout)


COLUMNS: tuple[ProcessColumn[Process], ...] = (
    _numbers("pid", "pid", 7, 8.5, _pid, is_needed=bool),
    table_column_of(
        "gpu", PROCESS_BY_KEY["gpu"], _GPU_CELLS, 9, lambda p, f: f.positions.get(p.uuid, _UNKNOWN), _gpu, brief_cells=4
    ),
    table_column_of("user", PROCESS_BY_KEY["user"], 8, 10, lambda p, f: p.user.casefold(), _user, wide_cells=12),
    ProcessColumn("bar", "", BAR_CELLS, 0, None, _bar, right=False, from_cells=WIDE),
    _numbers("mem", "memory_used", 5, 12, _memory, brief="GiB", is_needed=bool),
    _numbers("sm", "sm_utilization", 4, 8, _share("sm_utilization")),
    _numbers("bandw", "memory_utilization", 4, 1, _share("memory_utilization")),
    _numbers("enc", "encoder_utilization", 5, 0.5, _share("encoder_utilization"), is_needed=uses_video),
    _numbers("dec", "decoder_utilization", 5, 0.5, _share("decoder_utilization"), is_needed=uses_video),
    _numbers("cpu", "cpu_utilization", 5, 7, _measured("cpu_utilization")),
    _numbers("host", "host_memory", 8, 2, _measured("host_memory"), brief="host", brief_cells=6),
    table_column_of(
        "time", PROCESS_BY_KEY["started"], TIME_CELLS, 4, lambda p, f: f.now - p.started,
        lambda p, f: Cell(elapsed(f.now - p.started), _DIM), is_needed=_any_has("started"),
    ),
    table_column_of("run", PROCESS_BY_KEY["run"], 12, 5, _run_order, _run, wide_cells=22),
    table_column_of(
        "epoch", PROCESS_BY_KEY["epoch"], _EPOCH_CELLS, 3, _epoch_order, _epoch,
        is_needed=lambda processes: any(process.run for process in processes),
    ),
    table_column_of(
        "job", PROCESS_BY_KEY["where"], 22, 2.5, lambda p, f: job_or_container(p).casefold(),
        lambda p, f: _base(p, f)._replace(text=safe(job_or_container(p))),
        wide_cells=32, is_needed=lambda processes: any(map(job_or_container, processes)),
    ),
    table_column_of("program", PROCESS_BY_KEY["name"], 0, 11, lambda p, f: f.program(p).casefold(), _program),
)  # fmt: skip
BY_NAME = {column.name: column for column in COLUMNS}
ORDERS = tuple(column for column in COLUMNS if column.order)
"""Columns that a table can be sorted by."""
DEFAULT_ORDER = "mem"


def needed_columns(
    processes: Sequence[Process], previous: Sequence[ProcessColumn[Process]] = ()
) -> tuple[ProcessColumn[Process], ...]:
    """Return the columns for which any process has a value, and the `previous` ones."""
    return tuple(
        column for column in COLUMNS if column.is_needed is bool or column in previous or column.is_needed(processes)
    )


def fit_epoch_column(
    columns: tuple[ProcessColumn[Process], ...], facts: ProcessFacts
) -> tuple[ProcessColumn[Process], ...]:
    """Return the columns with the epoch column wide enough for the planned epochs of all runs."""
    cells = max((_EPOCH_CELLS, *map(_last_epoch, facts.runs.values())))
    return tuple(column._replace(cells=cells) if column.name == "epoch" else column for column in columns)


def sort_rows(
    items: Sequence[Item],
    column: ProcessColumn[Item],
    is_descending: bool,
    facts: ProcessFacts,
    tie: Callable[[Item], Any],
) -> list[Item]:
    """Return rows sorted by a column; unknown values come last, equal ones are ordered by `tie`."""
    order = column.order or (lambda item, facts: 0)
    rows = sorted(items, key=tie)
    values = [order(row, facts) for row in rows]
    # NaN != NaN; no call of is_known, because a value may also be a text.
    with_value = [index for index, value in enumerate(values) if value == value and value != ""]
    without_value = () if len(with_value) == len(rows) else sorted({*range(len(rows))}.difference(with_value))
    with_value.sort(key=values.__getitem__, reverse=is_descending)
    return [rows[index] for index in (*with_value, *without_value)]


def elapsed(seconds: float) -> str:
    """Format an age in whole minutes (`12 m`), or tens of seconds below that; a column that changes every second
    would repaint every row.
    """
    if not seconds >= 0:
        return units.MISSING
    if seconds < 60:
        return f"{int(seconds) // 10 * 10} s" if seconds >= 10 else "<10 s"
    text = units.short_duration(seconds)
    return text if len(text) <= TIME_CELLS else " ".join(text.split()[:2])


@lru_cache(maxsize=64)
def place_columns(columns: tuple[ProcessColumn[Any], ...], cells: int, sorted_by: str) -> tuple[PlacedColumn, ...]:
    """Return the columns that fit in a table of a width."""
    side = margin(cells)
    too_wide = {column.name for column in columns if column.from_cells > cells and column.name != sorted_by}
    return fit_columns(
        tuple(column.in_table(cells) for column in columns), side, cells - side, gap=side, sorted_by=sorted_by,
        empty=frozenset(too_wide),
    )  # fmt: skip


def _user_name(total: UserTotal, facts: ProcessFacts) -> Cell:
    is_own = not facts.me or total.user == facts.me
    return Cell(safe(total.user) or "unknown", _PLAIN if is_own else _DIM)


def _user_bar(total: UserTotal, facts: ProcessFacts) -> Cell:
    total_memory = sum(size for size in facts.memory.values() if size > 0)
    share = total.memory.value / total_memory if total_memory else 0.0
    return Cell("▆" * round(min(1.0, share) * BAR_CELLS) if share > 0 else "", theme.tint("memory", 0.62))


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
    table_column_of("user", PROCESS_BY_KEY["user"], 16, 10, lambda t, f: t.user.casefold(), _user_name, brief_cells=10),
    ProcessColumn(
        "processes", "processes", 9, 5, lambda t, f: t.processes, lambda t, f: Cell(str(t.processes), _PLAIN)
    ),
    ProcessColumn("bar", "", BAR_CELLS, 0, None, _user_bar, right=False, from_cells=WIDE),
    _sums("mem", "memory", "memory_used", 8, 12, _BOLD, brief="GiB", brief_cells=7),
    _sums("sm", "sm", "sm_utilization", 5, 8),
    _sums("cpu", "cpu", "cpu_utilization", 6, 7),
    _sums("host", "host_memory", "host_memory", 9, 2),
    ProcessColumn("gpus", "GPUs", 0, 11, lambda t, f: len(t.gpus), _gpus, right=False),
)  # fmt: skip
