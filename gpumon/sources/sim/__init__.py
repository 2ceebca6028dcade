"""A simulated machine for demonstrations and scale tests. It is labeled SIMULATED everywhere.

All values are pure functions of the time and the seed. They consist of a load that repeats with each epoch, and of slow
waves. So values can be computed directly for any time, and counters are exact integrals.
"""

from __future__ import annotations

from gpumon.sources.base import Request
from gpumon.sources.sim.gpu import METRICS
from gpumon.sources.sim.scenarios import SCENARIOS
from gpumon.sources.sim.source import HISTORY, SimSource

__all__ = ["HISTORY", "METRICS", "SCENARIOS", "SimSource", "detect", "make"]


def detect() -> bool:
    """Return False, because a simulation is used only if `--source` names it."""
    return False


def make(request: Request) -> SimSource:
    """Return the simulation of the named scenario, or of the default scenario.

    Raises UsageError for an unknown name.
    """
    return SimSource(clock=request.clock, scenario=request.argument or "default")
