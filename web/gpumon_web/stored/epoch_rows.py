"""What the table of a run's epochs shows: folded neighbors, parts outside epochs, totals, and verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from gpumon.common.numbers import NAN, is_known, shown
from gpumon.diagnosis.finding import Severity
from gpumon.diagnosis.past_findings import Verdict, Verdicts, epoch_findings, is_partly_sampled
from gpumon.model.columns import BY_KEY, OverTime
from gpumon.model.frame import TRAINING
from gpumon.reports.run_tables import BETWEEN, outside_rows
from gpumon.storage.ledger.combine import highest, lowest
from gpumon.storage.ledger.records import LivePeak, Record
from gpumon.storage.ledger.row_keys import STEP_ROWS
from gpumon.storage.ledger.summary import EpochLengths, EpochSummary, EpochSums
from gpumon_web.components.levels import SEVERITY_LEVELS

NO_LENGTHS = EpochLengths()


def seconds_outside_training(record: Record) -> dict[int, float]:
    """Return the seconds that each epoch spent outside training, by ordinal. Of each phase, the slowest rank counts."""
    longest: dict[tuple[int, str], float] = {}
    for row in record.phases:
        if row.phase != TRAINING and is_known(row.seconds):
            key = (row.ordinal, row.phase)
            longest[key] = max(longest.get(key, 0.0), row.seconds)
    totals: dict[int, float] = {}
    for (ordinal, _), seconds in longest.items():
        totals[ordinal] = totals.get(ordinal, 0.0) + seconds
    return totals


def summary(
    epochs: Sequence[EpochSummary], previous: EpochLengths = NO_LENGTHS
) -> dict[str, Any]:  # fmt: skip
    """Return totals of all epochs, including those without a row. `previous`: totals of the epochs before `epochs`."""
    ended = [epoch for epoch in epochs if is_known(epoch.ended)]
    lengths = [epoch.seconds for epoch in ended if math.isfinite(epoch.seconds)]
    energies = [energy for epoch in epochs if math.isfinite(energy := epoch.value("energy"))]
    count, total = previous.known + len(lengths), previous.total + sum(lengths)
    return {
        "ended": previous.done + len(ended),
        "last": ended[-1].epoch if ended else previous.last,
        "mean": shown(total / count) if count else None,
        "least": shown(lowest([previous.least, *lengths])),
        "most": shown(highest([previous.most, *lengths])),
        "most_energy": shown(highest([previous.most_energy, *energies])),
    }


_VALUES = {"throttled": "throttled_share", "mostly_idle": "idle_share", "input_bound": "wait_share"}
"""Column that a verdict depends on, by its kind. Epochs in which it is unknown are not judged."""


def _count_judged(epochs: Sequence[EpochSummary], kind: str) -> int:
    """Return the number of ended epochs in which the value for verdicts of this kind is known."""
    column = _VALUES[kind]
    return sum(
        is_known(epoch.ended) and is_known(epoch.number(column))
        and (column == "wait_share" or not is_partly_sampled(epoch))
        for epoch in epochs
    )  # fmt: skip


def odd_epochs(epochs: Sequence[EpochSummary], verdicts: Verdicts, *, is_all: bool = True) -> list[dict[str, Any]]:
    """Return the verdicts that need attention, the worst first: kind, text, action, level and epoch numbers.

    For a verdict that depends on a measured value, `of` is the number of epochs in which it is known; None if `epochs`
    are not all (`is_all`).
    """
    groups: dict[str, tuple[Verdict, Severity, str, list[int]]] = {}
    for epoch in epochs:
        judgment = verdicts[epoch.ordinal]
        if judgment is not None and judgment.severity is not None and judgment.needs_a_look:
            if judgment.text not in groups:
                groups[judgment.text] = judgment, judgment.severity, _remedy(epoch, judgment), []
            groups[judgment.text][3].append(epoch.epoch)
    worst_first = sorted(groups.values(), key=lambda group: (-group[1], -len(group[3])))
    return [{"kind": judgment.kind, "text": judgment.text, "action": action, "level": SEVERITY_LEVELS[severity],
             **({"of": _count_judged(epochs, judgment.kind) if is_all else None} if judgment.kind in _VALUES else {}),
             "epochs": numbers} for judgment, severity, action, numbers in worst_first]  # fmt: skip


def _remedy(epoch: EpochSummary, judgment: Verdict) -> str:
    return next((finding.action for finding in epoch_findings(epoch) if finding.kind == judgment.kind), "")


LONG = 200
"""Number of epochs above which neighbors are folded into one row."""
MAX_FOLD = 100
"""Most epochs in a fold; folds are split at multiples of this number."""
MIN_FOLD = 3
"""Fewest epochs in a fold."""
NEWEST = 10
"""Epochs at the end that are never folded."""


class Fold(NamedTuple):
    """Consecutive epochs with the same verdict, shown as one row."""

    epochs: Sequence[EpochSummary]
    verdict: Verdict | None

    @property
    def metrics(self) -> dict[str, float]:
        """Means of the logged metrics."""
        names = dict.fromkeys(name for epoch in self.epochs for name in epoch.metrics)
        means = {name: mean(epoch.metrics.get(name, NAN) for epoch in self.epochs) for name in names}
        return {name: value for name, value in means.items() if is_known(value)}

    @property
    def live_peak(self) -> LivePeak:
        """The highest peak of live tensors."""
        return max((epoch.live_peak for epoch in self.epochs), key=lambda peak: (is_known(peak.value), peak.value))

    def number(self, column: str) -> float:
        """Return the highest value of a column of peaks, else the mean of the known ones; NaN if none is known."""
        if column == "framework_peak":
            return self.live_peak.value
        values = [epoch.number(column) for epoch in self.epochs]
        if BY_KEY[column].over_time is OverTime.HIGHEST:
            return max(filter(is_known, values), default=NAN)
        return mean(values)


def fold_epochs(epochs: Sequence[EpochSummary], verdicts: Verdicts) -> list[Fold]:
    """Fold neighboring epochs with the same verdict; a short run has no folds."""
    if len(epochs) <= LONG:
        return []
    groups = groupby(epochs[:-NEWEST], lambda epoch: (verdicts[epoch.ordinal], epoch.ordinal // MAX_FOLD))
    folds = [Fold(list(group), common_verdict) for (common_verdict, _), group in groups]
    return [fold for fold in folds if len(fold.epochs) >= MIN_FOLD]


def unfolded_epochs(epochs: Sequence[EpochSummary], folds: Sequence[Fold]) -> list[EpochSummary]:
    """Return the epochs that are in no fold."""
    folded = {epoch.ordinal for fold in folds for epoch in fold.epochs}
    return [epoch for epoch in epochs if epoch.ordinal not in folded]


def mean(values: Iterable[float]) -> float:
    """Return the mean of the known values; NaN if there are none."""
    numbers = [value for value in values if is_known(value)]
    return sum(numbers) / len(numbers) if numbers else NAN


WHOLE = "Whole run"
_TITLES = {BETWEEN: "Between epochs"}


class Part(NamedTuple):
    """A part of a run that is no epoch: steps, time outside epochs, or the whole run."""

    title: str
    summary: EpochSummary

    @property
    def is_steps(self) -> bool:
        """Whether it is a row of steps."""
        return self.summary.ordinal <= STEP_ROWS


def run_parts(record: Record, epochs: Sequence[EpochSummary] | EpochSums, total: EpochSummary) -> list[Part]:
    """Return the parts of a run besides its epochs, the same as in `gpumon runs show`.

    Empty if the epochs cover the whole run. `total` is the summary of the whole run.
    """
    outside = outside_rows(record, epochs, total, phases=True)
    if epochs and not outside:
        return []
    steps = [row for row in outside if row[1].ordinal <= STEP_ROWS]
    # The page shows the newest rows first: the whole run, then the time between epochs, then its phases.
    ordered = [*steps, *outside[len(steps) :][::-1], (WHOLE, total)]
    return [
        Part(_TITLES.get(title) or (f"· {title.strip()}" if title.startswith(" ") else title), summary)
        for title, summary in ordered
    ]
