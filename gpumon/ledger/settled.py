"""Epochs whose rows change no more: the driver's own utilization samples, which come seconds late, are in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from gpumon.common.clock import SECOND
from gpumon.database.cells import parse_json

AWAITED = 30 * SECOND
"""Nanoseconds behind the end of a rank after which no samples of it come any more, as a daemon waits for less."""
FOREVER = 1 << 62
"""More epochs than any run has."""


class SettledEpochs(NamedTuple):
    """The epochs of a run that are settled in every rank; of open and aborted ones the rows tell."""

    begun: int = FOREVER
    """Ordinals from here on are not."""
    open: frozenset[int] = frozenset()
    """Ordinals before `begun` that are not."""

    def has(self, ordinal: int) -> bool:
        """Whether the rows of an epoch are final."""
        return ordinal < self.begun and ordinal not in self.open


def settled_epochs(progress: Iterable[str | None]) -> SettledEpochs:
    """Join what ranks have settled: `progress.state` of each of which more is to come, None where there is none yet."""
    found = SettledEpochs()
    for state in progress:
        one = _of_rank(state)
        found = SettledEpochs(min(found.begun, one.begun), found.open | one.open)
    return found


def _of_rank(state: str | None) -> SettledEpochs:
    try:
        timeline: Any = parse_json(state)
        timeline = timeline["course"]
        return SettledEpochs(int(timeline["next"]), frozenset(int(row["epoch"][0]) for row in timeline["epochs"]))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return SettledEpochs(begun=0)  # none, or damaged: it is unknown
