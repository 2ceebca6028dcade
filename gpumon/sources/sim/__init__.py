"""A simulated machine, for demonstration and for scale tests; labelled SIMULATED everywhere.

Everything is a pure function of the time and the seed: a load that repeats with each epoch, and
slow waves on it. So any moment can be asked for, and counters are exact integrals.
"""

from gpumon.sources.sim.scenarios import SCENARIOS
from gpumon.sources.sim.source import HISTORY, SimSource

__all__ = ["HISTORY", "SCENARIOS", "SimSource"]
