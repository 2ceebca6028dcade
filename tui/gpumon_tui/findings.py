"""Findings for the frame on screen, re-evaluated every few seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.diagnosis.finding import Finding, FindingGroup, Severity, group_findings, one_per_subject_first
from gpumon.diagnosis.live_findings import findings, is_recent
from gpumon.model import units
from gpumon.model.metrics import Availability
from gpumon_tui.memo import Memo

if TYPE_CHECKING:
    from gpumon_tui.state import View

EVERY = 5.0
"""Seconds between evaluations.

A changed state of a GPU or run, or a longer silence of one, triggers an evaluation at once.
"""
_SHOWN_ELSEWHERE = "free"
"""Kind of finding already shown in the row of its GPU."""


class ToldFindings:
    """Findings shown by a view: warnings first, then notes."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._judged: Memo[list[Finding]] = Memo()
        self._groups: Memo[list[FindingGroup]] = Memo()
        self._of: tuple[object, ...] = ()
        self._found: list[Finding] = []

    def all(self) -> list[Finding]:
        """Return all findings for the frame on screen, the most severe first."""
        view = self._view
        frame, of = view.frame, (view.frame, view.age > 0, view.filling)
        if frame is None:
            return []
        if of == self._of:
            return self._found

        def found() -> list[Finding]:
            all_found = findings(
                statuses, view.ranks, view.epochs, frame.time, view.history, monotonic_ns=frame.monotonic_ns
            )
            return [one for one in all_found if one.kind != _SHOWN_ELSEWHERE and is_recent(one)]

        statuses = view.statuses
        runs = tuple((run.key, run.state, run.memory.ooms) for run in frame.runs)
        states = tuple(status.state for status in statuses)
        # Ages as displayed, so that a finding shows the same age as the row of its GPU and appears together with it.
        silent = tuple(units.duration(one.age) for one in frame.samples if one.state is Availability.STALE)
        shows = frame.time // EVERY, states, silent, runs, view.age > 0, view.filling
        self._found, self._of = self._judged.get(0, shows, found), of
        return self._found

    def pressing(self) -> list[Finding]:
        """Return the findings that need attention."""
        return [one for one in self.all() if one.severity is not Severity.INFO]

    def groups(self) -> list[FindingGroup]:
        """Return the findings that need attention, with equal findings of several GPUs merged.

        The first finding of each GPU and run comes before any further ones.
        """
        found = self.pressing()
        return self._groups.get("pressing", found, lambda: one_per_subject_first(group_findings(found)))

    def notes(self) -> list[FindingGroup]:
        """Return the informational findings, grouped in the same way."""
        found = [one for one in self.all() if one.severity is Severity.INFO]
        return self._groups.get("notes", found, lambda: group_findings(found))
