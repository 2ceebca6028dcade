"""Builds the sampler for `--source`: the source, and for the hardware of this machine its host, boards and jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.common.clock import LONGEST, SHORTEST, Clock
from gpumon.common.errors import UsageError
from gpumon.common.paths import Places
from gpumon.daemon.sampler import Sampler
from gpumon.model.origin import Capability
from gpumon.sources.base import Request
from gpumon.sources.host import HostSource
from gpumon.sources.jobs import DeviceJobs
from gpumon.sources.registry import open_source
from gpumon.tracking.reader import TagReader

if TYPE_CHECKING:
    from gpumon.recording.playback import Playback

_SMOOTH_INTERVAL = 0.1
"""Seconds between looks at a recording or simulation, so that a fast one moves smoothly."""


def make_sampler(
    spec: str,
    places: Places,
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
    """Return the sampler for `--source`; with host and boards if the source is this machine's hardware.

    `past`: report also, once, runs that ended long ago, for a ledger. `playback`: position and speed of a recording.
    `gpm`: read the GPUs' performance counters (GPM). `job_dir`: directory of files that map GPUs to jobs, as for
    dcgm-exporter. Raises UsageError for an interval out of range, and SourceError.
    """
    if not SHORTEST <= interval <= LONGEST:
        raise UsageError(f"--interval is {SHORTEST:g} to {LONGEST:g} seconds, not {interval:g}")
    host = HostSource(clock)
    request = Request("", clock, host.processes.describe, interval, speed, playback=playback, gpm=gpm)
    source = open_source(spec, request)
    if Capability.LIVE not in source.capabilities:
        period = source.tick_period
        return Sampler(source, clock, min(interval, max(_SMOOTH_INTERVAL, period)) if period else interval)
    tags = TagReader(places, clock=clock, past=past)
    return Sampler(source, clock, interval, host, tags, idle_interval, DeviceJobs(clock, job_dir))
