"""Fields of a device that nvmlDeviceGetFieldValues returns together in one driver call."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from typing import Any

import pynvml

from gpumon.common.clock import SECOND, Clock
from gpumon.model.metrics import BY_NAME, Availability, Kind, Unit
from gpumon.sources.base import to_base_units
from gpumon.sources.nvml.library import Function, Library
from gpumon.sources.nvml.return_codes import SUCCESS, availability
from gpumon.sources.nvml.values import U32, U64, ByteCounter, DeviceValues, largest_raw_value

ALL_LINKS = 0xFFFF_FFFF
"""Scope with which the NVLink byte counters return the sum over all links (nvml.h)."""


@dataclass(frozen=True, slots=True)
class Field:
    """An NVML field, with its id and the metric as which its value is stored."""

    metric: str
    id: int
    scale: float
    scope: int = 0
    """Index of an NVLink link, or `ALL_LINKS`; 0 for a field of the whole GPU."""


_STABLE = (
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
"""Fields whose id had the same meaning, or was unused, in every release that was checked."""

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
"""Fields of the batch that is read at long intervals. Each id had the same meaning, or was unused, in every release
that was checked."""

LINK_COUNT, LINK_STATE = 91, 165
"""Field ids of the number of NVLink links, and of the state of one link. Drivers have these fields since 525, but only
for Hopper and newer GPUs.
"""
LINK_ERRORS: dict[str, tuple[int, tuple[int, ...]]] = {
    "gpu.nvlink_replays": (161, (52,)),
    "gpu.nvlink_recoveries": (162, (59,)),
    "gpu.nvlink_crc_errors": (163, (38, 45)),  # control and data
}
"""For each metric: the field for a single link (since driver 525), and the older fields whose sum is the total over all
links."""

THERMAL_IDS: tuple[tuple[tuple[int, int], tuple[int, ...]], ...] = (
    ((590, 0), (269,)),
    ((580, 82), (269, 251)),
    ((575, 0), (251, 269)),
    ((0, 0), (269,)),
)
"""Possible ids of the first of the three counters of thermal and power brake throttling, most likely first. The key is
the first driver version (branch, release) with these ids.

12.575.51 and 13.580.65 use id 251. 13.580.82 and later use 269. On the newest cards, the other one of these two ids is
power smoothing, which is a setting and not a counter. 12.570.172 has power smoothing at 251 and nothing at 269. In
earlier versions, neither id exists.
"""


def fields_for_driver(version: str) -> tuple[tuple[Field, ...], ...]:
    """Return the fields to request from a driver of this version.

    If the version does not determine the field ids, return several alternatives, most likely first. All alternatives
    have the same metrics in the same order.
    """
    first_ids = next(ids for since, ids in THERMAL_IDS if _parse_version(version) >= since)
    return tuple((*_STABLE, *_thermal_fields(first)) for first in first_ids)


def _thermal_fields(first: int) -> tuple[Field, ...]:
    return (
        Field("gpu.throttled_sw_thermal", first, 1e-9),
        Field("gpu.throttled_hw_thermal", first + 1, 1e-9),
        Field("gpu.throttled_hw_power_brake", first + 2, 1e-9),
    )


def _parse_version(version: str) -> tuple[int, int]:
    """Return branch and release, such as (580, 65) for 580.65.06; (0, 0) if the version cannot be parsed."""
    parts = version.split(".")[:2]
    if not all(part.isascii() and part.isdigit() for part in parts):
        return 0, 0
    return int(parts[0]), int(parts[1]) if len(parts) > 1 else 0


_ENTRY = struct.Struct("=IIqqiiQ")
"""nvmlFieldValue_t: id, scope, timestamp µs, latency µs, value type, return code, value."""
Place = tuple[int, int]
"""Id and scope of a field."""


class FieldBuffer:
    """Fields that one driver call returns, in a buffer that is reused for each call."""

    def __init__(self, function: Function, places: Sequence[Place]) -> None:
        self._function = function
        self.places = places
        # The buffer has one entry more than needed, because some drivers write beyond the last one (found by nvitop).
        self.entries = (pynvml.c_nvmlFieldValue_t * (len(places) + 1))()
        for entry, (id, scope) in zip(self.entries, places, strict=False):
            entry.fieldId, entry.scopeId = id, scope
        self._count = ctypes.c_int(len(places))

    def read(self, handle: Any) -> int:
        """Read the fields, and return the driver's return code."""
        return self._function(handle, self._count, self.entries)

    def results(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield timestamp, value type, return code and value of each field of the last read."""
        entries = islice(_ENTRY.iter_unpack(self.entries), self._count.value)
        return ((when, kind, code, raw) for _, _, when, _, kind, code, raw in entries)


_UNSIGNED_SHORT = 6
"""NVML_VALUE_TYPE_UNSIGNED_SHORT. nvidia-ml-py has this constant only since 12.550."""
VALUE_TYPES = {
    int(pynvml.NVML_VALUE_TYPE_DOUBLE): "=d",
    int(pynvml.NVML_VALUE_TYPE_UNSIGNED_INT): "=I",
    int(pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG): "=Q",
    int(pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG): "=Q",
    int(pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG): "=q",
    int(pynvml.NVML_VALUE_TYPE_SIGNED_INT): "=i",
    _UNSIGNED_SHORT: "=H",
}
"""struct format of each nvmlValueType_t. An unsigned long has 8 bytes."""
_UNSIGNED_INT = int(pynvml.NVML_VALUE_TYPE_UNSIGNED_INT)
_NOT_AVAILABLE = {
    _UNSIGNED_INT: (U32,),
    int(pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG): (U64,),
    int(pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG): (-1, 2**63 - 1),
    int(pynvml.NVML_VALUE_TYPE_SIGNED_INT): (-1, 2**31 - 1),
    _UNSIGNED_SHORT: (0xFFFF,),
}
"""Numbers that mean "no value", for each value type: NVML_VALUE_NOT_AVAILABLE of nvml.h, and the type's maximum."""
_PCIE = ("gpu.pcie_sent", "gpu.pcie_received")
_NVLINK = ("gpu.nvlink_sent", "gpu.nvlink_received")
_COUNTERS = frozenset(name for name, metric in BY_NAME.items() if metric.kind is Kind.COUNTER)
_MAX_UNCERTAINTY = SECOND // 10
"""If a call takes longer than this many ns, counters without a usable timestamp are rejected."""
_INSTANT = SECOND // 10_000
"""Calls of at most this many ns count as instantaneous."""
_NEAR = SECOND
"""A timestamp that is further than this many ns from the call comes from another clock, or was never written."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """How the value of a field is decoded."""

    metric: str
    scale: float
    minimum: float
    """Lowest and highest valid number, in the driver's unit."""
    maximum: float
    is_counter: bool


class FieldBatch:
    """The fields of one device, in a buffer that is reused for each call."""

    def __init__(self, library: Library, function: Function) -> None:
        self._function = function
        self._bytes = {metric: ByteCounter(library) for metric in _PCIE}
        self._batches = fields_for_driver(library.driver.version)
        self._uncertain = {
            field.metric
            for fields in self._batches
            for field, other in zip(fields, self._batches[0], strict=True)
            if field.id != other.id
        }
        """Metrics whose field id the driver's version does not determine."""
        self._chosen = 0
        """Index of the batch in use."""
        self._last: dict[str, float] = {}
        self._set_fields(tuple(dict.fromkeys(field for fields in self._batches for field in fields)))

    @classmethod
    def from_library(cls, library: Library) -> FieldBatch | None:
        """Return a `FieldBatch` for one device; None if the driver cannot return several fields at once."""
        function = library.find("nvmlDeviceGetFieldValues")
        return cls(library, function) if function else None

    def __call__(self, handle: Any, device: DeviceValues) -> int:
        """Read the batch, and return the driver's return code.

        Each field may fail separately. If all fields fail, the code of the first field is returned.
        """
        began = device.clock.monotonic()
        code = self._buffer.read(handle)
        ended = device.clock.monotonic()
        if code != SUCCESS:
            device.batched, device.counters_at_ns = frozenset(), 0
            return code
        if len(self._fields) > len(self._batches[0]):
            self._choose_batch()
        stamp, failure, batched = 0, SUCCESS, set[str]()
        for rule, (when, kind, code, raw) in zip(self._rules, self._buffer.results(), strict=True):
            if code == SUCCESS:
                if self._store(rule, handle, device, kind, raw, ended):
                    batched.add(rule.metric)
                    if rule.is_counter and not stamp:
                        stamp = when
                continue
            failure = failure or code
            # A fallback call may have read the metric.
            if rule.metric not in device.single:
                device.set_missing(rule.metric, availability(code))
        device.batched = batched
        if self._uncertain:
            self._check_ids(device)
        device.counters_at_ns = ended
        if ended - began > _INSTANT:
            self._stamp_counters(device, stamp, began, ended)
        return SUCCESS if batched else failure

    def _store(self, rule: _Rule, handle: Any, device: DeviceValues, kind: int, raw: int, when: int) -> bool:
        """Store the value of a field, or why it is missing. Return whether it has a value.

        `kind` and `raw`: value type and value of the field, see `decode_value`. `when`: end of the call (ns).
        """
        metric, number = rule.metric, decode_value(kind, raw)
        if number is None:
            device.set_missing(metric, Availability.NOT_SUPPORTED)
            return False
        if not rule.minimum <= number <= rule.maximum:
            device.reject(metric, number)
            return False
        is_narrow = kind == _UNSIGNED_INT
        total: float | None = number
        if metric in self._bytes:
            total = self._bytes[metric].total(handle, int(number), is_narrow, when)
        elif is_narrow and metric in _NVLINK:
            total = None  # nothing shows how often a counter of 32 bits has wrapped
        if total is None:
            device.set_missing(metric, Availability.UNRELIABLE)
            return False
        device.values[metric] = to_base_units(total, rule.scale)
        return True

    def _set_fields(self, fields: Sequence[Field]) -> None:
        self._fields = fields
        self._rules = []
        for field in fields:
            maximum = largest_raw_value(field.metric, field.scale, U64)
            minimum = -maximum if BY_NAME[field.metric].unit is Unit.CELSIUS else 0
            self._rules.append(_Rule(field.metric, field.scale, minimum, maximum, field.metric in _COUNTERS))
        self._buffer = FieldBuffer(self._function, [(field.id, field.scope) for field in fields])

    def _choose_batch(self) -> None:
        """Choose the most likely batch whose uncertain fields have values.

        Called after the fields of all alternative batches have been read once.
        """
        results = zip(self._fields, self._buffer.results(), strict=True)
        succeeded = {field.id for field, (_, _, code, _) in results if code == SUCCESS}
        for i, fields in enumerate(self._batches):
            if any(field.id in succeeded for field in fields if field.metric in self._uncertain):
                self._chosen = i
                break
        all_fields, entries = list(self._fields), self._buffer.entries
        self._set_fields(self._batches[self._chosen])
        for i, field in enumerate(self._fields):
            self._buffer.entries[i] = entries[all_fields.index(field)]  # keep what the driver has written

    def _check_ids(self, device: DeviceValues) -> None:
        """Switch to the other batch if only fields with uncertain ids decreased. They are then not counters.

        A GPU reset, in contrast, would clear all counters.
        """
        values, last = device.values, self._last
        counters = device.batched & _COUNTERS
        decreased = {metric for metric in counters if values.get(metric, 0.0) < last.get(metric, 0.0)}
        self._last = {metric: values[metric] for metric in counters if metric in values}
        if decreased and decreased <= self._uncertain:
            for metric in self._uncertain:
                device.set_missing(metric, Availability.UNRELIABLE)
                self._last.pop(metric, None)
            self._chosen = (self._chosen + 1) % len(self._batches)
            self._set_fields(self._batches[self._chosen])

    @staticmethod
    def _stamp_counters(device: DeviceValues, stamp: int, began: int, ended: int) -> None:
        """If the call took long, set the time at which the counters were read.

        If this time is too uncertain, reject the counters.
        """
        when = counter_time(stamp, began, ended, device.clock)
        device.counters_at_ns = when or ended
        if not when and ended - began > _MAX_UNCERTAINTY:
            for metric in device.batched & _COUNTERS:
                device.set_missing(metric, Availability.UNRELIABLE)


def decode_value(kind: int, raw: int) -> float | None:
    """Return the value of an nvmlValue_t; None if the number means "no value".

    `kind`: nvmlValueType_t of the value. `raw`: the 8 bytes of the value as an integer.
    """
    number: float
    (number,) = struct.unpack_from(VALUE_TYPES.get(kind, "=Q"), raw.to_bytes(8, sys.byteorder))
    return number if isfinite(number) and number not in _NOT_AVAILABLE.get(kind, (U64,)) else None


def counter_time(stamp: int, began: int, ended: int, clock: Clock) -> int:
    """Return the time at which counters with this timestamp (µs) were read, in ns of CLOCK_MONOTONIC.

    `began` and `ended`: start and end of the call. The result is between the two, or 0 if the timestamp cannot be used.
    According to nvml.h, timestamps are the time since 1970, but some drivers return the time since boot.
    """
    for offset in (_epoch_offset(clock), 0):
        when = stamp * 1000 + offset
        if began - _NEAR <= when <= ended + _NEAR:
            return min(max(when, began), ended)
    return 0


def _epoch_offset(clock: Clock) -> int:
    """Return the ns to add to a time since 1970 to get CLOCK_MONOTONIC.

    If too much time passes between the readings of the two clocks, both are read again.
    """
    for _ in range(3):
        before, wall, after = clock.monotonic(), clock.time(), clock.monotonic()
        if after - before < _INSTANT:
            break
    return after - wall
