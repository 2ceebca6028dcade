"""MIG: whether a GPU is divided, and the handles of its instances."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import byref, c_uint, c_void_p
from math import inf
from typing import Any

from gpumon.model.metrics import Availability
from gpumon.sources.nvml.answers import DeviceAnswers
from gpumon.sources.nvml.costs import CallCost
from gpumon.sources.nvml.library import FUNCTION_NOT_FOUND, NOT_FOUND, SUCCESS, Library, availability
from gpumon.sources.nvml.schedule import AGAIN, UNSUPPORTED

INSTANCES = "gpu.mig_instances"
UTILIZATION = "gpu.utilization"
MODE_EVERY = 30.0
"""Seconds between two looks at a GPU that is whole. One that is divided meanwhile is seen at once: it has no
utilization any more. One that is divided is looked at every 2 s."""
_SOON = 0.5
"""Seconds between two looks at least."""
SEARCH_EVERY = 30.0
"""Seconds between two looks at all its places."""
UNTOLD = (
    "gpu.utilization", "gpu.memory_utilization", "gpu.encoder_utilization", "gpu.decoder_utilization",
    "gpu.jpeg_utilization", "gpu.optical_flow_utilization", "gpu.utilization_low", "gpu.idle_share",
)  # fmt: skip
"""Metrics of the work of a GPU: nvml.h says of each that it is not supported where MIG is on."""
_MOST = 64
"""Places that are looked at: a GPU of today has 7."""


def explained(missing: Mapping[str, Availability]) -> dict[str, Availability]:
    """The reasons of a GPU that MIG divides."""
    unspoken = Availability.NOT_SUPPORTED
    return {
        name: Availability.IN_MIG_MODE if why is unspoken and name in UNTOLD else why for name, why in missing.items()
    }


class Mig:
    """MIG of one GPU, as its driver told last."""

    def __init__(self, library: Library, answers: DeviceAnswers) -> None:
        self._answers = answers
        self._mode = library.find("nvmlDeviceGetMigMode")
        self._places = library.find("nvmlDeviceGetMaxMigDeviceCount")
        self._by_index = library.find("nvmlDeviceGetMigDeviceHandleByIndex")
        self._is_told = False
        """Whether this GPU has ever answered."""
        self._looked_at = self._searched_at = -inf
        self._was_busy_known = False
        """Whether the GPU had a utilization at the last look: that it has none is then news."""
        self._most = 0
        self.cost = CallCost("nvmlDeviceGetMigMode")
        self.is_on = False
        self.handles: Mapping[int, int] = {}
        """Of the instances, by their place on the GPU."""
        self.due = inf if self._mode is None else 0.0
        """Seconds: when it is to be asked again."""

    @property
    def is_known(self) -> bool:
        """Whether the last look was answered."""
        return INSTANCES in self._answers.values

    def is_due(self, now: float) -> bool:
        """Whether a GPU that has no utilization may have been divided since the last look."""
        return not self.is_on and self._is_told and (self._was_busy_known or now - self._looked_at >= AGAIN)

    def look(self, handle: Any, now: float) -> None:
        """Ask again. What was known stays where the driver answers with an error."""
        self._looked_at, self._was_busy_known = now, UTILIZATION in self._answers.values
        code = self.cost.timed(self._answers.clock, self._ask, handle, now)
        why = availability(code)
        if why is Availability.OK:
            self._is_told = True
            self._answers.give(INSTANCES, float(len(self.handles)))
            self.due = now + (AGAIN if self.is_on else MODE_EVERY)
        else:
            self._answers.lack(INSTANCES, why)
            self.due = now + (UNSUPPORTED if why is Availability.NOT_SUPPORTED and not self._is_told else AGAIN)

    def look_soon(self, now: float) -> None:
        """Look again soon: an instance does not answer, and may be gone."""
        self.due = min(self.due, max(now, self._looked_at + _SOON))

    def _ask(self, handle: Any, now: float) -> int:
        """Ask for the mode, and where it is on for the instances; return the driver's code."""
        current, pending = c_uint(), c_uint()
        code = self._mode(handle, byref(current), byref(pending)) if self._mode else FUNCTION_NOT_FOUND
        if code == SUCCESS:
            self.is_on = current.value != 0
            if self.is_on:
                return self._find(handle, now)
            self.handles, self._most = {}, 0
        return code

    def _find(self, handle: Any, now: float) -> int:
        """Ask for the handle at each place; what was known stays where one fails.

        Drivers fill the places in their order, so mostly no place is asked for but those and the one behind them.
        """
        if self._places is None or self._by_index is None:
            return FUNCTION_NOT_FOUND
        number, instance, found = c_uint(), c_void_p(), dict[int, int]()
        is_search = now - self._searched_at >= SEARCH_EVERY or not self._most
        if is_search:
            code = self._places(handle, byref(number))
            if code != SUCCESS:
                return code
            self._most = min(number.value, _MOST)
        last = max(self.handles, default=-1)
        for place in range(self._most):
            code = self._by_index(handle, c_uint(place), byref(instance))
            if code == SUCCESS and instance.value:
                found[place] = instance.value
            elif code not in (SUCCESS, NOT_FOUND):
                return code
            elif place > last and not is_search:
                break
        self.handles = found
        if is_search:
            self._searched_at = now
        return SUCCESS
