"""Collects why a run hangs: the state and stacks of each rank and its child processes, and one sentence about them."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from gpumon.analysis.ranks import Ranks
from gpumon.common.clock import SECOND
from gpumon.common.errors import GpumonError
from gpumon.common.numbers import is_known
from gpumon.common.paths import Places, history_paths
from gpumon.common.procfs import read_stat, start_timestamp
from gpumon.diagnosis.finding import ranges
from gpumon.hang.places import Place, PlaceKind, activity_text, is_idle_worker, is_worker, place_of, worker_place
from gpumon.hang.process_state import ProcessState, children_of, owner, read_states
from gpumon.hang.stacks import TIMEOUT, Stacks, read_stacks
from gpumon.model import units
from gpumon.model.frame import TRAINING, Run, RunState
from gpumon.reports.events import details
from gpumon.storage.events.query import EventFilter, LoggedEvent, read_events

_MAX_RANKS = 64
"""Stacks of at most this many ranks are read."""
_MAX_WORKERS = 16
"""Stacks of at most this many child processes of each rank are read."""
_MAX_WORLD = 1 << 16
_MAX_SECONDS = 60.0
"""Seconds after which no further stacks are read, so that processes that do not answer cannot delay the report."""


class WorkerReport(NamedTuple):
    """A child process of a rank, such as a DataLoader worker."""

    state: ProcessState
    stacks: Stacks

    @property
    def is_idle(self) -> bool:
        """Whether it is a DataLoader worker that waits for its next task."""
        is_stopped = self.state.state in ("T", "t", "Z", "X", "D")
        return not is_stopped and is_idle_worker(self.stacks.main)

    @property
    def is_suspect(self) -> bool:
        """Whether the rank may wait for this process."""
        return not self.is_idle and (is_worker(self.stacks.main) or self.state.state in ("T", "t", "Z", "D"))


class RankReport(NamedTuple):
    """A rank of a run, and where it is."""

    run: Run
    pid: int
    """Pid of the process in the pid namespace of the reader; 0 if it has ended or is not known."""
    silent: float
    """Seconds since the rank last made progress."""
    state: ProcessState | None = None
    stacks: Stacks = Stacks()
    workers: Sequence[WorkerReport] = ()
    place: Place = Place(PlaceKind.UNKNOWN, "")


class HangReport(NamedTuple):
    """Where each process of a run is."""

    run: Run
    """The rank with the lowest number on this machine."""
    silent: float
    """Seconds since any rank last made progress."""
    is_stalled: bool
    ranks: Sequence[RankReport]
    missing: Sequence[int] = ()
    """Numbers of the ranks that have not reported on this machine."""
    unreported: Mapping[int, WorkerReport] = {}
    """Processes of missing ranks that are running on this machine but have not begun the run, by rank."""
    culprits: Sequence[int] = ()
    """Numbers of the ranks that are most likely the cause."""
    sentence: str = ""
    """One sentence that names these ranks, where they are, and what the others do."""
    events: Sequence[str] = ()
    """Events of the driver around the time at which the run stalled, one line each."""


def collect(ranks: Ranks, now: float, uid: int | None = None, over: float = 0.5) -> HangReport:
    """Return where each process of a run is. Takes some seconds.

    `ranks`: the run, with pids that are valid in this process. `now`: time at which its boards were read, in s since
    1970. `uid`: only processes of this user are examined; by default, the user of this process. `over`: seconds over
    which the use of the CPU is measured.
    """
    uid = os.geteuid() if uid is None else uid
    until = time.monotonic() + _MAX_SECONDS
    pids = {run.key: _pid(run, uid) for run in ranks.all[:_MAX_RANKS]}
    own = {pid for pid in pids.values() if pid}
    children = {pid: [child for child in children_of(pid, own) if owner(child) == uid] for pid in own}
    missing = sorted({*range(min(ranks.first.world_size, _MAX_WORLD))} - {run.rank for run in ranks.all})
    others = _unreported(missing, own, ranks.first.world_size, uid) if missing else {}
    states = read_states([*own, *(child for listed in children.values() for child in listed), *others.values()], over)

    def stacks_of(pid: int) -> Stacks:
        state = states.get(pid)
        if state is None or time.monotonic() > until:
            return Stacks(problem="the process has ended" if state is None else "no time was left to read its stacks")
        return read_stacks(pid, state.state, TIMEOUT)

    reports = [
        _rank_report(run, pids.get(run.key, 0), states, children, stacks_of, now, is_rank=ranks.is_distributed)
        for run in ranks.all
    ]
    stalled_since = ranks.stalled_since
    report = HangReport(
        run=ranks.first,
        silent=max(0.0, now - stalled_since)
        if is_known(stalled_since)
        else min((rank.silent for rank in reports), default=0.0),
        is_stalled=is_known(stalled_since),
        ranks=reports,
        missing=missing,
        unreported={rank: WorkerReport(states[pid], stacks_of(pid)) for rank, pid in others.items() if pid in states},
    )
    return with_sentence(report)


_DRIVER_KINDS = ("xid", "gpu_lost", "gpu_back", "driver_lost", "driver_reloaded", "throttling_began")
_AROUND = 300.0
"""Seconds before and after the stall within which events of the driver are reported."""
_MAX_EVENTS = 5


def driver_events(places: Places, gpus: Sequence[str], since: float) -> list[str]:
    """Return the events of the driver about these GPUs around the time `since` (s since 1970), one line each.

    Empty if there is no event log or it cannot be read.
    """
    events: list[LoggedEvent] = []
    for path in history_paths(places):
        with suppress(GpumonError):
            events += read_events(path, since - _AROUND, since + _AROUND, EventFilter(_DRIVER_KINDS))
    events = [event for event in events if event.subject.device in ("", *gpus)]
    return [
        ", ".join(
            filter(None, (f"{units.clock(event.time_ns / SECOND)}  {event.kind.label}", event.device, details(event)))
        )
        for event in events[-_MAX_EVENTS:]
    ]


def _pid(run: Run, uid: int) -> int:
    """Return the pid of a rank's process if it is still running and belongs to the user; else 0."""
    pid = run.pid
    if not pid:  # the run has ended, but its process, whose pid is in the name of the board, may still exist
        number = run.key.split(".")[2:3]
        pid = int(number[0]) if number and number[0].isdigit() else 0
        stat = read_stat(pid) if pid else None
        if stat is None or start_timestamp(stat.started) > run.started + 1:
            return 0
    return pid if owner(pid) == uid else 0


def _rank_report(
    run: Run,
    pid: int,
    states: Mapping[int, ProcessState],
    children: Mapping[int, Sequence[int]],
    stacks_of: Callable[[int], Stacks],
    now: float,
    *,
    is_rank: bool,
) -> RankReport:
    since = run.facts.stalled_since or run.updated
    silent = max(0.0, now - since) if is_known(since) else 0.0
    state = states.get(pid)
    if state is None:
        return RankReport(run, 0, silent)
    stacks = stacks_of(pid)
    place = place_of(state, stacks.main, is_rank=is_rank)
    listed = [states[child] for child in children.get(pid, ()) if child in states]
    # Stopped processes and processes in an uninterruptible wait come first, because they are the most suspect.
    listed.sort(key=lambda child: child.state in "SRI")
    workers = [WorkerReport(child, stacks_of(child.pid)) for child in listed[:_MAX_WORKERS]]
    return RankReport(run, pid, silent, state, stacks, workers, place)


def _unreported(missing: Sequence[int], own: set[int], world_size: int, uid: int) -> dict[int, int]:
    """Return the pids of missing ranks, by rank.

    They are searched among the processes that the launcher of the other ranks has started. The environment of such a
    process contains its rank.
    """
    parents = {stat.parent for pid in own if (stat := read_stat(pid)) is not None and stat.parent > 1}
    pids: dict[int, int] = {}
    for parent in parents:
        for pid in children_of(parent, own):
            rank = _rank_of(pid, world_size) if owner(pid) == uid else -1
            if rank in missing:
                pids.setdefault(rank, pid)
    return pids


def _rank_of(pid: int, world_size: int) -> int:
    """Return the rank in the environment of a process; -1 if there is none, or if its job has another size."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            env = dict(entry.partition(b"=")[::2] for entry in file.read(1 << 20).split(b"\0"))
    except OSError:
        return -1
    rank, size = env.get(b"RANK", b""), env.get(b"WORLD_SIZE", b"")
    return int(rank) if rank.isdigit() and size == str(world_size).encode() else -1


_ENDS = {RunState.FAILED: "failed", RunState.DIED: "died", RunState.INTERRUPTED: "was interrupted"}


def with_sentence(report: HangReport) -> HangReport:
    """Return the report with the ranks that are most likely the cause, and a sentence about them."""
    ended = [rank for rank in report.ranks if rank.run.state in _ENDS]
    running = [rank for rank in report.ranks if rank.run.state is RunState.RUNNING]
    if not running:
        return report._replace(sentence=f"No process of {report.run.id} is running.")
    kind = min(rank.place.kind for rank in running)
    if kind is not PlaceKind.STOPPED and ended:
        first = max(ended, key=lambda rank: rank.silent)  # its end may have ended others
        text = f"{_ended_text(first)}{_others_text(running)}."
        return report._replace(culprits=(first.run.rank,), sentence=text)
    if kind >= PlaceKind.GPU and report.missing:
        text = f"{_missing_text(report)}{_others_text(running)}."
        return report._replace(culprits=tuple(report.missing), sentence=text)
    culprits = [rank for rank in running if rank.place.kind is kind]
    if kind >= PlaceKind.GPU:
        culprits = _outliers(running)
    first = max(culprits, key=lambda rank: rank.silent)
    alike = [rank for rank in culprits if rank.place.text == first.place.text]
    others = [rank for rank in running if rank not in alike]
    text = f"{_culprits_text(report, first, alike)}{_others_text(others)}."
    return report._replace(culprits=tuple(rank.run.rank for rank in alike), sentence=text)


def _outliers(running: Sequence[RankReport]) -> list[RankReport]:
    """Return the ranks that are behind the others, or else the ranks that wait in the least frequent place."""
    positions = {(rank.run.epoch, rank.run.step) for rank in running}
    if len(positions) > 1:
        behind = min(positions)
        return [rank for rank in running if (rank.run.epoch, rank.run.step) == behind]
    texts = [rank.place.text for rank in running]
    rarest = min(set(texts), key=lambda text: (texts.count(text), texts.index(text)))
    return [rank for rank in running if rank.place.text == rarest]


def _culprits_text(report: HangReport, first: RankReport, alike: Sequence[RankReport]) -> str:
    """Return where the ranks `alike` are. `first`: the rank of them that has been there longest."""
    have, time = "has" if len(alike) == 1 else "have", units.long_duration(first.silent)
    subject = _subject(report, alike)
    if first.place.kind is PlaceKind.STOPPED:
        notes = [f"process {first.pid}: 'kill -CONT {first.pid}' continues it"]
        text = f"{subject} {have} been {first.place.text} for {time}"
    else:
        notes = [f"phase {first.run.phase}"] if first.run.phase not in ("", TRAINING) else []
        notes += [_workers_text(first) if first.place.is_loader else activity_text(first.state)]
        text = f"{subject} {have} been in {first.place.text} for {time}"
    notes = [note for note in notes if note]
    return f"{text} ({', '.join(notes)})" if notes else text


def _subject(report: HangReport, ranks: Sequence[RankReport]) -> str:
    if len(report.ranks) == 1 and report.run.world_size == 1:
        return f"Process {ranks[0].pid}"
    numbers = sorted(rank.run.rank for rank in ranks)
    return f"Rank {numbers[0]}" if len(numbers) == 1 else f"Ranks {ranges(numbers)}"


def _ended_text(rank: RankReport) -> str:
    text = f"Rank {rank.run.rank} {_ENDS[rank.run.state]} {units.long_duration(rank.silent)} ago"
    position = f"in epoch {rank.run.epoch}, " if rank.run.epoch >= 0 else ""
    text += f" ({position}step {rank.run.step})"
    if rank.pid:
        where = f" in {rank.place.text}" if rank.place.text else ""
        text += f", but its process {rank.pid} is still{where or ' running'}"
    return text


def _missing_text(report: HangReport) -> str:
    ranks = report.missing
    subject = f"Rank {ranks[0]} has" if len(ranks) == 1 else f"Ranks {ranges(ranks)} have"
    if not report.unreported:
        return f"{subject} not joined: not started, or running on another machine"
    rank, process = min(report.unreported.items())
    place = place_of(process.state, process.stacks.main, is_rank=True)
    return f"{subject} not begun the run (process {process.state.pid} of rank {rank} is in {place.text})"


def _others_text(others: Sequence[RankReport]) -> str:
    if not others:
        return ""
    places = Counter(rank.place.text for rank in others).most_common(3)
    if places[0][1] == len(others):
        text = places[0][0]
        return f"; the other {len(others)} wait in {text}" if len(others) > 1 else f"; the other one waits in {text}"
    return "; of the others, " + ", ".join(
        f"{count} {'wait' if count > 1 else 'waits'} in {text}" for text, count in places
    )


_MOST_SUSPECT = {state: order for order, state in enumerate("TtZD")}
"""Order in which child processes are named, by state. All other states come after these."""


def _workers_text(rank: RankReport) -> str:
    """Return what the DataLoader workers of a rank do."""
    if not rank.workers:
        return "it has no worker process any more"
    suspects = [worker for worker in rank.workers if worker.is_suspect]
    if suspects:
        first = min(suspects, key=lambda worker: _MOST_SUSPECT.get(worker.state.state, len(_MOST_SUSPECT)))
        text = f"worker {first.state.pid} {worker_place(first.state, first.stacks.main)}"
        return text if len(suspects) == 1 else f"{text}, and {len(suspects) - 1} more"
    if any(is_worker(worker.stacks.main) for worker in rank.workers):
        return f"its {units.counted(len(rank.workers), 'worker')} wait for tasks"
    return f"the stacks of its {units.counted(len(rank.workers), 'child process')} cannot be read"
