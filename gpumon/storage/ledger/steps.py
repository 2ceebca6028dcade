"""Rows of steps of a rank without epochs: what lies between the marks that its training made at round numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpumon.common.clock import SECOND
from gpumon.common.numbers import is_known
from gpumon.model.frame import EVALUATION, TRAINING, wait_between
from gpumon.model.steps import mark_size, row_size
from gpumon.storage.ledger.epoch import Moment

NO_ROW = -1
_MOST_ABSORBED = 4096
"""A training marks hundreds in its life; nothing asks for the rows that others absorbed longer ago."""


class StepStretch:
    """A stretch of a rank between two marks, or some of them behind each other."""

    def __init__(self, number: int, begun_ns: int, begin: Moment) -> None:
        self.number = number
        """Counts the marks of the rank: a row that absorbed others has the number of the first."""
        self.begun_ns = begun_ns
        """ns since 1970."""
        self.begin = begin
        self.end: Moment | None = None
        """None while it is open."""
        self.aside = 0.0
        """Seconds in evaluation, a checkpoint or another phase in which no step was made."""
        self.aside_steps = 0
        """Steps made in evaluation."""
        self.metrics: dict[str, float] = {}
        """Values that were logged in it last, by name."""

    def absorb(self, later: StepStretch) -> None:
        """Go on until the end of the row behind this one."""
        self.end = later.end
        self.aside += later.aside
        self.aside_steps += later.aside_steps
        self.metrics.update(later.metrics)

    def copy(self) -> StepStretch:
        """Return one that may absorb others."""
        return step_row_of(self.as_json())

    def columns(self, until: Moment) -> dict[str, Any]:
        """Its columns in the ledger, as far as it has come `until` where it is open."""
        end = self.end or until
        seconds = max(0, end.monotonic_ns - self.begin.monotonic_ns) / SECOND
        wait = wait_between(self.begin.wait, end.wait)
        trained = max(0.0, seconds - self.aside)
        return {
            "first_step": self.begin.step, "steps": max(0, end.step - self.begin.step - self.aside_steps),
            "begun": self.begun_ns, "ended": self.begun_ns + round(seconds * SECOND) if self.end else None,
            "seconds": seconds, "trained": trained or None, "wait": wait if is_known(wait) else None,
            "wait_of": trained if is_known(wait) and trained else None,
        }  # fmt: skip

    def as_json(self) -> list[Any]:
        """For `step_row_of`."""
        return [self.number, self.begun_ns, self.begin, self.end, self.aside, self.aside_steps, dict(self.metrics)]


def step_row_of(found: Sequence[Any]) -> StepStretch:
    """Restore the result of `StepStretch.as_json`."""
    number, begun_ns, begin, end, aside, aside_steps, metrics = found
    row = StepStretch(number, begun_ns, Moment(*begin))
    row.end = Moment(*end) if end else None
    row.aside, row.aside_steps, row.metrics = aside, aside_steps, dict(metrics)
    return row


class StepStretches:
    """The rows of a rank, in their order; none once it has an epoch. The last one is open."""

    def __init__(self) -> None:
        self.rows: list[StepStretch] = []
        self.absorbed: dict[int, int] = {}
        """Rows that were absorbed, and the number of the row that has them."""
        self._next = 0

    @property
    def current(self) -> int:
        """Number of the open row."""
        return self.rows[-1].number if self.rows else NO_ROW

    def begin(self, begun_ns: int, at: Moment) -> bool:
        """A row begins, where the one before ends; not where no step was made since, as an honest board never tells."""
        if self.rows:
            if at.step <= self.rows[-1].begin.step:
                return False
            self.rows[-1].end = at
            self._join(mark_size(at.step))
        self.rows.append(StepStretch(self._next, begun_ns, at))
        self._next += 1
        return True

    def end(self, at: Moment, metrics: Mapping[str, float]) -> None:
        """The run has ended, and with it its last row, in which these were logged."""
        if self.rows and self.rows[-1].end is None:
            self.rows[-1].end = at
            # What was logged behind the last step is of that step.
            told = self.rows[-2] if len(self.rows) > 1 and at.step == self.rows[-1].begin.step else self.rows[-1]
            told.metrics.update(metrics)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """These were logged at `step`, whose row may be over."""
        row = next((row for row in reversed(self.rows) if row.begin.step < step), None)
        if row is not None:
            row.metrics.update(metrics)

    def spent(self, phase: str, begin: Moment, end: Moment) -> None:
        """A stretch of a phase lay in the open row."""
        if self.rows and phase not in ("", TRAINING):
            steps = end.step - begin.step
            if phase in EVALUATION or not steps:
                self.rows[-1].aside += max(0, end.monotonic_ns - begin.monotonic_ns) / SECOND
                self.rows[-1].aside_steps += max(0, steps)

    def forget(self) -> None:
        """The training has epochs: nothing of its steps is a row."""
        self.rows, self.absorbed = [], {}

    def shown(self, steps: int) -> list[list[StepStretch]]:
        """The rows by those that stand together in one of a run that has made `steps`."""
        return _together(self.rows, row_size(steps))

    def resolve(self, number: int) -> int:
        """Return the number of the row that has this one."""
        while (into := self.absorbed.get(number)) is not None:
            number = into
        return number

    def as_json(self) -> list[Any]:
        """For `step_rows_of`."""
        return [[row.as_json() for row in self.rows], list(self.absorbed.items()), self._next]

    def _join(self, size: int) -> None:
        kept = []
        for group in _together(self.rows, size):
            for later in group[1:]:
                group[0].absorb(later)
                self.absorbed[later.number] = group[0].number
            kept.append(group[0])
        self.rows = kept
        while len(self.absorbed) > _MOST_ABSORBED:
            del self.absorbed[next(iter(self.absorbed))]


def step_rows_of(found: Sequence[Any]) -> StepStretches:
    """Restore the result of `StepStretches.as_json`."""
    rows = StepStretches()
    stored, absorbed, rows._next = found
    rows.rows, rows.absorbed = [step_row_of(row) for row in stored], dict(absorbed)
    return rows


def joined(group: Sequence[StepStretch]) -> StepStretch:
    """Rows behind each other as one."""
    row = group[0].copy()
    for later in group[1:]:
        row.absorb(later)
    return row


def _together(rows: Sequence[StepStretch], size: int) -> list[list[StepStretch]]:
    """Rows behind each other that make `size` steps together."""
    groups: list[list[StepStretch]] = []
    for row in rows:
        if groups and row.begin.step % size:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups
