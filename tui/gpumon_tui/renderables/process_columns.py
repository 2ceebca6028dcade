"""The one statement of each column of processes: heading, width, order and cell. A table takes what has room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from gpumon.analysis.gpu_state import IdleTime
from gpumon.analysis.processes import job_or_container, uses_video
from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.columns import PROCESS_BY_KEY
from gpumon.model.frame import Run
from gpumon.model.metrics import Unit
from gpumon.model.process import Process
from gpumon_tui import palette
from gpumon_tui.process_list.facts import ProcessFacts
from gpumon_tui.renderables.table import Cell
from gpumon_tui.renderables.text_width import safe

Of = TypeVar("Of")
_PLAIN, _DIM, _FAINT = palette.ink("text"), palette.ink("dim"), palette.ink("faint")
_STRONG, _BOLD, _RUN, _WARN = (
    palette.ink("strong"), palette.ink("strong", bold=True), palette.ink("run"), palette.ink("warn"),
)  # fmt: skip
IDLE_FROM = 60.0
"""Seconds of an allocated GPU's idleness from which its processes say so."""
_BAR = palette.tinted("memory", 0.62)
TIME_CELLS = 8
_EPOCH_CELLS = 5
"""Cells of the heading above epochs."""
_GPU_CELLS = 3
_UNKNOWN = float("nan")
BAR_CELLS = 6
WIDE = 100
"""Cells from which columns are two cells apart, and memory has a bar."""
VERY_WIDE = 150
"""Cells from which names have more room, whatever leaves for it; below they take what nothing else needs."""


class ProcessColumn(NamedTuple, Generic[Of]):
    """A column of processes, or of their users; `cells` of 0 takes what room is left."""

    name: str
    """For the config file and for `sorted by`."""
    title: str
    cells: int
    """Of the largest value that it can ever hold."""
    keep: float
    """The larger, the longer it stays when there is no room."""
    order: Callable[[Of, ProcessFacts], float | str] | None
    """The value by which a table is sorted: NaN and an empty text are unknown, and stand last. None for no order."""
    cell: Callable[[Of, ProcessFacts], Cell]
    right: bool = True
    falls: bool = True
    """Whether the largest stand first when somebody sorts by it."""
    brief: str = ""
    """The heading where columns stand close; `title` where it is empty."""
    brief_cells: int = 0
    wide_cells: int = 0
    is_needed: Callable[[Sequence[Process]], bool] = bool
    """Whether any of these processes has something for it."""
    from_cells: int = 0
    """Fewest cells of a table that has it."""


def titled(key: str) -> str:
    """The heading of a column of processes; of numbers without a unit it names that: `GPU GiB`, `SM %`."""
    column = PROCESS_BY_KEY[key]
    if column.unit is Unit.RATIO:
        return f"{column.short} %"
    return column.short.replace("mem", "GiB") if column.unit is Unit.BYTES else column.short


def _base(process: Process, facts: ProcessFacts) -> Cell:
    return Cell("", _PLAIN if facts.is_own(process) else _DIM)


def _pid(process: Process, facts: ProcessFacts) -> Cell:
    return _base(process, facts)._replace(text=str(process.pid))


def _gpu(process: Process, facts: ProcessFacts) -> Cell:
    label = facts.label(process) or units.MISSING
    if process.uuid not in facts.silent:
        return Cell(label, _BOLD)
    return Cell(f"○{label}" if len(label) < _GPU_CELLS else label, _WARN)


def _user(process: Process, facts: ProcessFacts) -> Cell:
    return _base(process, facts)._replace(text=safe(process.user) or units.MISSING)


def _number(text: str, process: Process, facts: ProcessFacts) -> Cell:
    """A number in its style: one that is zero or unknown steps back."""
    is_nothing = text in ("0", "0.0", units.MISSING)
    return Cell(text, _FAINT) if is_nothing else _base(process, facts)._replace(text=text)


def _bar(process: Process, facts: ProcessFacts) -> Cell:
    share = process.memory_used / facts.memory.get(process.uuid, 0.0) if facts.memory.get(process.uuid) else 0.0
    cells = round(min(1.0, max(0.0, share)) * BAR_CELLS) if is_known(share) else 0
    return Cell("▆" * cells, _BAR)


def _memory(process: Process, facts: ProcessFacts) -> Cell:
    text = units.gibibytes(process.memory_used)
    return Cell(text, _FAINT if text == units.MISSING else _STRONG if facts.is_own(process) else _PLAIN)


def _share(value: float, process: Process, facts: ProcessFacts) -> Cell:
    return _number(units.rounded(value * 100), process, facts)


def _gpu_share(value: float, process: Process, facts: ProcessFacts) -> Cell:
    """A share of its GPU's time, which nobody knows while the driver does not answer."""
    return _share(_UNKNOWN if process.uuid in facts.silent else value, process, facts)


def _run(process: Process, facts: ProcessFacts) -> Cell:
    """The run; of a process without one that its GPU is allocated and idle."""
    run, idle = facts.run(process), facts.idle.get(process.uuid)
    if run:
        return Cell(safe(run.name), _RUN)
    text = about_idle(idle)
    return Cell(text, _WARN) if text else Cell("", _RUN)


def about_idle(idle: IdleTime | None) -> str:
    """Return how long a GPU has been allocated and idle, by the first part of it: `idle 3 h`, `idle > 3 h`."""
    if idle is None or idle.seconds < IDLE_FROM:
        return ""
    return f"idle {'> ' if idle.at_least else ''}{' '.join(units.short_duration(idle.seconds).split(' ')[:2])}"


def _epoch(process: Process, facts: ProcessFacts) -> Cell:
    run = facts.run(process)
    if run is None or run.epoch < 0:
        return Cell("", _PLAIN)
    return Cell(units.epoch_position(run.epoch, run.epochs, run.base), _PLAIN)


def _last_epoch(run: Run) -> int:
    """Cells of the last epoch of a run's plan, or of the one that it is in where there is none."""
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


def _some(name: str) -> Callable[[Sequence[Process]], bool]:
    """Whether any process has a value of a field."""
    return lambda processes: any(is_known(getattr(one, name)) for one in processes)


COLUMNS: tuple[ProcessColumn[Process], ...] = (
    ProcessColumn("pid", titled("pid"), 7, 8.5, lambda p, f: p.pid, _pid, falls=False),
    ProcessColumn(
        "gpu", titled("gpu"), _GPU_CELLS, 9,
        lambda p, f: f.places.get(p.uuid, _UNKNOWN), _gpu, falls=False, brief_cells=4
    ),
    ProcessColumn("user", titled("user"), 8, 10, lambda p, f: p.user.casefold(), _user, False, False, wide_cells=12),
    ProcessColumn("bar", "", BAR_CELLS, 0, None, _bar, right=False, from_cells=WIDE),
    ProcessColumn("mem", titled("memory_used"), 5, 12, lambda p, f: p.memory_used, _memory, brief="GiB"),
    ProcessColumn(
        "sm", titled("sm_utilization"), 4, 8,
        lambda p, f: p.sm_utilization, lambda p, f: _gpu_share(p.sm_utilization, p, f),
        brief="SM%", is_needed=_some("sm_utilization"),
    ),
    ProcessColumn(
        "bandw", titled("memory_utilization"), 4, 1, lambda p, f: p.memory_utilization,
        lambda p, f: _gpu_share(p.memory_utilization, p, f), brief="bw%",
        is_needed=_some("memory_utilization"),
    ),
    ProcessColumn(
        "enc", titled("encoder_utilization"), 5, 0.5, lambda p, f: p.encoder_utilization,
        lambda p, f: _gpu_share(p.encoder_utilization, p, f),
        is_needed=uses_video, brief="enc%",
    ),
    ProcessColumn(
        "dec", titled("decoder_utilization"), 5, 0.5, lambda p, f: p.decoder_utilization,
        lambda p, f: _gpu_share(p.decoder_utilization, p, f),
        is_needed=uses_video, brief="dec%",
    ),
    ProcessColumn(
        "cpu", titled("cpu_utilization"), 5, 7,
        lambda p, f: p.cpu_utilization, lambda p, f: _share(p.cpu_utilization, p, f),
        brief="CPU%", is_needed=_some("cpu_utilization"),
    ),
    ProcessColumn(
        "host", titled("host_memory"), 8, 2, lambda p, f: p.host_memory,
        lambda p, f: _number(units.gibibytes(p.host_memory), p, f), brief="host", brief_cells=6,
        is_needed=_some("host_memory"),
    ),
    ProcessColumn(
        "time", titled("started"), TIME_CELLS, 4, lambda p, f: f.now - p.started,
        lambda p, f: Cell(elapsed(f.now - p.started), _DIM), is_needed=_some("started"),
    ),
    ProcessColumn("run", titled("run"), 12, 5, _run_order, _run, False, False, wide_cells=22),
    ProcessColumn(
        "epoch", titled("epoch"), _EPOCH_CELLS, 3, _epoch_order, _epoch,
        is_needed=lambda processes: any(one.run for one in processes),
    ),
    ProcessColumn(
        "job", titled("where"), 22, 2.5, lambda p, f: job_or_container(p).casefold(),
        lambda p, f: _base(p, f)._replace(text=safe(job_or_container(p))), False, False,
        wide_cells=32, is_needed=lambda processes: any(map(job_or_container, processes)),
    ),
    ProcessColumn("program", titled("name"), 0, 11, lambda p, f: f.program(p).casefold(), _program, False, False),
)  # fmt: skip
BY_NAME = {column.name: column for column in COLUMNS}
ORDERS = tuple(column for column in COLUMNS if column.order)
"""Columns by which a table can be sorted."""
FIRST_ORDER = "mem"


def needed(
    processes: Sequence[Process], before: Sequence[ProcessColumn[Process]] = ()
) -> tuple[ProcessColumn[Process], ...]:
    """Return the columns for which any of these processes has something, and those that were needed `before`."""
    return tuple(
        column for column in COLUMNS if column.is_needed is bool or column in before or column.is_needed(processes)
    )


def as_wide_as(columns: tuple[ProcessColumn[Process], ...], facts: ProcessFacts) -> tuple[ProcessColumn[Process], ...]:
    """Return the columns with that of epochs as wide as the plans of the runs can ever bring."""
    cells = max((_EPOCH_CELLS, *map(_last_epoch, facts.runs.values())))
    return tuple(one._replace(cells=cells) if one.name == "epoch" else one for one in columns)


def in_order(
    of: Sequence[Of], column: ProcessColumn[Of], falls: bool, facts: ProcessFacts, tie: Callable[[Of], Any]
) -> list[Of]:
    """Return rows sorted by a column; what is unknown stands last, equals by `tie`."""
    order = column.order or (lambda one, facts: 0)
    rows = sorted(of, key=tie)
    values = [order(row, facts) for row in rows]
    # NaN != NaN; no call of is_known, because a value may be a text as well.
    known = [place for place, value in enumerate(values) if value == value and value != ""]
    unknown = () if len(known) == len(rows) else sorted({*range(len(rows))}.difference(known))
    known.sort(key=values.__getitem__, reverse=falls)
    return [rows[place] for place in (*known, *unknown)]


def elapsed(seconds: float) -> str:
    """Whole minutes, `12 m`, and tens of seconds before: a column that changes every second repaints every row."""
    if not seconds >= 0:
        return units.MISSING
    if seconds < 60:
        return f"{int(seconds) // 10 * 10} s" if seconds >= 10 else "<10 s"
    text = units.short_duration(seconds)
    return text if len(text) <= TIME_CELLS else " ".join(text.split()[:2])
