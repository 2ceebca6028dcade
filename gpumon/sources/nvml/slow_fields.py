"""Reads fields that rarely change (faults and NVLink) with two driver calls, at long intervals."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ctypes import byref, c_uint
from dataclasses import dataclass
from typing import Any

from gpumon.model.metrics import Availability
from gpumon.sources.nvml.fields import FAULTS, LINK_COUNT, LINK_ERRORS, LINK_STATE, FieldBuffer, Place, decode_value
from gpumon.sources.nvml.library import Function, Library
from gpumon.sources.nvml.return_codes import NOT_SUPPORTED, SUCCESS, availability, is_unsupported
from gpumon.sources.nvml.values import DeviceValues

_FLAGS = frozenset({"gpu.remapping_pending", "gpu.remapping_failed", "gpu.retirement_pending"})
_MOST = 1 << 53
"""Largest plausible count. A larger number is invalid."""
_MAX_LINKS = 64
"""A larger number of links is an error. No GPU has so many (NVML_NVLINK_MAX_LINKS is 36 in branch 615)."""
_UP, _KNOWN_STATES = (1, 2), (0, 1, 2, 3)
"""States of a link that count as up (1: active, 2: asleep), and all valid states. The other two are inactive, and
active without traffic (NVML_NVLINK_STATE)."""
_STATES_EVERY = 10
"""On drivers that need a call per link, the link states are checked once in this number of reads."""

METRICS = (*(field.metric for field in FAULTS), "gpu.nvlink_links", "gpu.nvlink_active", *LINK_ERRORS)


@dataclass(frozen=True, slots=True)
class _Result:
    """Result of one field of a batch."""

    code: int
    """The driver's return code. NOT_SUPPORTED if the call succeeded but returned a number that means "no value"."""
    number: float


_NONE = _Result(NOT_SUPPORTED, 0.0)


def _read(buffer: FieldBuffer, handle: Any) -> tuple[int, dict[Place, _Result]]:
    """Read the fields in a buffer. Return the code of the call, and the results of the fields.

    If the call failed, each result has the code of the call.
    """
    code = buffer.read(handle)
    if code != SUCCESS:
        return code, dict.fromkeys(buffer.places, _Result(code, 0.0))
    return code, {place: _decode(*result) for place, (_, *result) in zip(buffer.places, buffer.results(), strict=True)}


def _decode(kind: int, code: int, raw: int) -> _Result:
    """Decode value type, return code and the 8 bytes of a value."""
    number = decode_value(kind, raw) if code == SUCCESS else None
    if number is not None and number >= 0:
        return _Result(SUCCESS, number)
    return _Result(code, 0.0) if code != SUCCESS else _NONE


class SlowFields:
    """Reads the rarely changing fields of one device, and the fields of its NVLink links."""

    def __init__(self, library: Library, function: Function) -> None:
        self._function = function
        self._link_state = library.find("nvmlDeviceGetNvLinkState")
        totals = [(id, 0) for _, ids in LINK_ERRORS.values() for id in ids]
        faults = [(field.id, field.scope) for field in FAULTS]
        self._device_batch = FieldBuffer(function, [*faults, (LINK_COUNT, 0), *totals])
        self._links = 0
        self._link_batch: FieldBuffer | None = None
        self._states: Sequence[_Result] = ()
        """States of the links on drivers that need a call per link."""
        self._states_in = 0
        """Number of further reads until the link states are read again."""

    @classmethod
    def from_library(cls, library: Library) -> SlowFields | None:
        """Return a `SlowFields` for one device; None if the driver cannot return several fields at once."""
        function = library.find("nvmlDeviceGetFieldValues")
        return cls(library, function) if function else None

    def __call__(self, handle: Any, device: DeviceValues) -> int:
        """Read the batches, and return the driver's return code.

        Each field may fail separately. If all fields fail, the code of the first field is returned.
        """
        code, results = _read(self._device_batch, handle)
        if code != SUCCESS:
            return code
        links = results[LINK_COUNT, 0]
        if links.code == SUCCESS and links.number > _MAX_LINKS:
            links = _NONE
        if links.code == SUCCESS:
            # This is a second call, so that the other fields are still read if the driver rejects it because of its
            # length.
            results |= self._read_links(handle, int(links.number))
        for field in FAULTS:
            result = results[field.id, field.scope]
            if result.number > (1 if field.metric in _FLAGS else _MOST):
                result = _NONE
            _store(device, field.metric, result)
        _store(device, "gpu.nvlink_links", links)
        if links.code == SUCCESS:
            self._store_links(handle, device, results)
        else:
            for metric in ("gpu.nvlink_active", *LINK_ERRORS):
                _store(device, metric, links)
        is_any_known = any(metric in device.values for metric in METRICS)
        return SUCCESS if is_any_known else next(result.code for result in results.values())

    def _read_links(self, handle: Any, count: int) -> dict[Place, _Result]:
        if count != self._links:
            self._links, self._states_in = count, 0
            ids = [LINK_STATE, *(id for id, _ in LINK_ERRORS.values())]
            places = [(id, link) for link in range(count) for id in ids]
            self._link_batch = FieldBuffer(self._function, places) if count else None
        return _read(self._link_batch, handle)[1] if self._link_batch else {}

    def _store_links(self, handle: Any, device: DeviceValues, results: dict[Place, _Result]) -> None:
        """Store the states and error counts of the links."""
        states = [results[LINK_STATE, link] for link in range(self._links)]
        if all(is_unsupported(state.code) for state in states):
            states = list(self._read_link_states(handle))
        bad = next((state for state in states if state.code != SUCCESS or state.number not in _KNOWN_STATES), None)
        if bad is not None:
            _store(device, "gpu.nvlink_active", _NONE if bad.code == SUCCESS else bad)
            up: Sequence[int] = range(self._links)
        else:
            up = [link for link, state in enumerate(states) if state.number in _UP]
            _store(device, "gpu.nvlink_active", _Result(SUCCESS, float(len(up))))
        for metric, (id, totals) in LINK_ERRORS.items():
            by_link = _sum(results[id, link] for link in up) if up else _NONE
            # Only active links have counters. Counters per link are preferred to the older totals.
            _store(device, metric, by_link if by_link.code == SUCCESS else _sum(results[id, 0] for id in totals))

    def _read_link_states(self, handle: Any) -> Sequence[_Result]:
        """Return the link states from a driver that has no field for them.

        They are read less often than other fields, because this takes one call per link.
        """
        if self._link_state is None:
            return [_NONE] * self._links
        if self._states_in == 0:
            self._states_in = _STATES_EVERY
            states, value = [], c_uint()
            for link in range(self._links):
                code = self._link_state(handle, c_uint(link), byref(value))
                states.append(_Result(code, float(value.value) if code == SUCCESS else 0.0))
            self._states = states
        self._states_in -= 1
        return self._states


def _sum(results: Iterable[_Result]) -> _Result:
    """Return the sum of the results, or the first result that has no number."""
    total = 0.0
    for result in results:
        if result.code != SUCCESS:
            return result
        total += result.number
    return _Result(SUCCESS, total)


def _store(device: DeviceValues, metric: str, result: _Result) -> None:
    if result.code == SUCCESS and result.number <= _MOST:
        device.values[metric] = float(result.number)
    else:
        device.set_missing(metric, availability(result.code) if result.code != SUCCESS else Availability.NOT_SUPPORTED)
