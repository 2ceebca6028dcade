"""The driver's own set of events: which GPUs report XID errors into it, and the wait for the next one.

Only the thread that waits uses it.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import pynvml

from gpumon.metrics import Availability
from gpumon.sources.nvml.library import Function, Library, availability

XID = int(pynvml.nvmlEventTypeXidCriticalError)


class _Functions(NamedTuple):
    """The driver's."""

    create: Function
    supported: Function
    register: Function
    wait: Function
    free: Function


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

    def __init__(self, functions: _Functions) -> None:
        self._call = functions
        self._set = ctypes.c_void_p()
        self.data: Any = pynvml.c_nvmlEventData_t()
        """The event that a `wait` has brought."""

    @classmethod
    def make(cls, library: Library) -> XidEvents | None:
        """A set without GPUs; None where the driver has no events."""
        functions = [library.find(*names) for names in _FUNCTIONS]
        return None if None in functions else cls(_Functions(*functions))  # type: ignore[arg-type]

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
            why = availability(self._call.create(ctypes.byref(self._set)))
        if why is Availability.OK:
            why = availability(self._call.register(handle, ctypes.c_ulonglong(XID), self._set))
        return why

    def wait(self, milliseconds: int) -> int:
        """Wait for the next event, which is then in `data`, and return the driver's code."""
        return self._call.wait(self._set, ctypes.byref(self.data), ctypes.c_uint(milliseconds))

    def free(self) -> None:
        """Let all GPUs go."""
        if self._set:
            self._call.free(self._set)
            self._set.value = None
