"""Conditions under which a GPU has a metric: for people who miss it, and for the page of all metrics."""

from __future__ import annotations

from collections.abc import Mapping

from gpumon.metrics import BY_NAME, Availability

_GPM = "Hopper or newer, and GPM in a driver of 525 or newer"
_NVLINK = "NVLink"
_ECC = "memory with ECC, switched on"
_ROWS = "Ampere or newer, memory with ECC"
_SAMPLES = "a driver that keeps utilization samples; none for MIG, none in WSL"
_NEW = "a newer driver"

NEEDS: Mapping[str, str] = {
    "gpu.memory_reserved": _NEW,
    "gpu.energy": "Volta or newer",
    "gpu.temperature_memory": "a sensor in the memory, as HBM has",
    "gpu.throttled_sw_thermal": _NEW,
    "gpu.throttled_hw_thermal": _NEW,
    "gpu.throttled_hw_power_brake": _NEW,
    "gpu.fan": "fans of its own",
    "gpu.pcie_sent": _NEW,
    "gpu.pcie_received": _NEW,
    "gpu.power_instant": _NEW,
    "gpu.nvlink_sent": _NVLINK,
    "gpu.nvlink_received": _NVLINK,
    "gpu.ecc_corrected": _ECC,
    "gpu.ecc_uncorrected": _ECC,
    "gpu.ecc_corrected_lifetime": _ECC,
    "gpu.ecc_uncorrected_lifetime": _ECC,
    "gpu.rows_remapped_corrected": _ROWS,
    "gpu.rows_remapped_uncorrected": _ROWS,
    "gpu.remapping_pending": _ROWS,
    "gpu.remapping_failed": _ROWS,
    "gpu.retirement_pending": "a data center card before Ampere",
    "gpu.recovery_action": _NEW,
    "gpu.nvlink_links": _NVLINK,
    "gpu.nvlink_active": _NVLINK,
    "gpu.nvlink_replays": _NVLINK,
    "gpu.nvlink_recoveries": _NVLINK,
    "gpu.nvlink_crc_errors": _NVLINK,
    "gpu.graphics_activity": _GPM,
    "gpu.sm_activity": _GPM,
    "gpu.sm_occupancy": _GPM,
    "gpu.tensor_activity": _GPM,
    "gpu.fp64_activity": _GPM,
    "gpu.fp32_activity": _GPM,
    "gpu.fp16_activity": _GPM,
    "gpu.dram_activity": _GPM,
    "gpu.pcie_sent_rate": _GPM,
    "gpu.pcie_received_rate": _GPM,
    "gpu.nvlink_sent_rate": _GPM,
    "gpu.nvlink_received_rate": _GPM,
    "gpu.temperature_slowdown": "a card that reports thresholds: newer ones report a margin alone",
    "gpu.temperature_shutdown": "a card that reports thresholds: newer ones report a margin alone",
    "gpu.jpeg_utilization": "Turing or newer",
    "gpu.optical_flow_utilization": "Turing or newer",
    "gpu.utilization_low": _SAMPLES,
    "gpu.idle_share": _SAMPLES,
    "gpu.xid": "Linux, and a whole GPU: none for a MIG instance, none in WSL",
    "gpu.memory_unattributed": (
        "a driver that reports what it reserves itself, as those after 470 do, and the memory of each process: "
        "none in WSL"
    ),
    "gpu.mig_instances": "a GPU with MIG",
}
"""Requirements for a GPU to have a metric, by its name; nearly every card has the metrics that are not here."""


def why_missing(metric: str, why: Availability) -> str:
    """Return why a GPU lacks a metric and, where it does not report it, what that needs."""
    need = NEEDS.get(metric, "") if why is Availability.NOT_SUPPORTED else ""
    return f"{why.reason} (needs {need})" if need else why.reason


def title_within(metric: str) -> str:
    """Title of a metric within a sentence: `corrected ECC errors`, `PCIe width`; else its name in words."""
    title = BY_NAME[metric].title if metric in BY_NAME else metric.removeprefix("gpu.").replace("_", " ")
    return title[:1].lower() + title[1:] if title[1:2].islower() else title
