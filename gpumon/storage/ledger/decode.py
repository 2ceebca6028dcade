"""Converts SQLite rows into the classes of `records`.

SQLite allows any type in any column, and the file may belong to another user. A cell with the wrong type counts as
unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar, get_type_hints

from gpumon.common.columnar import DamagedBlock
from gpumon.common.numbers import LARGEST, NAN, is_known, parse_logged
from gpumon.common.privacy import SHOWN, current_policy
from gpumon.common.text import clean
from gpumon.model.columns import USAGE
from gpumon.model.frame import Mark, RunState
from gpumon.model.run import facts_from_row
from gpumon.storage.ledger.records import (
    DeviceRow,
    EpochRow,
    LivePeak,
    MarkRow,
    PhaseRow,
    RankRow,
    RunRow,
    RunTrace,
    StepRow,
    UsageRow,
)
from gpumon.storage.ledger.row_keys import OUTSIDE_EPOCHS, WHOLE_EPOCH
from gpumon.storage.ledger.trace import unpack_trace
from gpumon.storage.sqlite.cells import parse_json

T = TypeVar("T", EpochRow, PhaseRow, StepRow, UsageRow)
_SPANS = 64
_INFINITE = float("inf")
_NO_METRICS: Mapping[str, float] = {}
_TIMES = frozenset(("begun", "ended", "started", "time", "updated"))
"""Columns with times in ns since 1970."""
_COUNTED = frozenset({"ordinal", "epoch", "begun", "steps", "times", "first_step"})
_SHORT = 64
"""Maximum length of a metric's name."""


class ResultColumns:
    """The rows of a query, accessed by column. A missing column counts as unknown in every row.

    Rows without a valid value in a required integer column, such as `epoch`, are skipped.
    """

    def __init__(self, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        for index in [index for index, name in enumerate(names) if name in _COUNTED]:
            if not {type(row[index]) for row in rows} <= {int}:
                rows = [row for row in rows if isinstance(row[index], int)]
        self.size = len(rows)
        cells = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        self._columns: dict[str, Sequence[Any]] = dict(zip(names, cells, strict=True))

    def raw(self, name: str) -> Sequence[Any]:
        """Return the cells of a column unchanged."""
        return self._columns.get(name) or (None,) * self.size

    def text(self, name: str) -> Sequence[str]:
        """Return the column as escaped strings. Cells that are not text become empty strings."""
        return self._each(name, lambda cell: clean(cell) if isinstance(cell, str) else "")

    def whole(self, name: str) -> Sequence[int]:
        """Return the column as integers. Cells that are not integers become 0."""
        cells = self.raw(name)
        if set(map(type, cells)) <= {int}:
            return cells
        return [cell if isinstance(cell, int) else 0 for cell in cells]

    def real(self, name: str) -> Sequence[float]:
        """Return the column as numbers. Cells that are not numbers become NaN."""
        cells = self.raw(name)
        if set(map(type, cells)) <= {float} and -LARGEST < min(cells, default=0.0) <= max(cells, default=0.0) < LARGEST:
            return cells
        return [float(cell) if isinstance(cell, float | int) and -LARGEST < cell < LARGEST else NAN for cell in cells]

    def time(self, name: str) -> Sequence[float]:
        """Return a column of nanoseconds since 1970 converted to seconds."""
        return [cell / 1e9 for cell in self.real(name)]

    def parsed(self, name: str, parse: Callable[[object], Any]) -> Sequence[Any]:
        """Return the result of `parse` for each cell. Equal cells are parsed only once."""
        return self._each(name, parse)

    def _each(self, name: str, parse: Callable[[Any], Any]) -> Sequence[Any]:
        cells = self.raw(name)
        parsed = {cell: parse(cell) for cell in set(cells)}
        return [parsed[cell] for cell in cells]


def epoch_rows(table: ResultColumns) -> list[EpochRow]:
    """Convert rows of the table `epoch`."""
    return _rows(EpochRow, table, wait=_waits(table), metrics=table.parsed("metrics", metrics_of), peak=_peaks(table))


def phase_rows(table: ResultColumns) -> list[PhaseRow]:
    """Convert rows of the table `phase`."""
    return _phase_rows(table, table.whole("ordinal"))


def outside_rows(table: ResultColumns) -> list[PhaseRow]:
    """Convert rows of the table `outside`. Ranks whose time outside epochs is unknown are left out."""
    rows = _phase_rows(table, (OUTSIDE_EPOCHS,) * table.size)
    unknown = {row.rank for row in rows if row.phase == WHOLE_EPOCH and not is_known(row.seconds)}
    return [row for row in rows if row.rank not in unknown]


def _phase_rows(table: ResultColumns, ordinals: Sequence[int]) -> list[PhaseRow]:
    spans = table.parsed("spans", _spans)
    return _rows(PhaseRow, table, ordinal=ordinals, wait=_waits(table), spans=spans, peak=_peaks(table))


def step_rows(table: ResultColumns) -> list[StepRow]:
    """Convert rows of the table `step_row`."""
    return _rows(StepRow, table, wait=_waits(table), metrics=table.parsed("metrics", metrics_of))


def usage_rows(table: ResultColumns) -> list[UsageRow]:
    """Convert rows of the table `usage`."""
    return _rows(UsageRow, table, values=list(zip(*(table.real(column.key) for column in USAGE), strict=True)))


def _rows(kind: type[T], table: ResultColumns, **columns: Sequence[Any]) -> list[T]:
    """Build one record of type `kind` per row. `columns` has the fields that need more than a conversion by type.

    No intermediate object is created per row, because a run may have thousands of rows.
    """
    return list(map(kind, *_fields(kind, table, columns).values()))


def _fields(kind: type[Any], source: ResultColumns | Cells, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a record: from `known`, or else from the column with the field's name, by its type."""
    fields = {}
    for name, cell_type in _TYPES[kind].items():
        if name in known:
            fields[name] = known[name]
        elif cell_type is float:
            fields[name] = source.time(name) if name in _TIMES else source.real(name)
        else:
            fields[name] = source.text(name) if cell_type is str else source.whole(name)
    return fields


_KINDS = (RunRow, RankRow, DeviceRow, EpochRow, PhaseRow, StepRow, UsageRow, MarkRow)
_TYPES: Mapping[type[Any], Mapping[str, Any]] = {kind: get_type_hints(kind) for kind in _KINDS}
"""Types of the fields of each kind of record."""


def metrics_of(cell: object) -> Mapping[str, float]:
    """Return the metrics in a JSON object, by name. Values that are not numbers are left out."""
    metrics = parse_json(cell) if cell != "{}" else None
    if not isinstance(metrics, dict):
        return _NO_METRICS
    numbers = {_name(name): value if type(value) is float else parse_logged(value) for name, value in metrics.items()}
    return {name: value for name, value in numbers.items() if value is not None}


@lru_cache(maxsize=256)
def _name(text: str) -> str:
    """Return a metric's name with harmful characters escaped. It is cached, because each epoch has the same names."""
    return clean(text, _SHORT)


def _waits(table: ResultColumns) -> Sequence[float]:
    """Return the waits for data in seconds. 0 becomes NaN (unknown), because a measured wait is always greater."""
    return [wait or NAN for wait in table.real("wait")]


def _peaks(table: ResultColumns) -> Sequence[LivePeak]:
    if set(table.raw("peak")) <= {None}:
        return [LivePeak()] * table.size
    return [
        LivePeak(value, reached == 1)
        for value, reached in zip(table.real("peak"), table.raw("peak_reached"), strict=True)
    ]


def _spans(cell: object) -> tuple[tuple[float, float], ...]:
    spans = parse_json(cell)
    pairs = [pair for pair in spans[:_SPANS] if isinstance(pair, list)] if isinstance(spans, list) else []
    known = [[float(n) for n in pair if isinstance(n, float | int) and 0 <= n < _INFINITE] for pair in pairs]
    return tuple((pair[0], pair[1]) for pair in known if len(pair) == 2)


_MARKS = frozenset(Mark)
_STATES = frozenset(RunState)
_POINTS = 1 << 14
_COLUMNS = 256
"""Maximum number of columns of a trace. It limits how much memory is used to decompress a damaged row."""


class Cells(dict[str, Any]):
    """A row of a query, accessed by column name."""

    def text(self, name: str) -> str:
        """Return a cell as an escaped string, or an empty string if the cell is not text."""
        cell = self.get(name)
        return clean(cell) if isinstance(cell, str) else ""

    def whole(self, name: str) -> int:
        """Return a cell as an integer, or 0 if the cell is not an integer."""
        cell = self.get(name)
        return cell if isinstance(cell, int) else 0

    def real(self, name: str) -> float:
        """Return a cell as a number, or NaN if the cell is not a number."""
        cell = self.get(name)
        return float(cell) if isinstance(cell, float | int) and -LARGEST < cell < LARGEST else NAN

    def time(self, name: str) -> float:
        """Return a cell that holds nanoseconds since 1970, converted to seconds."""
        return self.real(name) / 1e9

    def state(self) -> RunState:
        """Return the state of a run or rank. A state that this version does not support counts as died."""
        cell = self.get("state")
        return RunState(cell) if cell in _STATES else RunState.DIED


def cells_of(cursor: Any, row: Sequence[Any]) -> Cells:
    """Row factory for sqlite3: return the row as `Cells`."""
    return Cells(zip((column[0] for column in cursor.description), row, strict=True))


def run_row(cells: Cells) -> RunRow:
    """Convert a row of the table `run`."""
    people = current_policy()
    record = RunRow(**_fields(RunRow, cells, {"state": cells.state()}))
    if people.way == SHOWN:
        return record
    return record._replace(
        id=people.run_id(record.id),
        name=people.run_id(record.id),
        user=people.name(record.user),
        label=people.label(record.label),
        resumes=people.run_id(record.resumes),
    )


def rank_row(cells: Cells, devices: Sequence[DeviceRow]) -> RankRow:
    """Convert a row of the table `rank`. `devices` are the devices of this rank."""
    known = {
        "state": cells.state(),
        "wait": cells.real("wait") or NAN,
        "devices": tuple(devices),
        "facts": facts_from_row(cells),
        "metrics": metrics_of(cells.get("metrics") or "{}"),
    }
    return RankRow(**_fields(RankRow, cells, known))


def device_row(cells: Cells) -> DeviceRow:
    """Convert a row of the table `device`."""
    return DeviceRow(**_fields(DeviceRow, cells, {}))


def mark_row(cells: Cells) -> MarkRow | None:
    """Convert a row of the table `mark`. Return None if this version does not support the kind of mark."""
    mark = cells.get("mark")
    if mark not in _MARKS:
        return None
    return MarkRow(**_fields(MarkRow, cells, {"mark": Mark(mark)}))


def trace_row(cells: Cells) -> RunTrace | None:
    """Convert a row of the table `trace` and decompress it. Return None if the row is damaged."""
    names, points = parse_json(cells.get("columns")), cells.whole("points")
    packed, step = cells.get("cells"), cells.real("step")
    if not isinstance(names, list) or not isinstance(packed, bytes) or not (0 < points <= _POINTS and step > 0):
        return None
    try:
        lines = unpack_trace(packed, points) if len(names) <= _COLUMNS else []
    except DamagedBlock:
        return None
    if len(lines) != len(names):
        return None
    return RunTrace(
        rank=cells.text("rank"),
        uuid=cells.text("uuid"),
        begun=cells.time("begun"),
        step=step,
        points=points,
        columns={clean(str(name)): line for name, line in zip(names, lines, strict=True)},
    )
