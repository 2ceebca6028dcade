"""Rows of listed, opened and compared runs, and columns of logged metrics."""

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
    from gpumon.analysis.run_epochs import EpochMark
    from gpumon.diagnosis.finding import Finding, Severity
    from gpumon.diagnosis.past_findings import Verdict
    from gpumon.storage.ledger.records import Record
    from gpumon.storage.ledger.summary import EpochSummary


METRICS = 4
"""Maximum number of logged metrics with a column."""


def names(stretches: Sequence[EpochSummary]) -> list[str]:
    """Return the names of logged metrics, losses first; the first also gets a column for its change."""
    names = list(dict.fromkeys(name for stretch in stretches for name in stretch.metrics))
    return sorted(names, key=lambda name: "loss" not in name.casefold())[:METRICS]


def first_metric(metrics: Mapping[str, float]) -> str:
    """Return the name of the metric that represents a run; empty if it logged none."""
    return next(iter(sorted(metrics, key=lambda name: "loss" not in name.casefold())), "")


def column(stretches: Sequence[EpochSummary], name: str) -> list[str]:
    """Return the texts of a metric with common decimals; empty where it was not logged."""
    texts = iter(units.logged_column([stretch.metrics[name] for stretch in stretches if name in stretch.metrics]))
    return [next(texts) if name in stretch.metrics else "" for stretch in stretches]


def finite_range(values: Sequence[float]) -> tuple[float, float]:
    """Return the minimum and maximum finite value; NaN if there is none."""
    finite = [value for value in values if isfinite(value)]
    return min(finite, default=NAN), max(finite, default=NAN)


COLUMNS = shown(EPOCHS, View.TERMINAL)
"""Columns of tables of epochs."""


class ListedRun(NamedTuple):
    """A run of the list, from the frame on screen or from a ledger."""

    id: str
    name: str
    user: str
    state: str
    """One word, as in `gpumon runs`."""
    is_over: bool
    """Whether the run has ended or is no longer observed."""
    ended_badly: bool
    gpus: int
    epoch: str
    """Current epoch, or the epoch in which it ended: `13/90`."""
    share: float
    """Progress as a share; NaN if the planned length is unknown."""
    started: float
    seconds: float
    left: float
    """Seconds until it ends, for a run in a frame; NaN if unknown."""
    utilization: float
    energy: float
    """Energy in joules, or a lower bound of it."""
    tags: Sequence[str]
    text: str
    """Text in which the filter searches."""
    is_kept: bool
    """Whether a ledger contains it."""
    metric: str = ""
    """Last logged value, for a run in a frame."""
    is_least: bool = False
    """Whether the energy is a lower bound."""
    is_about: bool = False
    """Whether too little of the time was sampled for the utilization to be that of the whole run."""
    written: float = NAN
    """For an active run, the time (s since 1970) of its utilization and energy in the ledger; NaN if there are none."""


def search_text(*words: str) -> str:
    """Return the text in which the filter searches."""
    return " ".join(words).casefold()


class RunDetail(NamedTuple):
    """Further details of a run, for its row in the list."""

    wait: float
    metric: str
    """The first logged metric with its last value: `loss 1.028`."""
    verdict: str
    severity: Severity | None
    """None if there was no evaluation."""
    is_settled: bool
    """Whether it has ended and its ledger is complete."""
    brief: str = ""
    """Short form of the verdict."""


class StretchRow(NamedTuple):
    """An epoch, a row of steps, the time between epochs, one of its phases, or the whole run."""

    title: str
    summary: EpochSummary
    seconds_change: float
    """Change of the duration as a share of the previous row's; NaN if one of the two has not ended."""
    parts: Sequence[tuple[str, float]]
    """Phases with their seconds."""
    logged: Sequence[str]
    """Values of `OpenRun.metrics`; empty where not logged."""
    logged_change: float
    """Change of the first metric as a share of its previous value."""
    verdict: Verdict | None
    costs: Sequence[str] = ()
    """Amounts under the headings of `OpenRun.costs`."""
    is_running: bool = False
    """Whether the run is in it now; an ended run may have an epoch that will never end."""

    @property
    def goes_on(self) -> bool:
        """Whether it has not ended."""
        return not is_known(self.summary.ended)


class StretchRows(Sequence[StretchRow]):
    """Rows that are built on access, because a screen shows only a few dozen of thousands of epochs."""

    def __init__(self, stretches: Sequence[EpochSummary], make_row: Callable[[int], StretchRow]) -> None:
        self.stretches = stretches
        """Summaries from which the rows are built."""
        self._make = make_row
        self._rows: dict[int, StretchRow] = {}

    def __len__(self) -> int:
        return len(self.stretches)

    @overload
    def __getitem__(self, index: int) -> StretchRow: ...

    @overload
    def __getitem__(self, index: slice) -> list[StretchRow]: ...

    def __getitem__(self, index: int | slice) -> StretchRow | list[StretchRow]:
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        position = range(len(self))[index]
        if position not in self._rows:
            self._rows[position] = self._make(position)
        return self._rows[position]


class EpochTotals(NamedTuple):
    """Totals over all rows of a run.

    They are computed in the background thread that reads the run, because they take a pass over every row.
    """

    longest: float
    """Seconds of the longest row."""
    largest: Mapping[str, float]
    """Largest number of each column, by its key; columns without known values are missing."""
    ended: int
    """Number of rows that have ended."""
    done: int | None
    """Number of epochs the training has completed; None if unknown."""
    numbers: Sequence[int]
    """Number of each epoch."""
    metric: str
    """First logged metric of the epochs; empty if there is none."""
    logged: Sequence[float]
    """Its value in each epoch."""
    logged_range: tuple[float, float]
    """Its minimum and maximum finite value."""
    diverged: int
    """Number of epochs in which the metric is not finite."""
    utilization: tuple[Sequence[float], Sequence[float], Sequence[float]]
    """5th percentile, mean and 95th percentile of each epoch."""


class OpenRun(NamedTuple):
    """A run with all its rows, oldest first."""

    record: Record
    """The run without its epochs, phases and usage, which are in the rows."""
    state: str
    devices: str
    is_by_steps: bool
    rows: StretchRows
    phases: Sequence[str]
    """Names of the phases of its epochs, in order."""
    other_rows: Sequence[StretchRow]
    """Rows of the time between epochs and its phases; the whole run comes last."""
    metrics: Sequence[str]
    findings: Sequence[Finding]
    about: Sequence[str]
    seconds: float
    totals: EpochTotals
    costs: Sequence[str] = ()
    """Headings of the cost columns; empty if there are no costs."""
    marks: Sequence[EpochMark] = ()
    """Starts of its epochs, oldest first."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended according to its ledger."""
        return self.record.run.state is not RunState.RUNNING

    @property
    def whole(self) -> StretchRow:
        """The row of the whole run."""
        return self.other_rows[-1]


WARM_UP = " (warm-up)"
"""Suffix that explains why the first epoch does not count; left out if there is no room."""


class ComparedRow(NamedTuple):
    """One metric of two runs."""

    name: str
    """Name as in the JSON output."""
    title: str
    values: tuple[str, str]
    difference: str
    """Absolute difference of the values."""
    verdict: str
    share: float
    """Difference as a share of the first run's value; in percentage points for a ratio."""
    low: float
    high: float
    """Lower and upper end of the 95 % interval of `share`; NaN if there is none."""
    is_clear: bool
    briefs: Sequence[str] = ()
    """Shorter forms of the verdict, longest first."""


class ComparedRuns(NamedTuple):
    """Two runs side by side; the first is the baseline."""

    records: tuple[Record, Record]
    counts: tuple[str, str]
    """Number of compared epochs: `31 epochs, without the first (warm-up)`."""
    config: Sequence[tuple[str, str, str]]
    """Names of parameters that differ, with both values."""
    same: int
    """Number of equal parameters."""
    equal: Sequence[tuple[str, str]]
    """Names and values of the equal parameters."""
    without: Sequence[int]
    """Indexes of runs that reported no parameters."""
    is_dirty: bool
    rows: Sequence[ComparedRow]
    whole: Sequence[ComparedRow]
    notes: Sequence[str]
    by_epochs: bool
    curves: tuple[EpochCurve, EpochCurve]
    """One curve per run."""
    metric: str


class EpochCurve(NamedTuple):
    """A logged metric at the end of each epoch."""

    times: Sequence[float]
    """Seconds since the start of the run, ascending."""
    values: Sequence[float]
    range: tuple[float, float]
    """Minimum and maximum finite value; NaN if there is none."""
