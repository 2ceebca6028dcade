"""All that one device gives at one tick, be it a GPU or a MIG instance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpumon.model.frame import Sample
from gpumon.sources.nvml.processes import Held
from gpumon.sources.nvml.utilization_samples import UtilizationSamples


class DeviceReading(NamedTuple):
    """All that one device gives at one tick."""

    sample: Sample
    processes: Sequence[Held] | None = None
    """Those that are known; None where none were asked for. Where they are not all, the device's `missing` says why."""
    utilization_samples: UtilizationSamples = ()
    """The driver's own that are new; mostly none, as they come several seconds at once."""
    is_divided_anew: bool = False
    """Whether it has other MIG instances than before."""
