"""A simulated machine, for demonstration and for scale tests; labeled SIMULATED everywhere.

Everything is a pure function of the time and the seed: a load that repeats with each epoch, and
slow waves on it. So any moment can be asked for, and counters are exact integrals.
"""

from __future__ import annotations

from gpumon.sources.base import Request
from gpumon.sources.sim.gpu import METRICS
from gpumon.sources.sim.scenarios import SCENARIOS
from gpumon.sources.sim.source import HISTORY, SimSource

__all__ = ["HISTORY", "METRICS", "SCENARIOS", "SimSource", "detect", "make"]


def detect() -> bool:
    """Never: a simulation is asked for by name."""
    return False


def make(request: Request) -> SimSource:
    """The scenario that is named, else the default one. Raises UsageError for an unknown one."""
    return SimSource(clock=request.clock, scenario=request.argument or "default")
