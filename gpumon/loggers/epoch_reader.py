"""Reads the completed epochs of a running training from the ledger, in a separate thread.

The daemon writes an epoch several seconds after its end, when the driver's own samples have arrived. A read of the
ledger takes about 1 ms, or more on a slow disk. The training does not wait for it. The ledger is open only during a
read, so that a forked worker does not inherit it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Event, Thread
from time import monotonic, thread_time

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

MIN_INTERVAL, MAX_INTERVAL = 1.0, 30.0
"""Seconds between two reads of the ledger."""
_MAX_SHARE = 0.02
"""Reads use at most this share of a CPU core."""
PATIENCE = 120.0
"""The ledger is read for this many seconds after the end of an epoch. The daemon waits up to 20 s for samples."""
SETTLED_AFTER = 25.0
"""All samples of a row of steps have arrived this many seconds after its end."""
WAITING_INTERVAL = 0.1
"""Seconds between two reads while the training waits for values."""
MAX_EPOCHS = 512
"""Maximum number of epochs per read."""
GONE_AFTER = 10.0
"""A warning is logged after this many seconds without a daemon. A restart of the daemon takes less time."""
_COMPLETE = 0.999
"""Share of an epoch's time and energy that must be measured for the epoch to count as complete."""
_LAST_READ = 0.5
"""Maximum seconds to wait for the last read."""


class EpochReader:
    """Reads the completed epochs of one rank. Each epoch is read only once, in order."""

    def __init__(self, key: str, places: Places, clock: Callable[[], float] = monotonic) -> None:
        """`key`: key of the rank, which is the name of its board file. `places`: the directories of the daemon."""
        self._key = key
        self._places = places
        self._clock = clock
        self._arrived: deque[EpochSummary] = deque()
        self._next = 0
        self._ended: int | None = None
        """Number of the epoch that ended last in the training; None if none has ended."""
        self._ended_at = clock()
        self._read: int | None = None
        """Number of the epoch that was read last; None if none was read."""
        self._rows_to = self._rows_read = 0
        """The last step for which a row of steps is expected, and the last step for which a row has been read."""
        self._by_driver = False
        """Whether any epoch that was read so far had the driver's own samples."""
        self._is_last = False
        self._problem = ""
        self._recorded_at: float | None = None
        """Time of `clock` at which a daemon last recorded runs; None if no daemon has since this reader started."""
        self._wake, self._waited, self._all, self._over = Event(), Event(), Event(), Event()
        self._daemon = follow(places)
        self._thread = Thread(target=self._run, name="gpumon-log", daemon=True)

    def start(self) -> EpochReader:
        """Start the thread."""
        self._thread.start()
        return self

    @property
    def has_arrived(self) -> bool:
        """Whether `pop_arrived` would return epochs."""
        return bool(self._arrived)

    def epoch_ended(self, number: int) -> None:
        """Expect epoch `number`, which has just ended, in the ledger."""
        self._ended, self._ended_at = number, self._clock()
        self._wake.set()

    def pop_arrived(self) -> list[EpochSummary]:
        """Return the epochs that have arrived since the last call."""
        arrived = self._arrived
        return [arrived.popleft() for _ in range(len(arrived))]

    def wait(self, timeout: float, rows_to: int = 0) -> None:
        """Wait at most `timeout` seconds for the epoch that ended last. If no daemon is running, do not wait.

        `rows_to`: in a run without epochs, wait until the rows of steps reach this step; otherwise 0.
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
            self._all.wait(_LAST_READ)
            if self._read is None and not self._rows_read:
                path = ledger_path(self._places) or "the state directory"
                warn_once(
                    "log_to nothing", f"log_to wrote nothing: no epoch of this run was in {path} after {timeout:g} s"
                )
        self._is_last = False
        self._waited.clear()

    def stop(self) -> None:
        """Stop reading."""
        self._over.set()
        self._waited.set()
        self._wake.set()

    def read(self) -> None:
        """Read new epochs from the ledger."""
        for path in ledger_paths(self._places):
            try:
                with Ledger(path) as ledger:
                    if run_id := ledger.run_of_rank(self._key):
                        self._read_run(ledger, run_id)
                        return
            except GpumonError as error:
                if str(error) == self._problem:  # it occurred twice, so it is not temporary like an incomplete file
                    warn_once("log_to ledger", f"log_to: {error}")
                self._problem = str(error)

    def _run(self) -> None:
        try:
            if not self._is_recorded():
                # No daemon writes the ledger after the daemon has ended, or while it plays a recording.
                state = self._daemon.state()
                reason = state.text if not state.live else "the daemon records no runs"
                warn_once("log_to", f"log_to has nothing to write yet: {reason or no_daemon(self._places)}")
            while not self._over.is_set():
                is_last = self._waited.is_set() and (self._is_last or not self._is_recorded())
                began = thread_time()
                self.read()
                pause = max(MIN_INTERVAL, (thread_time() - began) / _MAX_SHARE)
                has_all = self._read == self._ended and self._rows_read >= self._rows_to
                self._check_daemon(at_once=is_last and not has_all)
                if has_all or is_last:
                    self._all.set()
                self._wake.wait(self._interval())
                self._wake.clear()
                self._waited.wait(pause)  # limits the cost if epochs are short, or if the run has very many epochs
        except Exception as error:  # logging must never fail a training
            warn_once("log_to", f"log_to writes nothing more: {type(error).__name__}: {error}")
        finally:
            self._daemon.close()
            self._over.set()
            self._all.set()

    def _is_recorded(self) -> bool:
        """Return whether a daemon that records the runs of this machine is running."""
        return self._daemon.is_alive() and Capability.LIVE in self._daemon.origin().capabilities

    def _check_daemon(self, *, at_once: bool) -> None:
        """Warn once if values are missing because the daemon has ended.

        `at_once`: warn immediately, instead of first waiting for a restart of the daemon.
        """
        now = self._clock()
        if self._is_recorded():
            self._recorded_at = now
        elif self._recorded_at is not None and (
            at_once or (now - self._recorded_at > GONE_AFTER and (self._ended is None or self._ended != self._read))
        ):
            warn_once("log_to gone", "log_to: the daemon has stopped: epochs that it has not recorded are not written")

    def _interval(self) -> float | None:
        """Return the seconds until the next read; None if no read is needed before the next epoch ends."""
        if self._waited.is_set() and not self._all.is_set():
            return WAITING_INTERVAL
        since = self._clock() - self._ended_at
        if self._ended is None:  # a training without epochs does not report the ends of its rows of steps
            return MAX_INTERVAL
        return None if since > PATIENCE else min(MAX_INTERVAL, max(MIN_INTERVAL, since / 2))

    def _read_run(self, ledger: Ledger, run_id: str) -> None:
        with ledger.snapshot():
            settled = ledger.settled_epochs(run_id)
            record = ledger.record(run_id, phases=False, ordinals=range(self._next, self._next + MAX_EPOCHS))
        # After the end of the rank, nothing shows which epochs are settled.
        is_running = not any(is_known(rank.ended) for rank in record.ranks if rank.key == self._key)
        for epoch in aggregate.epoch_summaries(record):
            is_final = is_running and settled.has(epoch.ordinal)
            has_ended = is_known(epoch.ended)
            is_good = self._is_last or self._is_complete(epoch, record)
            if not is_final and not (self._waited.is_set() and has_ended and is_good):
                return
            self._next = epoch.ordinal + 1
            if has_ended:  # the values of an aborted epoch would not describe a whole epoch
                self._by_driver = self._by_driver or "driver" in epoch.utilization_from
                self._arrived.append(epoch)
                self._read = epoch.epoch

        for row in step_summaries(record) if not self._next else ():
            # Short rows are merged into one row. It ends with the last step of the last merged row.
            last_step = row.epoch + (row.steps or 0)
            is_final = is_running and row.ended + SETTLED_AFTER < record.run.updated
            is_good = self._is_last or self._is_complete(row, record)
            if last_step <= self._rows_read:
                continue
            if not is_final and not (self._waited.is_set() and is_known(row.ended) and is_good):
                break
            self._rows_read = last_step
            self._arrived.append(row)

    def _is_complete(self, epoch: EpochSummary, record: Record) -> bool:
        """Return whether the samples of an epoch are complete.

        They must reach the end of the epoch, and include the driver's own samples if earlier epochs have such samples.
        """
        if self._by_driver and "driver" not in epoch.utilization_from:
            return False
        # The last sample before the end counts until after the end. So only the energy counter shows whether the next
        # sample is still missing, which has the energy up to the end.
        rows = [row for row in record.whole_epochs if row.ordinal == epoch.ordinal]
        is_short = any(row.value("energy") < _COMPLETE * row.value("power_mean") * row.value("seconds") for row in rows)
        is_read = record.run.updated >= epoch.ended + self._daemon.interval()
        return is_read and not is_short and epoch.sampled_share >= _COMPLETE
