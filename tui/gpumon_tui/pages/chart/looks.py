"""Short names of metrics on the chart page, and the roles of the colors of their lines."""

SMALL_NAMES = {
    "gpu.utilization": "Util", "gpu.memory_used": "Mem", "gpu.power": "Power", "gpu.temperature": "Temp",
    "gpu.clock_sm": "Clock", "gpu.pcie_received": "PCIe", "host.memory_used": "Mem", "host.disk_read": "Disk",
    "host.network_received": "Net", "host.cpu_utilization": "CPU", "gpu.run_allocated": "Live",
    "gpu.run_reserved": "Held", "gpu.memory_utilization": "Mem bw", "gpu.fan": "Fan", "gpu.temperature_memory": "T mem",
    "gpu.pcie_sent": "Sent", "gpu.nvlink_received": "NVLink", "gpu.nvlink_sent": "NVsent",
}  # fmt: skip
ROLES = {
    "gpu.utilization": "util", "gpu.memory_used": "memory", "gpu.power": "power", "gpu.temperature": "temp",
    "gpu.clock_sm": "dim", "host.cpu_utilization": "util", "host.memory_used": "memory",
}  # fmt: skip
OTHERS = ("memory", "power", "temp", "run", "key", "text", "util", "dim")
"""Roles of lines that are laid over that of the subject, in order: here they tell GPUs apart."""


def role_of(metric: str) -> str:
    """Return the role of the color of a metric."""
    return ROLES.get(metric, "key")
