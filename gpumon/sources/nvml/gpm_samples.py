"""Buffers for samples of GPM: the driver allocates them, whoever reads a device borrows two.

They are used again: devices come and go with a driver that is reloaded, and a driver that hangs must not be asked to
free anything.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_void_p
from typing import Any

import pynvml

_SUCCESS, _NO_FUNCTION = int(pynvml.NVML_SUCCESS), int(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


class GpmPair:
    """Two samples of one device: the newer one and the one before it, in turns."""

    __slots__ = ("in_use", "samples")

    def __init__(self, samples: tuple[c_void_p, c_void_p]) -> None:
        self.samples = samples
        self.in_use = False
        """Whether a call has them: then nobody may free them."""


class GpmSamples:
    """All pairs of one library. May be used from several threads, as long as none uses it after `free`."""

    def __init__(self, find: Callable[[str], Callable[..., int] | None]) -> None:
        """`find` gives the library's functions by name."""
        self._find = find
        self._all: list[GpmPair] = []
        self._spare: list[GpmPair] = []

    def borrow(self) -> tuple[int, GpmPair | None]:
        """The driver's code, and a pair that belongs to the caller until `give_back`; None where there is no room."""
        try:
            return _SUCCESS, self._spare.pop()
        except IndexError:
            pass  # another thread may have been quicker
        codes = [self._allocate(), self._allocate()]
        code = next((code for code, _ in codes if code != _SUCCESS), _SUCCESS)
        if code != _SUCCESS:
            for done, sample in codes:
                if done == _SUCCESS:
                    self._release(sample)
            return code, None
        pair = GpmPair((codes[0][1], codes[1][1]))
        self._all.append(pair)
        return _SUCCESS, pair

    def give_back(self, pair: GpmPair) -> None:
        """Take a pair of which no call is under way. Asks the driver nothing."""
        self._spare.append(pair)

    def free(self) -> None:
        """Free the pairs, but those that a call has; nobody uses any of them from then on."""
        pairs, self._all = self._all, []
        self._spare = []
        for pair in pairs:
            if not pair.in_use:
                for sample in pair.samples:
                    self._release(sample)

    def _allocate(self) -> tuple[int, c_void_p]:
        sample = c_void_p()
        function = self._find("nvmlGpmSampleAlloc")
        return (function(byref(sample)) if function else _NO_FUNCTION), sample

    def _release(self, sample: Any) -> None:
        function = self._find("nvmlGpmSampleFree")
        if function is not None:
            function(sample)
