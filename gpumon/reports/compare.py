"""Compares two or more runs, for `gpumon runs compare`.

Each number is the median over a run's epochs. If a run has three or more epochs, its first epoch is left out, because
warm-up, compilation and cold caches make it longer. The confidence interval of a difference is computed by bootstrap
from the variation among the epochs of each run. A difference is clear if the interval that contains 95 % of the draws
does not contain zero. The interval does not show how much two repetitions of the same training would differ. If a run
has no epochs, whole runs are compared instead. A whole run has only one value of each measure, so its differences have
no interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any, TypeVar

from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.comparison import ComparedRun, comparison_findings
from gpumon.model import units
from gpumon.model.frame import RunState
from gpumon.reports.compare_measures import (
    MEASURES,
    RUN_MEASURES,
    WHOLE,
    Measure,
    WholeRun,
    config_differences,
    config_document,
    config_lines,
    unknown_energy,
)
from gpumon.reports.run_json import SCHEMA, nullable
from gpumon.reports.text_table import TextColumn, draw, sentence, wrapped
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.records import EpochTimes, Record
from gpumon.storage.ledger.summary import EpochSummary

WARM_UP_FROM = 3
"""The first epoch is excluded as warm-up if at least this many epochs have finished."""
FEWEST = 3
"""Minimum number of epochs for a confidence interval."""
_DRAWS = 2000
_OUTSIDE = 0.025
"""Fraction of the bootstrap draws below the lower end of an interval, and above its upper end."""
_SEED = 20240229
"""Seed of the bootstrap. It is fixed so that the same runs always give the same result."""
_WIDE = 28
SAME = "the same"
"""Text for a difference that rounds to 0. If the difference has an interval, both ends of the interval round to 0,
too."""
TOO_FEW = "too few epochs"
NO_INTERVAL = f"Differences of a run with fewer than {FEWEST} epochs have no confidence interval."
SINGLE = "each run has a single value, so differences have no confidence interval."

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference between a run's median and the first run's median, with its confidence interval.

    Numbers that cannot be computed are NaN.
    """

    value: float
    low: float
    high: float
    """Upper end of the interval. 95 % of the draws lie between `low` and `high`."""
    share: float
    """`value` as a share of the first run's median."""
    share_low: float = NAN
    share_high: float = NAN
    """Upper end of the interval of `share`. 95 % of its draws lie between `share_low` and `share_high`. Both are NaN if
    no interval of the share was computed."""

    @property
    def is_clear(self) -> bool:
        """True if zero is outside the confidence interval."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True)
class MeasureComparison:
    """The values of one measure, such as seconds per epoch, for all compared runs."""

    measure: Measure[Any]
    medians: Sequence[float]
    differences: Sequence[Difference]
    """The difference between the first run and each of the other runs."""
    signs: Sequence[str]
    """The sign before the median of each run. `≥`, `≤` or `≈` if some of the run's values are bounds or approximate;
    else empty."""

    @property
    def texts(self) -> list[str]:
        """The medians as texts with the same unit, each with its sign."""
        texts = self.measure.texts(self.medians)
        return [
            text if text == units.MISSING else f"{sign}{text}" for sign, text in zip(self.signs, texts, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison. Each run is compared with the first run."""

    records: Sequence[Record]
    epochs: Sequence[int]
    """Number of compared epochs of each run."""
    left_out: Sequence[int]
    """Number of finished epochs of each run that are excluded as warm-up."""
    lines: Sequence[MeasureComparison]
    doubts: Sequence[str]
    """Sentences that say why the runs may not be comparable."""
    whole: Sequence[MeasureComparison] = ()
    """Measures of whole runs, with one value per run."""
    notes: Sequence[str] = ()
    """Sentences that explain missing values and epochs without an end."""


def compare(
    records: Sequence[Record], begun: Sequence[Sequence[EpochSummary]] = (),
    times: Sequence[Sequence[EpochSummary] | Sequence[EpochTimes]] = (),
) -> Comparison:  # fmt: skip
    """Compare each run with the first.

    `begun`: the epochs of each run, finished or not. By default, they are computed from `records`; a caller that has
    already read them passes them. `times`: start and end of all epochs of each run. Needed if `begun` is only a sample
    of the epochs.
    """
    begun = begun or [aggregate.epoch_summaries(record) for record in records]
    finished = [[epoch for epoch in epochs if is_known(epoch.ended)] for epochs in begun]
    counted = [epochs[1:] if len(epochs) >= WARM_UP_FROM else epochs for epochs in finished]
    wholes = [WholeRun(*arguments) for arguments in zip(records, begun, times or begun, strict=True)]
    names = letters(len(records))
    sides = [ComparedRun(*arguments) for arguments in zip(names, records, counted, strict=True)]
    return Comparison(
        records,
        [len(epochs) for epochs in counted],
        [len(every) - len(epochs) for every, epochs in zip(finished, counted, strict=True)],
        _compared(MEASURES, counted),
        [doubt.summary for doubt in comparison_findings(sides)],
        _compared(WHOLE, [[run] for run in wholes]),
        [*unknown_energy(names, wholes), *_unfinished_epoch_notes(names, records, begun, times or begun)],
    )


def _unfinished_epoch_notes(
    names: Sequence[str], records: Sequence[Record], begun: Sequence[Sequence[EpochSummary]],
    times: Sequence[Sequence[EpochSummary] | Sequence[EpochTimes]],
) -> Iterator[str]:  # fmt: skip
    """Yield a sentence for each run with epochs that have no recorded end.

    The current epoch of a running run is ignored. `names`: name of each run in the sentences, such as A.
    """
    for name, record, epochs, every in zip(names, records, begun, times, strict=True):
        is_running = record.run.state is RunState.RUNNING
        unfinished = [epoch for epoch in (epochs[:-1] if is_running else epochs) if not is_known(epoch.ended)]
        count = sum(not is_known(epoch.ended) for epoch in (every[:-1] if is_running else every))
        if not unfinished or count == len(every):
            continue
        last = unfinished[-1]
        after = f" after {units.fine_duration(last.seconds)}" if last.seconds > 0 else ""
        if count > 1:
            yield f"{name}: epoch {last.epoch} stopped early{after}, like {count - 1} before it: excluded from medians."
        else:
            yield f"{name}: epoch {last.epoch} stopped early{after}: excluded from medians."


def _compared(measures: Sequence[Measure[T]], runs: Sequence[Sequence[T]]) -> list[MeasureComparison]:
    """Compare each measure that has a value in at least one run.

    `runs`: the items of each run that have values: its epochs, or a single item for the whole run.
    """
    result = []
    for measure in measures:
        values = [sorted(value for item in items if math.isfinite(value := measure.value_of(item))) for items in runs]
        medians = [median(own) for own in values]
        if any(map(is_known, medians)):
            differences = [difference(values[0], other) for other in values[1:]]
            result.append(MeasureComparison(measure, medians, differences, [_sign(measure, items) for items in runs]))
    return result


def _sign(measure: Measure[T], items: Sequence[T]) -> str:
    """Return the sign of the median of these items: the sign of their values, or `≈` if their signs differ."""
    signs = {sign for item in items if math.isfinite(measure.value_of(item)) and (sign := measure.sign_of(item))}
    return signs.pop() if len(signs) == 1 else units.ABOUT if signs else ""


def has_too_few(comparison: Comparison) -> bool:
    """Return True if any difference has no confidence interval because a run has too few epochs."""
    return any(
        is_known(difference.value) and not is_known(difference.low)
        for line in comparison.lines for difference in line.differences
    )  # fmt: skip


def letters(count: int) -> list[str]:
    """Return the letters that name runs in a comparison: A, B, C …"""
    return [chr(ord("A") + i) if i < 26 else f"Z{i - 25}" for i in range(count)]


def difference(first: Sequence[float], other: Sequence[float]) -> Difference:
    """Compare the medians of `other` and `first`, both sorted.

    The interval of the share is computed from the ratio of the two medians in each draw. So it never goes below -100 %
    for values that cannot be negative. If the ends of the difference's interval were divided by the first run's median
    instead, the result could be less than -100 % if the epochs of the first run vary much. The ratios can be used
    without taking logarithms, because the percentile interval respects transformations and preserves the range (B.
    Efron, R. J. Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13).
    """
    value = median(other) - median(first)
    share = value / abs(median(first)) if first and median(first) else NAN
    if min(len(first), len(other)) < FEWEST:
        return Difference(value, NAN, NAN, share)
    draws = [
        ((other[a] + other[b]) / 2, (first[c] + first[d]) / 2) for a, b, c, d in _drawn_indices(len(first), len(other))
    ]
    low, high = _interval([own - base for own, base in draws])
    if min(first[0], other[0]) < 0:  # the ratio of values with different signs means nothing
        return Difference(value, low, high, share)
    return Difference(value, low, high, share, *_interval([_relative_change(own, base) for own, base in draws]))


def _interval(draws: Sequence[float]) -> tuple[float, float]:
    """Return the ends of the interval that contains 95 % of the draws."""
    ordered, outside = sorted(draws), round(_DRAWS * _OUTSIDE)
    return ordered[outside], ordered[-1 - outside]


def _relative_change(own: float, base: float) -> float:
    """Return the relative change from `base` to `own`. Both must be at least 0."""
    if base:
        return own / base - 1
    return math.inf if own else 0.0


def median(values: Sequence[float]) -> float:
    """Return the median of values that are already sorted; NaN if there are none."""
    middle = len(values) // 2
    if not values:
        return NAN
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


@lru_cache(maxsize=16)
def _drawn_indices(first: int, other: int) -> tuple[tuple[int, int, int, int], ...]:
    """Return bootstrap draws for two runs with `first` and `other` values.

    A draw has the indices of the two middle values in each run's sorted values. The two are equal if the number of
    values is odd. Draws depend only on the numbers of values, so all measures of the same runs share them.
    """
    random = Random(_SEED)
    return tuple((*_draw_median(other, random), *_draw_median(first, random)) for _ in range(_DRAWS))


def _draw_median(size: int, random: Random) -> tuple[int, int]:
    """Return the indices of the two middle values of `size` values drawn with replacement.

    The indices are drawn directly: the position of the k-th smallest of n draws among the sorted values has a Beta
    distribution. The cost is therefore independent of the number of epochs.
    """
    if size % 2:
        half = (size + 1) / 2
        index = _index(random.betavariate(half, half), size)
        return index, index
    below = random.betavariate(size / 2, size / 2 + 1)
    above = below + (1 - below) * random.betavariate(1, size / 2)
    return _index(below, size), _index(above, size)


def _index(share: float, size: int) -> int:
    return min(size - 1, int(share * size))


def lines(comparison: Comparison, width: int) -> Iterator[str]:
    """Yield the comparison as lines of text, at most `width` columns wide (0: unlimited).

    A line is longer if it has a single word that is longer.
    """
    records = comparison.records
    by_epochs = all(comparison.epochs)
    for letter, record, count, left_out in zip(
        letters(len(records)), records, comparison.epochs, comparison.left_out, strict=True
    ):
        without = ", without the first (warm-up)" if left_out else ""
        epochs = f"{units.counted(count, 'epoch')}{without}" if by_epochs else "whole run"
        yield from wrapped((f"{letter}  {record.run.name}", record.run.id, record.run.user, epochs), width)
    yield ""
    yield from config_lines(config_differences(records), letters(len(records)), width)
    if by_epochs:
        yield from _table(comparison.lines, width)
        yield ""
        yield from sentence(
            "Medians over epochs. In brackets: 95 % interval of the difference (bootstrap over epochs).", width
        )
        if has_too_few(comparison):
            yield from sentence(NO_INTERVAL, width)
        of_runs = [line for line in comparison.whole if line.measure in RUN_MEASURES]
        if of_runs:
            yield ""
            yield from _table(of_runs, width, single=True)
            yield ""
            yield from sentence(f"Whole runs: {SINGLE}", width)
    else:
        yield from _table(comparison.whole, width, single=True)
        yield ""
        yield from sentence(f"Whole runs: {SINGLE}", width)
    for note in (*comparison.notes, *(f"Caution: {doubt}" for doubt in comparison.doubts)):
        yield from sentence(note, width)


def _table(compared: Sequence[MeasureComparison], width: int, *, single: bool = False) -> Iterator[str]:
    """Yield a table of measures. `single`: True if each run has a single value, as for measures of whole runs."""
    if not compared:
        yield "No value of these runs was measured."
        return
    runs = len(compared[0].medians)
    columns = [TextColumn("", 100, right=False), TextColumn("A", 99, max_width=_WIDE)]
    for index, letter in enumerate(letters(runs)[1:]):
        columns += [
            TextColumn(letter, 98 - index, max_width=_WIDE),
            TextColumn(f"{letter} − A", 90 - index, right=False),
        ]
    rows = []
    for line in compared:
        first, *others = line.texts
        row = [line.measure.title, first]
        for text, difference in zip(others, line.differences, strict=True):
            row += [text, verdict(difference, line.measure, single=single)]
        rows.append(row)
    yield from draw(columns, rows, width)


def document(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON."""
    runs = zip(comparison.records, comparison.epochs, comparison.left_out, strict=True)
    return {
        "schema": SCHEMA,
        "runs": [
            {"id": record.run.id, "name": record.run.name, "epochs": count, "left_out": left_out}
            for record, count, left_out in runs
        ],
        "config": config_document(config_differences(comparison.records)),
        "measures": [_as_json(line) for line in comparison.lines],
        "whole": [_as_json(line) for line in comparison.whole],
        "notes": list(comparison.notes),
        "doubts": list(comparison.doubts),
    }


def _as_json(line: MeasureComparison) -> dict[str, Any]:
    return {
        "name": line.measure.name,
        "medians": [nullable(value) for value in line.medians],
        "signs": list(line.signs),
        "differences": [
            {
                "value": nullable(difference.value), "share": nullable(difference.share),
                "low": nullable(difference.low), "high": nullable(difference.high), "clear": difference.is_clear,
            }
            for difference in line.differences
        ],
    }  # fmt: skip


def verdict(difference: Difference, measure: Measure[Any], *, single: bool = False) -> str:
    """Return a difference as text, such as `+12 % (+10 … +14)` or `no clear difference`.

    `single`: True if each run has a single value. The text then contains no interval: `+12 %`.
    """
    if not is_known(difference.value):
        return units.MISSING
    if difference.value == 0 and not (difference.low < 0 or difference.high > 0):
        return SAME
    scale = 1.0 if measure.in_points else difference.share / difference.value if difference.value else NAN
    write = units.points if measure.in_points else units.change
    whole = write(difference.value * scale)
    if whole == units.MISSING:
        return whole
    if single:
        return SAME if _is_nothing(whole) else whole
    if not is_known(difference.low):
        return f"{whole}, {TOO_FEW}"
    low, high = (write(end).partition(" ")[0] for end in ends(difference, measure))
    if _is_nothing(f"{whole} {low} {high}"):
        return SAME
    return f"{whole} ({low} … {high})" if difference.is_clear else "no clear difference"


def ends(difference: Difference, measure: Measure[Any]) -> tuple[float, float]:
    """Return the ends of the confidence interval as displayed, relative to the first run's median or in points."""
    if measure.in_points:
        return difference.low, difference.high
    if is_known(difference.share_low):
        return difference.share_low, difference.share_high
    scale = difference.share / difference.value if difference.value else NAN
    return difference.low * scale, difference.high * scale


def briefly(verdict_text: str) -> tuple[str, ...]:
    """Return shorter versions of a verdict. They omit the interval, but not the words "too few"."""
    if verdict_text.endswith(TOO_FEW):
        return (verdict_text.removesuffix(" epochs"),)
    return (verdict_text.partition(" (")[0],)


def _is_nothing(text: str) -> bool:
    """Return True if all numbers in `text` are 0."""
    return not any(letter in "123456789" for letter in text)
