"""A simulated machine for demonstrations and scale tests; labeled SIMULATED everywhere.

Everything is a pure function of the time and the seed: a load that repeats with each epoch, plus slow waves. So any
time can be computed directly, and counters are exact integrals.
"""

from __future__ import annotations

from gpumon.sources.base import Request
from gpumon.sources.sim.gpu import METRICS
from gpumon.sources.sim.scenarios import SCENARIOS
from gpumon.sources.sim.source import HISTORY, SimSource

__all__ = ["HISTORY", "METRICS", "SCENARIOS", "SimSource", "detect", "make"]


def detect() -> bool:
    """Return False: a simulation is used only by name."""
    return False


def make(request: Request) -> SimSource:
    """Return the simulation of the named scenario, or the default one. Raises UsageError for an unknown name."""
    return SimSource(clock=request.clock, scenario=request.argument or "default")
