"""Encodes cells of a subject as a columnar block, with a part for each metric, and decodes them.

A chart of one metric of one GPU over a month decompresses nothing else. The columns of a part are the mean, the lowest,
the highest and the last value, and the seconds in which the value is known. Gauges are stored in single precision, the
last value of a counter in double precision. A part is empty if the metric has no value in the block.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import nan
from operator import eq, itemgetter
from typing import TYPE_CHECKING, NamedTuple

from gpumon.common.columnar import ColumnarBlock, DamagedBlock, pack_block, pack_columns, pack_part, singles
from gpumon.common.numbers import is_known
from gpumon.storage.history.cell import HistoryCell, unknown_cell
from gpumon.storage.history.tiers import TierShape
from gpumon.storage.sqlite.cells import parse_names, typed_rows

if TYPE_CHECKING:
    import sqlite3

_MAX_CELL_BYTES = 24
"""Maximum bytes per cell in the part of a metric."""
_MAX_HEADS = 64
"""Maximum bytes of the columns' heads in the part of a metric."""


class MetricCells(NamedTuple):
    """The columns of one metric in a block. Each column has a number for each cell.

    In a cell without a value, `seconds` is 0 and the other columns are NaN.
    """

    low: Sequence[float]
    mean: Sequence[float]
    high: Sequence[float]
    last: Sequence[float]
    seconds: Sequence[float]


def pack(cells: Mapping[int, HistoryCell], count: int, counters: Sequence[int]) -> bytes:
    """Encode a block of `count` cells.

    `cells` maps an index in the block to its cell; a missing index is a gap. `counters`: indexes of the metrics that
    are counters.
    """
    metrics = len(next(iter(cells.values())).mean)
    missing = unknown_cell(metrics)
    row = [cells.get(index, missing) for index in range(count)]
    low, mean, high, seconds = (_concatenate(map(itemgetter(field), row), "f") for field in (0, 1, 2, 4))
    last = _concatenate((cell.last for cell in row), "d")
    parts = []
    for metric in range(metrics):
        mine = slice(metric, None, metrics)
        lasts = last[mine] if metric in counters else singles(last[mine])
        parts.append(_pack_metric(low[mine], mean[mine], high[mine], lasts, seconds[mine]))
    return pack_block(parts)


def _concatenate(columns: Iterable[Sequence[float]], typecode: str) -> array[float]:
    """Return all columns concatenated in one array. Slicing an array is faster than slicing Python lists."""
    return array(typecode, b"".join(struct.pack(f"{len(column)}{typecode}", *column) for column in columns))


def _pack_metric(*columns: array[float]) -> bytes:
    """Return the part of a metric. `columns`: the columns of `MetricCells`."""
    low, mean, high, last, seconds = columns
    known = list(map(eq, mean, mean))  # NaN != NaN
    if not any(known) and not any(map(eq, last, last)):
        return b""
    different = set(seconds) - {0.0}
    if len(different) == 1 and known == list(map(bool, seconds)):
        seconds = array("f", different) * len(mean)  # `unpack` sets it to 0 where the mean is unknown
    return pack_part(pack_columns((mean, low, high, last, seconds)))


def unpack(block: ColumnarBlock, metric: int, count: int) -> MetricCells | None:
    """Return one metric of a block, or None if the block has no value of it.

    `metric`: index of the metric in the block's schema. `count`: number of cells in the block. Raises DamagedBlock.
    """
    if not block.has(metric):
        return None
    part = block.open(metric, _MAX_HEADS + _MAX_CELL_BYTES * count)
    mean, low, high, last, seconds = (part.floats(count) for _ in range(5))
    part.finish()
    if not is_known(sum(mean)):
        seconds = [weight if is_known(value) else 0.0 for value, weight in zip(mean, seconds, strict=True)]
    return MetricCells(low, mean, high, last, seconds)


def unpack_cells(block: ColumnarBlock, metrics: Sequence[int], count: int) -> dict[int, HistoryCell]:
    """Return all cells of a block, by index in the block.

    `metrics`: for each metric of the cells, its index in the block; -1 if the block does not have it. `count`: number
    of cells in the block. Raises DamagedBlock.
    """
    gap = [nan] * count
    missing = MetricCells(gap, gap, gap, gap, [0.0] * count)
    columns = [unpack(block, metric, count) or missing for metric in metrics]
    rows = [list(zip(*(getattr(column, name) for column in columns), strict=True)) for name in MetricCells._fields]
    return {
        index: cell for index, cell in enumerate(map(HistoryCell._make, zip(*rows, strict=True))) if any(cell.seconds)
    }


class StoredBlock(NamedTuple):
    """A block of the history file whose checksum is correct."""

    shape: TierShape
    number: int
    subject: str
    names: Sequence[str]
    """Names of the metrics in the order of the block's parts."""
    block: ColumnarBlock

    def cells(self, names: Sequence[str]) -> dict[int, HistoryCell]:
        """Return the cells of the block with these metrics, by number since 1970; empty if a part is damaged.

        Metrics that the block does not have are NaN.
        """
        order = [self.names.index(name) if name in self.names else -1 for name in names]
        first = self.number * self.shape.cells
        try:
            cells = unpack_cells(self.block, order, self.shape.cells)
        except DamagedBlock:
            return {}
        return {first + index: cell for index, cell in cells.items()}


def stored_blocks(
    connection: sqlite3.Connection, shape: TierShape, first: int, last: int, subject: str | None = None
) -> Iterator[StoredBlock]:  # fmt: skip
    """Yield the blocks of a tier from number `first` to `last` that are not damaged, in the order of their numbers.

    `subject`: UUID of a GPU or `HOST`; None for all subjects. Raises sqlite3.Error.
    """
    rows = connection.execute(
        "SELECT number, subject, metrics, data FROM block JOIN schema ON schema.id = block.schema"
        " WHERE tier = ?1 AND number BETWEEN ?2 AND ?3 AND (?4 IS NULL OR subject = ?4) ORDER BY number",
        (shape.number, first, last, subject),
    )
    names: dict[str, Sequence[str]] = {}
    for number, name, names_json, data in typed_rows(rows, int, str, str, bytes):
        if names_json not in names:
            names[names_json] = parse_names(names_json)
        with suppress(DamagedBlock):  # leaves a gap
            block = ColumnarBlock(data)
            if block.parts == len(names[names_json]):
                yield StoredBlock(shape, number, name, names[names_json], block)
