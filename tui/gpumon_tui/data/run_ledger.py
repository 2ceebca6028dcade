"""Runs as the ledgers tell of them: read for the view in a thread beside it, and changed by nobody here."""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING, Any, TypeVar

from gpumon.common.errors import GpumonError
from gpumon_tui.background import OFTEN, Answer, Asked

if TYPE_CHECKING:
    from gpumon.common.config import Prices
    from gpumon.storage.ledger.reader import Ledger, Ledgers
    from gpumon.storage.ledger.records import Record
    from gpumon_tui.data.run_detail import EndedEpoch
    from gpumon_tui.data.run_list import ListedRuns
    from gpumon_tui.data.run_rows import ComparedRuns, ListedRun, OpenRun, RunDetail

T = TypeVar("T")
OpenLedgers = Callable[[], "Ledgers"]
"""Opens the ledgers that this user may read. Raises GpumonError."""
LONG = 600.0
"""Seconds for which an answer about a run is good that is settled in its ledger, too: a frame may know of an end before
the ledger has all that was measured and logged until then."""
FRESH = 2.0
"""Seconds for which an answer about runs that go on is good while somebody reads about runs: a daemon writes the end of
an epoch at once, so that the list and an opened run tell the same."""
OPENED_KEPT = 4
"""Runs that are kept with all their rows: one of thousands of epochs takes megabytes."""
_NO_LEDGER: Answer[Any] = Answer(None, "no ledger is read here")


class KeptRuns:
    """Runs of the ledgers. Without `open_ledgers` nothing is known of any."""

    def __init__(self, open_ledgers: OpenLedgers | None = None, clock: Callable[[], float] = time) -> None:
        self.asked = Asked()
        self._open = open_ledgers
        self._clock = clock
        self._runs: ListedRuns | None = None
        """The runs that have been read."""
        self._opened: list[tuple[str, str, bool]] = []
        """Questions of runs with all their rows, the latest last."""
        self.is_away: Callable[[], bool] = lambda: False
        """Whether what is on screen is a simulation: its runs are not those of this machine."""
        self.simulated: OpenLedgers | None = None
        """Opens the ledger of that; without it nothing is known of any of its runs."""
        self.prices: Prices | None = None
        """Costs of runs, where prices are configured."""

    def now(self) -> float:
        """The time by which runs and accounts are judged, s since 1970."""
        return self._clock()

    @property
    def can_read(self) -> bool:
        """Whether there are ledgers to read at all."""
        return self._opens is not None

    @property
    def _opens(self) -> OpenLedgers | None:
        return self.simulated if self.is_away() else self._open

    @property
    def is_all_listed(self) -> bool:
        """Whether the last answer of `listed` has every run: the first one has the newest alone."""
        return self._runs is None or self._runs.is_all

    def listed(self) -> Answer[list[ListedRun]]:
        """Every run, the newest first."""

        def read(ledgers: Ledgers) -> list[ListedRun]:
            from gpumon_tui.data.run_list import ListedRuns

            self._runs = self._runs or ListedRuns()
            return self._runs.read(ledgers, self._clock())

        # The first answer has the newest runs alone: the others are read at once.
        return self._ask(("listed",), read, lambda _: FRESH if self.is_all_listed else 0.0)

    def detail(self, run_id: str, *, is_over: bool) -> Answer[RunDetail]:
        """A run in a few more words, for its row of the list."""

        def read(ledgers: Ledgers) -> RunDetail:
            from gpumon_tui.data.run_list import detail

            return detail(*self._found(ledgers, run_id))

        return self._ask(("detail", run_id, is_over), read, lambda found: LONG if found.is_settled else OFTEN)

    def opened(self, run_id: str, *, is_over: bool, good_for: float = OFTEN) -> Answer[OpenRun]:
        """A run with all its rows; of one that goes on the answer is good for so many seconds."""

        def read(ledgers: Ledgers) -> OpenRun:
            from gpumon_tui.data.run_detail import opened

            ledger, _, now = self._found(ledgers, run_id)
            return opened(ledger.record(run_id, phases=False, times=True), now, self.prices)

        question = "opened", run_id, is_over
        self._opened = [*(one for one in self._opened if one != question), question]
        for past in self._opened[:-OPENED_KEPT]:
            self.asked.drop(past)
        del self._opened[:-OPENED_KEPT]
        return self._ask(question, read, lambda found: LONG if found.record.run.is_settled(self._clock()) else good_for)

    def ended_epoch(self, run_id: str, number: int) -> Answer[EndedEpoch]:
        """An epoch of a run that is in the next one."""

        def read(ledgers: Ledgers) -> EndedEpoch:
            from gpumon_tui.data.run_detail import ended_epoch

            return ended_epoch(*self._found(ledgers, run_id)[:2], number)

        return self._ask(("ended", run_id, number), read, lambda _: LONG)  # while it is not written, ask often

    def renew(self, run_id: str) -> None:
        """Read a run that goes on anew when it is asked for next: what other parts know of it may be of before."""
        self.asked.forget(("opened", run_id, False))

    def forget(self) -> None:
        """Know nothing any more: what is on screen now has a ledger of its own, as another place of a recording."""
        self.asked.forget_all()
        self._runs = None
        self._opened = []

    def compared(self, baseline: str, other: str) -> Answer[ComparedRuns]:
        """Two runs side by side."""

        def read(ledgers: Ledgers) -> ComparedRuns:
            from gpumon_tui.data.run_detail import compared

            def record(run_id: str) -> Record:
                ledger, _, _ = self._found(ledgers, run_id)
                return ledger.record(run_id, phases=False)

            return compared(record(baseline), record(other))

        return self._ask(("compared", baseline, other), read, LONG)

    def report(self, run_id: str, number: int, directory: str) -> Answer[str]:
        """The path of the report that was written as the `number`-th of this view."""

        def write(ledgers: Ledgers) -> str:
            from gpumon_tui.data.run_detail import write_report

            return write_report(*self._found(ledgers, run_id), directory)

        return self._ask(("report", run_id, number), write, float("inf"))

    def _ask(
        self, question: tuple[Any, ...], read: Callable[[Ledgers], T], good_for: float | Callable[[T], float] = OFTEN
    ) -> Answer[T]:
        open_ledgers = self._opens
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
