"""The epochs of a run as table rows: single epochs, folded neighbors, parts outside epochs, and totals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from gpumon.common.numbers import is_known, shown
from gpumon.diagnosis.finding import Severity
from gpumon.diagnosis.past_findings import Verdict, Verdicts, epoch_findings, is_partly_sampled, verdict
from gpumon.model import columns
from gpumon.model.columns import BY_KEY, EPOCHS, OverTime, View
from gpumon.model.frame import TRAINING, RunState
from gpumon.reports import run_json
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


def rows(record: Record, found: Sequence[EpochSummary]) -> list[dict[str, Any]]:
    """Return epochs as rows, each with the time of its phases other than training."""
    ordinals = {epoch.ordinal for epoch in found}
    # Only the duration of phases is shown, which does not need their usage.
    of_them = record._replace(phases=[row for row in record.phases if row.ordinal in ordinals], usage=[])
    phases = aggregate.phase_summaries(of_them)
    running = record.run.state is RunState.RUNNING
    return [epoch_row(epoch, phases.get(epoch.ordinal, ()), running) for epoch in found]


def epoch_row(epoch: EpochSummary, phases: Iterable[EpochSummary], running: bool) -> dict[str, Any]:
    """Return an epoch as a row with only what the table shows, as there may be thousands of them."""
    found = run_json.epoch_to_json(epoch, ())
    judged = verdict(epoch, running)
    beside = [phase.seconds for phase in phases if phase.phase != TRAINING]
    measured = epoch.value("seconds")
    return {
        **{name: found[name] for name in ("ordinal", "epoch", "metrics")},
        **{name: None if found[name] is None else round(found[name], 3) for name in ("begun", "ended")},
        **{name: None if found[name] is None else shown(found[name]) for name in EPOCH},
        "framework_peak_reached": found["framework_peak_reached"],
        "is_partly_sampled": is_partly_sampled(epoch),
        "is_open": epoch.is_open,
        "is_settling": epoch.is_settling,
        # The ledger's measurements of an open epoch are some seconds old; its duration comes from the ring.
        "measured_seconds": shown(measured) if epoch.is_open and is_known(measured) else None,
        "beside": shown(sum(beside)) if beside else None,
        "verdict": {"kind": judged.kind, "text": judged.text, "level": SEVERITY_LEVELS[judged.severity]}
        if judged
        else None,
    }


def summary(
    found: Sequence[EpochSummary], first_epoch: int = 0, before: EpochLengths = NO_LENGTHS
) -> dict[str, Any]:  # fmt: skip
    """Return totals of all epochs, including those without a row; `first_epoch`: number of the run's first epoch.

    `before`: totals of the epochs before `found`.
    """
    ended = [epoch for epoch in found if is_known(epoch.ended)]
    lengths = [epoch.seconds for epoch in ended if math.isfinite(epoch.seconds)]
    energies = [energy for epoch in found if math.isfinite(energy := epoch.value("energy"))]
    numbers = [epoch.epoch for epoch in found if epoch.epoch >= 0]
    known, total = before.known + len(lengths), before.total + sum(lengths)
    return {
        "done": before.done + len(ended),
        "unseen": max(
            0, min([*numbers, *(() if before.lowest is None else (before.lowest,))], default=0) - first_epoch
        ),
        "last": ended[-1].epoch if ended else before.last,
        "mean": shown(total / known) if known else None,
        "least": shown(lowest([before.least, *lengths])),
        "most": shown(highest([before.most, *lengths])),
        "most_energy": shown(highest([before.most_energy, *energies])),
    }


def odd_epochs(found: Sequence[EpochSummary], verdicts: Verdicts) -> list[dict[str, Any]]:
    """Return verdicts that need attention, the worst first: kind, text, action, level and epoch numbers."""
    groups: dict[str, tuple[Verdict, Severity, str, list[int]]] = {}
    for epoch in found:
        judged = verdicts[epoch.ordinal]
        if judged is not None and judged.severity is not None and judged.needs_a_look:
            if judged.text not in groups:
                groups[judged.text] = judged, judged.severity, _remedy(epoch, judged), []
            groups[judged.text][3].append(epoch.epoch)
    worst_first = sorted(groups.values(), key=lambda one: (-one[1], -len(one[3])))
    return [{"kind": judged.kind, "text": judged.text, "action": action, "level": SEVERITY_LEVELS[severity],
             "epochs": epochs} for judged, severity, action, epochs in worst_first]  # fmt: skip


def _remedy(epoch: EpochSummary, judged: Verdict) -> str:
    return next((one.action for one in epoch_findings(epoch) if one.kind == judged.kind), "")


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
    judged: Verdict | None


def fold_epochs(found: Sequence[EpochSummary], verdicts: Verdicts) -> list[Fold]:
    """Fold neighboring epochs with the same verdict; a short run has no folds."""
    if len(found) <= LONG:
        return []
    groups = groupby(found[:-NEWEST], lambda one: (verdicts[one.ordinal], one.ordinal // MAX_FOLD))
    folds = [Fold(list(group), said) for (said, _), group in groups]
    return [one for one in folds if len(one.epochs) >= MIN_FOLD]


def unfolded_epochs(found: Sequence[EpochSummary], folds: Sequence[Fold]) -> list[EpochSummary]:
    """Return the epochs that are in no fold."""
    within = {epoch.ordinal for one in folds for epoch in one.epochs}
    return [epoch for epoch in found if epoch.ordinal not in within]


def fold_rows(record: Record, folds: Sequence[Fold]) -> list[dict[str, Any]]:
    """Return folds as rows: means of known values, and the highest memory peak."""
    beside = _seconds_outside_training(record) if folds else {}
    return [_folded_row(one, beside) for one in folds]


def _folded_row(fold: Fold, beside: Mapping[int, float]) -> dict[str, Any]:
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
        "verdict": {"kind": judged.kind, "text": judged.text, "level": SEVERITY_LEVELS[judged.severity]}
        if judged
        else None,
    }  # fmt: skip


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None if there are none."""
    known = [value for value in values if value is not None and is_known(value)]
    return shown(sum(known) / len(known)) if known else None


def _height(peak: LivePeak) -> float:
    return peak.value if is_known(peak.value) else -1.0


def _seconds_outside_training(record: Record) -> dict[int, float]:
    """Return the seconds that each epoch spent outside training, by ordinal: per phase that of the slowest rank."""
    longest: dict[tuple[int, str], float] = {}
    for row in record.phases:
        if row.phase != TRAINING and is_known(row.seconds):
            key = (row.ordinal, row.phase)
            longest[key] = max(longest.get(key, 0.0), row.seconds)
    found: dict[int, float] = {}
    for (ordinal, _), seconds in longest.items():
        found[ordinal] = found.get(ordinal, 0.0) + seconds
    return found


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
    return [_stretch_row(title, place, stretch) for place, (title, stretch) in enumerate(ordered)]


def _stretch_row(title: str, place: int, stretch: EpochSummary) -> dict[str, Any]:
    """Return one row; `place` is its position among them."""
    found = run_json.total_to_json(stretch)
    is_steps = stretch.ordinal <= STEP_ROWS
    return {
        "place": place,
        "title": _TITLES.get(title) or (f"· {title.strip()}" if title.startswith(" ") else title),
        "is_steps": is_steps,
        "beside": shown(max(0.0, stretch.seconds - stretch.trained)) if is_steps and stretch.trained > 0 else None,
        "metrics": found["metrics"],
        "framework_peak_reached": found["framework_peak_reached"],
        "is_partly_sampled": is_partly_sampled(stretch),
        "is_open": stretch.is_open,
        **{name: None if found[name] is None else shown(found[name]) for name in EPOCH},
    }
