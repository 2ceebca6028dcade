"""Slots of values with more rows: their columns are moved apart as bytes, which takes a tenth of reading them anew.

A file with more rows replaces one that has an hour of frames while no frame is written.
"""

from __future__ import annotations

import struct
from zlib import crc32

from gpumon.ring.layout import CRC_FROM, SLOT, Layout, slot_head
from gpumon.ring.values import value_form


class Widening:
    """From one layout to another that differs in its number of rows alone."""

    def __init__(self, old: Layout, new: Layout) -> None:
        """`new` has at least as many rows, and the first of them are those of `old`; see `can_widen`."""
        form, wider = value_form(old), value_form(new)
        self._new = new
        more = new.rows - old.rows
        self._absent = bytes(old.row.size * more)
        self._parts = []
        at = old.metrics_at
        hosts = len(form.host) - form.narrow_host
        for metrics, host, kind in ((form.narrow, form.narrow_host, "f"), (len(form.gpu) - form.narrow, hosts, "d")):
            width = struct.calcsize(kind)
            missing = struct.pack(f"<{more}{kind}", *[float("nan")] * more)
            for _ in range(metrics):
                self._parts.append((at, at + width * old.rows, missing))
                at += width * old.rows
            self._parts.append((at, at + width * host, b""))
            at += width * host
        self._rows_end, self._end = old.metrics_at, new.metrics_at + wider.all.size

    def slot(self, raw: bytes) -> bytes:
        """Return a whole slot of values as the new layout has it."""
        found = [raw[SLOT.size : self._rows_end], self._absent]
        for begin, end, missing in self._parts:
            found.append(raw[begin:end])
            found.append(missing)
        head = slot_head(raw)._replace(length=self._end - CRC_FROM, rows=self._new.rows)
        whole = bytearray(SLOT.pack(*head)) + b"".join(found)
        whole[8:12] = crc32(memoryview(whole)[CRC_FROM:]).to_bytes(4, "little")
        return bytes(whole)


def can_widen(old: Layout, new: Layout) -> bool:
    """Whether the slots of values of two layouts differ in their number of rows alone."""
    same = (old.major, old.gpu, old.host, old.wide) == (new.major, new.gpu, new.host, new.wide)
    return same and old.n_values > 0 and new.n_values > 0 and old.rows <= new.rows
