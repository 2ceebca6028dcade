"""Findings for the frame on screen, re-evaluated every few seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.diagnosis.finding import Finding, FindingGroup, Severity, group_findings, one_per_subject_first
from gpumon.diagnosis.live_findings import findings, is_recent
from gpumon.model import units
from gpumon.model.frame import RunState
from gpumon.model.metrics import Availability
from gpumon_tui.cache import Cache

if TYPE_CHECKING:
    from gpumon_tui.state import View

EVALUATE_EVERY = 5.0
"""Seconds between evaluations.

A changed state of a GPU or run, or a longer silence of one, triggers an evaluation at once.
"""
_SHOWN_IN_ROW = "free"
"""Kind of finding already shown in the row of its GPU."""


class FrameFindings:
    """Findings shown by a view: warnings first, then notes."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._evaluated: Cache[list[Finding]] = Cache()
        self._groups: Cache[list[FindingGroup]] = Cache()
        self._inputs: tuple[object, ...] = ()
        self._findings: list[Finding] = []

    def all(self) -> list[Finding]:
        """Return all findings for the frame on screen, the most severe first."""
        view = self._view
        frame, inputs = view.frame, (view.frame, view.age > 0, view.is_loading)
        if frame is None:
            return []
        if inputs == self._inputs:
            return self._findings

        def evaluate() -> list[Finding]:
            evaluated = findings(
                statuses, view.ranks, view.epochs, frame.time, view.history, monotonic_ns=frame.monotonic_ns
            )
            if recorded:
                from gpumon.diagnosis.running_findings import add_recorded

                evaluated = add_recorded(evaluated, recorded)
            return [finding for finding in evaluated if finding.kind != _SHOWN_IN_ROW and is_recent(finding)]

        statuses = view.statuses
        running = sorted({ranks.first.id for ranks in view.ranks if ranks.state is RunState.RUNNING})
        recorded = view.ledger_runs.findings(running) if view.age == 0 else {}
        runs = tuple((run.key, run.state, run.memory.ooms) for run in frame.runs)
        states = tuple(status.state for status in statuses)
        # Ages as displayed, so that a finding shows the same age as the row of its GPU and appears together with it.
        ages = tuple(units.duration(finding.age) for finding in frame.samples if finding.state is Availability.STALE)
        cache_inputs = frame.time // EVALUATE_EVERY, states, ages, runs, view.age > 0, view.is_loading, recorded
        self._findings, self._inputs = self._evaluated.get(0, cache_inputs, evaluate), inputs
        return self._findings

    def warnings(self) -> list[Finding]:
        """Return the findings that need attention."""
        return [finding for finding in self.all() if finding.severity is not Severity.INFO]

    def groups(self) -> list[FindingGroup]:
        """Return the findings that need attention, with equal findings of several GPUs merged.

        The first finding of each GPU and run comes before any further ones.
        """
        warnings = self.warnings()
        return self._groups.get("pressing", warnings, lambda: one_per_subject_first(group_findings(warnings)))

    def notes(self) -> list[FindingGroup]:
        """Return the informational findings. Equal findings of several GPUs are one group."""
        informational = [finding for finding in self.all() if finding.severity is Severity.INFO]
        return self._groups.get("notes", informational, lambda: group_findings(informational))
