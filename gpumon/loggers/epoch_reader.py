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

from gpumon.errors import GpumonError
from gpumon.ledger import aggregate
from gpumon.ledger.epoch_summary import EpochSummary
from gpumon.ledger.reader import Ledger
from gpumon.live import NO_DAEMON, follow
from gpumon.missing import is_known
from gpumon.origin import Capability
from gpumon.paths import Places, ledger_paths
from gpumon.tags.warn import warn_once

SOONEST, LATEST = 1.0, 30.0
"""Seconds between two looks at the ledger."""
PATIENCE = 120.0
"""Seconds after the last epoch's end for which there are looks: the daemon waits for samples for 20."""
AT_END = 0.1
"""Seconds between looks once the run is over."""
MOST = 512
"""Epochs of one look."""
_WHOLE = 0.999
"""Share of an epoch's time that counts as all of it."""


class EpochReader:
    """Ended epochs of the run of one rank, in their order, each once."""

    def __init__(self, key: str, where: Places, clock: Callable[[], float] = monotonic) -> None:
        """`key`: of the rank, the name of its board; `where`: the directories to look in."""
        self._key = key
        self._where = where
        self._clock = clock
        self._arrived: deque[EpochSummary] = deque()
        self._next = 0
        self._ended_at = clock()
        self._by_driver = False
        self._last_look = False
        self._wake, self._over, self._done = Event(), Event(), Event()
        self._daemon = follow(where)
        self._thread = Thread(target=self._run, name="gpumon-log", daemon=True)

    def start(self) -> EpochReader:
        """Begin to look."""
        self._thread.start()
        return self

    def epoch_ended(self) -> None:
        """An epoch ended now: it will be written soon."""
        self._ended_at = self._clock()
        self._wake.set()

    @property
    def has_arrived(self) -> bool:
        """Whether there is an epoch to take."""
        return bool(self._arrived)

    def take(self) -> list[EpochSummary]:
        """Return the epochs that have come since the last call."""
        arrived = self._arrived
        return [arrived.popleft() for _ in range(len(arrived))]

    def finish(self, timeout: float) -> None:
        """Wait until the last epoch of the run, which is over, has come: `timeout` seconds at most.

        Waits for nothing where no daemon runs.
        """
        self._over.set()
        self._wake.set()
        if not self._done.wait(timeout):
            self._last_look = True
            self._wake.set()
            self._done.wait(min(timeout, 0.5))
        self._done.set()

    def _run(self) -> None:
        try:
            if not self._is_recorded():
                # An ended daemon, and one that plays a recording, write no ledger.
                state = self._daemon.state()
                why = state.text if not state.live else "the daemon records no runs"
                warn_once("log_to", f"log_to has nothing to write yet: {why or NO_DAEMON}")
            while not self._done.is_set():
                over = self._over.is_set()
                last = over and (self._last_look or not self._is_recorded())
                if (self.look() and over) or last:
                    return
                self._wake.wait(self._pause())
                self._wake.clear()
                self._over.wait(SOONEST)  # epochs may be short, and there is time
        except Exception as error:  # a log is never worth a training
            warn_once("log_to", f"log_to writes nothing: {type(error).__name__}: {error}")
        finally:
            self._daemon.close()
            self._done.set()

    def _is_recorded(self) -> bool:
        """Whether a daemon runs that keeps a ledger of real trainings."""
        return self._daemon.is_alive() and Capability.LIVE in self._daemon.origin().capabilities

    def _pause(self) -> float | None:
        """Seconds to the next look; None: until an epoch ends."""
        if self._over.is_set():
            return AT_END
        since = self._clock() - self._ended_at
        return None if since > PATIENCE else min(LATEST, max(SOONEST, since / 2))

    def look(self) -> bool:
        """Take what the ledger has; return whether nothing more is to come of a run that is over."""
        for path in ledger_paths(self._where):
            try:
                with Ledger(path) as ledger:
                    if run_id := ledger.run_of(self._key):
                        return self._read(ledger, run_id)
            except GpumonError as error:
                warn_once("log_to ledger", f"log_to: {error}")
        return False

    def _read(self, ledger: Ledger, run_id: str) -> bool:
        # Asked first: what it calls settled does not change until the rows are read.
        settled = ledger.settled(run_id)
        record = ledger.record(run_id, phases=False, ordinals=(self._next, self._next + MOST))
        mine = next(rank for rank in record.ranks if rank.key == self._key)
        over = is_known(mine.ended)
        for epoch in aggregate.epochs(record):
            is_final = settled.has(epoch.ordinal) and not over
            if not is_final and not (over and (self._last_look or self._is_whole(epoch))):
                return False
            self._next = epoch.ordinal + 1
            if is_known(epoch.ended):  # one that was left has no values of a whole epoch
                self._by_driver = self._by_driver or "driver" in epoch.utilization_from
                self._arrived.append(epoch)
        return over

    def _is_whole(self, epoch: EpochSummary) -> bool:
        """Whether an epoch of a run that is over was sampled up to its end; better samples may still come."""
        has_better = "driver" in epoch.utilization_from or not self._by_driver
        left = not is_known(epoch.ended)
        return left or (epoch.sampled_share >= _WHOLE and has_better)
