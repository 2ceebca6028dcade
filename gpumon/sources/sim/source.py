"""The simulated machine as a source."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpumon.common.clock import SECOND, Clock
from gpumon.common.errors import UsageError
from gpumon.common.numbers import NAN
from gpumon.common.text import clean
from gpumon.model.frame import Sample, XidEvent
from gpumon.model.metrics import GPU_METRICS, HOST_METRICS, Availability
from gpumon.model.origin import SIMULATED, Driver, Origin
from gpumon.sources.base import Reading
from gpumon.sources.sim.gpu import SimulatedGpu
from gpumon.sources.sim.scenarios import GIB, SCENARIOS
from gpumon.sources.sim.training import Rank

_CPUS = 64


def host_values(time: float, cores: float, resident: float) -> list[float]:
    """All host metrics at `time` (s); programs keep `cores` busy and hold `resident` bytes."""
    busy = cores > 0
    cores = cores + 1.5 + math.sin(time * 0.13)
    values = {
        "host.cpu_utilization": cores / _CPUS,
        "host.memory_used": resident + (21 + math.sin(time * 0.021)) * GIB,
        "host.memory_total": 1007 * GIB,
        "host.swap_used": 0.0,
        "host.swap_total": 8 * GIB,
        "host.load": cores + 0.7,
        # A rate of 1 plus a wave that is never below -1: the counter only grows.
        "host.disk_read": (4.1e8 if busy else 2e4) * (time + (1 - math.cos(time * 0.3)) / 0.3),
        "host.disk_written": (2.6e7 if busy else 9e4) * (time + (1 - math.cos(time * 0.17)) / 0.17),
        "host.network_received": 3.2e6 * (time + (1 - math.cos(time * 0.21)) / 0.21),
        "host.network_sent": 1.1e6 * (time + (1 - math.cos(time * 0.19)) / 0.19),
    }
    return [values[metric.name] for metric in HOST_METRICS]


HISTORY = 600
"""Seconds that the first `read` tells of, before now."""


class SimSource:
    """A made-up server; the same seed gives the same numbers at the same time since the start."""

    capabilities = SIMULATED
    tick_period = 0.0

    def __init__(self, *, clock: Clock, seed: int = 0, scenario: str = "default") -> None:
        """Raises UsageError for a scenario that is not in `SCENARIOS`."""
        if scenario not in SCENARIOS:
            raise UsageError(f"no such scenario: {clean(scenario, 40)!r}. Choose one of {', '.join(SCENARIOS)}")
        count, model, jobs, self._asleep, faults, self._xids = SCENARIOS[scenario]
        self._clock = clock
        self._zero = clock.monotonic() - HISTORY * SECOND
        begin = clock.time() - HISTORY * SECOND
        self._offset = begin - self._zero
        self._last = -1
        self._is_behind = False
        """Whether time went by while the past was made up, which the next `read` tells of too."""
        owner = {gpu: job for job in jobs for gpu in job.gpus}
        self._gpus = [
            SimulatedGpu(index, seed, model, owner.get(index), faults.get(index, {})) for index in range(count)
        ]
        self._ranks = {
            gpu: Rank(job, rank, number, self._gpus[gpu], begin)
            for number, job in enumerate(jobs) for rank, gpu in enumerate(job.gpus)
        }  # fmt: skip
        self._cores = sum(job.cpu * len(job.gpus) for job in jobs)
        self._resident = sum(job.resident * len(job.gpus) for job in jobs) * GIB

    def origin(self) -> Origin:
        """Always SIMULATED."""
        return Origin("sim", "SIMULATED", capabilities=self.capabilities)

    def driver(self) -> Driver:
        """A plausible one."""
        return Driver("570.86.15", "CUDA 12.8")

    def reading_at(self, monotonic_ns: int, time_ns: int) -> Reading:
        """The machine at `monotonic_ns` (ns), without boundaries: the same for the same times.

        Before the simulation began, 10 minutes before the source was made, nothing changes.
        """
        now = max(0, monotonic_ns - self._zero)
        ranks = self._ranks
        samples = [
            ranks[index].held(gpu.sample(now / SECOND, ranks[index].key(now)), now)
            if index in ranks
            else Sample(gpu.device, Availability.ASLEEP, [NAN] * len(GPU_METRICS))
            if index in self._asleep
            else gpu.sample(now / SECOND, "")
            for index, gpu in enumerate(self._gpus)
        ]
        runs = [rank.run(now) for rank in ranks.values() if rank.key(now)]
        return Reading(
            monotonic_ns, time_ns, samples,
            [rank.process(now) for rank in ranks.values()],
            [*runs, *(over for rank in ranks.values() if (over := rank.over(now)) is not None)],
            host=host_values(now / SECOND, self._cores, self._resident), hostname="simulated",
        )  # fmt: skip

    def read(self) -> Sequence[Reading]:
        """The machine now; the first time the last 10 minutes too, a second apart, oldest first.

        To make these up may take seconds, in which nothing was sampled: the second time has them, so that no gap
        makes views forget for how long a GPU is idle.
        """
        now = self._clock.monotonic()
        is_first, since = self._last < 0, self._zero + self._last
        earlier: Sequence[int] = range(since + SECOND, now, SECOND) if self._is_behind else ()
        if is_first:
            earlier = [now - SECOND * back for back in range(HISTORY, 0, -1)]
        found = [self._reading(moment) for moment in [*earlier, now]]
        self._is_behind = is_first and self._clock.monotonic() > now
        return found

    def _reading(self, monotonic_ns: int) -> Reading:
        until = monotonic_ns - self._zero
        found = [mark for rank in self._ranks.values() for mark in rank.boundaries(self._last, until, self._zero)]
        found.sort(key=lambda boundary: boundary.time_ns)
        xids = self._reported(self._last, until)
        self._last = max(self._last, until)
        return self.reading_at(monotonic_ns, monotonic_ns + self._offset)._replace(boundaries=found, xids=xids)

    def _reported(self, after: int, until: int) -> list[XidEvent]:
        """XID errors in (`after`, `until`], ns since the simulation began."""
        found = []
        for gpu, code, every in self._xids:
            step = round(every * SECOND)
            for number in range(max(1, after // step + 1), until // step + 1):
                at = self._zero + number * step
                found.append(XidEvent(self._gpus[gpu].device.uuid, code, at, at + self._offset))
        return found

    def close(self) -> None:
        """Nothing is open."""
