"""NVIDIA GPUs through the driver's own library. No NVML error leaves this package."""

from gpumon.sources.nvml.source import NvmlSource

__all__ = ["NvmlSource"]
