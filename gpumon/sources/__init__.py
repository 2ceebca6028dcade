"""Where numbers come from. `open_source` knows the members of the family; to add one, a file and a line here."""

from __future__ import annotations

from gpumon.clock import Clock
from gpumon.errors import UsageError
from gpumon.sources.base import Reading, Source
from gpumon.sources.host import HostSource

__all__ = ["KINDS", "HostSource", "Reading", "Source", "open_source"]

KINDS = "nvml, replay:FILE or sim[:SCENARIO]"


def open_source(spec: str, clock: Clock, host: HostSource, speed: float = 1.0) -> Source:
    """The source that `--source` names. `speed` is for recordings.

    Raises UsageError for an unknown name, SourceError when the source cannot be read.
    """
    kind, _, argument = spec.partition(":")
    # Each binding is imported only when it is wanted.
    if kind == "nvml" and not argument:
        from gpumon.sources.nvml import NvmlSource

        return NvmlSource(clock, host.processes.describe)
    if kind == "replay" and argument:
        from gpumon.sources.replay import ReplaySource

        return ReplaySource(argument, speed=speed, clock=clock)
    if kind == "sim":
        from gpumon.sources.sim import SimSource

        return SimSource(clock=clock, scenario=argument or "default")
    raise UsageError(f"unknown source '{spec}': it is one of {KINDS}")
