"""Round numbers of steps at which the rows of a training without epochs end.

Rows become longer as it goes on, so that what is published grows with the logarithm of its length.
"""

from __future__ import annotations

from typing import NamedTuple

from gpumon.model.steps import mark_size
from gpumon.tags.wire import NOT_KNOWN


class RowEnd(NamedTuple):
    """A moment at which a training had made a round number of steps."""

    step: int
    monotonic_ns: int
    wait_ns: int


class StepMarker:
    """Follows the steps of one run, as often as they are published."""

    def __init__(self) -> None:
        self._before = RowEnd(0, 0, 0)
        self._size = 1
        self.ended = 0
        """The step with which the newest row ended; 0 before the first."""
        self.next = 0
        """The step with which the next one ends, unless rows have become longer by then."""

    def passed(self, now: RowEnd) -> list[RowEnd]:
        """The ends of rows that lie between the last call and this one.

        Between two calls, which are 50 ms apart at most while steps are fast, steps are taken to be equally long.
        """
        before = self._before
        self.note(now)
        size = self._size
        # Of what came before the first call it is unknown when each step was made.
        first = before.step // size * size + size if before.monotonic_ns else max(size, now.step // size * size)
        ends = [_between(before, now, step) for step in range(first, now.step + 1, size)]
        if ends:
            self.ended = ends[-1].step
        return ends

    def note(self, now: RowEnd) -> None:
        """Note where the training stands when something else was published: no row ends before it."""
        self._before = now
        self._size = size = mark_size(now.step)
        self.next = now.step // size * size + size

    def end_of(self, step: int) -> int:
        """Return the step with which the row of `step` ends, as long as rows are now."""
        return -(-step // self._size) * self._size


def _between(before: RowEnd, now: RowEnd, step: int) -> RowEnd:
    """The moment at which a training that was here and there made that step."""
    if not before.monotonic_ns or step == now.step or NOT_KNOWN in (before.wait_ns, now.wait_ns):
        return now._replace(step=step)
    share = (step - before.step) / (now.step - before.step)
    return RowEnd(
        step=step,
        monotonic_ns=before.monotonic_ns + round(share * (now.monotonic_ns - before.monotonic_ns)),
        wait_ns=before.wait_ns + round(share * (now.wait_ns - before.wait_ns)),
    )
