"""The last runs of the ledger as a table in a notebook."""

from __future__ import annotations

import time

from gpumon.common.errors import GpumonError
from gpumon.common.paths import Places, ledger_path, ledger_paths
from gpumon.notebook.cell_report import html_table
from gpumon.reports import run_list
from gpumon.storage.ledger.reader import NOTHING, Ledgers
from gpumon.storage.sqlite.read import explain_absence


class RecordedRuns:
    """The last `number` runs. Raises GpumonError if no run has been recorded or no ledger can be read."""

    def __init__(self, places: Places, number: int) -> None:
        paths = ledger_paths(places)
        if not paths:
            raise GpumonError(explain_absence(places, ledger_path(places), NOTHING, "runs are not recorded"))
        with Ledgers(paths) as ledgers:
            self._runs = [summary for _, summary in ledgers.runs_with_ledger(limit=number)]
        self._now = time.time()

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        rows = list(run_list.run_rows(self._runs, self._now))
        kept = [index for index in range(len(run_list.COLUMNS)) if any(row[index] for row in rows)]
        columns = [run_list.COLUMNS[index] for index in kept]
        return {
            "text/plain": "\n".join(run_list.lines(self._runs, self._now, 0)),
            "text/html": html_table(columns, [[row[index] for index in kept] for row in rows]),
        }
