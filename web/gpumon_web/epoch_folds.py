"""The table of a long run: equal neighbors among its epochs as one row, so that the one that differs stands out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from gpumon.common.numbers import is_known, shown
from gpumon.diagnosis.past_findings import Verdict, Verdicts, is_partly_sampled
from gpumon.model.columns import BY_KEY, OverTime
from gpumon.model.frame import TRAINING
from gpumon.storage.ledger.records import LivePeak, Record
from gpumon.storage.ledger.summary import EpochSummary
from gpumon_web.epoch_cells import EPOCH
from gpumon_web.levels import OF_SEVERITY

LONG = 200
"""Epochs above which a table has such rows."""
MOST = 100
"""Epochs of one such row: it begins at the next multiple of this number."""
FEWEST = 3
"""Equal neighbors that are worth one."""
NEWEST = 10
"""Epochs at the end that stand by themselves."""


_COLUMNS = {key: BY_KEY[key].over_time for key in EPOCH}


class Fold(NamedTuple):
    """Epochs in their order that have one verdict."""

    epochs: Sequence[EpochSummary]
    judged: Verdict | None


def folds_of(found: Sequence[EpochSummary], verdicts: Verdicts) -> list[Fold]:
    """Return the neighbors of a run's epochs that are as one row; none of a short run."""
    if len(found) <= LONG:
        return []
    groups = groupby(found[:-NEWEST], lambda one: (verdicts[one.ordinal], one.ordinal // MOST))
    folds = [Fold(list(group), said) for (said, _), group in groups]
    return [one for one in folds if len(one.epochs) >= FEWEST]


def alone(found: Sequence[EpochSummary], folds: Sequence[Fold]) -> list[EpochSummary]:
    """Return the epochs that are in none of them."""
    within = {epoch.ordinal for one in folds for epoch in one.epochs}
    return [epoch for epoch in found if epoch.ordinal not in within]


def fold_rows(record: Record, folds: Sequence[Fold]) -> list[dict[str, Any]]:
    """Return folds as rows of epochs have it: means of what is known, and the highest peak of memory."""
    beside = _beside(record) if folds else {}
    return [_row(one, beside) for one in folds]


def _row(fold: Fold, beside: Mapping[int, float]) -> dict[str, Any]:
    epochs, judged = fold.epochs, fold.judged
    first, last = epochs[0], epochs[-1]
    names = dict.fromkeys(name for epoch in epochs for name in epoch.metrics)
    peak = max((epoch.live_peak for epoch in epochs), key=_height)

    def mean(key: str) -> float | None:
        return _mean(epoch.number(key) for epoch in epochs)

    def most(key: str) -> float | None:
        return max((value for epoch in epochs if is_known(value := epoch.number(key))), default=None)

    return {
        "first": first.ordinal, "last": last.ordinal, "epochs": [first.epoch, last.epoch], "count": len(epochs),
        **{key: most(key) if over_time is OverTime.HIGHEST else mean(key) for key, over_time in _COLUMNS.items()},
        "framework_peak": shown(peak.value),
        "framework_peak_reached": peak.reached,
        "is_partly_sampled": any(map(is_partly_sampled, epochs)),
        "beside": _mean(beside.get(epoch.ordinal) for epoch in epochs),
        "metrics": {name: value for name in names
                    if (value := _mean(epoch.metrics.get(name) for epoch in epochs)) is not None},
        "verdict": {"kind": judged.kind, "text": judged.text, "level": OF_SEVERITY[judged.severity]}
        if judged
        else None,
    }  # fmt: skip


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of what is known; None where nothing is."""
    known = [value for value in values if value is not None and is_known(value)]
    return shown(sum(known) / len(known)) if known else None


def _height(peak: LivePeak) -> float:
    return peak.value if is_known(peak.value) else -1.0


def _beside(record: Record) -> dict[int, float]:
    """Seconds of each epoch in phases other than training, by its ordinal: of the rank that took longest for each."""
    longest: dict[tuple[int, str], float] = {}
    for row in record.phases:
        if row.phase != TRAINING and is_known(row.seconds):
            key = (row.ordinal, row.phase)
            longest[key] = max(longest.get(key, 0.0), row.seconds)
    found: dict[int, float] = {}
    for (ordinal, _), seconds in longest.items():
        found[ordinal] = found.get(ordinal, 0.0) + seconds
    return found
