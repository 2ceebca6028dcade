"""Times that calls of the driver were seen to take on real cards.

The stub driver answers at once. A driver asks the card: these calls are the ones whose times others have published.
"""

from __future__ import annotations

from tests.nvml import Stub

SEEN = {
    "nvmlDeviceGetGraphicsRunningProcesses_v3": 4491,
    "nvmlDeviceGetFanSpeed": 137,
    "nvmlDeviceGetMemoryInfo_v2": 12,
    "nvmlDeviceGetUtilizationRates": 3,
    "nvmlDeviceGetProcessUtilization": 2000,
}
"""µs, by function. The first four on an RTX 4090 laptop with driver 610.57.04: MangoHud, pull request 2104; the last
one: rigtop-core 0.18, `src/gpu.rs`."""


def slow_down(stub: Stub) -> None:
    """Let these calls take that long."""
    for function, microseconds in SEEN.items():
        stub.set_latency(function, microseconds)
