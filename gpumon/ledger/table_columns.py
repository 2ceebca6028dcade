"""Rows of the ledger's long tables, a column at a time: runs of thousands of epochs are read without an object a cell.

SQLite keeps any type in any column, and the file may be another user's, so each cell is asked for what it should be;
a column in which all are, is taken as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from gpumon.common.numbers import LARGEST, NAN, is_known, parse_logged
from gpumon.common.text import clean
from gpumon.database.cells import parse_json
from gpumon.ledger.records import EpochRow, LivePeak, PhaseRow, StepRow, UsageRow
from gpumon.ledger.schema import OUTSIDE_EPOCHS, USAGE, WHOLE_EPOCH

T = TypeVar("T", EpochRow, PhaseRow, StepRow, UsageRow)
_SPANS = 64
_INFINITE = float("inf")
_NO_METRICS: Mapping[str, float] = {}
_COUNTED = frozenset({"ordinal", "epoch", "begun", "steps", "times", "first_step"})
_SHORT = 64
"""Letters of a metric's name."""


class ResultColumns:
    """The rows of one query by column; a column that is not there is unknown in every row.

    A row is missing where a number that each has, such as its epoch, is none.
    """

    def __init__(self, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        for place in [place for place, name in enumerate(names) if name in _COUNTED]:
            if not {type(row[place]) for row in rows} <= {int}:
                rows = [row for row in rows if isinstance(row[place], int)]
        self.size = len(rows)
        cells = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        self._columns: dict[str, Sequence[Any]] = dict(zip(names, cells, strict=True))

    def raw(self, name: str) -> Sequence[Any]:
        """The cells of a column as they are."""
        return self._columns.get(name) or (None,) * self.size

    def text(self, name: str) -> Sequence[str]:
        """Harmless text; empty where there is none."""
        return self._each(name, lambda cell: clean(cell) if isinstance(cell, str) else "")

    def whole(self, name: str) -> Sequence[int]:
        """Whole numbers; 0 where there is none."""
        cells = self.raw(name)
        if set(map(type, cells)) <= {int}:
            return cells
        return [cell if isinstance(cell, int) else 0 for cell in cells]

    def real(self, name: str) -> Sequence[float]:
        """Numbers; NaN where there is none."""
        cells = self.raw(name)
        if set(map(type, cells)) <= {float} and -LARGEST < min(cells, default=0.0) <= max(cells, default=0.0) < LARGEST:
            return cells
        return [float(cell) if isinstance(cell, float | int) and -LARGEST < cell < LARGEST else NAN for cell in cells]

    def time(self, name: str) -> Sequence[float]:
        """Nanoseconds as seconds since 1970."""
        return [cell / 1e9 for cell in self.real(name)]

    def parsed(self, name: str, parse: Callable[[object], Any]) -> Sequence[Any]:
        """Each cell, parsed; cells that are alike share the result."""
        return self._each(name, parse)

    def _each(self, name: str, of: Callable[[Any], Any]) -> Sequence[Any]:
        cells = self.raw(name)
        known = {cell: of(cell) for cell in set(cells)}
        return [known[cell] for cell in cells]


def epoch_rows(table: ResultColumns) -> list[EpochRow]:
    """Rows of `epoch`."""
    return _rows(
        EpochRow,
        rank=table.text("rank"),
        ordinal=table.whole("ordinal"),
        epoch=table.whole("epoch"),
        begun=table.time("begun"),
        ended=table.time("ended"),
        seconds=table.real("seconds"),
        steps=table.whole("steps"),
        wait=_waits(table),
        metrics=table.parsed("metrics", metrics_of),
        trained=table.real("trained"),
        wait_of=table.real("wait_of"),
        peak=_peaks(table),
    )


def phase_rows(table: ResultColumns) -> list[PhaseRow]:
    """Rows of `phase`."""
    return _phase_rows(table, table.whole("ordinal"))


def outside_rows(table: ResultColumns) -> list[PhaseRow]:
    """Rows of `outside`; none of a rank of which it is unknown what it did there."""
    rows = _phase_rows(table, (OUTSIDE_EPOCHS,) * table.size)
    unknown = {row.rank for row in rows if row.phase == WHOLE_EPOCH and not is_known(row.seconds)}
    return [row for row in rows if row.rank not in unknown]


def _phase_rows(table: ResultColumns, ordinals: Sequence[int]) -> list[PhaseRow]:
    return _rows(
        PhaseRow,
        rank=table.text("rank"),
        ordinal=ordinals,
        phase=table.text("phase"),
        seconds=table.real("seconds"),
        times=table.whole("times"),
        steps=table.whole("steps"),
        wait=_waits(table),
        spans=table.parsed("spans", _spans),
        place=table.real("place"),
        peak=_peaks(table),
    )


def step_rows(table: ResultColumns) -> list[StepRow]:
    """Rows of `step_row`."""
    return _rows(
        StepRow,
        rank=table.text("rank"),
        ordinal=table.whole("ordinal"),
        first_step=table.whole("first_step"),
        steps=table.whole("steps"),
        begun=table.time("begun"),
        ended=table.time("ended"),
        seconds=table.real("seconds"),
        trained=table.real("trained"),
        wait=_waits(table),
        wait_of=table.real("wait_of"),
        metrics=table.parsed("metrics", metrics_of),
    )


def usage_rows(table: ResultColumns) -> list[UsageRow]:
    """Rows of `usage`."""
    return _rows(
        UsageRow,
        rank=table.text("rank"),
        ordinal=table.whole("ordinal"),
        phase=table.text("phase"),
        uuid=table.text("uuid"),
        utilization_from=table.text("utilization_from"),
        values=list(zip(*(table.real(column.name) for column in USAGE), strict=True)),
        energy_from=table.real("energy_from"),
        energy_to=table.real("energy_to"),
    )


def _rows(kind: type[T], **columns: Sequence[Any]) -> list[T]:
    """One record for each row, of columns by the names of its fields: without an object for each cell."""
    fields: tuple[str, ...] = kind._fields
    return list(map(kind, *(columns[field] for field in fields)))


def metrics_of(cell: object) -> Mapping[str, float]:
    """Numbers by name, from JSON; what is neither a number nor a word for one was not logged."""
    found = parse_json(cell) if cell != "{}" else None
    if not isinstance(found, dict):
        return _NO_METRICS
    numbers = {_name(name): value if type(value) is float else parse_logged(value) for name, value in found.items()}
    return {name: value for name, value in numbers.items() if value is not None}


@lru_cache(maxsize=256)
def _name(text: str) -> str:
    """The name of a metric as it may be shown: each epoch has the same ones."""
    return clean(text, _SHORT)


def _waits(table: ResultColumns) -> Sequence[float]:
    """Waits for data. Every measurement adds something: a wait of exactly 0 was never measured."""
    return [wait or NAN for wait in table.real("wait")]


def _peaks(table: ResultColumns) -> Sequence[LivePeak]:
    if set(table.raw("peak")) <= {None}:
        return [LivePeak()] * table.size
    return [
        LivePeak(value, reached == 1)
        for value, reached in zip(table.real("peak"), table.raw("peak_reached"), strict=True)
    ]


def _spans(cell: object) -> tuple[tuple[float, float], ...]:
    found = parse_json(cell)
    pairs = [pair for pair in found[:_SPANS] if isinstance(pair, list)] if isinstance(found, list) else []
    known = [[float(one) for one in pair if isinstance(one, float | int) and 0 <= one < _INFINITE] for pair in pairs]
    return tuple((pair[0], pair[1]) for pair in known if len(pair) == 2)
