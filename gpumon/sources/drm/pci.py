"""The PCIe link and the memory windows of a card, from the files that the kernel has for every PCI device."""

from __future__ import annotations

import re

from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN
from gpumon.sources.drm.files import KernelFile, read_text
from gpumon.sources.drm.values import CardValues

METRICS = frozenset(("gpu.pcie_generation", "gpu.pcie_width", "gpu.pcie_generation_max", "gpu.pcie_width_max"))
_SPEEDS = (2.5, 5.0, 8.0, 16.0, 32.0, 64.0, 128.0)
"""GT/s of the PCIe generations, from 1."""
_SPEED = re.compile(r"(\d{1,3}(?:\.\d)?) GT/s")
_LIMITS_EVERY = 600 * SECOND
_MEMORY_BAR = 2
_SMALL_BAR = 256 << 20
"""A window of this many bytes does not cover the memory of a card."""


class PciLink:
    """Reads the link of a card."""

    def __init__(self, card_folder: str) -> None:
        self._folder = card_folder
        self._speed = KernelFile(f"{card_folder}/current_link_speed")
        self._width = KernelFile(f"{card_folder}/current_link_width")
        self._limits_at = 0

    def read(self, values: CardValues, monotonic_ns: int) -> None:
        """Read generation and width, and their maxima from time to time."""
        text = self._speed.read().decode("ascii", "replace")
        values.set("gpu.pcie_generation", generation(text), self._speed.why, lowest=1.0)
        values.read("gpu.pcie_width", self._width, 1.0, lowest=1.0)
        if monotonic_ns >= self._limits_at:
            self._limits_at = monotonic_ns + _LIMITS_EVERY
            values.set("gpu.pcie_generation_max", generation(read_text(f"{self._folder}/max_link_speed")), lowest=1.0)
            width = KernelFile(f"{self._folder}/max_link_width")
            values.read("gpu.pcie_width_max", width, 1.0, lowest=1.0)
            width.close()

    def close(self) -> None:
        """Close all files. The next read reads everything again."""
        self._speed.close()
        self._width.close()
        self._limits_at = 0


def generation(text: str) -> float:
    """Return the PCIe generation of a speed such as `16.0 GT/s PCIe`; NaN if it is none of the known speeds."""
    match = _SPEED.match(text.strip())
    speed = float(match[1]) if match else NAN
    return next((float(number) for number, known in enumerate(_SPEEDS, 1) if known == speed), NAN)


def memory_window(card_folder: str) -> float:
    """Return the size of the window to the card's memory (BAR 2) in bytes; NaN if it cannot cover all memory."""
    lines = read_text(f"{card_folder}/resource", 4096).splitlines()
    if len(lines) <= _MEMORY_BAR:
        return NAN
    numbers = lines[_MEMORY_BAR].split()
    if len(numbers) != 3 or not all(re.fullmatch(r"0x[0-9a-fA-F]{1,16}", number) for number in numbers):
        return NAN
    begin, end = int(numbers[0], 16), int(numbers[1], 16)
    size = end - begin + 1
    return float(size) if begin and size > _SMALL_BAR else NAN
