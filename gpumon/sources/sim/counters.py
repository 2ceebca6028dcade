"""Counters of a simulated card beyond its load: performance, links, faults, and dips shorter than a sample."""

from __future__ import annotations

from gpumon.model.metrics import IDLE
from gpumon.sources.sim.curves import CELL, Curve

_DIPS_EVERY = 8.0
"""Seconds between two reads of the driver's samples, which tell of the seconds since the one before."""
_THROTTLE_AT = 87.0
"""°C at which the clocks are lowered. Such a card tells the margin to it, and no threshold."""

STEADY = {
    "gpu.pcie_generation_max": 5.0,
    "gpu.pcie_width_max": 16.0,
    "gpu.pcie_replays": 3.0,
    "gpu.nvlink_links": 18.0,
    "gpu.nvlink_active": 18.0,
    "gpu.nvlink_replays": 0.0,
    "gpu.nvlink_recoveries": 0.0,
    "gpu.nvlink_crc_errors": 0.0,
    "gpu.ecc_corrected": 0.0,
    "gpu.ecc_uncorrected": 0.0,
    "gpu.ecc_corrected_lifetime": 2.0,
    "gpu.ecc_uncorrected_lifetime": 0.0,
    "gpu.rows_remapped_corrected": 0.0,
    "gpu.rows_remapped_uncorrected": 0.0,
    "gpu.remapping_pending": 0.0,
    "gpu.remapping_failed": 0.0,
    "gpu.recovery_action": 0.0,
    "gpu.xid": 0.0,
    "gpu.mig_instances": 0.0,
    "gpu.fp64_activity": 0.0,
    "gpu.jpeg_utilization": 0.0,
    "gpu.optical_flow_utilization": 0.0,
}
"""Metrics that do not change on a card that is well."""


def activity(load: float, tensor: float) -> dict[str, float]:
    """Return the performance counters at a load (0 to 1), of which `tensor` is the share on tensor cores."""
    return {
        "gpu.graphics_activity": round(load, 4),
        "gpu.sm_activity": round(0.93 * load, 4),
        "gpu.sm_occupancy": round(0.41 * load, 4),
        "gpu.tensor_activity": round(tensor * load, 4),
        "gpu.fp32_activity": round(0.14 * load, 4),
        "gpu.fp16_activity": round(0.06 * load, 4),
        "gpu.dram_activity": round(0.55 * load, 4),
    }


def margin(temperature: float) -> float:
    """Return the degrees up to the temperature at which the clocks are lowered."""
    return _THROTTLE_AT - temperature


class Dips:
    """Lowest utilization and idle share of a load over the seconds before the last read of the driver's samples."""

    def __init__(self, load: Curve) -> None:
        self._load = load
        self._read = -1
        self._values = {"gpu.utilization_low": 0.0, "gpu.idle_share": 1.0}

    def at(self, time: float) -> dict[str, float]:
        """Return both at `time` (s)."""
        read = int(time / _DIPS_EVERY)
        if read != self._read:
            count = round(_DIPS_EVERY / CELL)
            end = max(1, read) * count  # before the first read, those of the first
            cells = self._load.cells
            seen = [cells[cell % len(cells)] for cell in range(end - count, end)]
            idle = sum(load < IDLE for load in seen) / count
            self._read, self._values = read, {"gpu.utilization_low": round(min(seen), 2), "gpu.idle_share": idle}
        return self._values
