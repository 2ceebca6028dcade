"""Round numbers of steps at which the rows of a training without epochs end.

Rows become longer as it goes on, so that what is published grows with the logarithm of its length.
"""

from __future__ import annotations

from typing import NamedTuple

from gpumon.step_size import mark_size
from gpumon.tags.wire import NOT_KNOWN


class RowEnd(NamedTuple):
    """A moment at which a training had made a round number of steps."""

    step: int
    monotonic_ns: int
    wait_ns: int


class StepMarker:
    """Follows the steps of one run, as often as they are published."""

    def __init__(self) -> None:
        self.next = 1
        """The step from which `passed` has more to tell."""
        self._told = 0
        self._before = RowEnd(0, 0, 0)

    def passed(self, now: RowEnd) -> RowEnd | None:
        """The end of a row that lies between this and the last call, if any.

        Between two calls, which are 50 ms apart at most while steps are fast, steps are taken to be equally long.
        """
        before, self._before = self._before, now
        if now.step < self.next:
            return None
        size = mark_size(now.step)
        end = now.step // size * size
        self.next = end + size
        if end <= self._told:
            return None
        self._told = end
        if not before.monotonic_ns or end <= before.step or end == now.step or NOT_KNOWN in (before[2], now[2]):
            return now._replace(step=end)
        share = (end - before.step) / (now.step - before.step)
        return RowEnd(
            step=end,
            monotonic_ns=before.monotonic_ns + round(share * (now.monotonic_ns - before.monotonic_ns)),
            wait_ns=before.wait_ns + round(share * (now.wait_ns - before.wait_ns)),
        )

    def note(self, now: RowEnd) -> None:
        """Note where the training stands when something else was published: no row ends before it."""
        self._before = now
