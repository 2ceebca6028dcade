"""Encodes and decodes blocks of process history, and sums the usage of a process over time in cells.

Both tiers use columnar blocks with one part. A block of the finer tier has spans of time with their processes and
values, a block of the coarser tier the cells of one hour. The first column is three integers: the numbers of processes,
of spans (0 in the coarser tier) and of rows. Then follow in the finer tier

- the id of each process; the start (ns since 1970), length (s) and number of rows of each span,
- for each row the index of its process, and the value of each measure,

and in the coarser tier, with rows sorted by process and then by index,

- the id and the number of rows of each process,
- for each row its index in the hour, the seconds of the cell, and for each measure the seconds in which it is known and
  its lowest, mean and highest value.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf, nan
from operator import itemgetter
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.columnar import (
    ColumnarBlock,
    DamagedBlock,
    PartReader,
    pack_block,
    pack_columns,
    pack_part,
    singles,
)
from gpumon.model.columns import PROCESS_BY_KEY, Column
from gpumon.model.process import Process

MEASURES: tuple[Column, ...] = tuple(
    PROCESS_BY_KEY[key] for key in ("memory_used", "sm_utilization", "cpu_utilization", "host_memory")
)
"""Stored columns, named like the fields of `Process`, in the order of the file."""
NAMES = tuple(measure.key for measure in MEASURES)
"""Names of `MEASURES`, in the same order."""
TEXTS = ("name", "user", "container", "pod", "job")
"""Text fields of `Process` that are stored, in the order of the file's columns; empty if unknown."""
read_texts = itemgetter(*map(Process._fields.index, TEXTS))
"""Return the strings of a `Process` in the order of `TEXTS`."""
read_values = itemgetter(*map(Process._fields.index, NAMES))
"""Return the measures of a `Process` in the order of `MEASURES`. A measure that the driver does not report is NaN."""


Cell = list[float]
"""A list of numbers: the seconds in which the process was on the GPU; then for each measure the seconds in which it is
known, the sum of value times seconds, the lowest and the highest value.
"""
PER_MEASURE = 4
LENGTH = 1 + PER_MEASURE * len(MEASURES)
"""Number of elements in a cell."""
_EMPTY = [0.0, *[0.0, 0.0, inf, -inf] * len(MEASURES)]


class IndexedCell(NamedTuple):
    """A cell of one process, with its index in the hour."""

    number: int
    """Number of the process, which is its id in the file."""
    offset: int
    """Index of the cell in the hour."""
    cell: Cell


def empty_cell() -> Cell:
    """Return a cell of zero seconds."""
    return _EMPTY[:]


def add_values(cell: Cell, values: Sequence[float], seconds: float) -> None:
    """Add `values`, one per measure, that were valid for `seconds`. A value of NaN is unknown and adds nothing."""
    cell[0] += seconds
    at = 1
    for value in values:
        # NaN != NaN; no call of is_known, because this runs for each process in each snapshot.
        if value == value:
            cell[at] += seconds
            cell[at + 1] += seconds * value
            if value < cell[at + 2]:
                cell[at + 2] = value
            if value > cell[at + 3]:
                cell[at + 3] = value
        at += PER_MEASURE


def merge_cell(into: Cell, other: Cell) -> None:
    """Add `other`, a cell of another time, to the cell `into`."""
    into[0] += other[0]
    for at in range(1, LENGTH, PER_MEASURE):
        if other[at]:
            into[at] += other[at]
            into[at + 1] += other[at + 1]
            if other[at + 2] < into[at + 2]:
                into[at + 2] = other[at + 2]
            if other[at + 3] > into[at + 3]:
                into[at + 3] = other[at + 3]


def scale_cell(cell: Cell, part: float) -> Cell:
    """Return the usage in a fraction `part` (0 to 1) of the cell's time. Seconds and sums are scaled."""
    result = cell[:]
    result[0] *= part
    for at in range(1, LENGTH, PER_MEASURE):
        result[at] *= part
        result[at + 1] *= part
    return result


MAX_SPAN_ROWS = 60_000
"""Maximum number of rows in a block of the finer tier. A block with more rows is damaged."""
MAX_CELL_ROWS = 32_768
"""Maximum number of cells in a block, enough for 2,700 processes with 12 cells each. Further cells are left out."""
_MAX_BYTES = 4 * 2**20
_UNKNOWN = (0.0, 0.0, inf, -inf)


@dataclass(frozen=True, slots=True)
class ProcessSpan:
    """The processes in a span of time, and a column of values for each measure."""

    begin_ns: int
    """Start of the span, ns since 1970."""
    seconds: float
    """Length of the span in seconds."""
    numbers: Sequence[int]
    """Number of each process, which is its id in the file."""
    columns: Sequence[Sequence[float]]
    """A column for each measure, with the value of each process; NaN if unknown."""

    @property
    def middle_ns(self) -> int:
        """Middle of the span, in ns since 1970."""
        return self.begin_ns + round(self.seconds * SECOND / 2)


def pack_spans(spans: Sequence[ProcessSpan]) -> bytes:
    """Return the encoded block of these spans."""
    numbers = list(dict.fromkeys(chain.from_iterable(span.numbers for span in spans)))
    places = {number: index for index, number in enumerate(numbers)}
    rows = [places[number] for span in spans for number in span.numbers]
    measures = range(len(MEASURES))
    return _pack(
        array("q", (len(numbers), len(spans), len(rows))),
        array("q", numbers),
        array("q", [span.begin_ns for span in spans]),
        singles([span.seconds for span in spans]),
        array("q", [len(span.numbers) for span in spans]),
        array("q", rows),
        *(singles(list(chain.from_iterable(span.columns[index] for span in spans))) for index in measures),
    )


def unpack_spans(data: bytes) -> list[ProcessSpan]:
    """Return the spans in a block. Raises DamagedBlock."""
    part, (processes, count, rows) = _open(data, MAX_SPAN_ROWS)
    numbers, begins, seconds, counts = (
        part.integers(processes), part.integers(count), part.floats(count), part.integers(count)
    )  # fmt: skip
    places, columns = part.integers(rows), [part.floats(rows) for _ in MEASURES]
    part.finish()
    if sum(counts) != rows or min(counts, default=0) < 0 or not all(0 <= length < 2**32 for length in seconds):
        raise DamagedBlock("spans that do not match their rows")
    if places and not 0 <= min(places) <= max(places) < processes:
        raise DamagedBlock("rows of unknown processes")
    spans, first = [], 0
    for begin_ns, length, own in zip(begins, seconds, counts, strict=True):
        here = slice(first, first + own)
        first += own
        mine = [numbers[index] for index in places[here]]
        spans.append(ProcessSpan(begin_ns, length, mine, [column[here] for column in columns]))
    return spans


def pack_cells(cells: Sequence[IndexedCell]) -> bytes:
    """Return the encoded block of these cells. No two cells may have the same process and index."""
    rows = sorted(cells)[:MAX_CELL_ROWS]
    counts = Counter(row.number for row in rows)
    return _pack(
        array("q", (len(counts), 0, len(rows))),
        array("q", counts),
        array("q", counts.values()),
        array("q", [row.offset for row in rows]),
        *map(singles, zip(*map(_stored, rows), strict=True)),
    )


def unpack_cells(data: bytes, wanted: Collection[int] | None = None) -> list[IndexedCell]:
    """Return the cells in a block: of all processes, or only of processes whose number is in `wanted`.

    Raises DamagedBlock.
    """
    part, (processes, _, rows) = _open(data, MAX_CELL_ROWS)
    numbers, counts, offsets = part.integers(processes), part.integers(processes), part.integers(rows)
    if sum(counts) != rows or min(counts, default=0) < 0:
        raise DamagedBlock("processes that do not match their rows")
    columns = [part.floats(rows) for _ in range(LENGTH)]
    part.finish()
    cells, begin = [], 0
    for number, count in zip(numbers, counts, strict=True):
        here = slice(begin, begin + count)
        begin += count
        if wanted is None or number in wanted:
            own = zip(*(column[here] for column in columns), strict=True)
            cells += [
                IndexedCell(number, offset, _loaded(stored)) for offset, stored in zip(offsets[here], own, strict=True)
            ]
    return cells


def _pack(*columns: array[float] | array[int]) -> bytes:
    return pack_block([pack_part(pack_columns(columns))])


def _open(data: bytes, max_rows: int) -> tuple[PartReader, list[int]]:
    """Return a reader of a block, and the numbers of processes, spans and rows. Raises DamagedBlock."""
    part = ColumnarBlock(data).open(0, _MAX_BYTES)
    counts = part.integers(3)
    if not 0 <= min(counts) <= max(counts) <= max_rows:
        raise DamagedBlock("too many rows")
    return part, counts


def _stored(row: IndexedCell) -> list[float]:
    """Return the numbers of a cell as stored in the file, which has a mean instead of a sum."""
    cell = row.cell
    result = cell[:1]
    for at in range(1, LENGTH, PER_MEASURE):
        seconds, total, low, high = cell[at : at + PER_MEASURE]
        result += (seconds, low, total / seconds, high) if seconds else (0.0, nan, nan, nan)
    return result


def _loaded(stored: Sequence[float]) -> Cell:
    if not 0 <= stored[0] < inf:
        raise DamagedBlock("a cell without a length")
    result = [stored[0]]
    for at in range(1, LENGTH, PER_MEASURE):
        seconds, low, mean, high = stored[at : at + PER_MEASURE]
        result += (seconds, seconds * mean, low, high) if 0 < seconds < inf else _UNKNOWN
    return result
