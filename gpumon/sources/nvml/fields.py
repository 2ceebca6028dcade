"""The batch of fields: what nvmlDeviceGetFieldValues gives with one driver call."""

from __future__ import annotations

import ctypes
import struct
import sys
from array import array
from collections.abc import Sequence
from math import isfinite
from operator import gt, truediv
from typing import Any, NamedTuple

import pynvml

from gpumon.common.clock import SECOND, Clock
from gpumon.model.metrics import BY_NAME, Availability, Kind, Unit
from gpumon.sources.base import parts_of
from gpumon.sources.nvml.library import SUCCESS, Function, Library, availability
from gpumon.sources.nvml.values import U32, U64, ByteCounter, DeviceAnswers, WideCounter, most_of

ALL_LINKS = 0xFFFF_FFFF
"""Scope of the NVLink byte counters that sums all links (nvml.h)."""


class Field(NamedTuple):
    """An entry of the batch."""

    metric: str
    id: int
    scale: float
    scope: int = 0
    """Index of an NVLink link, or `ALL_LINKS`, of a field that the driver reads of each link."""


_STEADY = (
    Field("gpu.power", 185, 1e-3),  # mW; since 525, unknown before
    Field("gpu.power_limit", 190, 1e-3),  # since 535
    Field("gpu.energy", 83, 1e-3),  # mJ
    Field("gpu.temperature_memory", 82, 1.0),
    Field("gpu.throttled_sw_power", 74, 1e-9),  # ns
    Field("gpu.throttled_sync_boost", 76, 1e-9),
    Field("gpu.pcie_sent", 197, 1.0),  # since 555; no id up to 550 is as large or means something else there
    Field("gpu.pcie_received", 198, 1.0),
    Field("gpu.power_instant", 186, 1e-3),  # since 525
    Field("gpu.nvlink_sent", 138, 1024.0, ALL_LINKS),  # data without the protocol, in KiB
    Field("gpu.nvlink_received", 139, 1024.0, ALL_LINKS),
)
"""Ids that mean the same in every release looked at, or nothing."""

FAULTS = (
    Field("gpu.ecc_corrected", 3, 1.0),
    Field("gpu.ecc_uncorrected", 4, 1.0),
    Field("gpu.ecc_corrected_lifetime", 5, 1.0),
    Field("gpu.ecc_uncorrected_lifetime", 6, 1.0),
    Field("gpu.rows_remapped_corrected", 142, 1.0),
    Field("gpu.rows_remapped_uncorrected", 143, 1.0),
    Field("gpu.remapping_pending", 144, 1.0),  # 0 or 1, as the next two
    Field("gpu.remapping_failed", 145, 1.0),
    Field("gpu.retirement_pending", 31, 1.0),
    Field("gpu.recovery_action", 230, 1.0),  # since 570, unknown before
    Field("gpu.pcie_replays", 94, 1.0),
)
"""Fields that change seldom, each in the slow batch. Their ids mean the same in every release looked at, or nothing."""

LINK_COUNT, LINK_STATE = 91, 165
"""Number of NVLink links; and of one link, its state: since 525, and in the driver from Hopper on."""
LINK_ERRORS: dict[str, tuple[int, tuple[int, ...]]] = {
    "gpu.nvlink_replays": (161, (52,)),
    "gpu.nvlink_recoveries": (162, (59,)),
    "gpu.nvlink_crc_errors": (163, (38, 45)),  # of control and of data
}
"""The field of one link (since 525), and the older ones that add up to all links."""

HEAT_IDS: tuple[tuple[tuple[int, int], tuple[int, ...]], ...] = (
    ((590, 0), (269,)),
    ((580, 82), (269, 251)),
    ((575, 0), (251, 269)),
    ((0, 0), (269,)),
)
"""From which driver on, and the first id of the three counters of heat and power brake, the likeliest first.

12.575.51 and 13.580.65 say 251, 13.580.82 and later say 269. What each says is 251 or 269 otherwise is power smoothing,
of the newest cards only: a setting, not a counter. 12.570.172 has smoothing at 251 and nothing at 269; before, neither.
"""


def fields_for(driver_version: str) -> tuple[tuple[Field, ...], ...]:
    """The fields to ask of this driver: one batch, or more where its version alone does not tell; the likeliest first.

    All batches have the same metrics in the same order.
    """
    version = _numbers(driver_version)
    first_ids = next(ids for since, ids in HEAT_IDS if version >= since)
    return tuple((*_STEADY, *_heat(first)) for first in first_ids)


def _heat(first: int) -> tuple[Field, ...]:
    return (
        Field("gpu.throttled_sw_thermal", first, 1e-9),
        Field("gpu.throttled_hw_thermal", first + 1, 1e-9),
        Field("gpu.throttled_hw_power_brake", first + 2, 1e-9),
    )


def _numbers(driver_version: str) -> tuple[int, int]:
    """Branch and release, such as (580, 65) of 580.65.06; (0, 0) where it cannot be read."""
    parts = driver_version.split(".")[:2]
    if not all(part.isascii() and part.isdigit() for part in parts):
        return 0, 0
    return int(parts[0]), int(parts[1]) if len(parts) > 1 else 0


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


_ENTRY = "IIqqiiQ"
"""nvmlFieldValue_t: id, scope, timestamp µs, latency µs, value type, return code, value."""
_PARTS = len(_ENTRY)
_UNSIGNED_SHORT = 6
"""NVML_VALUE_TYPE_UNSIGNED_SHORT, which nvidia-ml-py knows only since 12.550."""
VALUE_TYPES = {
    int(pynvml.NVML_VALUE_TYPE_DOUBLE): "=d",
    int(pynvml.NVML_VALUE_TYPE_UNSIGNED_INT): "=I",
    int(pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG): "=Q",
    int(pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG): "=Q",
    int(pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG): "=q",
    int(pynvml.NVML_VALUE_TYPE_SIGNED_INT): "=i",
    _UNSIGNED_SHORT: "=H",
}
"""nvmlValueType_t to struct formats; an unsigned long has 8 bytes here."""
_UNSIGNED_INT = int(pynvml.NVML_VALUE_TYPE_UNSIGNED_INT)
_UNSIGNED_LONG_LONG = int(pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG)
_NO_NUMBER = {
    _UNSIGNED_INT: (U32,),
    int(pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG): (U64,),
    int(pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG): (-1, 2**63 - 1),
    int(pynvml.NVML_VALUE_TYPE_SIGNED_INT): (-1, 2**31 - 1),
    _UNSIGNED_SHORT: (0xFFFF,),
}
"""By other value types: what stands for no value; nvml.h, NVML_VALUE_NOT_AVAILABLE, and the largest of the type."""
_PCIE = ("gpu.pcie_sent", "gpu.pcie_received")
_NVLINK = ("gpu.nvlink_sent", "gpu.nvlink_received")
_COUNTERS = frozenset(name for name, metric in BY_NAME.items() if metric.kind is Kind.COUNTER)
_UNSURE = SECOND // 10
"""ns that a call may take at most for its counters to be of a known time, where the driver does not tell which."""
_SWIFT = SECOND // 10_000
"""ns: of a call, or of two, that are as good as one moment."""
_NEAR = SECOND
"""ns: a stamp further than this from its call is of another clock, or never written."""


class FieldBatch:
    """The batch of one device, in a buffer that is kept."""

    def __init__(self, library: Library, function: Function) -> None:
        self._function = function
        self._bytes: dict[str, ByteCounter | WideCounter] = {metric: ByteCounter(library) for metric in _PCIE}
        self._bytes.update({metric: WideCounter() for metric in _NVLINK})
        self._batches = fields_for(library.driver.version)
        self._doubtful = {
            field.metric
            for fields in self._batches
            for field, other in zip(fields, self._batches[0], strict=True)
            if field.id != other.id
        }
        self._at = 0
        self._last: dict[str, float] = {}
        self._shape: SteadyShape | None = None
        self._ask_for(tuple(dict.fromkeys(field for fields in self._batches for field in fields)))

    @classmethod
    def make(cls, library: Library) -> FieldBatch | None:
        """A batch for one device of this driver; None where the driver has no batches."""
        function = library.find("nvmlDeviceGetFieldValues")
        return cls(library, function) if function else None

    def __call__(self, handle: Any, answers: DeviceAnswers) -> int:
        """Ask, and fill in what came. A field fails alone; the code is the first field's where all did."""
        began = answers.clock.monotonic()
        code = self._function(handle, self._count, self._batch)
        over = answers.clock.monotonic()
        if code != SUCCESS:
            answers.batched, answers.counters_at_ns = frozenset(), 0
            self._shape = None  # all its metrics are missing for this now, those that it never has, too
            return code
        if len(self._rows) > len(self._batches[0]):
            self._choose()
        shape = self._shape
        if shape is not None and shape.take(answers.values):
            answers.batched = shape.metrics
            if self._doubtful:
                self._doubt(answers)
            answers.counters_at_ns = over
            if over - began > _SWIFT:
                self._place(answers, shape.stamp(), began, over)
            return SUCCESS
        return self._look(handle, answers, began, over)

    def _look(self, handle: Any, answers: DeviceAnswers, began: int, over: int) -> int:
        """Fill in what came, field by field; all of `__call__` but the call."""
        found, values = self._unpack(self._batch), answers.values
        stamp, failed, lacking = 0, SUCCESS, None
        columns = zip(found[2::_PARTS], found[4::_PARTS], found[5::_PARTS], found[6::_PARTS], strict=True)
        for (metric, factor, divisor, counts, bytes_counted, least, most), (when, kind, returned, number) in zip(
            self._rows, columns, strict=True
        ):
            if returned != SUCCESS:
                failed = failed or returned
                lacking = lacking or set()
                lacking.add(metric)
                # It may come from a call of its own.
                if metric not in answers.single:
                    answers.lack(metric, availability(returned))
                continue
            known: float | None = number
            if kind == _UNSIGNED_INT:
                number &= U32
                known = number if number != U32 else None
            elif kind != _UNSIGNED_LONG_LONG or number == U64:
                known = decoded(kind, number)
            if known is None:
                lacking = lacking or set()
                lacking.add(metric)
                answers.lack(metric, Availability.NOT_SUPPORTED)
                continue
            if not least <= known <= most:
                lacking = lacking or set()
                lacking.add(metric)
                answers.refuse(metric, known)
                continue
            if counts and not stamp:
                stamp = when
            if bytes_counted is not None and (bytes_counted.narrow or number >> 32 == 0):
                known = bytes_counted.total(handle, number, kind == _UNSIGNED_INT, over)
                if known is None:
                    answers.lack(metric, Availability.UNRELIABLE)
                    continue
            elif bytes_counted is not None:
                bytes_counted.number = number
            values[metric] = known * factor / divisor
        answers.batched = self._metrics if lacking is None else self._metrics - lacking
        self._shape = self._steady(found)
        if self._doubtful:
            self._doubt(answers)
        answers.counters_at_ns = over
        if over - began > _SWIFT:
            self._place(answers, stamp, began, over)
        return SUCCESS if answers.batched else failed

    def _steady(self, found: Sequence[int]) -> SteadyShape | None:
        """The shape of what was `found`, for the next calls; None of one that takes a look at each field."""
        fields = []
        for (metric, factor, divisor, counts, counter, _, most), kind, returned, number in zip(
            self._rows, found[4::_PARTS], found[5::_PARTS], found[6::_PARTS], strict=True
        ):
            is_narrow, is_known = kind == _UNSIGNED_INT, returned == SUCCESS
            # What a narrow number leaves of its eight bytes is anybody's.
            most = min(most, (U32 if is_narrow else U64) - 1)
            is_odd = (number & U32 if is_narrow else number) > most or not (is_narrow or kind == _UNSIGNED_LONG_LONG)
            if is_known and (is_odd or (counter is not None and (is_narrow or counter.narrow))):
                return None
            of_bytes = counter if isinstance(counter, ByteCounter) else None
            fields.append(ShapedField(metric, divisor / factor, is_known, is_narrow, counts, most, of_bytes))
        return SteadyShape(self._bytes_of_batch, fields) if any(field.is_known for field in fields) else None

    def _ask_for(self, fields: Sequence[Field]) -> None:
        self._fields = fields
        self._shape = None
        self._metrics = frozenset(field.metric for field in fields)
        # Looked up once: metric, what to multiply and divide by, whether it counts, bytes, the least and the most.
        self._rows = [
            (
                field.metric,
                *parts_of(field.scale),
                field.metric in _COUNTERS,
                self._bytes.get(field.metric),
                -most if BY_NAME[field.metric].unit is Unit.CELSIUS else 0,
                most,
            )
            for field in fields
            for most in [most_of(field.metric, field.scale, U64)]
        ]
        # One entry more than asked for: drivers were seen to write behind the last (nvitop's finding).
        entries = pynvml.c_nvmlFieldValue_t * (len(fields) + 1)
        self._bytes_of_batch = bytearray(ctypes.sizeof(entries))
        self._batch = entries.from_buffer(self._bytes_of_batch)
        for i, field in enumerate(fields):
            self._batch[i].fieldId, self._batch[i].scopeId = field.id, field.scope
        self._count = ctypes.c_int(len(fields))
        self._unpack = struct.Struct("=" + _ENTRY * len(fields)).unpack_from

    def _choose(self) -> None:
        """Keep the likeliest batch whose doubtful fields answered, after all of them were asked once."""
        found = self._unpack(self._batch)
        answered = {field.id for i, field in enumerate(self._fields) if found[i * _PARTS + _PARTS - 2] == SUCCESS}
        for at, fields in enumerate(self._batches):
            if any(field.id in answered for field in fields if field.metric in self._doubtful):
                self._at = at
                break
        asked, batch = list(self._fields), self._batch
        self._ask_for(self._batches[self._at])
        for i, field in enumerate(self._fields):
            self._batch[i] = batch[asked.index(field)]  # what the driver wrote for it

    def _doubt(self, answers: DeviceAnswers) -> None:
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

    @staticmethod
    def _place(answers: DeviceAnswers, stamp: int, began: int, over: int) -> None:
        """Say when in a call that took its time the counters were read, or that nobody can."""
        when = moment(stamp, began, over, answers.clock)
        answers.counters_at_ns = when or over
        if not when and over - began > _UNSURE:
            for metric in answers.batched & _COUNTERS:
                answers.lack(metric, Availability.UNRELIABLE)


def decoded(kind: int, raw: int) -> float | None:
    """A value of any type, from its 8 bytes; None where it stands for no value."""
    number: float
    (number,) = struct.unpack_from(VALUE_TYPES.get(kind, "=Q"), raw.to_bytes(8, sys.byteorder))
    return number if isfinite(number) and number not in _NO_NUMBER.get(kind, (U64,)) else None


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
