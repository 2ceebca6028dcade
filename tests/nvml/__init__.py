"""A stub NVML driver: a small ``libnvidia-ml.so.1`` in C, told what to report by Python.

Everything that reads NVML (nvidia-ml-py, gpumon, nvitop, gpustat) runs on it unmodified. See
README.md for use by hand, `Stub` for use in tests.
"""

from tests.nvml.build import LEVELS, NEWEST, CompilerFailed, CompilerMissing, build
from tests.nvml.layout import FUNCTIONS, GPM, METRICS, of_a_first_read
from tests.nvml.sleepers import sleepers
from tests.nvml.stub import Process, Stub
from tests.nvml.truth import COUNTERS, truth

__all__ = [
    "COUNTERS",
    "FUNCTIONS",
    "GPM",
    "LEVELS",
    "METRICS",
    "NEWEST",
    "CompilerFailed",
    "CompilerMissing",
    "Process",
    "Stub",
    "build",
    "of_a_first_read",
    "sleepers",
    "truth",
]
