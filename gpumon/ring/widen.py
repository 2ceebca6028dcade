"""Slots with other rows: their columns are moved as bytes, which takes a small part of reading and writing them anew.

A file with more rows, or without those of devices that are gone, replaces one that has an hour of frames, while no
frame is written.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Literal, NamedTuple
from zlib import crc32

from gpumon.ring.layout import CRC_FROM, SLOT, Layout, SlotHead, slot_head
from gpumon.ring.values import value_form

_ROW_OF_PROCESS = struct.Struct("<H")
_ROW_AT = 4
"""Where a process's record has the row of its device."""
_NOWHERE = 0xFFFF


class _ValueGrid(NamedTuple):
    """Values of all rows, metric by metric: where they are in the old slot, and in the new one."""

    code: Literal["f", "d"]
    metrics: int
    old_at: int
    new_at: int


class _KeptBytes(NamedTuple):
    """Bytes that stay as they are."""

    begin: int
    end: int
    new_at: int


class Widening:
    """From one layout to another that differs in its rows alone; `rows`: where each row that is kept goes."""

    def __init__(self, old: Layout, new: Layout, rows: Mapping[int, int]) -> None:
        self._old, self._new = old, new
        self._rows = sorted(rows.items())
        self._is_same = all(row == to for row, to in self._rows)
        form, wider = value_form(old), value_form(new)
        grids, spans, at, to = list[_ValueGrid](), list[_KeptBytes](), old.metrics_at, new.metrics_at
        narrow: tuple[int, int, Literal["f"]] = form.narrow, form.narrow_host, "f"
        wide: tuple[int, int, Literal["d"]] = len(form.gpu) - form.narrow, len(form.host) - form.narrow_host, "d"
        for metrics, host, code in (narrow, wide):
            width = struct.calcsize(code)
            grids.append(_ValueGrid(code, metrics, at, to))
            at, to = at + width * metrics * old.rows, to + width * metrics * new.rows
            spans.append(_KeptBytes(at, at + width * host, to))
            at, to = at + width * host, to + width * host
        self._of_values = grids, spans
        self._of_full = (
            [_ValueGrid("d", len(old.gpu), old.metrics_at, new.metrics_at)],
            [_KeptBytes(old.host_at, old.variable_at, new.host_at)],
        )
        nans = len(form.gpu) * new.rows + len(form.host)
        rowless = bytes(new.metrics_at)
        self._no_values = rowless + wider.all.pack(*[float("nan")] * nans)
        self._nothing = rowless + struct.pack(f"<{nans}d", *[float("nan")] * nans)

    def slot(self, raw: bytes) -> bytes:
        """Return a whole slot of values as the new layout has it."""
        whole = bytearray(self._no_values)
        self._move(raw, whole, *self._of_values)
        return self._headed(whole, slot_head(raw))

    def full_slot(self, raw: bytes) -> bytes | None:
        """Return a whole slot of a full frame as the new layout has it; None where it has no room there."""
        head, old = slot_head(raw), self._old
        rest = bytearray(raw[old.variable_at : head.length + CRC_FROM])
        if self._new.variable_at + len(rest) > self._new.slot_size:
            return None
        whole = bytearray(self._nothing)
        self._move(raw, whole, *self._of_full)
        if not self._is_same:
            rows, size = dict(self._rows), old.process.size
            for at in range(_ROW_AT, min(head.processes * size, len(rest)), size):
                (row,) = _ROW_OF_PROCESS.unpack_from(rest, at)
                _ROW_OF_PROCESS.pack_into(rest, at, rows.get(row, _NOWHERE))
        return self._headed(whole + rest, head)

    def _move(self, raw: bytes, whole: bytearray, grids: list[_ValueGrid], spans: list[_KeptBytes]) -> None:
        old, new, record = self._old.rows, self._new.rows, self._old.row.size
        before, after = memoryview(raw), memoryview(whole)
        for row, to in self._rows:
            at = SLOT.size + row * record
            whole[SLOT.size + to * record : SLOT.size + (to + 1) * record] = raw[at : at + record]
        for code, metrics, old_at, new_at in grids:
            width = struct.calcsize(code)
            mine = before[old_at : old_at + width * metrics * old].cast(code)
            its = after[new_at : new_at + width * metrics * new].cast(code)
            for row, to in self._rows:
                its[to::new] = mine[row::old]
        for begin, end, new_at in spans:
            whole[new_at : new_at + end - begin] = raw[begin:end]

    def _headed(self, whole: bytearray, head: SlotHead) -> bytes:
        SLOT.pack_into(whole, 0, *head._replace(length=len(whole) - CRC_FROM, rows=self._new.rows))
        whole[8:12] = crc32(memoryview(whole)[CRC_FROM:]).to_bytes(4, "little")
        return bytes(whole)


def can_widen(old: Layout, new: Layout) -> bool:
    """Whether the slots of two layouts differ in their rows alone."""
    same = (old.major, old.gpu, old.host, old.wide) == (new.major, new.gpu, new.host, new.wide)
    return same and old.n_values > 0 and new.n_values > 0
