"""Records the runs that a daemon sees: turns ticks into ledger rows and passes them to the writer.

The start and end of each epoch and phase arrive with the next tick at the latest. So at each tick, all epochs and
phases up to the previous tick are known exactly.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import closing, suppress
from typing import Protocol

from gpumon.analysis.thresholds import GONE_AFTER
from gpumon.common.clock import SECOND
from gpumon.common.rapl import PackageEnergy, PackageReading
from gpumon.model.frame import Boundary, Frame, Run, Tick
from gpumon.model.origin import Capability
from gpumon.ring.takeover import FULL_FRAMES
from gpumon.storage.follower import LEDGER
from gpumon.storage.history.counters import PAUSE
from gpumon.storage.ledger.device import RecentSamples, device_sample
from gpumon.storage.ledger.rank import RankRecorder
from gpumon.storage.ledger.schema import LEDGER_FILE, VERSION
from gpumon.storage.ledger.writer import KEYS, Batch, OpenRank, StoredRuns
from gpumon.storage.sqlite.read import open_to_read
from gpumon.storage.sqlite.write import open_to_write, transaction

_TABLES_BY_RUN = frozenset(("rank", "parameter", "note", "tag"))
"""Tables with a column `run`. All other tables except `run` have a column `rank`."""


def copy_runs(path: str, ledgers: Sequence[str], keys: Collection[str], uid: int, log: Callable[[str], object]) -> None:
    """Create a ledger at `path` with the runs to which the ranks in `keys` belong.

    `ledgers`: paths of ledgers. Each run is copied from the first ledger that contains it. A ledger that cannot be
    read, or that another version wrote, is skipped. `uid`: user to whom the new file belongs. `log`: gets a line for
    each problem. Raises OSError or sqlite3.Error if the new ledger cannot be written.
    """
    wanted = set(keys)
    for ledger in ledgers:
        if not wanted or not os.path.exists(ledger):
            continue
        with suppress(sqlite3.Error, OSError):
            source, version = open_to_read(ledger, LEDGER_FILE)
            with closing(source):
                runs = _select_runs(source, wanted) if version == VERSION else {}
                if not runs:
                    continue
                tables = {table: _select_rows(source, table, [*runs]) for table in KEYS}
            wanted -= {key for rank_keys in runs.values() for key in rank_keys}
            with closing(open_to_write(path, LEDGER_FILE, shared=False, uid=uid, log=log)) as own, transaction(own):
                for table, rows in tables.items():
                    for row in rows:
                        own.execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(row))})", row)


def _select_runs(source: sqlite3.Connection, keys: Collection[str]) -> dict[str, list[str]]:
    """Return the ranks in `keys` that the ledger contains, grouped by the id of their run."""
    runs: dict[str, list[str]] = {}
    for key in keys:
        for (run,) in source.execute("SELECT run FROM rank WHERE key = ?", (key,)):
            runs.setdefault(run, []).append(key)
    return runs


def _select_rows(source: sqlite3.Connection, table: str, runs: Sequence[str]) -> list[tuple[object, ...]]:
    """Return the table's rows for the given runs, with all columns.

    The order of the columns is the same in every ledger of this version.
    """
    marks = ", ".join("?" * len(runs))
    where = f"id IN ({marks})" if table == "run" else f"run IN ({marks})"
    if table != "run" and table not in _TABLES_BY_RUN:
        where = f"rank IN (SELECT key FROM rank WHERE {where})"
    return source.execute(f"SELECT * FROM {table} WHERE {where}", (*runs,)).fetchall()


WRITE_EVERY = 10 * SECOND
"""Nanoseconds between two writes of a run. This is the most that is lost if a daemon is killed."""
TRACE_EVERY = 60 * SECOND
"""Nanoseconds between two writes of a trace."""
_MAX_TRACE_TICKS = FULL_FRAMES * 3 // 4
"""Maximum number of ticks between two writes of a trace. The ring still contains these ticks in full, so that
`add_earlier` can add them after the daemon was killed."""
_GONE_AFTER = GONE_AFTER * SECOND
_MIN_INTERVAL = SECOND * 9 // 10  # allows a write with each tick at 1 Hz, although ticks are not exactly a second apart
_RESTART_GAP = 1.5
"""There is a gap if more than this number of intervals lies between the last tick of an earlier daemon and the first
tick of this one. The shorter of their intervals counts."""
_MAX_DELAY = SECOND // 2
"""A shorter time between two ticks (ns) is never a gap, because a busy machine may delay ticks by this much."""
_FOREVER = 1 << 62
_FIRST_POLLS = 3
_CHECK_EVERY = 30 * SECOND
_MAX_PENDING = 8192
_MAX_ENDED = 50_000


class BatchWriter(Protocol):
    """The methods of `writer.LedgerWriter` that the recorder uses."""

    stored: StoredRuns | None

    @property
    def problem(self) -> str: ...
    def put(self, batch: Batch) -> None: ...
    def close(self, timeout: float = 5.0) -> bool: ...


def _is_alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


class LedgerRecorder:
    """Records the runs that one daemon sees.

    `store`: writes the rows. `keep`: also record runs from recordings and simulations, for tests. `is_alive`: returns
    whether a process with this pid exists. `packages`: reads the energy counters of this machine's CPU packages; None
    if they are not read.
    """

    name = LEDGER
    writes = "records of runs"

    def __init__(
        self, store: BatchWriter, *, keep: bool = False, is_alive: Callable[[int], bool] = _is_alive,
        packages: PackageEnergy | None = None,
    ) -> None:  # fmt: skip
        self._store = store
        self._keep = keep
        self._is_alive = is_alive
        self._ranks: dict[str, RankRecorder] = {}
        self._packages = packages
        self._package: PackageReading | None = None
        """The last reading; None while there is no run."""
        self._recent: dict[str, RecentSamples] = {}
        """Recent samples by device UUID."""
        self._earlier: list[Frame] = []
        """Frames of the previous daemon, for the traces of its runs. They are deleted when all these runs were seen
        again, or after `_FIRST_POLLS` ticks."""
        self._sampled_ns = -_FOREVER
        """Time of the last tick in `_recent`; ns, CLOCK_MONOTONIC."""
        self._sampled_interval_ns = 0
        """Interval of that tick. An earlier daemon may have sampled at another interval than this one."""
        self._has_sampled = False
        """True once `_recent` has a tick of this daemon."""
        self._previous: Tick | None = None
        self._pending_runs: dict[str, Run] = {}
        self._pending_boundaries: list[Boundary] = []
        self._stored: StoredRuns | None = None
        self._runs: dict[str, tuple[str, int | None]] = {}
        self._ended: dict[str, None] = {}
        self._withdrawn: set[str] = set()
        self._withdrawn_keys: list[str] = []
        self._open_ranks: dict[str, OpenRank] = {}
        self._polls = 0
        self._next_check_ns = 0

    @property
    def problem(self) -> str:
        """Reason why the ledger cannot be written, as text for users. Empty while writing works."""
        return self._store.problem

    def add(self, tick: Tick) -> None:
        """Add a tick. Never blocks, and never raises an exception because of data from a training or a driver."""
        if Capability.LIVE not in tick.origin.capabilities and not self._keep:
            return
        self._add_samples(tick)
        self._withdrawn_keys += tick.withdrawn
        previous, self._previous = self._previous, tick
        if self._stored is None and (stored := self._store.stored) is not None:
            self._stored, self._open_ranks = stored, dict(stored.running)
            self._runs, self._ended = dict(stored.runs), dict.fromkeys(stored.ended)
        if self._stored is None:
            # The ledger is not open yet. `_recent` keeps samples for a while, but boundaries must be stored here.
            self._pending_runs |= {run.key: run for run in tick.runs}
            self._pending_boundaries = (self._pending_boundaries + list(tick.boundaries))[-_MAX_PENDING:]
            return
        if self._withdrawn_keys:
            self._withdraw_published()
        self._update_ranks(tick)
        if previous is not None and (self._ranks or self._open_ranks):
            batch = Batch()
            self._write(tick, previous, batch)
            self._find_dead(tick, batch)
            self._store.put(batch)

    def add_earlier(self, frames: Iterable[Frame]) -> None:
        """Add the last frames of the previous daemon that it did not write because it was killed, oldest first."""
        for frame in frames:
            if frame.runs:
                self._earlier.append(frame)
            interval = round(frame.interval * SECOND)
            after_gap = self._is_after_gap(frame.monotonic_ns, interval)
            for sample in frame.samples:
                recent = self._recent.setdefault(sample.device.uuid, RecentSamples())
                reading = device_sample(sample, frame.monotonic_ns, interval, after_gap=after_gap)
                recent.add(reading, (), frame.monotonic_ns)

    def withdraw(self, id: str) -> None:
        """Stop recording the run with this id, and delete it from the ledger. `id` is the id that the run reports."""
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
        """Write the progress of all runs and close the ledger, within `timeout` seconds."""
        if self._stored is not None and self._previous is not None:
            batch = Batch()
            for rank in self._ranks.values():
                rank.close_if_ended(gone=False)
                rank.add_samples(_read_until(self._previous), self._recent, final=True)
                self._add(rank, self._previous.monotonic_ns, batch, is_final=bool(rank.end_ns))
                batch.add(rank.trace_rows())
            self._store.put(batch)
        self._store.close(timeout)

    def _withdraw_published(self) -> None:
        """Delete the runs that their own processes withdrew through their boards.

        A process can withdraw only its own run.
        """
        batch = Batch()
        for key in self._withdrawn_keys:
            self._pending_runs.pop(key, None)
            rank, open_rank = self._ranks.get(key), self._open_ranks.pop(key, None)
            if rank is not None:
                batch.withdrawn.append(rank.id)
                self._forget(key)
            elif open_rank is not None:
                batch.withdrawn.append(open_rank.run)
        self._withdrawn_keys = []
        self._store.put(batch)

    def _add_samples(self, tick: Tick) -> None:
        after_gap = self._is_after_gap(tick.monotonic_ns, tick.interval_ns)
        self._has_sampled = True
        for sample in tick.samples:
            uuid = sample.device.uuid
            recent = self._recent.get(uuid)
            if recent is None:
                recent = self._recent[uuid] = RecentSamples()
            reading = device_sample(sample, tick.monotonic_ns, tick.interval_ns, after_gap=after_gap)
            recent.add(reading, tick.utilization_samples.get(uuid, ()), tick.monotonic_ns)
        if len(self._recent) > len(tick.samples):
            self._drop_gone_devices(tick)

    def _is_after_gap(self, monotonic_ns: int, interval_ns: int) -> bool:
        """Return whether ticks are missing between the previous tick and this one."""
        previous, self._sampled_ns = self._sampled_ns, monotonic_ns
        previous_interval, self._sampled_interval_ns = self._sampled_interval_ns, interval_ns
        longest = PAUSE * interval_ns if self._has_sampled else _RESTART_GAP * min(previous_interval, interval_ns)
        return monotonic_ns - previous > max(longest, _MAX_DELAY)

    def _drop_gone_devices(self, tick: Tick) -> None:
        """Delete devices that are missing in a tick, such as removed MIG instances, if all their samples are old."""
        present = {sample.device.uuid for sample in tick.samples}
        for uuid in [uuid for uuid in self._recent if uuid not in present]:
            if self._recent[uuid].is_expired(tick.monotonic_ns):
                del self._recent[uuid]

    def _update_ranks(self, tick: Tick) -> None:
        """Add the runs and boundaries of a tick, and those that waited for the ledger to open, to their ranks."""
        runs = self._pending_runs | {run.key: run for run in tick.runs}
        for key, run in runs.items():
            rank = self._ranks.get(key) or self._new_rank(run)
            if rank is not None:
                rank.update(run, tick)
        for boundary in (*self._pending_boundaries, *tick.boundaries):
            rank = self._ranks.get(boundary.run)
            if rank is not None:
                rank.add_boundary(boundary)
        self._pending_runs, self._pending_boundaries = {}, []
        if not self._open_ranks or self._polls >= _FIRST_POLLS:
            self._earlier = []
        self._read_packages()

    def _read_packages(self) -> None:
        """Read the energy of the CPU packages, if there is a run."""
        if self._packages is None or not self._ranks:
            self._package = None
            return
        previous, self._package = self._package, self._packages.read()
        for rank in self._ranks.values():
            rank.close_if_ended(gone=False)
            rank.add_package_reading(previous, self._package, self._packages.unknown)

    def _new_rank(self, run: Run) -> RankRecorder | None:
        """Return a recorder for a rank that is new to this daemon; None if the rank ended before or was withdrawn."""
        if run.key in self._ended or run.id in self._withdrawn:
            return None
        open_rank = self._open_ranks.pop(run.key, None)
        rank = RankRecorder(run, open_rank.run, open_rank.pid) if open_rank else RankRecorder(run, self._id_for(run))
        if open_rank is not None:
            try:
                rank.resume(open_rank.progress, open_rank.traces)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                rank = RankRecorder(
                    run, open_rank.run, open_rank.pid
                )  # the state is damaged: start again with the board's data
        rank.add_earlier(self._earlier)
        self._runs[rank.id] = (run.user, None)
        self._ranks[run.key] = rank
        return rank

    def _id_for(self, run: Run) -> str:
        """Return the id for a new run in the ledger.

        This is the run's own id. If an earlier run or another user's run already has it, a suffix is added.
        """
        wanted = id = run.id or run.key
        number = 1
        while (earlier := self._runs.get(id)) is not None:
            user, ended = earlier
            if user == run.user and (ended is None or not run.started * SECOND > ended):
                break
            number += 1
            id = f"{wanted}~{number}"
        return id

    def _write(self, tick: Tick, previous: Tick, batch: Batch) -> None:
        is_last = tick.origin.ended  # true if a recording is played and has ended
        horizon, read_until = previous.monotonic_ns, min(_read_until(previous), tick.monotonic_ns)
        if is_last:
            horizon, read_until = tick.monotonic_ns, _read_until(tick)
        for key, rank in list(self._ranks.items()):
            assert rank.tick is not None
            rank.close_if_ended(gone=tick.monotonic_ns - rank.tick.monotonic_ns > _GONE_AFTER)
            known_until = rank.add_samples(read_until, self._recent)
            is_over = bool(rank.end_ns) and known_until >= rank.end_ns
            waited = tick.monotonic_ns - rank.written_at
            if rank.sampled_until_ns < rank.timeline.last_end_ns <= horizon:
                # All ticks of this epoch were added, although samples of the driver may still follow. Write soon,
                # because a training waits for this at its end.
                rank.sampled_until_ns, rank.dirty = rank.timeline.last_end_ns, True
            if is_over or is_last or waited >= WRITE_EVERY or (rank.dirty and waited >= _MIN_INTERVAL):
                rank.dirty, rank.written_at = False, tick.monotonic_ns
                is_final = is_over or (is_last and bool(rank.end_ns))
                self._add(rank, max(horizon, rank.end_ns) if is_over else horizon, batch, is_final=is_final)
                if is_over or tick.monotonic_ns - rank.traced_at >= min(
                    TRACE_EVERY, _MAX_TRACE_TICKS * tick.interval_ns
                ):
                    rank.traced_at = tick.monotonic_ns
                    batch.add(rank.trace_rows())
            if is_over:
                self._runs[rank.id] = (rank.run.user, rank.ended_ns)
                self._forget(key)

    def _add(self, rank: RankRecorder, horizon: int, batch: Batch, *, is_final: bool) -> None:
        batch.add(rank.rows(horizon, is_final=is_final))
        if is_final:
            batch.final.append(rank.run.key)
        batch.step_row_counts[rank.run.key] = rank.step_row_count
        batch.late += rank.pop_late_metrics()
        batch.revoked_ends += rank.pop_revoked_ends()

    def _forget(self, key: str) -> None:
        del self._ranks[key]
        self._ended[key] = None
        for bounded in (self._ended, self._runs):
            while len(bounded) > _MAX_ENDED:
                del bounded[next(iter(bounded))]

    def _find_dead(self, tick: Tick, batch: Batch) -> None:
        """Find ranks that were running when an earlier daemon stopped, and that have no board any more."""
        self._polls += 1
        if not self._open_ranks or self._polls < _FIRST_POLLS or tick.monotonic_ns < self._next_check_ns:
            return
        self._next_check_ns = tick.monotonic_ns + _CHECK_EVERY
        for key, open_rank in list(self._open_ranks.items()):
            if open_rank.hostname != tick.hostname:
                continue  # another machine with the same home directory
            if not (open_rank.pid and self._is_alive(open_rank.pid)):
                batch.dead.append((key, tick.time_ns))
            else:
                # The pid may have been reused by another process, or another daemon may be writing this run.
                batch.dead.append((key, tick.time_ns - _GONE_AFTER))
                if tick.time_ns - open_rank.updated_ns < 2 * _GONE_AFTER:
                    continue
            del self._open_ranks[key]


def _read_until(tick: Tick) -> int:
    """Return the time (ns, CLOCK_MONOTONIC) at which the last device of a tick was read.

    It may be much later than the tick, because devices are read one after the other and a driver call may hang.
    """
    stamps = [max(sample.monotonic_ns, sample.counters_monotonic_ns) for sample in tick.samples]
    return max([tick.monotonic_ns, *(stamp for stamp in stamps if stamp <= tick.monotonic_ns + _GONE_AFTER)])
