"""Runs from the ledgers, read in a background thread; this module never writes to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from time import time
from typing import TYPE_CHECKING, Any, TypeVar

from gpumon.common.errors import GpumonError
from gpumon_tui.background_queries import ACTIVE_VALID_FOR, Answer, BackgroundQueries

if TYPE_CHECKING:
    from gpumon.common.config import Prices
    from gpumon.diagnosis.running_findings import RecordedFindings
    from gpumon.storage.ledger.reader import Ledger, Ledgers
    from gpumon.storage.ledger.records import Record
    from gpumon_tui.data.run_reader import EndedEpoch, ListedRuns
    from gpumon_tui.data.run_rows import ComparedRuns, ListedRun, OpenRun, RunDetail

T = TypeVar("T")
OpenLedgers = Callable[[], "Ledgers"]
"""Opens the ledgers that this user can read. Raises GpumonError."""
LONG = 600.0
"""Seconds for which an answer about an ended run stays valid.

Not forever, because a frame may show the end before the ledger has all values.
"""
FRESH = 2.0
"""Seconds for which an answer about active runs stays valid while a page about runs is open.

It is short so that the list and the opened run agree: the daemon writes the end of an epoch at once.
"""
FINDINGS = 30.0
"""Seconds for which the findings about running runs stay valid: their rules need minutes."""
OPENED_KEPT = 4
"""Number of opened runs cached with all their rows; a run with thousands of epochs takes megabytes."""
_NO_LEDGER: Answer[Any] = Answer(None, "no ledger is read here")


class LedgerRuns:
    """Runs from the ledgers; empty without `open_ledgers`."""

    def __init__(self, open_ledgers: OpenLedgers | None = None, clock: Callable[[], float] = time) -> None:
        self.queries = BackgroundQueries()
        self._open = open_ledgers
        self._clock = clock
        self._runs: ListedRuns | None = None
        """Runs read so far."""
        self._opened: list[tuple[str, str, bool]] = []
        """Queries of opened runs, latest last."""
        self.is_simulation: Callable[[], bool] = lambda: False
        """Returns whether the view shows a simulation, whose runs are not in this machine's ledgers."""
        self.simulated: OpenLedgers | None = None
        """Opens the ledgers of the simulation; None if they are not available."""
        self.prices: Prices | None = None
        """Prices for the costs of runs, if configured."""

    def now(self) -> float:
        """Return the reference time for runs and accounts (s since 1970)."""
        return self._clock()

    @property
    def can_read(self) -> bool:
        """Whether there are ledgers to read."""
        return self._opener is not None

    @property
    def _opener(self) -> OpenLedgers | None:
        return self.simulated if self.is_simulation() else self._open

    @property
    def is_all_listed(self) -> bool:
        """Whether the last answer of `listed` contains every run; the first answer has only the newest."""
        return self._runs is None or self._runs.is_all

    def listed(self) -> Answer[list[ListedRun]]:
        """Return all runs, newest first."""

        def read(ledgers: Ledgers) -> list[ListedRun]:
            from gpumon_tui.data.run_reader import ListedRuns

            self._runs = self._runs or ListedRuns()
            return self._runs.read(ledgers, self._clock())

        # The first answer contains only the newest runs, so the query is repeated at once.
        return self._query(("listed",), read, lambda _: FRESH if self.is_all_listed else 0.0)

    def detail(self, run_id: str, *, is_over: bool) -> Answer[RunDetail]:
        """Return further details of a run, for its row in the list."""

        def read(ledgers: Ledgers) -> RunDetail:
            from gpumon_tui.data.run_reader import detail

            return detail(*self._find(ledgers, run_id))

        return self._query(("detail", run_id, is_over), read, lambda run: LONG if run.is_settled else ACTIVE_VALID_FOR)

    def opened(self, run_id: str, *, is_over: bool, valid_for: float = ACTIVE_VALID_FOR) -> Answer[OpenRun]:
        """Return a run with all its rows; for an active run the answer stays valid for `valid_for` seconds."""

        def read(ledgers: Ledgers) -> OpenRun:
            from gpumon_tui.data.run_reader import open_run

            ledger, _, now = self._find(ledgers, run_id)
            return open_run(ledger.record(run_id, phases=False, times=True), now, self.prices)

        key = "opened", run_id, is_over
        self._opened = [*(query for query in self._opened if query != key), key]
        for dropped in self._opened[:-OPENED_KEPT]:
            self.queries.drop(dropped)
        del self._opened[:-OPENED_KEPT]
        return self._query(key, read, lambda run: LONG if run.record.run.is_settled(self._clock()) else valid_for)

    def ended_epoch(self, run_id: str, number: int) -> Answer[EndedEpoch]:
        """Return an ended epoch of a run that is already in its next epoch."""

        def read(ledgers: Ledgers) -> EndedEpoch:
            from gpumon_tui.data.run_reader import ended_epoch

            return ended_epoch(*self._find(ledgers, run_id)[:2], number)

        return self._query(("ended", run_id, number), read, lambda _: LONG)  # until then, queried often

    def findings(self, run_ids: Sequence[str]) -> Mapping[str, RecordedFindings]:
        """Return the last known findings about running runs by their records, by id."""

        def read(ledgers: Ledgers) -> Mapping[str, RecordedFindings]:
            from gpumon.diagnosis.running_findings import read_findings

            return read_findings(ledgers, run_ids, self._clock())

        return self._query(("findings", tuple(run_ids)), read, FINDINGS).result or {} if run_ids else {}

    def expire(self, run_id: str) -> None:
        """Expire the answer about an active run, because other parts of the view already have newer data."""
        self.queries.expire(("opened", run_id, False))

    def forget(self) -> None:
        """Drop all answers: the source on screen has another ledger, for example after a seek."""
        self.queries.clear()
        self._runs = None
        self._opened = []

    def compared(self, baseline: str, other: str) -> Answer[ComparedRuns]:
        """Return the comparison of two runs."""

        def read(ledgers: Ledgers) -> ComparedRuns:
            from gpumon_tui.data.run_reader import compare_runs

            def record(run_id: str) -> Record:
                ledger, _, _ = self._find(ledgers, run_id)
                return ledger.record(run_id, phases=False)

            return compare_runs(record(baseline), record(other))

        return self._query(("compared", baseline, other), read, LONG)

    def report(self, run_id: str, number: int, directory: str) -> Answer[str]:
        """Write a report of a run and return its path; `number` counts the reports written by this view."""

        def write(ledgers: Ledgers) -> str:
            from gpumon_tui.data.run_reader import write_report

            return write_report(*self._find(ledgers, run_id), directory)

        return self._query(("report", run_id, number), write, inf)

    def _query(
        self,
        key: tuple[Any, ...],
        read: Callable[[Ledgers], T],
        valid_for: float | Callable[[T], float] = ACTIVE_VALID_FOR,
    ) -> Answer[T]:
        open_ledgers = self._opener
        if open_ledgers is None:
            return _NO_LEDGER

        def query() -> T:
            with open_ledgers() as ledgers:
                return read(ledgers)

        return self.queries.get(key, query, valid_for)

    def _find(self, ledgers: Ledgers, run_id: str) -> tuple[Ledger, str, float]:
        """Return the ledger that contains a run, the run's id, and the current time.

        Raises GpumonError if no ledger contains it.
        """
        for ledger, run in ledgers.candidates(run_id):
            if run.id == run_id:
                return ledger, run_id, self._clock()
        raise GpumonError("no ledger has this run: one is kept while 'gpumon daemon' runs")
