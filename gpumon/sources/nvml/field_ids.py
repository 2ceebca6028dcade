"""Fields of nvmlDeviceGetFieldValues for each metric, by version of the driver.

NVIDIA moved three ids within a branch. The sources are the constants of nvidia-ml-py, which is published with the
drivers' own version numbers; the releases looked at are 11.450.129, 11.470.66, 11.525.150, 12.535.161, 12.550.52,
12.550.89, 12.555.43, 12.560.30, 12.570.86, 12.570.172, 12.575.51, 13.580.65, 13.580.82, 13.580.126, 13.590.48,
13.595.45 and 13.615.71.
"""

from __future__ import annotations

from typing import NamedTuple

ALL_LINKS = 0xFFFF_FFFF
"""Scope of the NVLink byte counters that sums all links (nvml.h)."""


class Field(NamedTuple):
    """An entry of the batch."""

    metric: str
    id: int
    scale: float
    scope: int = 0
    """Index of an NVLink link, or `ALL_LINKS`, of a field that the driver reads of each link."""


_STEADY = (
    Field("gpu.power", 185, 1e-3),  # mW; since 525, unknown before
    Field("gpu.power_limit", 190, 1e-3),  # since 535
    Field("gpu.energy", 83, 1e-3),  # mJ
    Field("gpu.temperature_memory", 82, 1.0),
    Field("gpu.throttled_sw_power", 74, 1e-9),  # ns
    Field("gpu.throttled_sync_boost", 76, 1e-9),
    Field("gpu.pcie_sent", 197, 1.0),  # since 555; no id up to 550 is as large or means something else there
    Field("gpu.pcie_received", 198, 1.0),
    Field("gpu.power_instant", 186, 1e-3),  # since 525
    Field("gpu.nvlink_sent", 138, 1024.0, ALL_LINKS),  # data without the protocol, in KiB
    Field("gpu.nvlink_received", 139, 1024.0, ALL_LINKS),
)
"""Ids that mean the same in every release looked at, or nothing."""

FAULTS = (
    Field("gpu.ecc_corrected", 3, 1.0),
    Field("gpu.ecc_uncorrected", 4, 1.0),
    Field("gpu.ecc_corrected_lifetime", 5, 1.0),
    Field("gpu.ecc_uncorrected_lifetime", 6, 1.0),
    Field("gpu.rows_remapped_corrected", 142, 1.0),
    Field("gpu.rows_remapped_uncorrected", 143, 1.0),
    Field("gpu.remapping_pending", 144, 1.0),  # 0 or 1, as the next two
    Field("gpu.remapping_failed", 145, 1.0),
    Field("gpu.retirement_pending", 31, 1.0),
    Field("gpu.recovery_action", 230, 1.0),  # since 570, unknown before
    Field("gpu.pcie_replays", 94, 1.0),
)
"""Fields that change seldom, each in the slow batch. Their ids mean the same in every release looked at, or nothing."""

LINK_COUNT, LINK_STATE = 91, 165
"""Number of NVLink links; and of one link, its state: since 525, and in the driver from Hopper on."""
LINK_ERRORS: dict[str, tuple[int, tuple[int, ...]]] = {
    "gpu.nvlink_replays": (161, (52,)),
    "gpu.nvlink_recoveries": (162, (59,)),
    "gpu.nvlink_crc_errors": (163, (38, 45)),  # of control and of data
}
"""The field of one link (since 525), and the older ones that add up to all links."""

HEAT_IDS: tuple[tuple[tuple[int, int], tuple[int, ...]], ...] = (
    ((590, 0), (269,)),
    ((580, 82), (269, 251)),
    ((575, 0), (251, 269)),
    ((0, 0), (269,)),
)
"""From which driver on, and the first id of the three counters of heat and power brake, the likeliest first.

12.575.51 and 13.580.65 say 251, 13.580.82 and later say 269. What each says is 251 or 269 otherwise is power smoothing,
of the newest cards only: a setting, not a counter. 12.570.172 has smoothing at 251 and nothing at 269; before, neither.
"""


def fields_for(driver_version: str) -> tuple[tuple[Field, ...], ...]:
    """The fields to ask of this driver: one batch, or more where its version alone does not tell; the likeliest first.

    All batches have the same metrics in the same order.
    """
    version = _numbers(driver_version)
    first_ids = next(ids for since, ids in HEAT_IDS if version >= since)
    return tuple((*_STEADY, *_heat(first)) for first in first_ids)


def _heat(first: int) -> tuple[Field, ...]:
    return (
        Field("gpu.throttled_sw_thermal", first, 1e-9),
        Field("gpu.throttled_hw_thermal", first + 1, 1e-9),
        Field("gpu.throttled_hw_power_brake", first + 2, 1e-9),
    )


def _numbers(driver_version: str) -> tuple[int, int]:
    """Branch and release, such as (580, 65) of 580.65.06; (0, 0) where it cannot be read."""
    parts = driver_version.split(".")[:2]
    if not all(part.isascii() and part.isdigit() for part in parts):
        return 0, 0
    return int(parts[0]), int(parts[1]) if len(parts) > 1 else 0
