"""The sampler: combines the readings of a source, the machine's values and the runs into ticks, at fixed times.

If a round is late by one or more intervals, the missed rounds are skipped and counted, not made up for. Each tick has
the time at which it was actually sampled. `make_sampler` creates the sampler for `--source`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpumon.common.clock import LONGEST, SECOND, SHORTEST, Clock, Sign
from gpumon.common.errors import UsageError
from gpumon.common.numbers import NAN, is_known
from gpumon.common.paths import Places
from gpumon.model.frame import Boundary, Mark, Run, RunState, Sample, Tick
from gpumon.model.metrics import GPU_INDEX, HOST_METRICS, PROCESSES, Availability
from gpumon.model.origin import Capability, Origin
from gpumon.model.process import Process
from gpumon.sources.base import Pace, Reading, Request, Source
from gpumon.sources.combined import describe_devices
from gpumon.sources.gpu_jobs import DeviceJobs, with_jobs
from gpumon.sources.host import HostSource
from gpumon.sources.processes import Sandbox
from gpumon.sources.registry import open_source
from gpumon.tracking.matching import UnprovenClaims, assign_runs, match_devices, with_run_memory
from gpumon.tracking.tag_reader import Poll, TagReader

if TYPE_CHECKING:
    from gpumon.recording.playback import Playback


_UTILIZATION = GPU_INDEX["gpu.utilization"]
_OK, _ASLEEP = Availability.OK, Availability.ASLEEP


def _is_unused(sample: Sample) -> bool:
    """Return True if a GPU certainly runs no kernel.

    A MIG instance has no utilization, so only its process list is used.
    """
    is_unused = sample.values[_UTILIZATION] == 0 or sample.device.is_instance
    return is_unused and PROCESSES not in sample.device.missing


def is_idle(tick: Tick) -> bool:
    """Return True if every GPU is certainly idle, and there are no processes and no runs. False if there is no GPU."""
    if not tick.samples or tick.processes or any(run.state is RunState.RUNNING for run in tick.runs):
        return False
    return all(
        sample.state is _ASLEEP or (sample.state is _OK and (sample.device.is_divided or _is_unused(sample)))
        for sample in tick.samples
    )


_MAX_PENDING_BOUNDARIES = 16384
"""Maximum number of boundaries that are kept for the next tick. Even several users together cannot add so many in one
poll."""
_NO_BOARDS = Poll([], [], {})
_NO_HOST = (NAN,) * len(HOST_METRICS)


class Sampler:
    """Makes ticks from a source's readings, the machine's values and the runs.

    `host`, `tags`: readers of the values and the runs of this machine. They are None for recordings and simulations,
    which have values and runs of their own.
    """

    def __init__(
        self, source: Source, clock: Clock, interval: float = 1.0, host: HostSource | None = None,
        tags: TagReader | None = None, idle_interval: float = 0.0, allocations: DeviceJobs | None = None,
    ) -> None:  # fmt: skip
        """`interval`: seconds between ticks. `idle_interval`: seconds between ticks while every GPU is idle.

        `idle_interval` has an effect only if it is larger than `interval`. `allocations`: reader of the scheduler jobs
        of the GPUs.
        """
        self.source = source
        self.interval_ns = round(interval * SECOND)
        self._rounds_idle = max(1, round(idle_interval / interval))
        """Number of rounds between two ticks while every GPU is idle."""
        self._rounds = 0
        """Number of rounds since the last tick."""
        self.skipped_ticks = 0
        self.refused: Mapping[str, str] = {}
        """By key of a run: why it was not assigned a device that it claims, in the newest tick."""
        self._latest: Tick | None = None
        self._live = Capability.LIVE in source.capabilities
        self._clock = clock
        self._host = host
        self._sandbox = host.sandbox if host else Sandbox()
        self._tags = tags
        self._allocations = allocations
        self._unproven = UnprovenClaims()
        self._pending_boundaries: list[Boundary] = []
        self._tagged_processes: tuple[Sequence[Process], tuple[Any, ...], Sequence[Process]] = ((), (), ())
        """The last result of `_tag_processes`, with its arguments."""

    def ticks(self) -> Iterator[Tick]:
        """Read the source and yield the new ticks.

        A live source has one, and a recording has all ticks that are due.
        """
        readings = self.source.read()
        for number, reading in enumerate(readings, 1):
            tick = self._tick(reading)
            if tick.origin.ended and number < len(readings):
                # When a reader sees that a recording has ended, all its frames must be in the ring.
                tick = tick._replace(origin=tick.origin._replace(ended=False))
            self._latest = tick
            yield tick

    def devices_text(self) -> str:
        """Return one line about the devices of the source; empty before the first tick."""
        tick = self._latest
        return describe_devices(tick.origin, tick.driver, tick.samples) if tick else ""

    def run(self, store: Callable[[Tick], object], stop: Sign, after_round: Callable[[], object]) -> None:
        """Sample until `stop` is set.

        `store`: called with each tick. `after_round`: called after every round, even if the round had no tick.
        """
        deadline = self._clock.monotonic()
        while True:
            if self._is_due():
                for tick in self.ticks():
                    store(tick)
                self._rounds = 0
            after_round()
            deadline += self.interval_ns
            behind = self._clock.monotonic() - deadline
            if behind >= 0:
                skipped = behind // self.interval_ns + 1
                self.skipped_ticks += skipped
                deadline += skipped * self.interval_ns
            if self._clock.wait(stop, deadline):
                return

    def _is_due(self) -> bool:
        """Return True if this round has a tick. While every GPU is idle, some rounds only publish a heartbeat."""
        self._rounds += 1
        latest = self._latest
        return self._rounds >= self._rounds_idle or latest is None or not is_idle(latest)

    def close(self) -> None:
        """Close the source, the machine's files and the boards."""
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
            samples = self._allocations.assign(samples)
        poll = _NO_BOARDS
        if self._tags is not None:
            # Read after the reading, so that every earlier boundary has been published.
            poll = self._tags.poll()
            runs, boundaries = self._runs_at(reading, poll)
            if runs:
                samples = with_run_memory(self._tag_samples(samples, reading, runs, poll), runs, poll.memory, processes)
            processes = self._tag_processes(processes, runs, samples)
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
            withdrawn=poll.withdrawn,
            about=poll.about,
            unread=poll.unread + pace.dropped_runs,
            dropped=pace.dropped,
            xids=reading.xids,
        )

    def _origin(self) -> Origin:
        """Return the origin of the data, with a notice if some processes are not visible.

        This may be so in a container.
        """
        origin = self.source.origin()
        return origin._replace(notice=self._sandbox.notice) if self._sandbox.notice else origin

    def _has_local_pid(self, process: Process) -> bool:
        """Return True if the process is certainly in our own pid namespace."""
        return not self._sandbox.has_own_pids or is_known(process.started)

    def _local_processes(self, processes: Sequence[Process]) -> Sequence[Process]:
        return list(filter(self._has_local_pid, processes)) if self._sandbox.has_own_pids else processes

    def _pace(self, reading: Reading) -> Pace:
        """Return the timing of a reading whose source provides none."""
        duration = max(0, self._clock.monotonic() - reading.monotonic_ns) if self._live else 0
        return Pace(
            interval_ns=self.interval_ns * max(1, self._rounds),
            sample_duration_ns=duration,
            skipped_ticks=self.skipped_ticks,
            dropped=0,
            dropped_runs=0,
        )

    def _runs_at(self, reading: Reading, poll: Poll) -> tuple[list[Run], list[Boundary]]:
        """Return the runs at the time of the reading, assigned to their devices, and their new boundaries."""
        assert self._tags is not None
        if not (poll.claims or poll.boundaries or self._pending_boundaries):  # no run publishes anything
            self.refused = {}
            return [], []
        devices, processes = [sample.device for sample in reading.samples], self._local_processes(reading.processes)
        runs, refused = [], {}
        self._unproven.forget(reading.monotonic_ns)
        for run in self._tags.at(reading.monotonic_ns):
            claim = poll.claims[run.key]
            expired = self._unproven.expired(claim.uid, (device.uuid for device in devices))
            match = match_devices(claim, devices, processes, expired, is_complete=self._sandbox.lists_all)
            if run.state is RunState.RUNNING:
                self._unproven.update(claim.uid, match, reading.monotonic_ns)
            claimed = sum(uuid not in match.devices for uuid in match.unproven)
            runs.append(run._replace(gpus=match.devices, facts=run.facts._replace(claimed=claimed)))
            if match.refused:
                refused[run.key] = match.refused
        self.refused = refused
        # A run that began after the reading is in the next tick, together with its boundaries.
        keys = {run.key for run in runs}
        boundaries = self._pending_boundaries + poll.boundaries
        pending = [boundary for boundary in boundaries if boundary.run not in keys]
        self._pending_boundaries = pending[-_MAX_PENDING_BOUNDARIES:]
        return runs, [boundary for boundary in boundaries if boundary.run in keys]

    def _tag_samples(
        self, samples: Sequence[Sample], reading: Reading, runs: Sequence[Run], poll: Poll
    ) -> list[Sample]:  # fmt: skip
        """Tag each sample with the run that used its device when that device was read."""
        assert self._tags is not None
        ends = [
            b.monotonic_ns for b in poll.boundaries if b.mark is Mark.RUN_END and b.monotonic_ns > reading.monotonic_ns
        ]
        if not ends or all(sample.monotonic_ns < min(ends) for sample in samples):
            return assign_runs(samples, runs)
        tagged: list[Sample] = []
        for sample in samples:  # a driver call may be slow, so that a run ends before the next device is read
            states = {run.key: run.state for run in self._tags.at(max(sample.monotonic_ns, reading.monotonic_ns))}
            tagged += assign_runs([sample], [run._replace(state=states.get(run.key, run.state)) for run in runs])
        return tagged

    def _tag_processes(
        self, processes: Sequence[Process], runs: Sequence[Run], samples: Sequence[Sample]
    ) -> Sequence[Process]:  # fmt: skip
        """Return the processes, tagged with their run and job. If nothing has changed, the result is the same
        object."""
        pids = tuple(sorted((run.pid, run.key, run.facts.job) for run in runs))
        device_jobs = tuple((sample.device.uuid, sample.device.job) for sample in samples if sample.device.job)
        last_processes, last_tags, last_result = self._tagged_processes
        if last_processes is processes and last_tags == (pids, device_jobs):
            return last_result
        run_of_pid = {pid: (key, job) for pid, key, job in pids}
        tagged: list[Process] = []
        for process in with_jobs(processes, dict(device_jobs)):
            if process.pid in run_of_pid and self._has_local_pid(process):
                key, job = run_of_pid[process.pid]
                tagged.append(process._replace(run=key, job=process.job or job))
            else:
                tagged.append(process)
        self._tagged_processes = (processes, (pids, device_jobs), tagged)
        return tagged


_SMOOTH_INTERVAL = 0.1
"""Polling interval of a recording or simulation, in seconds. It is short so that fast playback is smooth."""


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
    """Return the sampler for `--source`. For this machine's hardware, the sampler also reads the machine and its runs.

    `spec`: value of `--source`. `past`: in the first tick, also report the runs that ended long ago, for the ledger.
    `playback`: position and speed of a recording. `gpm`: read the GPUs' performance counters (GPM). `job_dir`:
    directory with files that say which job has which GPU, as for dcgm-exporter. Raises UsageError if the interval is
    out of range, and SourceError if the source cannot be opened.
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
