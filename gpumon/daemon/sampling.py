"""The sampler for `--source`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.common.clock import LONGEST, SHORTEST, Clock
from gpumon.common.errors import UsageError
from gpumon.common.paths import Places
from gpumon.daemon.sampler import Sampler
from gpumon.model.origin import Capability
from gpumon.sources.base import Request
from gpumon.sources.host import HostSource
from gpumon.sources.jobs import Allocations
from gpumon.sources.registry import open_source
from gpumon.tracking.reader import TagReader

if TYPE_CHECKING:
    from gpumon.recording.playback import Playback

_SMOOTH = 0.1


def make_sampler(
    spec: str,
    where: Places,
    clock: Clock,
    interval: float,
    speed: float = 1.0,
    *,
    past: bool = True,
    playback: Playback | None = None,
    gpm: bool = True,
    idle_interval: float = 0.0,
    job_dir: str = "",
) -> Sampler:
    """A sampler for `--source`. Host and tags belong to it when the source is this machine, now.

    `past`: also the runs that were over long before, once, for a ledger; `playback`: of a recording; `gpm`: whether the
    GPUs' performance counters are read; `job_dir`: files that name the jobs of GPUs, as for dcgm-exporter.
    """
    if not SHORTEST <= interval <= LONGEST:
        raise UsageError(f"--interval is {SHORTEST:g} to {LONGEST:g} seconds, not {interval:g}")
    host = HostSource(clock)
    request = Request("", clock, host.processes.describe, interval, speed, playback=playback, gpm=gpm)
    source = open_source(spec, request)
    if Capability.LIVE not in source.capabilities:
        # Often enough that a fast recording moves smoothly; every tick of it is stored all the same.
        return Sampler(
            source, clock, min(interval, max(_SMOOTH, source.tick_period)) if source.tick_period else interval
        )
    tags = TagReader(where, clock=clock, past=past)
    return Sampler(source, clock, interval, host, tags, idle_interval, Allocations(clock, job_dir))
