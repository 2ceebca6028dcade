"""The metrics that a training logged, as columns: a loss stands first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple, overload

from gpumon.common.numbers import NAN, is_known
from gpumon.model import units
from gpumon.model.columns import EPOCHS, View, shown
from gpumon.model.frame import RunState
from gpumon.storage.ledger.summary import EpochSummary

if TYPE_CHECKING:
    from gpumon.analysis.epochs import EpochMark
    from gpumon.diagnosis.finding import Finding, Severity
    from gpumon.diagnosis.past_findings import Verdict
    from gpumon.storage.ledger.records import Record
    from gpumon.storage.ledger.summary import EpochSummary


METRICS = 4
"""Logged metrics that get a column."""


def names(stretches: Sequence[EpochSummary]) -> list[str]:
    """Names of logged metrics, losses first: the first has its change beside it."""
    names = list(dict.fromkeys(name for stretch in stretches for name in stretch.metrics))
    return sorted(names, key=lambda name: "loss" not in name.casefold())[:METRICS]


def first_metric(metrics: Mapping[str, float]) -> str:
    """Return the name of the metric that stands for a run; empty where it logged none."""
    return next(iter(sorted(metrics, key=lambda name: "loss" not in name.casefold())), "")


def column(stretches: Sequence[EpochSummary], name: str) -> list[str]:
    """Return the texts of a metric, with equal decimals; empty where it was not logged."""
    texts = iter(units.logged_column([stretch.metrics[name] for stretch in stretches if name in stretch.metrics]))
    return [next(texts) if name in stretch.metrics else "" for stretch in stretches]


def finite_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the lowest and the highest finite value; NaN where there is none."""
    finite = [value for value in values if isfinite(value)]
    return min(finite, default=NAN), max(finite, default=NAN)


COLUMNS = shown(EPOCHS, View.TERMINAL)
"""Columns of tables of epochs."""


class ListedRun(NamedTuple):
    """A run of the list, wherever it is known from: the frame on screen, or a ledger."""

    id: str
    name: str
    user: str
    state: str
    """One word, as `gpumon runs` has it."""
    is_over: bool
    """Whether it goes on no more, or is not known to."""
    ended_badly: bool
    gpus: int
    place: str
    """The epoch in which it ended, or in which it is while it goes on: `13/90`."""
    share: float
    """The same as a share; NaN without a plan."""
    started: float
    seconds: float
    left: float
    """Seconds until its end, of one that a frame tells of; NaN where that is not known."""
    utilization: float
    energy: float
    tags: Sequence[str]
    text: str
    """All that a filter looks in."""
    is_kept: bool
    """Whether a ledger has it."""
    metric: str = ""
    """The last of what it logs, of one that a frame tells of."""
    written: float = NAN
    """When a ledger had its utilization and energy, of one that goes on (s since 1970); NaN where none has them."""


def text_of(*words: str) -> str:
    """Return what a filter looks in."""
    return " ".join(words).casefold()


class RunDetail(NamedTuple):
    """A run in a few more words, for its row of the list."""

    wait: float
    metric: str
    """The metric that was logged first, with its last value: `loss 1.028`."""
    verdict: str
    severity: Severity | None
    """None where nothing was judged."""
    is_settled: bool
    """Whether it is over, and its ledger has all of it."""
    brief: str = ""
    """The verdict where there is no room for it."""


class StretchRow(NamedTuple):
    """An epoch, a row of steps, all between epochs, a phase of that, or the whole run."""

    title: str
    of: EpochSummary
    took_change: float
    """Against the stretch before, as a share of it; NaN where one of them is not over."""
    parts: Sequence[tuple[str, float]]
    """Phases with their seconds."""
    logged: Sequence[str]
    """The values of `OpenRun.metrics`; empty where none was logged."""
    logged_change: float
    """Of the first of these."""
    verdict: Verdict | None
    costs: Sequence[str] = ()
    """Amounts below the headings of `OpenRun.costs`."""
    is_running: bool = False
    """Whether its run is in it now: one that is over may have an epoch that has not ended and never will."""

    @property
    def goes_on(self) -> bool:
        """Whether it has not ended."""
        return not is_known(self.of.ended)


class StretchRows(Sequence[StretchRow]):
    """Rows that are made when they are asked for: of thousands of epochs a screen has some dozens."""

    def __init__(self, stretches: Sequence[EpochSummary], make: Callable[[int], StretchRow]) -> None:
        self.stretches = stretches
        """Summaries of what the rows are of: for what is asked of all."""
        self._make = make
        self._made: dict[int, StretchRow] = {}

    def __len__(self) -> int:
        return len(self.stretches)

    @overload
    def __getitem__(self, place: int) -> StretchRow: ...

    @overload
    def __getitem__(self, place: slice) -> list[StretchRow]: ...

    def __getitem__(self, place: int | slice) -> StretchRow | list[StretchRow]:
        if isinstance(place, slice):
            return [self[at] for at in range(len(self))[place]]
        at = range(len(self))[place]
        if at not in self._made:
            self._made[at] = self._make(at)
        return self._made[at]


class EpochTotals(NamedTuple):
    """Facts about all rows of a run. They are computed where the run is read, because they take a look at each row."""

    longest: float
    """Seconds of the longest row."""
    largest: Mapping[str, float]
    """The largest number of each column, by its key; one that is unknown in every row has none."""
    ended: int
    """Rows that have ended."""
    done: int | None
    """Epochs that the training has completed; None where that is not known."""
    numbers: Sequence[int]
    """The number of each epoch."""
    metric: str
    """The first logged metric that epochs have; empty where there is none."""
    logged: Sequence[float]
    """Its value in each epoch."""
    logged_range: tuple[float, float]
    """Its lowest and highest finite value."""
    diverged: int
    """Epochs in which it is not finite."""
    utilization: tuple[Sequence[float], Sequence[float], Sequence[float]]
    """5th percentile, mean and 95th percentile of each epoch."""


class OpenRun(NamedTuple):
    """A run with all its rows, oldest first."""

    record: Record
    """Without epochs, phases and usage: the rows already hold them."""
    state: str
    devices: str
    is_by_steps: bool
    rows: StretchRows
    phases: Sequence[str]
    """Names of the phases of its epochs, in the order in which they come."""
    beside: Sequence[StretchRow]
    """All between its epochs with the phases of it; last the whole run."""
    metrics: Sequence[str]
    findings: Sequence[Finding]
    about: Sequence[str]
    seconds: float
    totals: EpochTotals
    costs: Sequence[str] = ()
    """Headings of what has a price; empty where nothing has."""
    marks: Sequence[EpochMark] = ()
    """Begins of its epochs, oldest first."""

    @property
    def is_over(self) -> bool:
        """Whether it is over in its ledger."""
        return self.record.run.state is not RunState.RUNNING

    @property
    def whole(self) -> StretchRow:
        """The row of all of it."""
        return self.beside[-1]


WARM_UP = " (warm-up)"
"""Why the first epoch of a run does not count: where there is no room, that is left out."""


class ComparedRow(NamedTuple):
    """One measure of two runs."""

    name: str
    """As JSON has it."""
    title: str
    values: tuple[str, str]
    difference: str
    """Of the values, without a sign."""
    verdict: str
    share: float
    """The second's difference as a share of the first's value; in points of percent for a ratio."""
    low: float
    high: float
    """Ends of its 95 % interval, in the same; NaN where there is none."""
    is_clear: bool
    briefs: Sequence[str] = ()
    """The verdict in fewer and fewer words, for less room."""


class ComparedRuns(NamedTuple):
    """Two runs side by side; the first is the baseline."""

    records: tuple[Record, Record]
    counts: tuple[str, str]
    """Epochs that count: `31 epochs, without the first (warm-up)`."""
    config: Sequence[tuple[str, str, str]]
    """Names of parameters that differ, with both values."""
    same: int
    """Parameters that are equal."""
    equal: Sequence[tuple[str, str]]
    """Their names and values."""
    without: Sequence[int]
    """Places of runs that told none."""
    is_dirty: bool
    rows: Sequence[ComparedRow]
    whole: Sequence[ComparedRow]
    notes: Sequence[str]
    by_epochs: bool
    curves: tuple[EpochCurve, EpochCurve]
    """Of each run."""
    metric: str


class EpochCurve(NamedTuple):
    """A logged metric at the end of each epoch."""

    times: Sequence[float]
    """Seconds since the start of the run, ascending."""
    values: Sequence[float]
    range: tuple[float, float]
    """The lowest and the highest finite value; NaN where there is none."""
