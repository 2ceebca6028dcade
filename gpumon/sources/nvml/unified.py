"""Chips whose GPU has no memory of its own: it shares that of the host, and sits behind no PCIe link."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gpumon.model.metrics import Availability

CHIPS = frozenset(("GB10", "N1X", "Thor", "Orin", "Xavier", "Tegra"))
"""Words of names of such chips. Those with memory of their own beside the host's, as GH200, are none of them."""
MEMORY = ("gpu.memory_total", "gpu.memory_used", "gpu.memory_reserved", "gpu.memory_unattributed")
LINK = frozenset(f"gpu.pcie_{name}" for name in ("generation", "width", "generation_max", "width_max"))
"""Facts of a PCIe link, which the driver of such a chip makes up."""


def shares_host_memory(name: str) -> bool:
    """Whether a device of this name has no memory of its own."""
    return not CHIPS.isdisjoint(re.split(r"\W+", name))


def explained(missing: Mapping[str, Availability]) -> dict[str, Availability]:
    """The reasons of such a device: its driver tells of no memory, because that is the host's."""
    unspoken = Availability.NOT_SUPPORTED
    return {
        name: Availability.SHARED_WITH_HOST if why is unspoken and name in MEMORY else why
        for name, why in missing.items()
    }
