"""Runs as the ledgers tell of them: read for the view in a thread beside it, and changed by nobody here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gpumon.errors import GpumonError
from gpumon_tui.asked import OFTEN, Answer, Asked

if TYPE_CHECKING:
    from gpumon.ledger.epoch_summary import EpochSummary
    from gpumon.ledger.reader import Ledger, Ledgers
    from gpumon.ledger.records import Record, RunRow
    from gpumon_tui.run_reading import ComparedRuns, ListedRun, OpenRun, RunDetail

T = TypeVar("T")
OpenLedgers = Callable[[], "Ledgers"]
"""Opens the ledgers that this user may read. Raises GpumonError."""
LONG = 600.0
"""Seconds for which an answer about a run that is over is good."""
_NO_LEDGER: Answer[Any] = Answer(None, "no ledger is read here")


class Outside(NamedTuple):
    """A run but for its epochs: the rows of `gpumon runs show` beside them."""

    run: RunRow
    total: EpochSummary
    rows: Sequence[tuple[str, EpochSummary]]
    """All between epochs, then each phase of it, with titles."""
    devices: int


class KeptRuns:
    """Runs of the ledgers. Without `open_ledgers` nothing is known of any."""

    def __init__(self, open_ledgers: OpenLedgers | None = None, clock: Callable[[], float] = time) -> None:
        self.asked = Asked()
        self._open = open_ledgers
        self._clock = clock
        self._listed: list[ListedRun] = []
        self._stamps: object = None
        """Of the files that these are of."""

    def listed(self) -> Answer[list[ListedRun]]:
        """Every run, the newest first."""

        def read(ledgers: Ledgers) -> list[ListedRun]:
            from gpumon_tui.run_reading import listed, stamps

            now = stamps(ledgers)
            # What is said of a run that goes on depends on the time, too.
            if now != self._stamps or any(not run.is_over for run in self._listed):
                self._listed, self._stamps = listed(ledgers, self._clock()), now
            return self._listed

        return self._ask(("listed",), read)

    def detail(self, run_id: str, *, is_over: bool) -> Answer[RunDetail]:
        """A run in a few more words, for its row of the list."""

        def read(ledgers: Ledgers) -> RunDetail:
            from gpumon_tui.run_reading import detail

            return detail(*self._found(ledgers, run_id))

        return self._ask(("detail", run_id, is_over), read, LONG if is_over else OFTEN)

    def opened(self, run_id: str, *, is_over: bool) -> Answer[OpenRun]:
        """A run with all its rows."""

        def read(ledgers: Ledgers) -> OpenRun:
            from gpumon_tui.run_reading import opened

            return opened(*self._found(ledgers, run_id))

        return self._ask(("opened", run_id, is_over), read, LONG if is_over else OFTEN)

    def compared(self, baseline: str, other: str) -> Answer[ComparedRuns]:
        """Two runs side by side."""

        def read(ledgers: Ledgers) -> ComparedRuns:
            from gpumon_tui.run_reading import compared

            def record(run_id: str) -> Record:
                ledger, _, _ = self._found(ledgers, run_id)
                return ledger.record(run_id, phases=False)

            return compared(record(baseline), record(other))

        return self._ask(("compared", baseline, other), read, LONG)

    def report(self, run_id: str, number: int, directory: str) -> Answer[str]:
        """The path of the report that was written as the `number`-th of this view."""

        def write(ledgers: Ledgers) -> str:
            from gpumon_tui.run_reading import write_report

            return write_report(*self._found(ledgers, run_id), directory)

        return self._ask(("report", run_id, number), write, float("inf"))

    def outside(self, run_id: str) -> Answer[Outside]:
        """A run of this id, but for its epochs."""

        def read(ledgers: Ledgers) -> Outside:
            ledger, _, now = self._found(ledgers, run_id)
            return outside(ledger.record(run_id, phases=False), now)

        return self._ask(("outside", run_id), read)

    def _ask(self, question: tuple[Any, ...], read: Callable[[Ledgers], T], good_for: float = OFTEN) -> Answer[T]:
        open_ledgers = self._open
        if open_ledgers is None:
            return _NO_LEDGER

        def answer() -> T:
            with open_ledgers() as ledgers:
                return read(ledgers)

        return self.asked.ask(question, answer, good_for)

    def _found(self, ledgers: Ledgers, run_id: str) -> tuple[Ledger, str, float]:
        """The ledger that has a run, its id, and now. Raises GpumonError where none has it."""
        for ledger, run in ledgers.candidates(run_id):
            if run.id == run_id:
                return ledger, run_id, self._clock()
        raise GpumonError("no ledger has this run: one is kept while 'gpumon daemon' runs")


def outside(record: Record, now: float) -> Outside:
    """The rows of a run beside its epochs, and beside its steps."""
    from gpumon.ledger import aggregate
    from gpumon.ledger.schema import STEP_ROWS
    from gpumon.reports.run_tables import outside_rows

    epochs = aggregate.epochs(record)
    total = aggregate.whole(record, epochs, now)
    rows = outside_rows(record, epochs, total, phases=True)
    return Outside(record.run, total, [row for row in rows if row[1].ordinal > STEP_ROWS], len(record.devices))
