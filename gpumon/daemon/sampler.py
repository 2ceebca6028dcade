"""The sampler: sources and tags into ticks, at absolute deadlines.

A tick that is late by whole periods skips them and counts them; it never makes them up in a burst.
Each tick carries the true time of its sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpumon.common.clock import SECOND, Clock, Sign
from gpumon.common.numbers import NAN, is_known
from gpumon.model.frame import Boundary, Mark, Run, RunState, Sample, Tick
from gpumon.model.metrics import GPU_INDEX, HOST_METRICS, PROCESSES, Availability
from gpumon.model.origin import Capability, Origin
from gpumon.model.process import Process
from gpumon.sources.base import Pace, Reading, Source
from gpumon.sources.combined import found
from gpumon.sources.host import HostSource
from gpumon.sources.jobs import Allocations, with_jobs
from gpumon.sources.processes import Surroundings
from gpumon.tracking.matching import UnprovenClaims, devices_of, stamp, with_holdings
from gpumon.tracking.reader import Poll, TagReader

_UTILIZATION = GPU_INDEX["gpu.utilization"]
_OK, _ASLEEP = Availability.OK, Availability.ASLEEP


def _is_still(sample: Sample) -> bool:
    """Whether it is known to do nothing; of a MIG instance, on which nothing runs without a process, by its list."""
    is_still = sample.values[_UTILIZATION] == 0 or sample.device.is_instance
    return is_still and PROCESSES not in sample.device.missing


def is_idle(tick: Tick) -> bool:
    """Return whether every GPU is known to do nothing, and to have no process and no run; False without any GPU."""
    if not tick.samples or tick.processes or any(run.state is RunState.RUNNING for run in tick.runs):
        return False
    return all(
        sample.state is _ASLEEP or (sample.state is _OK and (sample.device.is_divided or _is_still(sample)))
        for sample in tick.samples
    )


_HELD_BACK = 16384
"""Boundaries of runs that the next tick has first: more than several users may add in one poll (`tags.budget`)."""
_NO_BOARDS = Poll([], [], {})
_NO_HOST = (NAN,) * len(HOST_METRICS)


class Sampler:
    """Takes ticks from a source and joins them with the host and the tags.

    `host` and `tags` belong to this machine, now; a recording or a simulation brings its own.
    """

    def __init__(
        self, source: Source, clock: Clock, interval: float = 1.0, host: HostSource | None = None,
        tags: TagReader | None = None, idle_interval: float = 0.0, allocations: Allocations | None = None,
    ) -> None:  # fmt: skip
        """`idle_interval`: seconds between ticks while no GPU does anything; no more than `interval` is none."""
        self.source = source
        self.interval_ns = round(interval * SECOND)
        self._rounds_idle = max(1, round(idle_interval / interval))
        """Rounds from one tick to the next while no GPU does anything."""
        self._rounds = 0
        """Rounds since the last tick."""
        self.skipped_ticks = 0
        self.refused: Mapping[str, str] = {}
        """Why a run is not on a device that it claims, by its key; of the newest tick."""
        self._latest: Tick | None = None
        self._live = Capability.LIVE in source.capabilities
        self._clock = clock
        self._host = host
        self._around = host.surroundings if host else Surroundings()
        self._tags = tags
        self._allocations = allocations
        self._unproven = UnprovenClaims()
        self._boundaries: list[Boundary] = []
        self._processes: tuple[Sequence[Process], tuple[Any, ...], Sequence[Process]] = ((), (), ())

    def ticks(self) -> Iterator[Tick]:
        """Return the ticks to store now: one of a live source, all that are due of a recording."""
        for reading in self.source.read():
            self._latest = self._tick(reading)
            yield self._latest

    def found(self) -> str:
        """The devices that the source has found, in a line; empty before the first tick."""
        tick = self._latest
        return found(tick.origin, tick.driver, tick.samples) if tick else ""

    def run(self, store: Callable[[Tick], object], stop: Sign, each_round: Callable[[], object]) -> None:
        """Sample until `stop` is set; `each_round` is called after every round, with or without a tick."""
        deadline = self._clock.monotonic()
        while True:
            if self._is_due():
                for tick in self.ticks():
                    store(tick)
                self._rounds = 0
            each_round()
            deadline += self.interval_ns
            behind = self._clock.monotonic() - deadline
            if behind >= 0:
                skipped = behind // self.interval_ns + 1
                self.skipped_ticks += skipped
                deadline += skipped * self.interval_ns
            if self._clock.wait(stop, deadline):
                return

    def _is_due(self) -> bool:
        """Whether this round has a tick. While nothing goes on, rounds without one go by, in which we show our life."""
        self._rounds += 1
        latest = self._latest
        return self._rounds >= self._rounds_idle or latest is None or not is_idle(latest)

    def close(self) -> None:
        """Let go of the source, the host's files and the boards."""
        self.source.close()
        if self._host is not None:
            self._host.close()
        if self._tags is not None:
            self._tags.close()

    def _tick(self, reading: Reading) -> Tick:
        host = reading.host
        if host is None:
            host = self._host.read() if self._host else _NO_HOST
        samples, processes, runs, boundaries = reading.samples, reading.processes, reading.runs, reading.boundaries
        if self._allocations is not None:
            samples = self._allocations.given(samples)
        seen = _NO_BOARDS
        if self._tags is not None:
            # After the sample: a boundary that lies before it has then been published.
            seen = self._tags.poll()
            runs, boundaries = self._runs_at(reading, seen)
            if runs:
                samples = with_holdings(self._stamped(samples, reading, runs, seen), runs, seen.memory, processes)
            processes = self._with_runs(processes, runs, samples)
        pace = reading.pace or self._pace(reading)
        return Tick(
            monotonic_ns=reading.monotonic_ns,
            time_ns=reading.time_ns,
            samples=samples,
            host=host,
            processes=processes,
            runs=runs,
            boundaries=boundaries,
            origin=self._origin(),
            driver=self.source.driver(),
            hostname=reading.hostname or (self._host.hostname if self._host else ""),
            interval_ns=pace.interval_ns,
            sample_duration_ns=pace.sample_duration_ns,
            skipped_ticks=pace.skipped_ticks,
            utilization_samples=reading.utilization_samples,
            withdrawn=seen.withdrawn,
            about=seen.about,
            unread=seen.unread + pace.dropped_runs,
            dropped=pace.dropped,
            xids=reading.xids,
        )

    def _origin(self) -> Origin:
        """Where the numbers come from, and what of processes cannot be seen here."""
        origin = self.source.origin()
        return origin._replace(notice=self._around.notice) if self._around.notice else origin

    def _is_here(self, process: Process) -> bool:
        """Whether its pid is known to be a pid of this place."""
        return not self._around.has_own_pids or is_known(process.started)

    def _identified(self, processes: Sequence[Process]) -> Sequence[Process]:
        return list(filter(self._is_here, processes)) if self._around.has_own_pids else processes

    def _pace(self, reading: Reading) -> Pace:
        """Timing of a reading of now."""
        duration = max(0, self._clock.monotonic() - reading.monotonic_ns) if self._live else 0
        return Pace(
            interval_ns=self.interval_ns * max(1, self._rounds),
            sample_duration_ns=duration,
            skipped_ticks=self.skipped_ticks,
            dropped=0,
            dropped_runs=0,
        )

    def _runs_at(self, reading: Reading, seen: Poll) -> tuple[list[Run], list[Boundary]]:
        """The runs as they were when the sample was taken, on their devices, and what is new of them."""
        assert self._tags is not None
        if not (seen.claims or seen.boundaries or self._boundaries):  # nobody trains with gpumon
            self.refused = {}
            return [], []
        devices, processes = [sample.device for sample in reading.samples], self._identified(reading.processes)
        runs, refused = [], {}
        self._unproven.forget(reading.monotonic_ns)
        for run in self._tags.at(reading.monotonic_ns):
            claim = seen.claims[run.key]
            doubted = self._unproven.doubted(claim.uid)
            match = devices_of(claim, devices, processes, doubted, is_listed_whole=self._around.lists_all)
            if run.state is RunState.RUNNING:
                self._unproven.take(claim.uid, match, reading.monotonic_ns)
            claimed = sum(uuid not in match.devices for uuid in match.unproven)
            runs.append(run._replace(gpus=match.devices, facts=run.facts._replace(claimed=claimed)))
            if match.refused:
                refused[run.key] = match.refused
        self.refused = refused
        # A run that began after the sample is in the next tick, and its boundaries with it.
        known = {run.key for run in runs}
        waiting = self._boundaries + seen.boundaries
        self._boundaries = [boundary for boundary in waiting if boundary.run not in known][-_HELD_BACK:]
        return runs, [boundary for boundary in waiting if boundary.run in known]

    def _stamped(
        self, samples: Sequence[Sample], reading: Reading, runs: Sequence[Run], seen: Poll
    ) -> list[Sample]:  # fmt: skip
        """The samples, each with the run that was in force on its device when that device was read."""
        assert self._tags is not None
        ends = [
            b.monotonic_ns for b in seen.boundaries if b.mark is Mark.RUN_END and b.monotonic_ns > reading.monotonic_ns
        ]
        if not ends or all(sample.monotonic_ns < min(ends) for sample in samples):
            return stamp(samples, runs)
        stamped: list[Sample] = []
        for sample in samples:  # a driver's call took long, and a run ended before the next device was read
            then = {run.key: run.state for run in self._tags.at(max(sample.monotonic_ns, reading.monotonic_ns))}
            stamped += stamp([sample], [run._replace(state=then.get(run.key, run.state)) for run in runs])
        return stamped

    def _with_runs(
        self, processes: Sequence[Process], runs: Sequence[Run], samples: Sequence[Sample]
    ) -> Sequence[Process]:  # fmt: skip
        """Processes with the run each publishes, and its job; the same object as long as nothing changed."""
        pids = tuple(sorted((run.pid, run.key, run.facts.job) for run in runs))
        given = tuple((sample.device.uuid, sample.device.job) for sample in samples if sample.device.job)
        seen, seen_of, known = self._processes
        if seen is processes and seen_of == (pids, given):
            return known
        of_run = {pid: (key, job) for pid, key, job in pids}
        joined: list[Process] = []
        for process in with_jobs(processes, dict(given)):
            if process.pid in of_run and self._is_here(process):
                key, job = of_run[process.pid]
                joined.append(process._replace(run=key, job=process.job or job))
            else:
                joined.append(process)
        self._processes = (processes, (pids, given), joined)
        return joined
