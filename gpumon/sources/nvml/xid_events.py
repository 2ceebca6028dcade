"""The driver's own set of events: which GPUs report XID errors into it, and the wait for the next one.

Only the thread that waits uses it.
"""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Any, NamedTuple

import pynvml

from gpumon.model.metrics import Availability
from gpumon.sources.nvml.library import Function, Library, availability

XID = int(pynvml.nvmlEventTypeXidCriticalError)


class _Functions(NamedTuple):
    """The driver's."""

    create: Function
    supported: Function
    register: Function
    wait: Function
    free: Function


class UnfreedSet(NamedTuple):
    """A set that the driver did not free: it was gone when it was asked to."""

    free: Function
    """Of the library that made it, which may have been replaced on disk since."""
    events: ctypes.c_void_p

    def is_freed(self) -> bool:
        """Ask the driver to free it, and return whether it is none any more."""
        return availability(self.free(self.events)) in _FREED


_FREED = (Availability.OK, Availability.NOT_SUPPORTED)
"""Answers after which a set is none any more."""
_MOST_UNFREED = 64
"""Sets that are remembered, for a driver that frees none."""
_FUNCTIONS = (
    ("nvmlEventSetCreate",),
    ("nvmlDeviceGetSupportedEventTypes",),
    ("nvmlDeviceRegisterEvents",),
    ("nvmlEventSetWait_v2", "nvmlEventSetWait"),
    ("nvmlEventSetFree",),
)
"""In the order of `_Functions`, the newest name first. The older wait writes the beginning of the same structure."""


class XidEvents:
    """The set; the driver makes it with the first GPU."""

    def __init__(self, functions: _Functions, unfreed: deque[UnfreedSet] | None = None) -> None:
        """`unfreed`: of earlier openings of the driver."""
        self._call = functions
        self._set = ctypes.c_void_p()
        self._earlier = deque[UnfreedSet]() if unfreed is None else unfreed
        self._unfreed = deque[UnfreedSet](maxlen=_MOST_UNFREED)
        self.data: Any = pynvml.c_nvmlEventData_t()
        """The event that a `wait` has brought."""

    @classmethod
    def make(cls, library: Library, unfreed: deque[UnfreedSet] | None = None) -> XidEvents | None:
        """A set without GPUs; None where the driver has no events. `unfreed` as of `__init__`."""
        functions = [library.find(*names) for names in _FUNCTIONS]
        return None if None in functions else cls(_Functions(*functions), unfreed)  # type: ignore[arg-type]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to wait for."""
        return not self._set

    def add(self, handle: Any) -> Availability:
        """Let a GPU report into it; OK, or why it cannot."""
        types = ctypes.c_ulonglong()
        why = availability(self._call.supported(handle, ctypes.byref(types)))
        if why is Availability.OK and not types.value & XID:
            why = Availability.NOT_SUPPORTED
        if why is Availability.OK and not self._set:
            why = self._create()
        if why is Availability.OK:
            why = availability(self._call.register(handle, ctypes.c_ulonglong(XID), self._set))
        return why

    def wait(self, milliseconds: int) -> int:
        """Wait for the next event, which is then in `data`, and return the driver's code."""
        return self._call.wait(self._set, ctypes.byref(self.data), ctypes.c_uint(milliseconds))

    def free(self) -> None:
        """Let all GPUs go. A driver that is gone frees nothing: it is asked again when it answers."""
        if self._set:
            this = UnfreedSet(self._call.free, ctypes.c_void_p(self._set.value))
            self._set.value = None
            if not this.is_freed():
                self._unfreed.append(this)

    def close(self) -> None:
        """Free what is left before the driver is closed; what it does not free even now is left to the next opening."""
        self.free()
        _free_all(self._unfreed)
        while self._unfreed:
            self._earlier.append(self._unfreed.popleft())
        while len(self._earlier) > _MOST_UNFREED:
            self._earlier.popleft()

    def _create(self) -> Availability:
        _free_all(self._unfreed)
        why = availability(self._call.create(ctypes.byref(self._set)))
        # Whether a driver that was closed meanwhile still knows its sets, it does not say: they are touched at need.
        if why is Availability.FAILED and self._earlier:
            _free_all(self._earlier)
            why = availability(self._call.create(ctypes.byref(self._set)))
        return why


def _free_all(sets: deque[UnfreedSet]) -> None:
    """Free them; those that the driver still refuses to free stay."""
    for one in [sets.popleft() for _ in range(len(sets))]:
        if not one.is_freed():
            sets.append(one)
