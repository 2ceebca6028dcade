"""Runs as the ledgers tell of them: read for the view in a thread beside it, and changed by nobody here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import time
from typing import TYPE_CHECKING, NamedTuple

from gpumon.errors import GpumonError
from gpumon_tui.asked import NOT_YET, Answer, Asked

if TYPE_CHECKING:
    from gpumon.ledger.epoch_summary import EpochSummary
    from gpumon.ledger.reader import Ledgers
    from gpumon.ledger.records import Record, RunRow

OpenLedgers = Callable[[], "Ledgers"]
"""Opens the ledgers that this user may read. Raises GpumonError."""


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

    def outside(self, run_id: str) -> Answer[Outside]:
        """A run of this id, but for its epochs."""
        opened = self._open
        if opened is None:
            return NOT_YET

        def read() -> Outside:
            from gpumon.ledger.find import find

            with opened() as ledgers:
                ledger, found = find(ledgers, run_id, self._clock())
                if found.id != run_id:
                    raise GpumonError(f"no run {run_id}")
                return outside(ledger.record(found.id, phases=False), self._clock())

        return self.asked.ask(("outside", run_id), read)


def outside(record: Record, now: float) -> Outside:
    """The rows of a run beside its epochs, and beside its steps."""
    from gpumon.ledger import aggregate
    from gpumon.ledger.schema import STEP_ROWS
    from gpumon.reports.run_tables import outside_rows

    epochs = aggregate.epochs(record)
    total = aggregate.whole(record, epochs, now)
    rows = outside_rows(record, epochs, total, phases=True)
    return Outside(record.run, total, [row for row in rows if row[1].ordinal > STEP_ROWS], len(record.devices))
