"""The bytes of a block: a directory of metrics, and for each of them its columns, compressed by themselves.

A chart of one metric of one GPU over a month decompresses nothing else. Layout, little-endian: `u32` for each
metric of the
schema, where its part ends; then the parts. A part is compressed by zlib: a byte of flags, the seconds that are
known (`f4`, one for all cells or one for each), then mean, low, high (`f4`) and last (`f4`, of counters `f8`),
without those that are the same as mean; each number's first bytes come first, then the second ones.
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

_BIG = sys.byteorder == "big"


def shuffled(column: array[Any]) -> bytes:
    """Return the bytes of a column, those of one place in a number together: they compress better."""
    data, size = little(column).tobytes(), column.itemsize
    return b"".join(data[first::size] for first in range(size))


def unshuffled(data: bytes, size: int) -> bytes:
    """Return the bytes of numbers of `size` bytes in their own order."""
    found, length = bytearray(len(data)), len(data) // size
    for first in range(size):
        found[first::size] = data[first * length : (first + 1) * length]
    return bytes(found)


def little(column: array[Any]) -> array[Any]:
    """Return a column in the byte order of the file, or one of the file in that of the machine."""
    if _BIG:
        column = column[:]
        column.byteswap()
    return column


_LEVEL = 1
_WINDOW = 13
"""8 KiB, more than most parts have: with the usual 32 KiB, zlib takes longer to get its memory than to compress."""
_SAME_LOW, _SAME_HIGH, _SAME_LAST, _ONE_WEIGHT, _LONG_LAST = 1, 2, 4, 8, 16
_MOST = 24
"""Bytes that a cell of a metric takes at most: a block that says more is none."""


class BadBlock(GpumonError):
    """A stored block is damaged."""


class MetricCells(NamedTuple):
    """One metric in a block: a number for each cell; NaN is missing, and `seconds` 0."""

    low: Sequence[float]
    mean: Sequence[float]
    high: Sequence[float]
    last: Sequence[float]
    seconds: Sequence[float]


def pack(cells: Mapping[int, HistoryCell], count: int, counters: Sequence[int]) -> bytes:
    """Return the bytes of a block of `count` cells, by their places in it."""
    sampled = cells.columns() if isinstance(cells, SampleCells) else None
    if sampled is None:
        columns = _columns_of(cells, count, counters)
    else:
        columns = [MetricCells(*of_metric) for of_metric in zip(*sampled, strict=True)]
    ends, parts, end = array("I"), [], 0
    for place, column in enumerate(columns):
        part = _part(column, place in counters)
        end += len(part)
        parts.append(part)
        ends.append(end)
    return little(ends).tobytes() + b"".join(parts)


def _columns_of(cells: Mapping[int, HistoryCell], count: int, counters: Sequence[int]) -> list[MetricCells]:
    """By metric, the columns of cells."""
    metrics = len(next(iter(cells.values())).mean)
    gap = (nan,) * metrics
    nothing = HistoryCell(gap, gap, gap, gap, (0.0, 0.0), (0.0,) * metrics)
    row = [cells.get(place, nothing) for place in range(count)]
    means = _joined(cell.mean for cell in row)
    single = all(cell.low is cell.mean is cell.high for cell in row)
    lows = means if single else _joined(cell.low for cell in row)
    highs = means if single else _joined(cell.high for cell in row)
    lasts = _joined(cell.last for cell in row)
    seconds = _seconds(cells.values(), counters, metrics)
    each = [] if seconds else list(zip(*(weights(cell, counters) for cell in row), strict=True))
    found = []
    for place in range(metrics):
        mean = means[place::metrics]
        found.append(
            MetricCells(
                low=mean if single else lows[place::metrics],
                mean=mean,
                high=mean if single else highs[place::metrics],
                last=lasts[place::metrics],
                seconds=(seconds[place],) if seconds else each[place],
            )
        )
    return found


def _joined(columns: Iterable[Numbers]) -> array[float]:
    """All of them one behind the other: slicing it is cheap compared with columns of Python numbers."""
    found = array("d")
    for column in columns:
        found.extend(column if isinstance(column, array) and column.typecode == "d" else tuple(column))
    return found


def _seconds(cells: Iterable[HistoryCell], counters: Sequence[int], metrics: int) -> list[float]:
    """By metric, the seconds that each cell has where it has any, if that is one number; else nothing."""
    found = {cell.seconds if cell.weight is None else None for cell in cells}
    seconds = found.pop() if len(found) == 1 else None
    if seconds is None:
        return []
    of_gauges, of_counters = seconds
    return [of_counters if place in counters else of_gauges for place in range(metrics)]


def unpack(data: bytes, metrics: int, place: int, count: int) -> MetricCells | None:
    """One metric of a block whose schema has `metrics`; None where the block has nothing of it. Raises BadBlock."""
    ends = array("I")
    try:
        ends.frombytes(data[: 4 * metrics])
        ends = little(ends)
        begin, end = ends[place - 1] if place else 0, ends[place]
        if begin == end:
            return None
        raw = zlib.decompressobj().decompress(data[4 * metrics + begin : 4 * metrics + end], 1 + _MOST * count)
        return _columns(raw, count)
    except (ValueError, IndexError, zlib.error) as error:
        raise BadBlock(f"a block of history is damaged: {error}") from error


def present(data: bytes, metrics: int) -> list[bool]:
    """Return which metrics a block has anything of."""
    ends = array("I")
    ends.frombytes(data[: 4 * metrics][: len(data) // 4 * 4])
    ends = little(ends)
    return [end > (ends[place - 1] if place else 0) for place, end in enumerate(ends)]


def cells_of(data: bytes, metrics: int, count: int) -> dict[int, HistoryCell]:
    """All cells of a block, by their places. Raises BadBlock."""
    if not metrics:
        raise BadBlock("a block of history is damaged: it has no metrics")
    gap = [nan] * count
    nothing = MetricCells(gap, gap, gap, gap, [0.0] * count)
    found = [unpack(data, metrics, place, count) or nothing for place in range(metrics)]
    rows = [list(zip(*(getattr(one, name) for one in found), strict=True)) for name in MetricCells._fields]
    low, mean, high, last, seconds = rows
    return {
        place: HistoryCell(low[place], mean[place], high[place], last[place], (nan, nan), seconds[place])
        for place in range(count)
        if any(seconds[place])
    }


def _part(columns: MetricCells, is_counter: bool) -> bytes:
    """The part of a metric; most limits, totals and generations are the same number throughout, and often again."""
    if len(columns.seconds) == 1 and all(isinstance(one, array) and is_constant(one) for one in columns[:4]):
        return _constant_part(tuple(map(_first, columns)), len(columns.mean), is_counter)
    return _any_part(columns, is_counter)


def _first(column: Sequence[float]) -> bytes:
    """The bytes of the first number: NaN is itself in them, and -0.0 is not 0.0."""
    return pack_numbers("d", column[0])


@lru_cache(2048)  # more than a machine has of such metrics and GPUs: they come round in the same order
def _constant_part(first: tuple[bytes, ...], count: int, is_counter: bool) -> bytes:
    low, mean, high, last, (seconds,) = (array("d", data) for data in first)
    columns = MetricCells(low * count, mean * count, high * count, last * count, (seconds,))
    return _any_part(columns, is_counter)


def _any_part(columns: MetricCells, is_counter: bool) -> bytes:
    total = sum(columns.mean)
    # NaN != NaN; no call of is_known, because it is done for each cell. Where the sum is a number, all of them are.
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


def _columns(raw: bytes, count: int) -> MetricCells:
    flags, at = raw[0], 1

    def column(kind: str = "f", length: int = count) -> array[float]:
        nonlocal at
        size = 4 if kind == "f" else 8
        found = array(kind)
        found.frombytes(unshuffled(raw[at : at + size * length], size))
        if len(found) != length:
            raise ValueError("it is too short")
        at += size * length
        return little(found)

    weight = column(length=1) if flags & _ONE_WEIGHT else column()
    mean = column()
    low = mean if flags & _SAME_LOW else column()
    high = mean if flags & _SAME_HIGH else column()
    last = mean if flags & _SAME_LAST else column("d" if flags & _LONG_LAST else "f")
    seconds: Sequence[float] = weight
    if flags & _ONE_WEIGHT:
        (each,) = weight
        seconds = [each if is_known(value) else 0.0 for value in mean]
    return MetricCells(low, mean, high, last, seconds)
