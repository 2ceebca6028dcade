"""The epochs of a run as table rows: single epochs, folded neighbors, parts outside epochs, and totals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

from gpumon.common.numbers import is_known, shown
from gpumon.diagnosis.finding import Severity
from gpumon.diagnosis.past_findings import Verdict, Verdicts, epoch_findings, is_partly_sampled, verdict
from gpumon.model import columns
from gpumon.model.columns import BY_KEY, EPOCHS, OverTime, View
from gpumon.model.frame import TRAINING, RunState
from gpumon.model.units import ABOUT
from gpumon.reports import epoch_text, run_json
from gpumon.reports.run_tables import BETWEEN, outside_rows
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.combine import highest, lowest
from gpumon.storage.ledger.records import LivePeak, Record
from gpumon.storage.ledger.row_keys import STEP_ROWS
from gpumon.storage.ledger.summary import EpochLengths, EpochSummary, EpochSums
from gpumon_web.components.levels import SEVERITY_LEVELS

_PEAKS = ("energy_least", "run_allocated_peak", "memory_used_peak")
"""Columns shown in place of an unknown energy and of an unknown peak of live tensors."""
EPOCH = tuple(dict.fromkeys((*(column.key for column in columns.shown(EPOCHS, View.BROWSER)), *_PEAKS)))
"""Columns of the table of epochs."""
NO_LENGTHS = EpochLengths()


def rows(record: Record, epochs: Sequence[EpochSummary]) -> list[dict[str, Any]]:
    """Return epochs as rows, each with the time of its phases other than training."""
    ordinals = {epoch.ordinal for epoch in epochs}
    # Only the duration of phases is shown, which does not need their usage.
    phase_rows = [row for row in record.phases if row.ordinal in ordinals]
    phases = aggregate.phase_summaries(replace(record, phases=phase_rows, usage=[]))
    running = record.run.state is RunState.RUNNING
    return [epoch_row(epoch, phases.get(epoch.ordinal, ()), running) for epoch in epochs]


def epoch_row(epoch: EpochSummary, phases: Iterable[EpochSummary], running: bool) -> dict[str, Any]:
    """Return an epoch as a row with only what the table shows, as there may be thousands of them."""
    values = run_json.epoch_to_json(epoch, ())
    judgment = verdict(epoch, running)
    seconds_outside = [phase.seconds for phase in phases if phase.phase != TRAINING]
    measured = epoch.value("seconds")
    return {
        **{name: values[name] for name in ("ordinal", "epoch", "merged", "metrics")},
        **{name: None if values[name] is None else round(values[name], 3) for name in ("begun", "ended")},
        **{name: None if values[name] is None else shown(values[name]) for name in EPOCH},
        "framework_peak_reached": values["framework_peak_reached"],
        "is_partly_sampled": is_partly_sampled(epoch),
        "is_open": epoch.is_open,
        "is_about": _is_about(epoch),
        # The ledger's measurements of an open epoch are some seconds old; its duration comes from the ring.
        "measured_seconds": shown(measured) if epoch.is_open and is_known(measured) else None,
        "beside": shown(sum(seconds_outside)) if seconds_outside else None,
        "verdict": {"kind": judgment.kind, "text": judgment.text, "level": SEVERITY_LEVELS[judgment.severity]}
        if judgment
        else None,
    }


def _is_about(stretch: EpochSummary) -> bool:
    """Return whether means of the samples are shown with `≈`."""
    return epoch_text.sign("utilization_mean", stretch) == ABOUT


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


_COLUMNS = {key: BY_KEY[key].over_time for key in EPOCH}


class Fold(NamedTuple):
    """Consecutive epochs with the same verdict, shown as one row."""

    epochs: Sequence[EpochSummary]
    verdict: Verdict | None


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


def fold_rows(record: Record, folds: Sequence[Fold]) -> list[dict[str, Any]]:
    """Return folds as rows: means of known values, and the highest memory peak."""
    seconds_outside = _seconds_outside_training(record) if folds else {}
    return [_fold_row(fold, seconds_outside) for fold in folds]


def _fold_row(fold: Fold, seconds_outside: Mapping[int, float]) -> dict[str, Any]:
    epochs, judgment = fold.epochs, fold.verdict
    first, last = epochs[0], epochs[-1]
    names = dict.fromkeys(name for epoch in epochs for name in epoch.metrics)
    peak = max((epoch.live_peak for epoch in epochs), key=_height)

    def mean(key: str) -> float | None:
        return _mean(epoch.number(key) for epoch in epochs)

    def maximum(key: str) -> float | None:
        return max((value for epoch in epochs if is_known(value := epoch.number(key))), default=None)

    return {
        "first": first.ordinal, "last": last.ordinal, "epochs": [first.epoch, last.epoch], "count": len(epochs),
        **{key: maximum(key) if over_time is OverTime.HIGHEST else mean(key) for key, over_time in _COLUMNS.items()},
        "framework_peak": shown(peak.value),
        "framework_peak_reached": peak.reached,
        "is_partly_sampled": any(map(is_partly_sampled, epochs)),
        "is_about": any(map(_is_about, epochs)),
        "beside": _mean(seconds_outside.get(epoch.ordinal) for epoch in epochs),
        "metrics": {name: value for name in names
                    if (value := _mean(epoch.metrics.get(name) for epoch in epochs)) is not None},
        "verdict": {"kind": judgment.kind, "text": judgment.text, "level": SEVERITY_LEVELS[judgment.severity]}
        if judgment
        else None,
    }  # fmt: skip


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None if there are none."""
    numbers = [value for value in values if value is not None and is_known(value)]
    return shown(sum(numbers) / len(numbers)) if numbers else None


def _height(peak: LivePeak) -> float:
    return peak.value if is_known(peak.value) else -1.0


def _seconds_outside_training(record: Record) -> dict[int, float]:
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


WHOLE = "Whole run"
_TITLES = {BETWEEN: "Between epochs"}


def stretch_rows(
    record: Record, epochs: Sequence[EpochSummary] | EpochSums, total: EpochSummary
) -> list[dict[str, Any]]:  # fmt: skip
    """Return rows of steps, of time outside epochs and of the whole run, the same as in `gpumon runs show`.

    Empty if the epochs cover the whole run. `total` is the summary of the whole run.
    """
    outside = outside_rows(record, epochs, total, phases=True)
    if epochs and not outside:
        return []
    steps = [row for row in outside if row[1].ordinal <= STEP_ROWS]
    # The page shows the newest rows first: the whole run, then the time between epochs, then its phases.
    ordered = [*steps, *outside[len(steps) :][::-1], (WHOLE, total)]
    return [_stretch_row(title, index, stretch) for index, (title, stretch) in enumerate(ordered)]


def _stretch_row(title: str, index: int, stretch: EpochSummary) -> dict[str, Any]:
    """Return one row; `index` is its position among them."""
    values = run_json.total_to_json(stretch)
    is_steps = stretch.ordinal <= STEP_ROWS
    return {
        "place": index,
        "title": _TITLES.get(title) or (f"· {title.strip()}" if title.startswith(" ") else title),
        "is_steps": is_steps,
        "beside": shown(max(0.0, stretch.seconds - stretch.trained)) if is_steps and stretch.trained > 0 else None,
        "metrics": values["metrics"],
        "framework_peak_reached": values["framework_peak_reached"],
        "is_partly_sampled": is_partly_sampled(stretch),
        "is_about": _is_about(stretch),
        "is_open": stretch.is_open,
        **{name: None if values[name] is None else shown(values[name]) for name in EPOCH},
    }
