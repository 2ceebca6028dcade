"""History for other programs: `gpumon history export`, a row for each stretch of time, device and metric."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

from gpumon.common.numbers import is_known
from gpumon.model.metrics import BY_NAME, Kind, Scope
from gpumon.reports.csv_cells import csv_line, utc
from gpumon.reports.parquet import parquet_bytes
from gpumon.storage.history.grid import Grid
from gpumon.storage.history.query import HOST, History, Query

FIELDS = ("begun_seconds", "begun_utc", "seconds", "device", "metric", "unit", "low", "mean", "high")
"""When the stretch began, since 1970 and in UTC; how long it is; the UUID of the GPU, empty for the machine; the metric
and its unit, of counters per second; lowest, mean and highest value."""
_TEXTS = ("begun_utc", "device", "metric", "unit")
Row = tuple[float, str, float, str, str, str, float, float, float]


def lines(rows: Iterator[Row]) -> Iterator[str]:
    """Yield the table as CSV, a line at a time, its heading first."""
    yield csv_line(FIELDS)
    yield from map(csv_line, rows)


def parquet(rows: Iterator[Row]) -> bytes:
    """Return the table as Parquet. Raises GpumonError without pyarrow."""
    columns = list(zip(*rows, strict=True)) or [()] * len(FIELDS)
    return parquet_bytes(
        {name: (str if name in _TEXTS else float, cells) for name, cells in zip(FIELDS, columns, strict=True)}
    )


def rows_of(history: History, subjects: Sequence[str], begin: float, end: float, step: float) -> Iterator[Row]:
    """Yield a row for each stretch of `step` seconds in which a metric is known; what is missing has no row."""
    grid = Grid(int(begin // step), step, max(1, ceil(end / step) - int(begin // step)))
    for subject in (HOST, *subjects):
        scope = Scope.GPU if subject else Scope.HOST
        names = [name for name, metric in BY_NAME.items() if metric.scope is scope and history.has(subject, name)]
        for name, series in history.query(Query(subject, names, begin, end, grid=grid)).items():
            unit = BY_NAME[name].unit.value + ("_per_second" if BY_NAME[name].kind is Kind.COUNTER else "")
            for place, mean in enumerate(series.mean):
                if is_known(mean):
                    begun = grid.begin + place * step
                    yield begun, utc(begun), step, subject, name, unit, series.low[place], mean, series.high[place]
