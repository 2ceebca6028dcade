"""Keeps the ledger: takes every tick of a daemon and hands rows to the store.

Boundaries become known with the tick after them at the latest. So with each tick everything up to the
one before is settled, exactly, whatever epochs and phases began and ended in between.
"""

from __future__ import annotations

import os
import sqlite3
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing, suppress
from typing import Protocol

from gpumon.analysis.thresholds import GONE_AFTER
from gpumon.common.clock import SECOND
from gpumon.common.rapl import PackageEnergy, PackageReading
from gpumon.model.frame import Boundary, Frame, Run, Tick
from gpumon.model.origin import Capability, Origin
from gpumon.ring.takeover import FULL_FRAMES
from gpumon.storage.follower import LEDGER
from gpumon.storage.history.counters import PAUSE
from gpumon.storage.ledger.device import REMEMBERED, RecentSamples, device_sample
from gpumon.storage.ledger.rank import EarlierRound, RankRecorder, earlier_round
from gpumon.storage.ledger.tables import LEDGER_FILE, VERSION
from gpumon.storage.ledger.writer import KEYS, Batch, KnownRuns, OpenRank
from gpumon.storage.sqlite.read import open_to_read
from gpumon.storage.sqlite.write import open_to_write, transaction

_BY_RUN = frozenset(("rank", "parameter", "note", "tag"))
"""Tables whose rows name their run; the others but `run` name a rank of it."""


def carry_over(
    path: str, ledgers: Sequence[str], keys: Collection[str], uid: int, say: Callable[[str], object]
) -> None:
    """Begin a ledger at `path` with the runs of some ranks, by their keys, each as the first of `ledgers` has it.

    A ledger that cannot be read, or is of another version, has none for that. Raises OSError or sqlite3.Error where
    the new one cannot be made.
    """
    wanted = set(keys)
    for ledger in ledgers:
        if not wanted or not os.path.exists(ledger):
            continue
        with suppress(sqlite3.Error, OSError):
            source, version = open_to_read(ledger)
            with closing(source):
                runs = _runs(source, wanted) if version == VERSION else {}
                if not runs:
                    continue
                tables = {table: _rows(source, table, [*runs]) for table in KEYS}
            wanted -= {key for found in runs.values() for key in found}
            with closing(open_to_write(path, LEDGER_FILE, shared=False, uid=uid, log=say)) as own, transaction(own):
                for table, rows in tables.items():
                    for row in rows:
                        own.execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(row))})", row)


def _runs(source: sqlite3.Connection, keys: Collection[str]) -> dict[str, list[str]]:
    """Ids of the runs that some ranks belong to, with the keys of these."""
    found: dict[str, list[str]] = {}
    for key in keys:
        for (run,) in source.execute("SELECT run FROM rank WHERE key = ?", (key,)):
            found.setdefault(run, []).append(key)
    return found


def _rows(source: sqlite3.Connection, table: str, runs: Sequence[str]) -> list[tuple[object, ...]]:
    """All columns of what a table has of some runs, in the order of every ledger of this version."""
    marks = ", ".join("?" * len(runs))
    where = f"id IN ({marks})" if table == "run" else f"run IN ({marks})"
    if table != "run" and table not in _BY_RUN:
        where = f"rank IN (SELECT key FROM rank WHERE {where})"
    return source.execute(f"SELECT * FROM {table} WHERE {where}", (*runs,)).fetchall()


WRITE_EVERY = 10 * SECOND
"""Nanoseconds between two writes of a run: a daemon that is killed loses no more."""
TRACE_EVERY = 60 * SECOND
_TRACED_TICKS = FULL_FRAMES * 3 // 4
"""Ticks between two writes of a trace, at most: the ring has those since then with their runs, for `remember`."""
_GONE_AFTER = GONE_AFTER * SECOND
_SOON = SECOND * 9 // 10  # each tick at 1 Hz, though ticks are not exactly a second apart
_NEXT = 1.5
"""Intervals between two ticks, at most, of which the second is of another daemon, or of one that was killed."""
_LATE = SECOND // 2
"""ns between two ticks that are no gap at any interval: a busy machine delays ticks by as much."""
_FOREVER = 1 << 62
_FIRST_POLLS = 3
_LOOK_AGAIN = 30 * SECOND
_MOST_HELD = 8192
_MOST_UNREAD = 256
"""Ticks without a run that wait, at most: those of `REMEMBERED` at 8 a second."""
_MOST_ENDED = 50_000


class LedgerStore(Protocol):
    """The part of `store.Store` that the recorder uses."""

    known: KnownRuns | None

    @property
    def problem(self) -> str: ...
    def put(self, batch: Batch) -> None: ...
    def close(self, timeout: float = 5.0) -> bool: ...


def _lives(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


class LedgerRecorder:
    """The runs of one daemon. `keep`: also those of recordings and simulations, for tests.

    `lives` returns whether a process of that pid exists; `packages` reads the CPU packages of this machine.
    """

    name = LEDGER
    writes = "records of runs"

    def __init__(
        self, store: LedgerStore, *, keep: bool = False, lives: Callable[[int], bool] = _lives,
        packages: PackageEnergy | None = None,
    ) -> None:  # fmt: skip
        self._store = store
        self._keep = keep
        self._lives = lives
        self._ranks: dict[str, RankRecorder] = {}
        self._packages = packages
        self._package: PackageReading | None = None
        """The last one, while there is a run."""
        self._recent: dict[str, RecentSamples] = {}
        self._earlier: list[EarlierRound] = []
        """Those of the daemon before this one, for the traces of its runs, until these were seen or looked for."""
        self._unread: deque[Tick] = deque()
        """Newest ticks without a run, which are not among `_recent`: no rank needs them before a run comes."""
        self._sampled_ns = -_FOREVER
        """ns, CLOCK_MONOTONIC: time of the last tick among `_recent`."""
        self._has_sampled = False
        """Whether that tick is of this daemon."""
        self._previous: Tick | None = None
        self._origin: Origin | None = None
        """That of the last tick, and whether it is hardware of this machine."""
        self._is_live = False
        self._held_runs: dict[str, Run] = {}
        self._held: list[Boundary] = []
        self._known: KnownRuns | None = None
        self._runs: dict[str, tuple[str, int | None]] = {}
        self._ended: dict[str, None] = {}
        self._withdrawn: set[str] = set()
        self._taken_back: list[str] = []
        self._left: dict[str, OpenRank] = {}
        self._polls = 0
        self._look_at = 0

    @property
    def problem(self) -> str:
        """Why the file cannot be written just now, for people; else empty."""
        return self._store.problem

    def add(self, tick: Tick) -> None:
        """Take a tick. Never waits, and never raises for what a training or a driver says."""
        if tick.origin is not self._origin:
            self._origin, self._is_live = tick.origin, Capability.LIVE in tick.origin.capabilities
        if not self._is_live and not self._keep:
            return
        self._unread.append(tick)
        if tick.runs or self._ranks or self._held_runs or len(self._unread) >= _MOST_UNREAD:
            self._remember()
        elif len(self._unread) > 2 and self._unread[1].monotonic_ns < tick.monotonic_ns - REMEMBERED:
            self._unread.popleft()
        self._taken_back += tick.withdrawn
        previous, self._previous = self._previous, tick
        if self._known is None and (known := self._store.known) is not None:
            self._known, self._left = known, dict(known.running)
            self._runs, self._ended = dict(known.runs), dict.fromkeys(known.ended)
        if self._known is None:
            # The ledger is not open yet: samples are remembered for a while, boundaries come only once.
            self._held_runs |= {run.key: run for run in tick.runs}
            self._held = (self._held + list(tick.boundaries))[-_MOST_HELD:]
            return
        if self._taken_back:
            self._take_back()
        self._take(tick)
        if previous is not None and (self._ranks or self._left):
            batch = Batch()
            self._write(tick, previous, batch)
            self._find_dead(tick, batch)
            self._store.put(batch)

    def remember(self, frames: Iterable[Frame]) -> None:
        """Take the last frames of the daemon before this one, oldest first: it was killed with them unwritten."""
        for frame in frames:
            if frame.runs:
                self._earlier.append(earlier_round(frame))
            interval = round(frame.interval * SECOND)
            after_gap = self._is_after_gap(frame.monotonic_ns, interval, _NEXT)
            for sample in frame.samples:
                recent = self._recent.setdefault(sample.device.uuid, RecentSamples())
                taken = device_sample(sample, frame.monotonic_ns, interval, after_gap=after_gap)
                recent.add(taken, (), frame.monotonic_ns)

    def withdraw(self, id: str) -> None:
        """Forget a run by the id that it gave itself: it is deleted, and not kept any further."""
        self._withdrawn.add(id)
        batch = Batch()
        for key, rank in list(self._ranks.items()):
            if rank.run.id == id:
                batch.withdrawn.append(rank.id)
                self._forget(key)
        if not batch.withdrawn and id in self._runs:
            batch.withdrawn.append(id)
        self._store.put(batch)

    def close(self, timeout: float = 5.0) -> None:
        """Write how far each run has come; `timeout`: seconds, at most."""
        if self._known is not None and self._previous is not None:
            batch = Batch()
            for rank in self._ranks.values():
                rank.close_when_over(gone=False)
                rank.settle(_read_until(self._previous), self._recent, final=True)
                self._add(rank, self._previous.monotonic_ns, batch, is_final=bool(rank.end_ns))
                batch.add(rank.trace_rows())
            self._store.put(batch)
        self._store.close(timeout)

    def _take_back(self) -> None:
        """Forget the runs whose own processes withdrew them, by their boards: none can withdraw another's."""
        batch = Batch()
        for key in self._taken_back:
            self._held_runs.pop(key, None)
            rank, left = self._ranks.get(key), self._left.pop(key, None)
            if rank is not None:
                batch.withdrawn.append(rank.id)
                self._forget(key)
            elif left is not None:
                batch.withdrawn.append(left.run)
        self._taken_back = []
        self._store.put(batch)

    def _remember(self) -> None:
        ticks, self._unread = self._unread, deque()
        for tick in ticks:
            after_gap = self._is_after_gap(tick.monotonic_ns, tick.interval_ns, PAUSE if self._has_sampled else _NEXT)
            self._has_sampled = True
            for sample in tick.samples:
                uuid = sample.device.uuid
                recent = self._recent.get(uuid)
                if recent is None:
                    recent = self._recent[uuid] = RecentSamples()
                new = tick.utilization_samples.get(uuid, ())
                taken = device_sample(sample, tick.monotonic_ns, tick.interval_ns, after_gap=after_gap)
                recent.add(taken, new, tick.monotonic_ns)
        if ticks and len(self._recent) > len(ticks[-1].samples):
            self._forget_gone(ticks[-1])

    def _is_after_gap(self, monotonic_ns: int, interval_ns: int, most: float) -> bool:
        """Whether a tick follows the one before it by more than `most` intervals, or follows none."""
        before, self._sampled_ns = self._sampled_ns, monotonic_ns
        return monotonic_ns - before > max(most * interval_ns, _LATE)

    def _forget_gone(self, tick: Tick) -> None:
        """Forget devices that have no row any more, as MIG instances that are gone, once their samples are too old."""
        there = {sample.device.uuid for sample in tick.samples}
        for uuid in [uuid for uuid in self._recent if uuid not in there]:
            if self._recent[uuid].is_over(tick.monotonic_ns):
                del self._recent[uuid]

    def _take(self, tick: Tick) -> None:
        """The runs and boundaries of a tick, and those that waited for the ledger."""
        runs = self._held_runs | {run.key: run for run in tick.runs}
        for key, run in runs.items():
            rank = self._ranks.get(key) or self._adopt(run)
            if rank is not None:
                rank.see(run, tick)
        for boundary in (*self._held, *tick.boundaries):
            rank = self._ranks.get(boundary.run)
            if rank is not None:
                rank.take(boundary)
        self._held_runs, self._held = {}, []
        if not self._left or self._polls >= _FIRST_POLLS:
            self._earlier = []
        self._read_packages()

    def _read_packages(self) -> None:
        """Read the CPU packages for the runs of this tick; without one, nothing is read."""
        if self._packages is None or not self._ranks:
            self._package = None
            return
        before, self._package = self._package, self._packages.read()
        for rank in self._ranks.values():
            rank.close_when_over(gone=False)
            rank.take_packages(before, self._package, self._packages.unknown)

    def _adopt(self, run: Run) -> RankRecorder | None:
        """A rank that is new to this daemon; None when it is not to be kept, or was over before."""
        if run.key in self._ended or run.id in self._withdrawn:
            return None
        left = self._left.pop(run.key, None)
        rank = RankRecorder(run, left.run if left else self._id_for(run))
        if left is not None:
            try:
                rank.resume(left.progress, left.traces)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                rank = RankRecorder(run, left.run)  # damaged: begin again with what the board still reports
        rank.catch_up(self._earlier)
        self._runs[rank.id] = (run.user, None)
        self._ranks[run.key] = rank
        return rank

    def _id_for(self, run: Run) -> str:
        """The run's own id; another where that is of another user, or of a run that was over before this one."""
        wanted = id = run.id or run.key
        number = 1
        while (known := self._runs.get(id)) is not None:
            user, ended = known
            if user == run.user and (ended is None or not run.started * SECOND > ended):
                break
            number += 1
            id = f"{wanted}~{number}"
        return id

    def _write(self, tick: Tick, previous: Tick, batch: Batch) -> None:
        is_last = tick.origin.ended  # nothing comes after it in which more would become known
        horizon, read_until = previous.monotonic_ns, min(_read_until(previous), tick.monotonic_ns)
        if is_last:
            horizon, read_until = tick.monotonic_ns, _read_until(tick)
        for key, rank in list(self._ranks.items()):
            assert rank.tick is not None
            rank.close_when_over(gone=tick.monotonic_ns - rank.tick.monotonic_ns > _GONE_AFTER)
            known = rank.settle(read_until, self._recent)
            over = bool(rank.end_ns) and known >= rank.end_ns
            waited = tick.monotonic_ns - rank.written_at
            if rank.whole_ns < rank.timeline.left_ns <= horizon:
                # Sampled in full now, whatever the driver's own samples add: a training's end waits for that.
                rank.whole_ns, rank.dirty = rank.timeline.left_ns, True
            if over or is_last or waited >= WRITE_EVERY or (rank.dirty and waited >= _SOON):
                rank.dirty, rank.written_at = False, tick.monotonic_ns
                is_final = over or (is_last and bool(rank.end_ns))
                self._add(rank, max(horizon, rank.end_ns) if over else horizon, batch, is_final=is_final)
                if over or tick.monotonic_ns - rank.traced_at >= min(TRACE_EVERY, _TRACED_TICKS * tick.interval_ns):
                    rank.traced_at = tick.monotonic_ns
                    batch.add(rank.trace_rows())
            if over:
                self._runs[rank.id] = (rank.run.user, rank.ended_ns)
                self._forget(key)

    def _add(self, rank: RankRecorder, horizon: int, batch: Batch, *, is_final: bool) -> None:
        batch.add(rank.rows(horizon, is_final=is_final))
        if is_final:
            batch.final.append(rank.run.key)
        batch.row_counts[rank.run.key] = rank.shown_rows
        batch.late += rank.late()
        batch.left += rank.left()

    def _forget(self, key: str) -> None:
        del self._ranks[key]
        self._ended[key] = None
        for bounded in (self._ended, self._runs):
            while len(bounded) > _MOST_ENDED:
                del bounded[next(iter(bounded))]

    def _find_dead(self, tick: Tick, batch: Batch) -> None:
        """Ranks that an earlier daemon left running, and that have no board any more."""
        self._polls += 1
        if not self._left or self._polls < _FIRST_POLLS or tick.monotonic_ns < self._look_at:
            return
        self._look_at = tick.monotonic_ns + _LOOK_AGAIN
        for key, left in list(self._left.items()):
            if left.hostname != tick.hostname:
                continue  # another machine with the same home
            if not (left.pid and self._lives(left.pid)):
                batch.died.append((key, tick.time_ns))
            else:
                # That pid may be another process by now, or the run that of another daemon, which writes it.
                batch.died.append((key, tick.time_ns - _GONE_AFTER))
                if tick.time_ns - left.updated_ns < 2 * _GONE_AFTER:
                    continue
            del self._left[key]


def _read_until(tick: Tick) -> int:
    """When the last device of a tick was read: devices are read one behind the other, and a call may hang."""
    stamps = [max(sample.monotonic_ns, sample.counters_monotonic_ns) for sample in tick.samples]
    return max([tick.monotonic_ns, *(stamp for stamp in stamps if stamp <= tick.monotonic_ns + _GONE_AFTER)])
