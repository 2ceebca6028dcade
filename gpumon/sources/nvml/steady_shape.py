"""The shape of a batch of fields that answers as it did before: which fields gave numbers, and of which types.

Most batches do. Their numbers are taken all at once, which takes half the time of a look at each field.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from operator import gt, truediv
from typing import NamedTuple

from gpumon.sources.nvml.answers import U32
from gpumon.sources.nvml.pcie import ByteCounter

_SIZE = 40
"""Bytes of an nvmlFieldValue_t: id, scope, stamp, latency, then type and return code, then the number."""
_STAMP_AT = 8
_STATE_AT = 24
_NUMBER, _NARROW_NUMBER, _NONE = "32xQ", "32xI4x", f"{_SIZE}x"


class ShapedField(NamedTuple):
    """A field of the batch, as it answered."""

    metric: str
    divisor: float
    """By which the driver's number is divided."""
    is_known: bool
    """Whether it gave a number."""
    is_narrow: bool
    """Whether that is an unsigned int, else an unsigned long long."""
    counts: bool
    most: int
    """A number beyond it is none."""
    counter: ByteCounter | None = None


class SteadyShape:
    """Takes the numbers of a batch whose fields have the types and return codes that they had in `batch`."""

    def __init__(self, batch: bytearray, fields: Sequence[ShapedField]) -> None:
        """`batch`: the bytes that the driver writes into, one entry for each of `fields` and maybe more."""
        self._batch = batch
        known = [field for field in fields if field.is_known]
        self.metrics = frozenset(field.metric for field in known)
        self._names = [field.metric for field in known]
        self._divisors = [field.divisor for field in known]
        self._most = [field.most for field in known]
        self._counters = [(place, field.counter) for place, field in enumerate(known) if field.counter is not None]
        # A view of type and code of each field, where they are: to compare it with a copy makes no object.
        words = memoryview(batch)[: _SIZE * len(fields)].cast("Q")
        self._states_now = words[_STATE_AT // 8 :: _SIZE // 8]
        self._states = memoryview(array("Q", self._states_now))
        formats = [(_NARROW_NUMBER if field.is_narrow else _NUMBER) if field.is_known else _NONE for field in fields]
        self._numbers_of = struct.Struct("=" + "".join(formats)).unpack_from
        first = next((place for place, field in enumerate(fields) if field.is_known and field.counts), -1)
        self._stamp_at = first * _SIZE + _STAMP_AT if first >= 0 else -1

    def take(self, values: dict[str, float]) -> bool:
        """Fill in the numbers, and return whether they could be taken so; else each field is to be looked at."""
        if self._states_now != self._states:
            return False
        numbers = self._numbers_of(self._batch)
        if any(map(gt, numbers, self._most)):
            return False
        for place, counter in self._counters:
            number = numbers[place]
            if counter.narrow or number <= U32:
                return False
            counter.number = number
        values.update(zip(self._names, map(truediv, numbers, self._divisors), strict=True))
        return True

    def stamp(self) -> int:
        """The driver's own time of the first counter, in µs; 0 without one."""
        if self._stamp_at < 0:
            return 0
        stamp: int
        (stamp,) = struct.unpack_from("=q", self._batch, self._stamp_at)
        return stamp
