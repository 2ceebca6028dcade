"""The axes on which runs stand over each other: time since their begin, epochs, or steps that they have done."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from gpumon.common.numbers import NAN, is_known
from gpumon.storage.ledger.aggregate import step_summaries
from gpumon.storage.ledger.records import Record

EPOCHS, STEPS, TIME = "epochs", "step", "since"
"""Names of axes, in an address and in a chart."""


class AxisStretch(NamedTuple):
    """A part of a run: when it was (s since 1970), and where that is on the axis."""

    begun: float
    ended: float
    first: float
    last: float


class RunAxis:
    """Places of one run on an axis."""

    def __init__(self, by: str, started: float, stretches: Sequence[AxisStretch]) -> None:
        self._by = by
        self._started = started
        self._stretches = stretches
        self._begins = [one.begun for one in stretches]

    def place(self, time: float) -> float:
        """The place of a moment (s since 1970); NaN before the begin, and outside of epochs where these count."""
        if self._by == TIME:
            return time - self._started if time >= self._started else NAN
        at = bisect_right(self._begins, time) - 1
        if at < 0 or time > self._stretches[at].ended:
            return NAN
        one = self._stretches[at]
        share = (time - one.begun) / (one.ended - one.begun) if one.ended > one.begun else 1.0
        return one.first + share * (one.last - one.first)


class Timed(Protocol):
    """An epoch, several behind each other, or a row of steps: when it was, and how many steps it had."""

    @property
    def begun(self) -> float: ...
    @property
    def ended(self) -> float: ...
    @property
    def steps(self) -> int | None: ...
    @property
    def times(self) -> int: ...


def axis_of(by: str, record: Record, epochs: Sequence[Timed]) -> RunAxis:
    """The places of a run on the axis `by`; `epochs` are all of its epochs."""
    stretches = [] if by == TIME else by_steps(record, epochs) if by == STEPS else by_epochs(epochs)
    return RunAxis(by, record.run.started, stretches)


def by_epochs(epochs: Sequence[Timed]) -> list[AxisStretch]:
    """A stretch for each epoch, or some, that ended: how many had, at its begin and at its end."""
    found, done = [], 0.0
    for one in epochs:
        if _has_ended(one):
            found.append(AxisStretch(one.begun, one.ended, done, done + one.times))
            done = found[-1].last
    return found


def by_steps(record: Record, epochs: Sequence[Timed]) -> list[AxisStretch]:
    """The same of steps; nothing where they were not counted."""
    parts = [one for one in epochs or step_summaries(record) if _has_ended(one)]
    if not _are_counted(parts):
        return []
    found, done = [], 0.0
    for one in parts:
        found.append(AxisStretch(one.begun, one.ended, done, done + (one.steps or 0)))
        done = found[-1].last
    return found


def _are_counted(parts: Sequence[Timed]) -> bool:
    return any(one.steps for one in parts) and all(one.steps is not None for one in parts)


def _has_ended(one: Timed) -> bool:
    return is_known(one.begun) and is_known(one.ended)


def axes_of(runs: Sequence[tuple[Record, Sequence[Timed]]]) -> list[str]:
    """The axes on which all of these runs have places, the one that tells most first."""
    found = []
    if all(any(_has_ended(one) for one in epochs) for _, epochs in runs):
        found.append(EPOCHS)
    if all(_are_counted([*filter(_has_ended, epochs or step_summaries(record))]) for record, epochs in runs):
        found.append(STEPS)
    return [*found, TIME]
