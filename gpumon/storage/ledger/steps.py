"""Rows of steps for a rank without epochs. Each row is a range of steps that starts at a round number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from gpumon.common.clock import SECOND
from gpumon.common.numbers import is_known
from gpumon.model.frame import EVALUATION, TRAINING, wait_between
from gpumon.model.steps import mark_size, row_size
from gpumon.storage.ledger.epoch import Moment

NO_ROW = -1
_MAX_ABSORBED = 4096
"""Maximum number of entries in `StepRanges.absorbed`. A training process makes some hundred marks in total."""


@dataclass(slots=True)
class StepRange:
    """A row of steps: the range between two marks of the training, or several such ranges merged into one."""

    number: int
    """Number of the mark at which the row starts, from 0. The row keeps this number when later rows are merged into
    it."""
    begun_ns: int
    """Start of the row, in ns since 1970."""
    begin: Moment
    end: Moment | None = None
    """End of the row; None while the row is open."""
    other_seconds: float = 0.0
    """Seconds in evaluation, checkpoints and other phases without training steps."""
    evaluation_steps: int = 0
    """Number of evaluation steps."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Last value of each metric logged in this range, by name."""

    def absorb(self, later: StepRange) -> None:
        """Merge `later`, which is the next row, into this row."""
        self.end = later.end
        self.other_seconds += later.other_seconds
        self.evaluation_steps += later.evaluation_steps
        self.metrics.update(later.metrics)

    def columns(self, until: Moment) -> dict[str, Any]:
        """Return the row's columns in the ledger. A row that has not ended is measured up to `until`."""
        end = self.end or until
        seconds = max(0, end.monotonic_ns - self.begin.monotonic_ns) / SECOND
        wait = wait_between(self.begin.wait, end.wait)
        trained = max(0.0, seconds - self.other_seconds)
        return {
            "first_step": self.begin.step, "steps": max(0, end.step - self.begin.step - self.evaluation_steps),
            "begun": self.begun_ns, "ended": self.begun_ns + round(seconds * SECOND) if self.end else None,
            "seconds": seconds, "trained": trained or None, "wait": wait if is_known(wait) else None,
            "wait_of": trained if is_known(wait) and trained else None,
        }  # fmt: skip

    @classmethod
    def from_json(cls, state: Sequence[Any]) -> StepRange:
        """Restore a row from the list of its fields."""
        number, begun_ns, begin, end, *rest = state
        return cls(number, begun_ns, Moment(*begin), Moment(*end) if end else None, *rest)


class StepRanges:
    """The rows of steps of a rank, oldest first.

    Only the newest is open. If the rank has an epoch, there are no rows.
    """

    def __init__(self) -> None:
        self.rows: list[StepRange] = []
        self.absorbed: dict[int, int] = {}
        """For the number of each merged row, the number of the row into which it was merged."""
        self._next = 0

    @property
    def current(self) -> int:
        """Number of the open row."""
        return self.rows[-1].number if self.rows else NO_ROW

    def begin(self, begun_ns: int, at: Moment) -> bool:
        """End the open row, start a new row, and return True.

        If the open row has no steps, nothing changes and the result is False. `begun_ns`: start of the new row in ns
        since 1970. `at`: the same time, with the steps and the wait up to then.
        """
        if self.rows:
            if at.step <= self.rows[-1].begin.step:
                return False
            self.rows[-1].end = at
            self._merge_rows(mark_size(at.step))
        self.rows.append(StepRange(self._next, begun_ns, at))
        self._next += 1
        return True

    def end(self, at: Moment, metrics: Mapping[str, float]) -> None:
        """End the open row because the run ends. `metrics` are the metrics logged at the end of the run."""
        if self.rows and self.rows[-1].end is None:
            self.rows[-1].end = at
            # Metrics logged after the last step belong to that step.
            row = self.rows[-2] if len(self.rows) > 1 and at.step == self.rows[-1].begin.step else self.rows[-1]
            row.metrics.update(metrics)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add metrics logged at `step` to the row that contains this step, even if that row has ended."""
        row = next((row for row in reversed(self.rows) if row.begin.step < step), None)
        if row is not None:
            row.metrics.update(metrics)

    def add_phase(self, phase: str, begin: Moment, end: Moment) -> None:
        """Add a phase that lasted from `begin` to `end` to the open row."""
        if self.rows and phase not in ("", TRAINING):
            steps = end.step - begin.step
            if phase in EVALUATION or not steps:
                self.rows[-1].other_seconds += max(0, end.monotonic_ns - begin.monotonic_ns) / SECOND
                self.rows[-1].evaluation_steps += max(0, steps)

    def clear(self) -> None:
        """Delete all rows, because the training has epochs."""
        self.rows, self.absorbed = [], {}

    def groups(self, steps: int) -> list[list[StepRange]]:
        """Return consecutive rows in groups. For a run with `steps` steps, each group becomes one row in the ledger."""
        return _group_rows(self.rows, row_size(steps))

    def resolve(self, number: int) -> int:
        """Return the number of the row into which the row with this number was merged.

        The same number is returned if the row was not merged.
        """
        while (into := self.absorbed.get(number)) is not None:
            number = into
        return number

    def as_json(self) -> list[Any]:
        """Return the state as JSON values, from which `from_json` restores it."""
        return [list(map(astuple, self.rows)), list(self.absorbed.items()), self._next]

    def _merge_rows(self, size: int) -> None:
        kept = []
        for group in _group_rows(self.rows, size):
            for later in group[1:]:
                group[0].absorb(later)
                self.absorbed[later.number] = group[0].number
            kept.append(group[0])
        self.rows = kept
        while len(self.absorbed) > _MAX_ABSORBED:
            del self.absorbed[next(iter(self.absorbed))]

    @classmethod
    def from_json(cls, state: Sequence[Any]) -> StepRanges:
        rows = cls()
        stored, absorbed, rows._next = state
        rows.rows, rows.absorbed = [StepRange.from_json(row) for row in stored], dict(absorbed)
        return rows


def join_rows(group: Sequence[StepRange]) -> StepRange:
    """Return consecutive rows merged into one."""
    row = replace(group[0], metrics=dict(group[0].metrics))
    for later in group[1:]:
        row.absorb(later)
    return row


def _group_rows(rows: Sequence[StepRange], size: int) -> list[list[StepRange]]:
    """Group consecutive rows so that each group starts at a multiple of `size` steps."""
    groups: list[list[StepRange]] = []
    for row in rows:
        if groups and row.begin.step % size:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups
