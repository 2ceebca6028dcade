"""The simulated machine as a source."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

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
    """Return all host metrics at `time` (s).

    `cores`: number of CPU cores that programs keep busy. `resident`: host memory that the programs use, in bytes.
    """
    is_busy = cores > 0
    cores = cores + 1.5 + math.sin(time * 0.13)
    values = {
        "host.cpu_utilization": cores / _CPUS,
        "host.memory_used": resident + (21 + math.sin(time * 0.021)) * GIB,
        "host.memory_total": 1007 * GIB,
        "host.swap_used": 0.0,
        "host.swap_total": 8 * GIB,
        "host.load": cores + 0.7,
        # The rate is 1 plus a wave that is never below -1, so the counter never decreases.
        "host.disk_read": (4.1e8 if is_busy else 2e4) * (time + (1 - math.cos(time * 0.3)) / 0.3),
        "host.disk_written": (2.6e7 if is_busy else 9e4) * (time + (1 - math.cos(time * 0.17)) / 0.17),
        "host.network_received": 3.2e6 * (time + (1 - math.cos(time * 0.21)) / 0.21),
        "host.network_sent": 1.1e6 * (time + (1 - math.cos(time * 0.19)) / 0.19),
    }
    return [values[metric.name] for metric in HOST_METRICS]


HISTORY = 600
"""Seconds of history that the first `read` returns."""


class SimSource:
    """A simulated server. The values depend only on the seed and on the time since the start."""

    capabilities = SIMULATED
    tick_period = 0.0

    def __init__(self, *, clock: Clock, seed: int = 0, scenario: str = "default") -> None:
        """Raises UsageError for a scenario that is not in `SCENARIOS`."""
        if scenario not in SCENARIOS:
            raise UsageError(f"no such scenario: {clean(scenario, 40)!r}. Choose one of {', '.join(SCENARIOS)}")
        machine = SCENARIOS[scenario]
        self._asleep, self._xids = machine.asleep, machine.xids
        self._clock = clock
        self._zero = clock.monotonic() - HISTORY * SECOND
        begin = clock.time() - HISTORY * SECOND
        self._offset = begin - self._zero
        self._last = -1
        self._is_behind = False
        """True if the last `read` computed the history. The next `read` also returns readings for the time that this
        took."""
        jobs = machine.jobs
        job_of = {gpu: job for job in jobs for gpu in job.gpus}
        self._gpus = [
            SimulatedGpu(index, seed, machine.model, job_of.get(index), machine.faults.get(index, {}))
            for index in range(machine.gpus)
        ]
        self._ranks = {
            gpu: Rank(job, rank, number, self._gpus[gpu], begin)
            for number, job in enumerate(jobs) for rank, gpu in enumerate(job.gpus)
        }  # fmt: skip
        self._cores = sum(job.cpu * len(job.gpus) for job in jobs)
        self._resident = sum(job.resident * len(job.gpus) for job in jobs) * GIB

    def origin(self) -> Origin:
        """Return an origin with the label SIMULATED."""
        return Origin("sim", "SIMULATED", capabilities=self.capabilities)

    def driver(self) -> Driver:
        """Return invented but plausible versions of the driver."""
        return Driver("570.86.15", "CUDA 12.8")

    def reading_at(self, monotonic_ns: int, time_ns: int) -> Reading:
        """Return the reading at these times, without epoch boundaries. The same times always have the same reading.

        The simulation starts 10 minutes before the source was created. Before that time, nothing changes.
        """
        now = max(0, monotonic_ns - self._zero)
        ranks = self._ranks
        samples = [
            ranks[index].with_memory(gpu.sample(now / SECOND, ranks[index].key(now)), now)
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
            [*runs, *(run for rank in ranks.values() if (run := rank.finished_run(now)) is not None)],
            host=host_values(now / SECOND, self._cores, self._resident), hostname="simulated",
        )  # fmt: skip

    def read(self) -> Sequence[Reading]:
        """Return the current reading.

        The first call also returns readings of the last 10 minutes, one per second, oldest first. Computing these may
        take seconds. The second call also returns readings for these seconds. With a gap, views could not tell how long
        a GPU has been idle.
        """
        now = self._clock.monotonic()
        is_first, since = self._last < 0, self._zero + self._last
        earlier: Sequence[int] = range(since + SECOND, now, SECOND) if self._is_behind else ()
        if is_first:
            earlier = [now - SECOND * back for back in range(HISTORY, 0, -1)]
        readings = [self._reading(time) for time in [*earlier, now]]
        self._is_behind = is_first and self._clock.monotonic() > now
        return readings

    def _reading(self, monotonic_ns: int) -> Reading:
        until = monotonic_ns - self._zero
        boundaries = [
            boundary for rank in self._ranks.values() for boundary in rank.boundaries(self._last, until, self._zero)
        ]
        boundaries.sort(key=lambda boundary: boundary.time_ns)
        xids = self._xid_events(self._last, until)
        self._last = max(self._last, until)
        reading = self.reading_at(monotonic_ns, monotonic_ns + self._offset)
        return replace(reading, boundaries=boundaries, xids=xids)

    def _xid_events(self, after: int, until: int) -> list[XidEvent]:
        """Return the XID errors in the interval (`after`, `until`], in ns since the start of the simulation."""
        events = []
        for gpu, code, every in self._xids:
            step = round(every * SECOND)
            for number in range(max(1, after // step + 1), until // step + 1):
                at = self._zero + number * step
                events.append(XidEvent(self._gpus[gpu].device.uuid, code, at, at + self._offset))
        return events

    def close(self) -> None:
        """Do nothing, because no file is open."""
