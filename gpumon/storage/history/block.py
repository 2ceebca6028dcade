"""Encodes and decodes blocks, the compressed pieces in which the history file stores cells.

Each metric is compressed separately, so a chart of one metric of one GPU over a month decompresses nothing else.
Layout, little-endian: first a `u32` for each metric of the schema, which is the end offset of the metric's part; then
the parts. A part is compressed with zlib. It has a byte of flags, the seconds in which the value is known (`f4`, one
number for all cells or one for each), then the columns mean, low, high (`f4`) and last (`f4`, for counters `f8`).
Columns that equal mean are left out. The bytes of each column are shuffled: all first bytes, then all second bytes, …
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import nan
from operator import eq
from struct import pack as pack_numbers
from typing import Any, NamedTuple

from gpumon.common.errors import GpumonError
from gpumon.common.numbers import is_known
from gpumon.storage.history.cell import HistoryCell, Numbers, doubles, singles, weights
from gpumon.storage.history.sample_cells import SampleCells, is_constant

_BIG_ENDIAN = sys.byteorder == "big"


def shuffled(column: array[Any]) -> bytes:
    """Return the bytes of a column in another order, which compresses better: all first bytes, all second bytes, …"""
    data, size = swap_on_big_endian(column).tobytes(), column.itemsize
    return b"".join(data[first::size] for first in range(size))


def unshuffled(data: bytes, size: int) -> bytes:
    """Return the original bytes of a column that `shuffled` reordered. `size`: bytes per number."""
    numbers, length = bytearray(len(data)), len(data) // size
    for first in range(size):
        numbers[first::size] = data[first * length : (first + 1) * length]
    return bytes(numbers)


def swap_on_big_endian(column: array[Any]) -> array[Any]:
    """Convert a column from the machine's byte order to the little-endian order of the file, or back."""
    if _BIG_ENDIAN:
        column = column[:]
        column.byteswap()
    return column


_LEVEL = 1
_WINDOW = 13
"""Window size of zlib as power of two: 8 KiB, larger than most parts. With the default of 32 KiB, zlib spends more time
allocating memory than compressing."""
_SAME_LOW, _SAME_HIGH, _SAME_LAST, _ONE_WEIGHT, _LONG_LAST = 1, 2, 4, 8, 16
_MAX_CELL_BYTES = 24
"""Maximum bytes per cell in the part of a metric. A larger part is damaged."""


class BadBlock(GpumonError):
    """Raised if a stored block is damaged."""


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
    sampled = cells.columns() if isinstance(cells, SampleCells) else None
    if sampled is None:
        columns = _columns_from_cells(cells, count, counters)
    else:
        columns = [MetricCells(*metric) for metric in zip(*sampled, strict=True)]
    ends, parts, end = array("I"), [], 0
    for metric, column in enumerate(columns):
        part = _pack_metric(column, metric in counters)
        end += len(part)
        parts.append(part)
        ends.append(end)
    return swap_on_big_endian(ends).tobytes() + b"".join(parts)


def _columns_from_cells(cells: Mapping[int, HistoryCell], count: int, counters: Sequence[int]) -> list[MetricCells]:
    """Return the columns of each metric."""
    metrics = len(next(iter(cells.values())).mean)
    gap = (nan,) * metrics
    missing = HistoryCell(gap, gap, gap, gap, (0.0, 0.0), (0.0,) * metrics)
    row = [cells.get(index, missing) for index in range(count)]
    means = _concatenate(cell.mean for cell in row)
    single = all(cell.low is cell.mean is cell.high for cell in row)
    lows = means if single else _concatenate(cell.low for cell in row)
    highs = means if single else _concatenate(cell.high for cell in row)
    lasts = _concatenate(cell.last for cell in row)
    common_seconds = _common_seconds(cells.values(), counters, metrics)
    seconds = [] if common_seconds else list(zip(*(weights(cell, counters) for cell in row), strict=True))
    columns = []
    for metric in range(metrics):
        mean = means[metric::metrics]
        columns.append(
            MetricCells(
                low=mean if single else lows[metric::metrics],
                mean=mean,
                high=mean if single else highs[metric::metrics],
                last=lasts[metric::metrics],
                seconds=(common_seconds[metric],) if common_seconds else seconds[metric],
            )
        )
    return columns


def _concatenate(columns: Iterable[Numbers]) -> array[float]:
    """Return all columns concatenated in one array. Slicing an array is faster than slicing Python lists."""
    numbers = array("d")
    for column in columns:
        numbers.extend(column if isinstance(column, array) and column.typecode == "d" else tuple(column))
    return numbers


def _common_seconds(cells: Iterable[HistoryCell], counters: Sequence[int], metrics: int) -> list[float]:
    """Return, for each metric, the seconds in which its value is known, if these are the same in all cells; otherwise
    an empty list.
    """
    distinct = {cell.seconds if cell.weight is None else None for cell in cells}
    seconds = distinct.pop() if len(distinct) == 1 else None
    if seconds is None:
        return []
    gauge_seconds, counter_seconds = seconds
    return [counter_seconds if metric in counters else gauge_seconds for metric in range(metrics)]


def unpack(data: bytes, metrics: int, index: int, count: int) -> MetricCells | None:
    """Return one metric of a block, or None if the block has no value of it.

    `metrics`: number of metrics in the block's schema. `index`: index of the metric to return. `count`: number of cells
    in the block. Raises BadBlock if the block is damaged.
    """
    ends = array("I")
    try:
        ends.frombytes(data[: 4 * metrics])
        ends = swap_on_big_endian(ends)
        begin, end = ends[index - 1] if index else 0, ends[index]
        if begin == end:
            return None
        part = data[4 * metrics + begin : 4 * metrics + end]
        return _unpack_metric(zlib.decompressobj().decompress(part, 1 + _MAX_CELL_BYTES * count), count)
    except (ValueError, IndexError, zlib.error) as error:
        raise BadBlock(f"a block of history is damaged: {error}") from error


def present(data: bytes, metrics: int) -> list[bool]:
    """Return for each metric of a block whether it has any value. `metrics`: number of metrics."""
    ends = array("I")
    ends.frombytes(data[: 4 * metrics][: len(data) // 4 * 4])
    ends = swap_on_big_endian(ends)
    return [end > (ends[index - 1] if index else 0) for index, end in enumerate(ends)]


def unpack_cells(data: bytes, metrics: int, count: int) -> dict[int, HistoryCell]:
    """Return all cells of a block, by index in the block.

    `metrics`: number of metrics in the block's schema. `count`: number of cells in the block. Raises BadBlock if the
    block is damaged.
    """
    if not metrics:
        raise BadBlock("a block of history is damaged: it has no metrics")
    gap = [nan] * count
    missing = MetricCells(gap, gap, gap, gap, [0.0] * count)
    columns = [unpack(data, metrics, metric, count) or missing for metric in range(metrics)]
    rows = [list(zip(*(getattr(column, name) for column in columns), strict=True)) for name in MetricCells._fields]
    low, mean, high, last, seconds = rows
    return {
        index: HistoryCell(low[index], mean[index], high[index], last[index], (nan, nan), seconds[index])
        for index in range(count)
        if any(seconds[index])
    }


def _pack_metric(columns: MetricCells, is_counter: bool) -> bytes:
    """Return the encoded part of a metric.

    Parts of constant metrics are cached. Most limits, totals and link generations are constant.
    """
    if len(columns.seconds) == 1 and all(isinstance(column, array) and is_constant(column) for column in columns[:4]):
        return _pack_constant(tuple(map(_first, columns)), len(columns.mean), is_counter)
    return _pack_columns(columns, is_counter)


def _first(column: Sequence[float]) -> bytes:
    """Return the bytes of the first number. As bytes, NaN equals itself, and -0.0 differs from 0.0."""
    return pack_numbers("d", column[0])


@lru_cache(2048)  # more entries than constant metrics on a machine; they are packed in the same order each time
def _pack_constant(first: tuple[bytes, ...], count: int, is_counter: bool) -> bytes:
    low, mean, high, last, (seconds,) = (array("d", data) for data in first)
    columns = MetricCells(low * count, mean * count, high * count, last * count, (seconds,))
    return _pack_columns(columns, is_counter)


def _pack_columns(columns: MetricCells, is_counter: bool) -> bytes:
    total = sum(columns.mean)
    # NaN != NaN; no call of is_known, because this runs for each cell. If the sum is a number, all values are known.
    known = [True] * len(columns.mean) if total == total else list(map(eq, columns.mean, columns.mean))
    if not any(known) and not any(map(eq, columns.last, columns.last)):
        return b""
    mean = singles(columns.mean)
    flags, stored, plain = 0, [mean], mean.tobytes()
    for flag, values in ((_SAME_LOW, columns.low), (_SAME_HIGH, columns.high)):
        column = mean if values is columns.mean else singles(values)
        if column is mean or column.tobytes() == plain:
            flags |= flag
        else:
            stored.append(column)
    if is_counter:
        flags |= _LONG_LAST
        stored.append(doubles(columns.last))
    elif columns.last is columns.mean or (last := singles(columns.last)).tobytes() == plain:
        flags |= _SAME_LAST
    else:
        stored.append(last)
    seconds = singles(columns.seconds)
    different = set(seconds) - {0.0}
    if len(seconds) == 1 or (len(different) == 1 and known == list(map(bool, seconds))):
        flags |= _ONE_WEIGHT
        seconds = array("f", different or [0.0])
    return zlib.compress(bytes((flags,)) + b"".join(map(shuffled, (seconds, *stored))), _LEVEL, _WINDOW)


def _unpack_metric(raw: bytes, count: int) -> MetricCells:
    flags, offset = raw[0], 1

    def column(kind: str = "f", length: int = count) -> array[float]:
        nonlocal offset
        size = 4 if kind == "f" else 8
        numbers = array(kind)
        numbers.frombytes(unshuffled(raw[offset : offset + size * length], size))
        if len(numbers) != length:
            raise ValueError("it is too short")
        offset += size * length
        return swap_on_big_endian(numbers)

    weight = column(length=1) if flags & _ONE_WEIGHT else column()
    mean = column()
    low = mean if flags & _SAME_LOW else column()
    high = mean if flags & _SAME_HIGH else column()
    last = mean if flags & _SAME_LAST else column("d" if flags & _LONG_LAST else "f")
    seconds: Sequence[float] = weight
    if flags & _ONE_WEIGHT:
        (common,) = weight
        seconds = [common if is_known(value) else 0.0 for value in mean]
    return MetricCells(low, mean, high, last, seconds)
