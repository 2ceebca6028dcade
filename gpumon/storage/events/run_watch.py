"""Detects events of runs from ticks, and detects when processes were left out.

All processes of a run on this machine count as one run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from gpumon.analysis.ranks import Ranks, start_ns, unreported_end_ns
from gpumon.analysis.thresholds import GONE_AFTER
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.model.events import LEFT_OUT, Event, EventSubject, retraction
from gpumon.model.frame import Boundary, Mark, Run, RunState, Tick
from gpumon.model.run import PAUSED
from gpumon.storage.processes.snapshot import MAX_PROCESSES

_GROWTH = 1.1
"""Another event is reported if the number of processes exceeds the number in the last event by more than this
factor."""
REPEAT_INTERVAL = 3600.0
"""Seconds after which the event is repeated if the condition continues, so that every window longer than this contains
an event."""
_RECOVERED = 0.9
"""The condition ends when the number of processes falls below this fraction of the limit. So a number that varies
around the limit gives only one event."""


class ProcessWatch:
    """Detects when there are more processes on the GPUs than can be stored (`MAX_PROCESSES`)."""

    def __init__(self) -> None:
        self._reported = 0
        """Number of processes in the last event; 0 while all processes are stored."""
        self._reported_ns = 0

    def add(self, tick: Tick) -> Iterator[Event]:
        """Yield an event when a process is first left out, when many more are left out, and every hour while this
        continues."""
        count = len(tick.processes)
        if count <= MAX_PROCESSES:
            if count < _RECOVERED * MAX_PROCESSES:
                self._reported = 0
        elif count > _GROWTH * self._reported or tick.monotonic_ns - self._reported_ns >= REPEAT_INTERVAL * SECOND:
            self._reported, self._reported_ns = count, tick.monotonic_ns
            yield Event(tick.time_ns, LEFT_OUT, details={"count": count, "left_out": count - MAX_PROCESSES})


_MAX_ENDED = 50_000
"""Maximum number of keys of ended runs to remember. These runs may still be in ticks."""
_MAX_GPUS = 64
"""Maximum number of GPUs listed in an event of a run."""
_RUNNING = RunState.RUNNING
"""The state RUNNING. It is a module constant, because looking up the enum member for each run at each tick costs more
than using it."""
_WORST = (RunState.DIED, RunState.FAILED, RunState.INTERRUPTED, RunState.STOPPED, RunState.FINISHED)


class _Process:
    """A process of a run."""

    def __init__(self, run: Run, subject: EventSubject, tick: Tick) -> None:
        self.run = run
        self.subject = subject
        self.tick = tick
        """The last tick that contained the process."""
        self.last_alive_ns = 0
        """Time of the last tick in which the process was running, in ns of CLOCK_MONOTONIC; 0 if there is none."""
        self.ended_ns = 0
        """End that the process reported, in ns since 1970; 0 if it reported no end."""
        self.begin_ns = self.end_ns = 0
        """Start and end that the process reported, in ns of CLOCK_MONOTONIC; 0 if not reported."""
        self._last_ns = self._paused_ns = 0
        """Time of the newest boundary, in ns of CLOCK_MONOTONIC, and ns of all pauses before it."""
        self._is_paused = False

    @property
    def is_over(self) -> bool:
        return self.run.state is not _RUNNING

    def add_boundary(self, boundary: Boundary) -> None:
        if self._is_paused:
            self._paused_ns += max(0, boundary.monotonic_ns - self._last_ns)
        self._last_ns = max(self._last_ns, boundary.monotonic_ns)
        self._is_paused = boundary.phase == PAUSED and boundary.mark is not Mark.RUN_END
        if boundary.mark is Mark.RUN_BEGIN:
            self.begin_ns = boundary.monotonic_ns
        elif boundary.mark is Mark.RUN_END:
            self.ended_ns, self.end_ns = boundary.time_ns, boundary.monotonic_ns

    def close(self) -> None:
        """Determine the end of a process that has ended, by the same rule as the ledger."""
        if not self.end_ns:
            self.end_ns = unreported_end_ns(self.run, self.tick, self.last_alive_ns, self._last_ns)
            if self._is_paused:  # the training had already finished, so it does not matter how its process ended
                self.end_ns, self.run = self._last_ns, self.run._replace(state=RunState.FINISHED)
            self.ended_ns = self.tick.time_ns - (self.tick.monotonic_ns - self.end_ns)

    @property
    def lasted(self) -> float:
        """Seconds from the start to the end, without pauses."""
        begin_ns = self.begin_ns or start_ns(self.run, self.tick)
        return max(0, self.end_ns - (begin_ns or self.end_ns) - self._paused_ns) / SECOND


def _lasted(processes: Collection[_Process]) -> float:
    """Return the seconds from the first start to the last end of these processes.

    Differences between the starts are measured by the wall clock. The duration of each process is measured by
    CLOCK_MONOTONIC.
    """
    first = min((process.run.started for process in processes if is_known(process.run.started)), default=NAN)
    later = [process.run.started - first for process in processes]
    return max(
        process.lasted + (seconds if is_known(seconds) else 0.0)
        for process, seconds in zip(processes, later, strict=True)
    )


Explain = Callable[[Ranks], Callable[[], str | None]]
"""A function that begins to find out why a run is stalled. It returns at once. The function that it returns gives one
sentence, which is empty if the reason cannot be found out, and None while that is not known yet."""


@dataclass(slots=True)
class _Stall:
    """A run that is stalled."""

    since: float
    """Time of its last progress, in s since 1970."""
    sentence: Callable[[], str | None]
    is_reported: bool = False


class RunWatch:
    """Detects the start, the end and other events of runs. A run has ended if all of its processes have ended.

    `explain`: finds out why a run is stalled.
    """

    def __init__(self, explain: Explain = lambda ranks: lambda: "") -> None:
        self._explain = explain
        self._stalls: dict[EventSubject, _Stall] = {}
        self._open: dict[EventSubject, dict[str, _Process]] = {}
        self._processes: dict[str, _Process] = {}
        """All processes in `_open`, by the key of their run."""
        self._over: set[str] = set()
        self._reports: dict[str, list[Boundary]] = {}
        """Reported starts and ends of runs that have not been in a tick yet, by key of the run."""

    def add(self, tick: Tick) -> Iterator[Event]:
        """Yield the events between the previous tick and this one."""
        for boundary in tick.boundaries:
            process = self._processes.get(boundary.run)
            if process is not None:
                process.add_boundary(boundary)
            elif boundary.mark is Mark.RUN_BEGIN or boundary.mark is Mark.RUN_END:
                self._reports.setdefault(boundary.run, []).append(boundary)
        running, stalled, over = 0, False, self._over
        for run in tick.runs:
            if run.key not in over:
                running += run.state is _RUNNING
                process = self._processes.get(run.key)
                if process is None:
                    process = self._begin(run, tick)
                    if len(self._open[process.subject]) == 1:
                        yield _run_began(process, tick)
                process.run, process.tick = run, tick
                stalled = stalled or run.facts.stalled_since > 0
                if run.state is _RUNNING:
                    process.last_alive_ns = tick.monotonic_ns
        for boundary in tick.boundaries:
            if boundary.mark is Mark.OUT_OF_MEMORY:
                yield from self._out_of_memory(boundary, tick)
        if stalled or self._stalls:
            yield from self._update_stalls(tick)
        for key in tick.withdrawn:
            yield from self._withdraw(key, tick)
        if running < len(self._processes):  # a process has ended or disappeared
            for subject, processes in list(self._open.items()):
                yield from self._end_run(subject, processes, tick)

    def _begin(self, run: Run, tick: Tick) -> _Process:
        subject = EventSubject(user=run.user, run=run.id or run.key)
        process = self._processes[run.key] = self._open.setdefault(subject, {})[run.key] = _Process(run, subject, tick)
        for boundary in self._reports.pop(run.key, ()):
            process.add_boundary(boundary)
        return process

    def _out_of_memory(self, boundary: Boundary, tick: Tick) -> Iterator[Event]:
        run = next((run for run in tick.runs if run.key == boundary.run), None)
        if run is None:
            return
        sizes = {"asked": boundary.asked, "free": boundary.free}
        details = {"name": run.name, **{name: value for name, value in sizes.items() if is_known(value)}}
        device = run.gpus[0] if len(run.gpus) == 1 else ""
        yield Event(boundary.time_ns, "out_of_memory", EventSubject(device, run.user, run.id or run.key), details)

    def _update_stalls(self, tick: Tick) -> Iterator[Event]:
        for subject, processes in self._open.items():
            if all(process.is_over for process in processes.values()):
                continue  # the stall ends with the run
            ranks = Ranks(tuple(sorted((process.run for process in processes.values()), key=lambda run: run.rank)))
            since, stall = ranks.stalled_since, self._stalls.get(subject)
            if stall is not None and not is_known(since):
                yield from self._end_stall(subject, tick.time_ns)
            elif is_known(since):
                stall = stall or self._stalls.setdefault(subject, _Stall(since, self._explain(ranks)))
                if not stall.is_reported and (sentence := stall.sentence()) is not None:
                    yield self._begin_stall(subject, stall, ranks.slowest, sentence)

    def _begin_stall(self, subject: EventSubject, stall: _Stall, run: Run, sentence: str) -> Event:
        stall.is_reported = True
        details = {"name": run.name, "epoch": run.epoch, "step": run.step, "phase": run.phase, "sentence": sentence}
        return Event(round(stall.since * SECOND), "stall_began", subject, details)

    def _end_stall(self, subject: EventSubject, time_ns: int) -> Iterator[Event]:
        """Yield the end of a stall. A stall that ends before its reason was found out is reported without it."""
        stall, processes = self._stalls.pop(subject), self._open[subject].values()
        run = next(process.run for process in processes)
        if not stall.is_reported:
            yield self._begin_stall(subject, stall, run, "")
        yield Event(time_ns, "stall_ended", subject, {"name": run.name}, max(0.0, time_ns / SECOND - stall.since))

    def _withdraw(self, key: str, tick: Tick) -> Iterator[Event]:
        """Remove a process that was withdrawn because another run describes the same work in more detail.

        For example, `gpumon run` withdraws its run if the training that it started has a callback.
        """
        process = self._processes.pop(key, None)
        if process is not None:
            processes = self._open[process.subject]
            del processes[key]
            if not processes:
                self._stalls.pop(process.subject, None)
                del self._open[process.subject]
                yield retraction(tick.time_ns, "run_began", process.subject)

    def _end_run(self, subject: EventSubject, processes: dict[str, _Process], tick: Tick) -> Iterator[Event]:
        for process in processes.values():
            if not process.is_over and tick.monotonic_ns - process.tick.monotonic_ns > GONE_AFTER * SECOND:
                process.run = process.run._replace(state=RunState.FINISHED if process.end_ns else RunState.DIED)
        if not all(process.is_over for process in processes.values()):
            return
        for process in processes.values():
            process.close()
        states = {process.run.state for process in processes.values()}
        state = next(state for state in _WORST if state in states)
        first = min((process.run for process in processes.values()), key=lambda run: run.rank)
        facts = next(process.run.facts for process in processes.values() if process.run.state is state)
        exits = {"exit_code": facts.exit_code, "exit_signal": facts.exit_signal}
        end = max(process.ended_ns for process in processes.values())
        kind = "run_died" if state is RunState.DIED else "run_ended"
        details = {
            "name": first.name,
            "state": state.name.lower(),
            "gpus": _gpus(process.run for process in processes.values()),
            **{key: int(value) for key, value in exits.items() if value},
        }
        if subject in self._stalls:
            yield from self._end_stall(subject, end)
        yield Event(end, kind, subject, details, _lasted(processes.values()))
        del self._open[subject]
        for key in processes:
            self._over.add(key)
            self._processes.pop(key, None)
        if len(self._over) > _MAX_ENDED:
            self._over = {run.key for run in tick.runs}


def _run_began(process: _Process, tick: Tick) -> Event:
    run = process.run
    began = round(run.started * SECOND) if is_known(run.started) else tick.time_ns
    subject = process.subject
    ranks = [rank for rank in tick.runs if (rank.user, rank.id or rank.key) == (subject.user, subject.run)]
    details = {"name": run.name, "gpus": _gpus(ranks), "framework": run.framework}
    return Event(began, "run_began", subject, details)


def _gpus(ranks: Iterable[Run]) -> list[str]:
    """Return the UUIDs of the GPUs of all ranks, in the order of ranks. Each process has its own GPUs."""
    by_rank = sorted(ranks, key=lambda run: run.rank)
    return list(dict.fromkeys(uuid for run in by_rank for uuid in run.gpus))[:_MAX_GPUS]
