"""The batch of fields: what nvmlDeviceGetFieldValues gives with one driver call."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from math import isfinite
from typing import Any

import pynvml

from gpumon.clock import SECOND, Clock
from gpumon.metrics import BY_NAME, Availability, Kind
from gpumon.sources.base import from_units
from gpumon.sources.nvml.answers import Answers
from gpumon.sources.nvml.field_ids import Field, fields_for
from gpumon.sources.nvml.library import SUCCESS, Function, Library, availability
from gpumon.sources.nvml.pcie import ByteCounter

_ENTRY = struct.Struct("=IIqqii8s")
"""nvmlFieldValue_t: id, scope, timestamp µs, latency µs, value type, return code, value."""
VALUE_TYPES = {0: "=d", 1: "=I", 2: "=Q", 3: "=Q", 4: "=q", 5: "=i", 6: "=H"}
"""nvmlValueType_t to struct formats: double, unsigned int, unsigned long (8 bytes here), ..."""
_NO_NUMBER = {
    1: (0xFFFF_FFFF,), 2: (0xFFFF_FFFF_FFFF_FFFF,), 3: (0xFFFF_FFFF_FFFF_FFFF,), 4: (-1, 2**63 - 1),
    5: (-1, 2**31 - 1), 6: (0xFFFF,),
}  # fmt: skip
"""By value type: what stands for no value; nvml.h, NVML_VALUE_NOT_AVAILABLE, and the largest of the type."""
_UNSIGNED_INT = 1
_BYTE_COUNTERS = ("gpu.pcie_sent", "gpu.pcie_received")
_COUNTERS = frozenset(name for name, metric in BY_NAME.items() if metric.kind is Kind.COUNTER)
_UNSURE = SECOND // 10
"""ns that a call may take at most for its counters to be of a known time, where the driver does not tell which."""
_SWIFT = SECOND // 10_000
_NEAR = SECOND
"""ns: a stamp further than this from its call is of another clock, or never written."""


class FieldBatch:
    """The batch of one device, in a buffer that is kept."""

    def __init__(self, library: Library, function: Function) -> None:
        self._function = function
        self._bytes = {metric: ByteCounter(library) for metric in _BYTE_COUNTERS}
        self._batches = fields_for(library.driver.version)
        self._doubtful = {
            field.metric
            for fields in self._batches
            for field, other in zip(fields, self._batches[0], strict=True)
            if field.id != other.id
        }
        self._at = 0
        self._last: dict[str, float] = {}
        self._ask_for(list(dict.fromkeys(field for fields in self._batches for field in fields)))

    @classmethod
    def make(cls, library: Library) -> FieldBatch | None:
        """A batch for one device of this driver; None where the driver has no batches."""
        function = library.find("nvmlDeviceGetFieldValues")
        return cls(library, function) if function else None

    def __call__(self, handle: Any, answers: Answers) -> int:
        """Ask, and fill in what came. A field fails alone; the code is the first field's where all did."""
        began = answers.clock.monotonic()
        code = self._function(handle, self._count, self._batch)
        over = answers.clock.monotonic()
        answers.batched.clear()
        answers.counters_at = 0
        if code != SUCCESS:
            return code
        if len(self._fields) > len(self._batches[0]):
            self._choose()
        failed = SUCCESS
        for i, field in enumerate(self._fields):
            _, _, stamp, _, kind, returned, raw = _ENTRY.unpack_from(self._view, i * _ENTRY.size)
            metric = field.metric
            if returned != SUCCESS:
                failed = failed or returned
                # It may come from a call of its own.
                if metric not in answers.single:
                    answers.lack(metric, availability(returned))
                continue
            number = struct.unpack_from(VALUE_TYPES.get(kind, "=Q"), raw)[0]
            if number in _NO_NUMBER.get(kind, ()) or not isfinite(number):
                answers.lack(metric, Availability.NOT_SUPPORTED)
                continue
            if metric in _COUNTERS and not answers.counters_at:
                answers.counters_at = moment(stamp, began, over, answers.clock)
            answers.batched.add(metric)
            if metric in self._bytes:
                when = answers.counters_at or over
                number = self._bytes[metric].total(handle, number, kind == _UNSIGNED_INT, when)
                if number is None:
                    answers.lack(metric, Availability.UNRELIABLE)
                    continue
            answers.values[metric] = from_units(number, field.scale)
        if self._doubtful:
            self._doubt(answers)
        if not answers.counters_at:
            self._unstamped(answers, began, over)
        return SUCCESS if answers.batched else failed

    def _ask_for(self, fields: Sequence[Field]) -> None:
        self._fields = fields
        # One entry more than asked for: drivers were seen to write behind the last (nvitop's finding).
        self._batch = (pynvml.c_nvmlFieldValue_t * (len(fields) + 1))()
        for i, field in enumerate(fields):
            self._batch[i].fieldId = field.id
        self._view = memoryview(self._batch).cast("B")
        self._count = ctypes.c_int(len(fields))

    def _choose(self) -> None:
        """Keep the likeliest batch whose doubtful fields answered, after all of them were asked once."""
        answered = {
            field.id
            for i, field in enumerate(self._fields)
            if _ENTRY.unpack_from(self._view, i * _ENTRY.size)[5] == SUCCESS
        }
        for at, fields in enumerate(self._batches):
            if any(field.id in answered for field in fields if field.metric in self._doubtful):
                self._at = at
                break
        asked, view = self._fields, self._view
        self._ask_for(self._batches[self._at])
        for i, field in enumerate(self._fields):  # what the driver wrote for them
            at = asked.index(field) * _ENTRY.size
            self._view[i * _ENTRY.size : (i + 1) * _ENTRY.size] = view[at : at + _ENTRY.size]

    def _doubt(self, answers: Answers) -> None:
        """Turn to the other batch where one of these counters fell: it is none. All fall with a reset of the GPU."""
        values, last = answers.values, self._last
        fell = {metric for metric in answers.batched & _COUNTERS if values.get(metric, 0.0) < last.get(metric, 0.0)}
        self._last = {metric: values[metric] for metric in answers.batched & _COUNTERS if metric in values}
        if fell and fell <= self._doubtful:
            for metric in self._doubtful:
                answers.lack(metric, Availability.UNRELIABLE)
                self._last.pop(metric, None)
            self._at = (self._at + 1) % len(self._batches)
            self._ask_for(self._batches[self._at])

    def _unstamped(self, answers: Answers, began: int, over: int) -> None:
        """Counters of which the driver did not say when they were read."""
        answers.counters_at = over
        if over - began > _UNSURE:
            for metric in answers.batched & _COUNTERS:
                answers.lack(metric, Availability.UNRELIABLE)


def moment(stamp: int, began: int, over: int, clock: Clock) -> int:
    """When values were read, as their `stamp` (µs) says: ns, CLOCK_MONOTONIC, within the call that gave them.

    0 where the stamp tells nothing. nvml.h calls it the time since 1970; it may be the time since boot.
    """
    for offset in (_since_1970(clock), 0):
        when = stamp * 1000 + offset
        if began - _NEAR <= when <= over + _NEAR:
            return min(max(when, began), over)
    return 0


def _since_1970(clock: Clock) -> int:
    """The ns to add to a time since 1970 to get CLOCK_MONOTONIC: the two are read one after the other, so swiftly."""
    for _ in range(3):
        before, wall, after = clock.monotonic(), clock.time(), clock.monotonic()
        if after - before < _SWIFT:
            break
    return after - wall
