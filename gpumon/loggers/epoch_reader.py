"""Reads the ended epochs of a run from the ledger while it goes on, in a thread of its own.

The daemon writes an epoch some seconds after its end, when the driver's own samples have come. A read takes about
1 ms, more where the disk is slow: no training waits for it. The ledger is open only while it is read, so that nothing
of it is inherited by a forked worker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Event, Thread
from time import monotonic

from gpumon.common.errors import GpumonError
from gpumon.common.numbers import is_known
from gpumon.common.paths import Places, ledger_path, ledger_paths
from gpumon.live import follow, no_daemon
from gpumon.model.origin import Capability
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.aggregate import step_summaries
from gpumon.storage.ledger.reader import Ledger
from gpumon.storage.ledger.records import Record
from gpumon.storage.ledger.summary import EpochSummary
from gpumon.tracking.warn import warn_once

SOONEST, LATEST = 1.0, 30.0
"""Seconds between two looks at the ledger."""
PATIENCE = 120.0
"""Seconds after the last epoch's end for which there are looks: the daemon waits for samples for 20."""
SETTLED_AFTER = 25.0
"""Seconds after which no sample of a row of steps is to come."""
WHILE_WAITED = 0.1
"""Seconds between looks while the training waits."""
MOST = 512
"""Epochs of one look."""
GONE = 10.0
"""Seconds without a daemon after which that is said: a restart takes less."""
_WHOLE = 0.999
"""Share of an epoch's time that counts as all of it."""
_A_LOOK = 0.5
"""Seconds that the last look may take."""


class EpochReader:
    """Ended epochs of the run of one rank, in their order, each once."""

    def __init__(self, key: str, where: Places, clock: Callable[[], float] = monotonic) -> None:
        """`key`: of the rank, the name of its board; `where`: the directories to look in."""
        self._key = key
        self._where = where
        self._clock = clock
        self._arrived: deque[EpochSummary] = deque()
        self._next = 0
        self._ended: int | None = None
        """Number of the epoch that ended last in the training."""
        self._ended_at = clock()
        self._read: int | None = None
        """Number of the one that was read last."""
        self._rows_to = self._rows_read = 0
        """Steps to which rows are expected, and were read."""
        self._by_driver = False
        self._is_last = False
        self._problem = ""
        self._recorded_at: float | None = None
        """When a daemon recorded runs last; None: never since the begin."""
        self._wake, self._waited, self._all, self._over = Event(), Event(), Event(), Event()
        self._daemon = follow(where)
        self._thread = Thread(target=self._run, name="gpumon-log", daemon=True)

    def start(self) -> EpochReader:
        """Begin to look."""
        self._thread.start()
        return self

    @property
    def has_arrived(self) -> bool:
        """Whether there is an epoch to take."""
        return bool(self._arrived)

    def epoch_ended(self, number: int) -> None:
        """Expect an epoch in the ledger, which has ended now."""
        self._ended, self._ended_at = number, self._clock()
        self._wake.set()

    def take(self) -> list[EpochSummary]:
        """Return the epochs that have come since the last call."""
        arrived = self._arrived
        return [arrived.popleft() for _ in range(len(arrived))]

    def wait(self, timeout: float, rows_to: int = 0) -> None:
        """Wait until the epoch that ended last has come: `timeout` seconds at most; not at all without a daemon.

        `rows_to`: in a training without epochs, the step to which its rows of steps lead.
        """
        self._rows_to = rows_to
        self._all.clear()
        if self._over.is_set():
            return
        self._waited.set()
        self._wake.set()
        if timeout > 0 and not self._all.wait(timeout):
            self._is_last = True
            self._wake.set()
            self._all.wait(_A_LOOK)
            if self._read is None and not self._rows_read:
                said = ledger_path(self._where) or "the state directory"
                warn_once("log_to nothing", f"log_to wrote nothing: {said} had nothing of this run after {timeout:g} s")
        self._is_last = False
        self._waited.clear()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self._waited.set()
        self._wake.set()

    def look(self) -> None:
        """Take what the ledger has."""
        for path in ledger_paths(self._where):
            try:
                with Ledger(path) as ledger:
                    if run_id := ledger.run_of_rank(self._key):
                        self._read_run(ledger, run_id)
                        return
            except GpumonError as error:
                if str(error) == self._problem:  # not one that passes, such as a file in the making
                    warn_once("log_to ledger", f"log_to: {error}")
                self._problem = str(error)

    def _run(self) -> None:
        try:
            if not self._is_recorded():
                # An ended daemon, and one that plays a recording, write no ledger.
                state = self._daemon.state()
                why = state.text if not state.live else "the daemon records no runs"
                warn_once("log_to", f"log_to has nothing to write yet: {why or no_daemon(self._where)}")
            while not self._over.is_set():
                is_last = self._waited.is_set() and (self._is_last or not self._is_recorded())
                self.look()
                has_all = self._read == self._ended and self._rows_read >= self._rows_to
                self._look_for_daemon(at_once=is_last and not has_all)
                if has_all or is_last:
                    self._all.set()
                self._wake.wait(self._pause())
                self._wake.clear()
                self._waited.wait(SOONEST)  # epochs may be short, and there is time
        except Exception as error:  # a log is never worth a training
            warn_once("log_to", f"log_to writes nothing more: {type(error).__name__}: {error}")
        finally:
            self._daemon.close()
            self._over.set()
            self._all.set()

    def _is_recorded(self) -> bool:
        """Whether a daemon runs that keeps a ledger of real trainings."""
        return self._daemon.is_alive() and Capability.LIVE in self._daemon.origin().capabilities

    def _look_for_daemon(self, *, at_once: bool) -> None:
        """Say once that no daemon runs any more, where values are missing for that; `at_once`: it is the end."""
        now = self._clock()
        if self._is_recorded():
            self._recorded_at = now
        elif self._recorded_at is not None and (
            at_once or (now - self._recorded_at > GONE and (self._ended is None or self._ended != self._read))
        ):
            warn_once("log_to gone", "log_to: the daemon has ended: what it has not recorded has no values")

    def _pause(self) -> float | None:
        """Seconds to the next look; None: until an epoch ends."""
        if self._waited.is_set() and not self._all.is_set():
            return WHILE_WAITED
        since = self._clock() - self._ended_at
        if self._ended is None:  # a training without epochs never says that a row of steps has ended
            return LATEST
        return None if since > PATIENCE else min(LATEST, max(SOONEST, since / 2))

    def _read_run(self, ledger: Ledger, run_id: str) -> None:
        # Asked first: what it calls settled does not change until the rows are read.
        settled = ledger.settled_epochs(run_id)
        record = ledger.record(run_id, phases=False, ordinals=(self._next, self._next + MOST))
        # Of a rank that has ended nobody knows what is settled.
        goes_on = not any(is_known(rank.ended) for rank in record.ranks if rank.key == self._key)
        for epoch in aggregate.epoch_summaries(record):
            is_final = goes_on and settled.has(epoch.ordinal)
            has_ended = is_known(epoch.ended)
            is_good = self._is_last or self._is_whole(epoch, record)
            if not is_final and not (self._waited.is_set() and has_ended and is_good):
                return
            self._next = epoch.ordinal + 1
            if has_ended:  # one that was left has no values of a whole epoch
                self._by_driver = self._by_driver or "driver" in epoch.utilization_from
                self._arrived.append(epoch)
                self._read = epoch.epoch

        for row in step_summaries(record) if not self._next else ():
            # Short rows become one, whose last step is that of the last of them.
            to = row.epoch + (row.steps or 0)
            is_final = goes_on and row.ended + SETTLED_AFTER < record.run.updated
            is_good = self._is_last or self._is_whole(row, record)
            if to <= self._rows_read:
                continue
            if not is_final and not (self._waited.is_set() and is_known(row.ended) and is_good):
                break
            self._rows_read = to
            self._arrived.append(row)

    def _is_whole(self, epoch: EpochSummary, record: Record) -> bool:
        """Whether an epoch was read up to its end, and by the driver's own samples where it was so before."""
        if self._by_driver and "driver" not in epoch.utilization_from:
            return False
        # The last reading before its end holds beyond it, so that only counters show that one more is missing.
        rows = [row for row in record.whole_epochs if row.ordinal == epoch.ordinal]
        is_short = any(row.value("energy") < _WHOLE * row.value("power_mean") * row.value("seconds") for row in rows)
        is_read = record.run.updated >= epoch.ended + self._daemon.interval()
        return is_read and not is_short and epoch.sampled_share >= _WHOLE
