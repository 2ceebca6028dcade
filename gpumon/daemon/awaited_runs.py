"""A ledger for what is only looked at, such as a simulation: opened when there is a run, so that others pay nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence

from gpumon.model.frame import Tick
from gpumon.storage.follower import LEDGER, Follower

_OPENED = 2.0
"""Seconds for which frames wait for their ledger to be opened, at most; on a machine that is not busy it takes ms."""
_BEFORE = 8
"""Newest ticks that are handed on with the first run: it may have begun before it was seen."""


class AwaitedRuns:
    """Hands ticks to the ledger that `make` opens with the first one that tells of a run: it gets the keys of those."""

    name = LEDGER
    writes = "records of runs"

    def __init__(self, make: Callable[[Collection[str]], Follower]) -> None:
        self._make = make
        self._before: deque[Tick] = deque(maxlen=_BEFORE)
        self._ledger: Follower | None = None

    @property
    def problem(self) -> str:
        """Why the file cannot be written just now, for people; else empty."""
        return self._ledger.problem if self._ledger is not None else ""

    def add(self, tick: Tick) -> None:
        """Take a tick."""
        if self._ledger is None:
            self._before.append(tick)
            if not (tick.runs or tick.boundaries):
                return
            self._ledger = self._make({run.key for run in tick.runs})
            for earlier in self._before:
                self._ledger.add(earlier)
            self._before.clear()
        else:
            self._ledger.add(tick)

    def begin_anew(self) -> None:
        """Finish the ledger, and open another with the next run: what comes does not follow what is in it."""
        self.close()
        self._ledger = None
        self._before.clear()

    def close(self) -> None:
        """Finish the ledger, where one was opened."""
        if self._ledger is not None:
            self._ledger.close()


def runs_at(
    path: Callable[[], str], uid: int, say: Callable[[str], object], *, waits: bool, shared: bool = False,
    earlier: Callable[[], Sequence[str]] = tuple,
) -> AwaitedRuns:  # fmt: skip
    """Runs that are kept in the ledger whose `path` is asked for with the first of them.

    `waits`: frames wait for it to be opened, where minutes of them come at once; `shared`: others may read it; `say`
    is told, in a line, what goes wrong. `earlier` gives ledgers that may have the same runs from before: these are
    continued.
    """

    def opened(keys: Collection[str]) -> Follower:
        from gpumon.storage.ledger.recorder import LedgerRecorder  # SQLite: only who keeps runs needs it
        from gpumon.storage.ledger.writer import Store

        own = path()

        def begin() -> None:
            from gpumon.storage.ledger.recorder import carry_over

            carry_over(own, earlier(), keys, uid, say)

        store = Store(own, uid, say, shared=shared, begin=begin).start()
        if waits:
            store.wait_until_open(_OPENED)
        return LedgerRecorder(store, keep=True)

    return AwaitedRuns(opened)
