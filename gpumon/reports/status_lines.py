"""Lines of `gpumon status` that are cut to a width by their parts."""

from typing import NamedTuple

BELOW = "     "
"""Begins what belongs to the line above."""
DOT = "  ·  "
"""Stands between facts."""
MEMORY_UNIT = " GiB"


class MemoryLine(NamedTuple):
    """Parts of the memory of a GPU, with the unit at the end."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{BELOW}{DOT.join(self.parts)}{MEMORY_UNIT}"


class GpuRow(NamedTuple):
    """Cells of a GPU's line; of one that cannot be read only label, model and `reason`."""

    label: str
    model: str
    reason: str = ""
    """State and reason of a GPU that cannot be read; else empty."""
    bar: str = ""
    utilization: str = ""
    memory: str = ""
    degrees: str = ""
    power: str = ""
    word: str = ""
    who: str = ""
