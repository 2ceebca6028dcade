"""The simulated host."""

from __future__ import annotations

import math

from gpumon.model.metrics import HOST_METRICS
from gpumon.sources.sim.scenarios import GIB

_CPUS = 64


def host_values(time: float, cores: float, resident: float) -> list[float]:
    """All host metrics at `time` (s); programs keep `cores` busy and hold `resident` bytes."""
    busy = cores > 0
    cores = cores + 1.5 + math.sin(time * 0.13)
    values = {
        "host.cpu_utilization": cores / _CPUS,
        "host.memory_used": resident + (21 + math.sin(time * 0.021)) * GIB,
        "host.memory_total": 1007 * GIB,
        "host.swap_used": 0.0,
        "host.swap_total": 8 * GIB,
        "host.load": cores + 0.7,
        # A rate of 1 plus a wave that is never below -1: the counter only grows.
        "host.disk_read": (4.1e8 if busy else 2e4) * (time + (1 - math.cos(time * 0.3)) / 0.3),
        "host.disk_written": (2.6e7 if busy else 9e4) * (time + (1 - math.cos(time * 0.17)) / 0.17),
        "host.network_received": 3.2e6 * (time + (1 - math.cos(time * 0.21)) / 0.21),
        "host.network_sent": 1.1e6 * (time + (1 - math.cos(time * 0.19)) / 0.19),
    }
    return [values[metric.name] for metric in HOST_METRICS]
