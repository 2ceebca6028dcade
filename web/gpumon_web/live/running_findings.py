"""Findings of the ledger about runs that are running, read again every half minute in a thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future

from gpumon.diagnosis.running_findings import RecordedFindings, read_findings
from gpumon.storage.ledger.reader import Ledgers
from gpumon_web.jobs import Work

READ_EVERY = 30.0
"""Seconds between two reads of the ledger."""


class RunningFindings:
    """The last findings that were read. `paths` returns the paths of the ledgers, and is called by `work`."""

    def __init__(
        self, work: Work, paths: Callable[[], Sequence[str]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._work = work
        self._paths = paths
        self._clock = clock
        self._known: Mapping[str, RecordedFindings] = {}
        self._read_at = -READ_EVERY
        self._is_reading = False

    def of_runs(self, run_ids: Sequence[str]) -> Mapping[str, RecordedFindings]:
        """Return the last findings about these runs by id, without waiting, and read them again if they are old."""
        if run_ids and not self._is_reading and self._clock() - self._read_at >= READ_EVERY:
            self._is_reading = True
            self._work.ask(_read, lambda: (self._paths(), run_ids)).add_done_callback(self._finish)
        return {run_id: self._known[run_id] for run_id in run_ids if run_id in self._known}

    def _finish(self, future: Future[Mapping[str, RecordedFindings]]) -> None:
        try:
            self._known = future.result()
        except Exception:  # the pages about runs say why the ledger cannot be read
            self._known = {}
        self._read_at = self._clock()
        self._is_reading = False


def _read(paths: Sequence[str], run_ids: Sequence[str]) -> Mapping[str, RecordedFindings]:
    with Ledgers(paths) as ledgers:
        return read_findings(ledgers, run_ids, time.time())
