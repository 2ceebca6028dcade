"""Byte counters of links: some drivers give those of PCIe in 32 bits, which start over every 4 GiB."""

from __future__ import annotations

from ctypes import byref, c_uint
from typing import Any

from gpumon.common.clock import SECOND
from gpumon.sources.nvml.answers import U32
from gpumon.sources.nvml.library import SUCCESS, Library

_WRAP = 1 << 32
_LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.97e9, 5: 3.94e9, 6: 7.57e9, 7: 15.2e9}
"""Bytes per second of one lane in one direction, by generation: PCI-SIG's rates less the encoding."""
_FASTEST = 16 * _LANE[6]
"""Of a link that the driver does not describe."""


class WideCounter:
    """A byte counter of which a narrow one is not believed: nothing tells how often it has started over."""

    narrow = False
    number = -1
    """Last value from the driver."""

    def total(self, handle: Any, number: int, narrow: bool, when: int) -> int | None:
        """The bytes counted, as the driver gives them; None where they are `narrow`. The rest as of `ByteCounter`."""
        return None if narrow else number


class ByteCounter:
    """One direction of one device's link, as a total that does not start over."""

    def __init__(self, library: Library) -> None:
        self._generation = library.find("nvmlDeviceGetMaxPcieLinkGeneration")
        self._width = library.find("nvmlDeviceGetMaxPcieLinkWidth")
        self._longest = 0
        self.narrow = False
        """Whether it is taken for one of 32 bits."""
        self.number = -1
        """Last value from the driver; -1 before the first."""
        self._total = 0
        self._when = 0

    def total(self, handle: Any, number: int, narrow: bool, when: int) -> int | None:
        """The bytes counted at `when` (ns), of which the driver gave `number`, in 32 bits where it is `narrow`.

        None where the counter may have started over more than once since the last time. What comes behind that lacks
        what was counted meanwhile: nobody may subtract over it.
        """
        before, self.number = self.number, number
        passed, self._when = when - self._when, when
        if number >= _WRAP:
            self.narrow = False
        elif narrow or 0 <= number < before < _WRAP:
            self.narrow = True  # nvml.h says of both fields that they may wrap, whatever their type
        if not self.narrow:
            self._total = number
            return number
        if before < 0 or passed >= (self._longest or self._find_longest(handle)):
            return None
        self._total += (number - before) % _WRAP
        return self._total

    def _find_longest(self, handle: Any) -> int:
        """The ns in which the link cannot carry what the counter holds."""
        generation, width = (self._maximum(function, handle) for function in (self._generation, self._width))
        rate = _LANE[generation] * width if generation in _LANE and 0 < width < U32 else _FASTEST
        self._longest = int(_WRAP / rate * SECOND)
        return self._longest

    @staticmethod
    def _maximum(function: Any, handle: Any) -> int:
        value = c_uint()
        return value.value if function is not None and function(handle, byref(value)) == SUCCESS else 0
