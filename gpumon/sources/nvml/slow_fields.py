"""Faults and links: fields that change seldom, read with two driver calls from time to time."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Sequence
from ctypes import byref, c_uint
from functools import lru_cache
from typing import Any, NamedTuple

import pynvml

from gpumon.model.metrics import Availability
from gpumon.sources.nvml.fields import FAULTS, LINK_COUNT, LINK_ERRORS, LINK_STATE, decoded
from gpumon.sources.nvml.library import NOT_SUPPORTED, SUCCESS, Function, Library, availability, unspoken
from gpumon.sources.nvml.values import DeviceAnswers

_ENTRY = struct.Struct("=IIqqiiQ")
"""nvmlFieldValue_t, as in `fields`."""
_FLAGS = frozenset({"gpu.remapping_pending", "gpu.remapping_failed", "gpu.retirement_pending"})
_MOST = 1 << 53
"""More than this is no count."""
_MOST_LINKS = 64
"""More than any GPU has (NVML_NVLINK_MAX_LINKS is 36 in branch 615): such a number of links is none."""
_UP, _KNOWN_STATES = (1, 2), (0, 1, 2, 3)
"""States of a link: active or asleep; the others are inactive, and active without traffic (NVML_NVLINK_STATE)."""
_STATES_EVERY = 10
"""Reads between two questions after each link, where that takes a call for each."""

METRICS = (*(field.metric for field in FAULTS), "gpu.nvlink_links", "gpu.nvlink_active", *LINK_ERRORS)


class _Answer(NamedTuple):
    """One entry of the batch."""

    code: int
    """The driver's return code; NOT_SUPPORTED also where its number is none."""
    number: float


_NONE = _Answer(NOT_SUPPORTED, 0.0)
Place = tuple[int, int]
"""Id of a field, and its scope."""


class _Batch:
    """Fields that one call gives, in a buffer that is kept."""

    def __init__(self, function: Function, places: Sequence[Place]) -> None:
        self._function = function
        self._places = places
        # One entry more than asked for: drivers were seen to write behind the last.
        self._buffer = (pynvml.c_nvmlFieldValue_t * (len(places) + 1))()
        for entry, (id, scope) in zip(self._buffer, places, strict=False):
            entry.fieldId, entry.scopeId = id, scope
        self._count = ctypes.c_int(len(places))

    def ask(self, handle: Any) -> tuple[int, dict[Place, _Answer]]:
        """The call's return code, and the answers; each has that code where the call failed."""
        code = self._function(handle, self._count, self._buffer)
        if code != SUCCESS:
            return code, dict.fromkeys(self._places, _Answer(code, 0.0))
        entries = _ENTRY.iter_unpack(self._buffer)
        return code, {place: _answer(*entry[4:]) for place, entry in zip(self._places, entries, strict=False)}


@lru_cache(maxsize=1024)
def _answer(kind: int, returned: int, raw: int) -> _Answer:
    """Return what a value type, a return code and the 8 bytes of a number mean: nearly always as they did before."""
    number = decoded(kind, raw) if returned == SUCCESS else None
    if number is not None and number >= 0:
        return _Answer(SUCCESS, number)
    return _Answer(returned, 0.0) if returned != SUCCESS else _NONE


class SlowFields:
    """The slow batch of one device, and that of its links."""

    def __init__(self, library: Library, function: Function) -> None:
        self._function = function
        self._link_state = library.find("nvmlDeviceGetNvLinkState")
        totals = [(id, 0) for _, ids in LINK_ERRORS.values() for id in ids]
        self._faults = _Batch(function, [*((field.id, field.scope) for field in FAULTS), (LINK_COUNT, 0), *totals])
        self._links = 0
        self._of_links: _Batch | None = None
        self._states: Sequence[_Answer] = ()
        """Of each link, where that takes a call for each."""
        self._states_in = 0
        self._given: dict[Place, _Answer] = {}
        """The answers of the last time, which `answers` have; empty where they are to be given anew."""
        self._given_at = 0
        """`forgotten` of the answers then."""

    @classmethod
    def make(cls, library: Library) -> SlowFields | None:
        """A batch for one device; None where the driver has no batches."""
        function = library.find("nvmlDeviceGetFieldValues")
        return cls(library, function) if function else None

    def __call__(self, handle: Any, answers: DeviceAnswers) -> int:
        """Ask, and fill in what came. A field fails alone; the code is the first field's where all did."""
        before, self._given = self._given, {}
        code, found = self._faults.ask(handle)
        if code != SUCCESS:
            return code
        links = found[LINK_COUNT, 0]
        if links.code == SUCCESS and links.number > _MOST_LINKS:
            links = _NONE
        if links.code == SUCCESS:
            # By a call of its own: one that a driver refuses for its length takes nothing else with it.
            found |= self._ask_links(handle, int(links.number))
        if found == before and answers.forgotten == self._given_at:  # nearly always
            self._given = found
            return SUCCESS
        for field in FAULTS:
            answer = found[field.id, field.scope]
            if answer.number > (1 if field.metric in _FLAGS else _MOST):
                answer = _NONE
            _give(answers, field.metric, answer)
        _give(answers, "gpu.nvlink_links", links)
        is_by_one_call = True
        if links.code == SUCCESS:
            is_by_one_call = self._give_links(handle, answers, found)
        else:
            for metric in ("gpu.nvlink_active", *LINK_ERRORS):
                _give(answers, metric, links)
        known = any(metric in answers.values for metric in METRICS)
        if known and is_by_one_call:
            self._given, self._given_at = found, answers.forgotten
        return SUCCESS if known else next(answer.code for answer in found.values())

    def _ask_links(self, handle: Any, count: int) -> dict[Place, _Answer]:
        if count != self._links:
            self._links, self._states_in = count, 0
            of_one = [LINK_STATE, *(id for id, _ in LINK_ERRORS.values())]
            places = [(id, link) for link in range(count) for id in of_one]
            self._of_links = _Batch(self._function, places) if count else None
        return self._of_links.ask(handle)[1] if self._of_links else {}

    def _give_links(self, handle: Any, answers: DeviceAnswers, found: dict[Place, _Answer]) -> bool:
        """Fill in what the links are and count; return whether all of it is in `found`."""
        states = [found[LINK_STATE, link] for link in range(self._links)]
        has_states = not (states and all(unspoken(state.code) for state in states))
        if not has_states:
            states = list(self._states_one_by_one(handle))
        bad = next((state for state in states if state.code != SUCCESS or state.number not in _KNOWN_STATES), None)
        if bad is not None:
            _give(answers, "gpu.nvlink_active", _NONE if bad.code == SUCCESS else bad)
            up: Sequence[int] = range(self._links)
        else:
            up = [link for link, state in enumerate(states) if state.number in _UP]
            _give(answers, "gpu.nvlink_active", _Answer(SUCCESS, float(len(up))))
        for metric, (id, totals) in LINK_ERRORS.items():
            of_links = _sum(found[id, link] for link in up) if up else _NONE
            # A link that is down has no counters; a driver that counts by link knows best.
            _give(answers, metric, of_links if of_links.code == SUCCESS else _sum(found[id, 0] for id in totals))
        return has_states

    def _states_one_by_one(self, handle: Any) -> Sequence[_Answer]:
        """The states of the links on drivers that have no field for them: a call each, so more seldom."""
        if self._link_state is None:
            return [_NONE] * self._links
        if self._states_in == 0:
            self._states_in = _STATES_EVERY
            states, value = [], c_uint()
            for link in range(self._links):
                code = self._link_state(handle, c_uint(link), byref(value))
                states.append(_Answer(code, float(value.value) if code == SUCCESS else 0.0))
            self._states = states
        self._states_in -= 1
        return self._states


def _sum(answers: Iterable[_Answer]) -> _Answer:
    """The sum of all; the first that has no number where there is one."""
    total = 0.0
    for answer in answers:
        if answer.code != SUCCESS:
            return answer
        total += answer.number
    return _Answer(SUCCESS, total)


def _give(answers: DeviceAnswers, metric: str, answer: _Answer) -> None:
    if answer.code == SUCCESS and answer.number <= _MOST:
        answers.values[metric] = float(answer.number)
    else:
        answers.lack(metric, availability(answer.code) if answer.code != SUCCESS else Availability.NOT_SUPPORTED)
