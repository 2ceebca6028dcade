"""Two or more runs side by side: `gpumon runs compare`.

Each number is the median over a run's epochs, without the first, which is longer for reasons of its own (warm-up,
compilation, cold caches), where there are three or more. Whether two medians differ is told by how
much epochs of one run differ among themselves: epochs are drawn again and again (the bootstrap),
and a difference counts when 95 % of the draws are on one side of zero. That says nothing of how two repetitions of
a training would differ. Runs of which one has no epochs are compared as wholes: a single value has no interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from random import Random
from typing import Any, NamedTuple, TypeVar

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
from gpumon.reports.run_json import SCHEMA, known
from gpumon.reports.text_table import TextColumn, draw, sentence, wrapped
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.records import EpochTimes, Record
from gpumon.storage.ledger.summary import EpochSummary

WARM_UP_FROM = 3
"""With so many epochs or more the first is left out."""
FEWEST = 3
"""Epochs that a spread needs."""
_DRAWS = 2000
_OUTSIDE = 0.025
"""Share of the draws beyond each end of an interval."""
_SEED = 20240229
"""Any: so that the same runs give the same answer."""
_WIDE = 28
SAME = "the same"
"""Said of a difference that is 0 as it is written, and so is its interval."""
TOO_FEW = "too few epochs"
NO_INTERVAL = f"A run with fewer than {FEWEST} epochs has too few to tell: its differences have no interval."
SINGLE = "one value of each, and a single value has no confidence interval."

T = TypeVar("T")


class Difference(NamedTuple):
    """Difference of a run's median from that of the first; NaN where it is unknown."""

    value: float
    low: float
    high: float
    """95 % of the draws lie between `low` and `high`."""
    share: float
    """`value` as a share of the first run's median."""
    share_low: float = NAN
    share_high: float = NAN
    """95 % of the draws of that share lie between these; NaN where it has no interval of its own."""

    @property
    def is_clear(self) -> bool:
        """Whether it is more than epochs differ anyway."""
        return self.low > 0 or self.high < 0


class MeasureComparison(NamedTuple):
    """One measure of all runs."""

    measure: Measure[Any]
    medians: Sequence[float]
    differences: Sequence[Difference]
    """From the first run, of each of the others."""


class Comparison(NamedTuple):
    """Runs side by side; the first is what the others are compared with."""

    records: Sequence[Record]
    epochs: Sequence[int]
    """Number of epochs of each run that count."""
    left_out: Sequence[int]
    """Number of finished ones of each that do not: warm-up."""
    lines: Sequence[MeasureComparison]
    doubts: Sequence[str]
    """Why the runs may not be comparable, in sentences."""
    whole: Sequence[MeasureComparison] = ()
    """Whole runs, of which each has one value."""
    notes: Sequence[str] = ()
    """Sentences that are needed to read these."""


def compare(
    records: Sequence[Record], begun: Sequence[Sequence[EpochSummary]] = (),
    times: Sequence[Sequence[EpochSummary] | Sequence[EpochTimes]] = (),
) -> Comparison:  # fmt: skip
    """Compare the runs, each with the first; `begun` are the epochs of each, where they are known already.

    `times`: when all of them were, where those are a sample.
    """
    begun = begun or [aggregate.epoch_summaries(record) for record in records]
    finished = [[epoch for epoch in epochs if is_known(epoch.ended)] for epochs in begun]
    counted = [epochs[1:] if len(epochs) >= WARM_UP_FROM else epochs for epochs in finished]
    wholes = [WholeRun(*one) for one in zip(records, begun, times or begun, strict=True)]
    names = letters(len(records))
    sides = [ComparedRun(*one) for one in zip(names, records, counted, strict=True)]
    return Comparison(
        records,
        [len(epochs) for epochs in counted],
        [len(all_) - len(epochs) for all_, epochs in zip(finished, counted, strict=True)],
        _compared(MEASURES, counted),
        [doubt.summary for doubt in comparison_findings(sides)],
        _compared(WHOLE, [[run] for run in wholes]),
        [*unknown_energy(names, wholes), *_broken_off(names, records, begun, times or begun)],
    )


def _broken_off(
    names: Sequence[str], records: Sequence[Record], begun: Sequence[Sequence[EpochSummary]],
    times: Sequence[Sequence[EpochSummary] | Sequence[EpochTimes]],
) -> Iterator[str]:  # fmt: skip
    """Epochs that no median has, as nobody saw their end: a sentence for each run; the one that goes on is none."""
    for name, record, epochs, every in zip(names, records, begun, times, strict=True):
        goes_on = record.run.state is RunState.RUNNING
        found = [one for one in (epochs[:-1] if goes_on else epochs) if not is_known(one.ended)]
        count = sum(not is_known(one.ended) for one in (every[:-1] if goes_on else every))
        if not found or count == len(every):
            continue
        last = found[-1]
        after = f" after {units.fine_duration(last.seconds)}" if last.seconds > 0 else ""
        others = f", as {count - 1} before it did: they count" if count > 1 else " and counts"
        yield f"{name}: epoch {last.epoch} broke off{after}{others} in no median of epochs."


def _compared(measures: Sequence[Measure[T]], of: Sequence[Sequence[T]]) -> list[MeasureComparison]:
    """The measures that are known of any run; `of`: for each run what has a value of them."""
    found = []
    for measure in measures:
        values = [sorted(value for one in ones if math.isfinite(value := measure.of(one))) for ones in of]
        medians = [median(one) for one in values]
        if not all(not is_known(one) for one in medians):
            found.append(MeasureComparison(measure, medians, [difference(values[0], other) for other in values[1:]]))
    return found


def has_too_few(comparison: Comparison) -> bool:
    """Whether a difference of medians over epochs has no interval, as its runs have too few of them."""
    return any(is_known(one.value) and not is_known(one.low) for line in comparison.lines for one in line.differences)


def letters(count: int) -> list[str]:
    """Return the letters of runs in a comparison: A, B, C …"""
    return [chr(ord("A") + i) if i < 26 else f"Z{i - 25}" for i in range(count)]


def difference(first: Sequence[float], other: Sequence[float]) -> Difference:
    """Compare the median of `other` with that of `first`; both sorted.

    The interval of the share is that of the ratio of the two medians of each draw: nothing is less than -100 % of what
    cannot be below zero. To divide the ends of the difference by the first run's median would say so where its epochs
    differ much among themselves. Percentiles of draws need no logarithm for that: they are the same on every scale
    that keeps their order (B. Efron, R. J. Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13: the
    percentile interval respects transformations and preserves the range).
    """
    value = median(other) - median(first)
    share = value / abs(median(first)) if first and median(first) else NAN
    if min(len(first), len(other)) < FEWEST:
        return Difference(value, NAN, NAN, share)
    draws = [
        ((other[a] + other[b]) / 2, (first[c] + first[d]) / 2) for a, b, c, d in _places_drawn(len(first), len(other))
    ]
    low, high = _interval([own - base for own, base in draws])
    if min(first[0], other[0]) < 0:  # no share of what is below zero for one and above for the other
        return Difference(value, low, high, share)
    return Difference(value, low, high, share, *_interval([_grown(own, base) for own, base in draws]))


def _interval(draws: Sequence[float]) -> tuple[float, float]:
    """The ends of the interval in which 95 % of the draws lie."""
    found, outside = sorted(draws), round(_DRAWS * _OUTSIDE)
    return found[outside], found[-1 - outside]


def _grown(own: float, base: float) -> float:
    """The difference of two values that are not below zero as a share of the second."""
    if base:
        return own / base - 1
    return math.inf if own else 0.0


def median(values: Sequence[float]) -> float:
    """The median of sorted values; NaN of none."""
    middle = len(values) // 2
    if not values:
        return NAN
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


@lru_cache(maxsize=16)
def _places_drawn(first: int, other: int) -> tuple[tuple[int, int, int, int], ...]:
    """Places of medians among `other` and `first` sorted values: two of each, the same where a median is one value.

    They depend on these numbers alone, and measures of the same runs have the same: drawn once for all of them.
    """
    random = Random(_SEED)
    return tuple((*_drawn(other, random), *_drawn(first, random)) for _ in range(_DRAWS))


def _drawn(size: int, random: Random) -> tuple[int, int]:
    """The places of the median of as many values drawn with replacement.

    Places are drawn, not values: the k-th smallest of n draws lies at a share of the sorted
    values that is Beta distributed, which costs the same for ten epochs and for ten thousand.
    """
    if size % 2:
        half = (size + 1) / 2
        place = _place(random.betavariate(half, half), size)
        return place, place
    below = random.betavariate(size / 2, size / 2 + 1)
    above = below + (1 - below) * random.betavariate(1, size / 2)
    return _place(below, size), _place(above, size)


def _place(share: float, size: int) -> int:
    return min(size - 1, int(share * size))


def lines(comparison: Comparison, width: int) -> Iterator[str]:
    """The comparison as text, at most `width` cells wide where the words allow it (0: as it comes)."""
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
        beside = [line for line in comparison.whole if line.measure in RUN_MEASURES]
        if beside:
            yield ""
            yield from _table(beside, width, single=True)
            yield ""
            yield from sentence(f"Of whole runs: {SINGLE}", width)
    else:
        yield from _table(comparison.whole, width, single=True)
        yield ""
        yield from sentence(f"Whole runs: {SINGLE}", width)
    for note in (*comparison.notes, *(f"Caution: {doubt}" for doubt in comparison.doubts)):
        yield from sentence(note, width)


def _table(compared: Sequence[MeasureComparison], width: int, *, single: bool = False) -> Iterator[str]:
    """`single`: of each run there is one value."""
    if not compared:
        yield "Nothing of these runs was measured."
        return
    runs = len(compared[0].medians)
    columns = [TextColumn("", 100, right=False), TextColumn("A", 99, most=_WIDE)]
    for place, letter in enumerate(letters(runs)[1:]):
        columns += [TextColumn(letter, 98 - place, most=_WIDE), TextColumn(f"{letter} − A", 90 - place, right=False)]
    rows = []
    for line in compared:
        first, *others = line.measure.texts(line.medians)
        row = [line.measure.title, first]
        for told, found in zip(others, line.differences, strict=True):
            row += [told, verdict(found, line.measure, single=single)]
        rows.append(row)
    yield from draw(columns, rows, width)


def document(comparison: Comparison) -> dict[str, Any]:
    """The comparison as JSON."""
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
        "medians": [known(value) for value in line.medians],
        "differences": [
            {
                "value": known(found.value), "share": known(found.share), "low": known(found.low),
                "high": known(found.high), "clear": found.is_clear,
            }
            for found in line.differences
        ],
    }  # fmt: skip


def verdict(found: Difference, measure: Measure[Any], *, single: bool = False) -> str:
    """A difference in a few words: `+12 % (+10 … +14)`, `no clear difference`; `single`: of two values, `+12 %`."""
    if not is_known(found.value):
        return units.MISSING
    if found.value == 0 and not (found.low < 0 or found.high > 0):
        return SAME
    scale = 1.0 if measure.in_points else found.share / found.value if found.value else NAN
    write = units.points if measure.in_points else units.change
    whole = write(found.value * scale)
    if whole == units.MISSING:
        return whole
    if single:
        return SAME if _is_nothing(whole) else whole
    if not is_known(found.low):
        return f"{whole}, {TOO_FEW}"
    low, high = (write(end).partition(" ")[0] for end in ends(found, measure))
    if _is_nothing(f"{whole} {low} {high}"):
        return SAME
    return f"{whole} ({low} … {high})" if found.is_clear else "no clear difference"


def ends(found: Difference, measure: Measure[Any]) -> tuple[float, float]:
    """Ends of an interval as its difference is told: as shares of the first run's median, or as points; else NaN."""
    if measure.in_points:
        return found.low, found.high
    if is_known(found.share_low):
        return found.share_low, found.share_high
    scale = found.share / found.value if found.value else NAN
    return found.low * scale, found.high * scale


def briefly(told: str) -> tuple[str, ...]:
    """Return a verdict in fewer words: without its interval, but never without the doubt that it is told with."""
    if told.endswith(TOO_FEW):
        return (told.removesuffix(" epochs"),)
    return (told.partition(" (")[0],)


def _is_nothing(text: str) -> bool:
    """Whether all numbers of a text are 0, as they are written."""
    return not any(letter in "123456789" for letter in text)
