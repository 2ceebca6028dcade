"""Limits on the differences between runs, for `gpumon runs compare --fail-if`: `energy_per_step>+5%`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpumon.common.errors import UsageError
from gpumon.common.numbers import is_known
from gpumon.reports.compare import Comparison, Difference, MeasureComparison, letters
from gpumon.reports.compare_measures import MEASURES

_LIMIT = re.compile(r"([a-z0-9_]+)\s*([<>])\s*([+-]?)(\d+(?:\.\d+)?)\s*%")
_EXAMPLE = "write for example 'energy_per_step>+5%' or 'utilization_mean<-3%'"


@dataclass(frozen=True, slots=True)
class Limit:
    """The largest difference from the baseline that is accepted."""

    text: str
    """The limit as the user wrote it."""
    key: str
    """Name of the measure in JSON."""
    is_upper: bool
    """True if only a larger value breaks the limit, false if only a smaller one does."""
    share: float
    """Share of the baseline's median. For a ratio such as utilization, the difference itself."""

    def is_broken(self, difference: Difference, in_points: bool) -> bool:
        """Return whether a difference is clear and beyond the limit."""
        value = _amount(difference, in_points)
        return difference.is_clear and (value > self.share if self.is_upper else value < self.share)


def _amount(difference: Difference, in_points: bool) -> float:
    """Return a difference of ratios as it is, and any other as a share of the baseline.

    NaN if it is unknown, or a share of a baseline that is 0.
    """
    return difference.value if in_points else difference.share


def parse_limit(text: str) -> Limit:
    """Parse a limit. Raises UsageError."""
    match = _LIMIT.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"'{text}' is not a limit: {_EXAMPLE}")
    key, operator, sign, number = match.groups()
    known = [measure.name for measure in MEASURES]
    if key not in known:
        raise UsageError(f"no such measure: '{key}'. Measures: {', '.join(known)}")
    is_upper = operator == ">"
    if (sign == "-") == is_upper and float(number):
        raise UsageError(f"'{text}' would fail for better runs as well as for worse ones: {_EXAMPLE}")
    if not is_upper and float(number) >= 100:
        raise UsageError(f"'{text}' can never fail: nothing decreases by more than 100 %")
    return Limit(text.strip(), key, is_upper, float(f"{sign}{number}") / 100)


def broken_limits(comparison: Comparison, limits: Sequence[Limit]) -> Iterator[str]:
    """Yield a sentence for each limit that a run breaks, and for each one that cannot be checked.

    A difference that may be chance, because its confidence interval contains zero, breaks no limit.
    """
    lines = {line.measure.name: line for line in comparison.lines}
    names = letters(len(comparison.records))[1:]
    for limit in limits:
        line = lines.get(limit.key)
        for index, name in enumerate(names):
            if line is None:
                yield f"{limit.text}: not measured in A and {name}"
            elif not is_known(_amount(line.differences[index], line.measure.in_points)):
                yield f"{limit.text}: {line.measure.title} of A or {name} is unknown, or 0 in A"
            elif not is_known(line.differences[index].low):
                yield f"{limit.text}: A or {name} has too few epochs to tell a difference from chance"
            elif limit.is_broken(line.differences[index], line.measure.in_points):
                yield f"{limit.text}: {_texts(line, index + 1)} ({name} against A)"


def _texts(line: MeasureComparison, index: int) -> str:
    return f"{line.measure.title} is {line.texts[index]} instead of {line.texts[0]}"
