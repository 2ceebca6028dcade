"""Running sums over the ticks of a daemon, at the end of the ring file.

There are two copies of `Layout.sums` bytes, and record `number` is in copy `number & 1`. A record consists of `HEAD`, a
JSON object with the names of the tables (columns, and the key of each row), and the f8 values row by row. The CRC32
covers all bytes that follow it. If a record is incomplete, the previous record in the other copy is valid. The names
rarely change, and are encoded only when they do.
"""

from __future__ import annotations

import errno
import json
import os
import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import isfinite
from struct import pack
from typing import NamedTuple
from zlib import crc32

from gpumon.ring.layout import Layout, round_up

HEAD = struct.Struct("<IIQqqqII")
"""CRC32 of the rest, total length, number, monotonic ns, time ns, start of the sums in ns since 1970, dropped rows,
length of the names"""
_CRC_FROM = 4
_MAX_TABLES, _MAX_COLUMNS, _MAX_KEYS = 8, 64, 4
_TRIES = 3

Rows = Mapping[tuple[str, ...], Sequence[float]]


class SumTable(NamedTuple):
    """A table of sums: column names, and rows by their keys."""

    columns: tuple[str, ...]
    rows: Rows


class Sums(NamedTuple):
    """All tables after a certain tick."""

    number: int
    """Number of the record in its file."""
    monotonic_ns: int
    """Time of the newest tick in ns of CLOCK_MONOTONIC."""
    time_ns: int
    since_ns: int
    """Time at which all sums were 0, in ns since 1970."""
    dropped: int
    """Number of rows for which there was no room."""
    tables: Mapping[str, SumTable]


class SumNames:
    """The encoded names of all columns and rows of a record."""

    def __init__(self, tables: Mapping[str, tuple[Sequence[str], Iterable[Sequence[str]]]]) -> None:
        """`tables`: for each table, its columns and the keys of its rows."""
        self.tables = {name: (tuple(columns), [tuple(key) for key in keys]) for name, (columns, keys) in tables.items()}
        named = {name: {"columns": columns, "keys": keys} for name, (columns, keys) in self.tables.items()}
        raw = json.dumps(named, separators=(",", ":")).encode()
        self.raw = raw.ljust(round_up(HEAD.size + len(raw), 8) - HEAD.size)

    @property
    def size(self) -> int:
        """Size in bytes of a record with these names."""
        values = sum(len(columns) * len(keys) for columns, keys in self.tables.values())
        return HEAD.size + len(self.raw) + 8 * values


class SumTimes(NamedTuple):
    """The times of a record, and the number of rows that did not fit into it."""

    monotonic_ns: int
    time_ns: int
    since_ns: int
    dropped: int


class SumLocation(NamedTuple):
    """The position of the sums in a ring file. A `Layout` would recompute it at each access."""

    at: int
    room: int
    """Size of each copy in bytes."""

    @classmethod
    def from_layout(cls, layout: Layout) -> SumLocation:
        return cls(layout.sums_at, layout.sums)

    def offset(self, number: int) -> int:
        """Return the offset of the copy for the record with this number."""
        return self.at + (number & 1) * self.room


def write_sums(
    fd: int, location: SumLocation, number: int, names: SumNames, times: SumTimes, rows: Iterable[Iterable[float]]
) -> None:
    """Write a record. `rows` are in the order of `names`. Raises OSError if it cannot be written or does not fit."""
    values = list(chain.from_iterable(rows))
    packed = pack(f"{len(values)}d", *values)
    length = HEAD.size + len(names.raw) + len(packed)
    if length > location.room:  # the other copy follows
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    head = HEAD.pack(0, length, number, *times, len(names.raw))
    _store(fd, location, number, b"".join((head[_CRC_FROM:], names.raw, packed)))


def read_sums(fd: int, layout: Layout) -> Sums | None:
    """Return the newest complete record; None if there is none."""
    raw = _newest(fd, layout)
    return None if raw is None else _unpack(raw)


def copy_sums(old_fd: int, old: Layout, fd: int, layout: Layout) -> None:
    """Copy the newest complete record to a new ring file, if the record fits into it."""
    raw = _newest(old_fd, old)
    if raw is not None and len(raw) <= layout.sums:
        _store(fd, SumLocation.from_layout(layout), HEAD.unpack_from(raw)[2], raw[_CRC_FROM:])


def _store(fd: int, location: SumLocation, number: int, body: bytes) -> None:
    os.pwrite(fd, crc32(body).to_bytes(4, "little") + body, location.offset(number))


def _newest(fd: int, layout: Layout) -> bytes | None:
    if layout.sums < HEAD.size:
        return None
    location = SumLocation.from_layout(layout)
    for _ in range(_TRIES):  # while the writer writes one copy, the other copy is complete
        heads = [os.pread(fd, HEAD.size, location.offset(copy)) for copy in (0, 1)]
        copies = [(HEAD.unpack(head)[2], HEAD.unpack(head)[1]) for head in heads if len(head) == HEAD.size]
        for number, length in sorted(copies, reverse=True):
            if number <= 0 or not HEAD.size <= length <= layout.sums:
                continue
            raw = os.pread(fd, length, location.offset(number))
            if len(raw) == length and crc32(memoryview(raw)[_CRC_FROM:]) == HEAD.unpack_from(raw)[0]:
                return raw
    return None


def _unpack(raw: bytes) -> Sums | None:
    """Decode a record; None if it is invalid."""
    _, _, number, monotonic_ns, time_ns, since_ns, dropped, names_length = HEAD.unpack_from(raw)
    at = HEAD.size + names_length
    if at > len(raw) or (len(raw) - at) % 8:
        return None
    values = array("d", raw[at:])
    try:
        names = json.loads(raw[HEAD.size : at])
        tables, at = {}, 0
        for name, table in list(names.items())[:_MAX_TABLES]:
            columns, keys = tuple(table["columns"]), table["keys"]
            if not 0 < len(columns) <= _MAX_COLUMNS or not isinstance(keys, list):
                return None
            rows = {}
            for key in keys:
                row = tuple(values[at : at + len(columns)])
                at += len(columns)
                if len(row) < len(columns) or not 0 < len(key) <= _MAX_KEYS or not _are_text((name, *columns, *key)):
                    return None
                rows[tuple(key)] = row
            tables[name] = SumTable(columns, rows)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return Sums(number, monotonic_ns, time_ns, since_ns, dropped, tables)


def is_sum(value: float) -> bool:
    """Return whether a number can be a sum, which must be finite and not negative."""
    return isfinite(value) and value >= 0


def _are_text(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)
