"""Value axes: scale, number format and labels of charts; and time labels below a chart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, floor, inf, isfinite, log10, nan
from time import localtime
from typing import NamedTuple

from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.metrics import Kind, Metric, Unit
from gpumon.storage.history.buckets import Grid

STEPS = (
    1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 3 * 3600, 6 * 3600, 12 * 3600, 86400,
    2 * 86400, 5 * 86400,
)  # fmt: skip


def clock_labels(columns: Grid, cells: int, min_distance: int = 12) -> list[tuple[int, str]]:
    """Return cell and text of time-of-day and date labels in local time, for a window in the past."""
    span = columns.step * columns.buckets
    step = next((candidate for candidate in STEPS if cells * candidate / span >= min_distance), STEPS[-1])
    labels: list[tuple[int, str]] = []
    zone = localtime(columns.begin).tm_gmtoff
    time = ceil((columns.begin + zone) / step) * step - zone
    while time < columns.end:
        text = units.moment(time)
        text = text[5:10] if text.endswith("00:00:00") else text[11:] if step < 60 else text[11:16]
        begin = max(0, min(cells - len(text), round(cells * (time - columns.begin) / span) - len(text) // 2))
        if not labels or begin > labels[-1][0] + len(labels[-1][1]):
            labels.append((begin, text))
        time += step
    return labels


def place_labels(labels: list[tuple[int, str]], ground: str) -> str:
    """Place labels on a line, as far as they fit."""
    line = list(ground)
    for cell, text in labels:
        if cell + len(text) <= len(line):
            line[cell : cell + len(text)] = text
    return "".join(line)


_ROUND = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
_COLDEST, _HOTTEST = 20.0, 100.0
"""Range of a temperature axis in °C.

It does not start at zero, which no device gets near, so the area below the line is not filled.
"""
_KIB = 1024.0


class NumberFormat(NamedTuple):
    """Number format of a metric, on an axis and in a table next to it."""

    divisor: float
    unit: str
    decimals: int

    def text(self, value: float) -> str:
        """Return the number without a unit; a dash if it is unknown."""
        return units.signed(f"{value / self.divisor:,.{self.decimals}f}") if is_known(value) else units.MISSING


_BARE = NumberFormat(1.0, "", 4)


class ValueAxis(NamedTuple):
    """Vertical axis of a chart, from bottom to top in base units."""

    low: float
    high: float
    intervals: int
    """Number of equal intervals between labels."""
    format: NumberFormat

    def share(self, value: float) -> float:
        """Return the position of a value: 0 at the bottom, 1 at the top, clamped to that range; NaN if unknown."""
        # NaN != NaN; no call of is_known, because a call would dominate the cost.
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low))) if value == value else nan

    def labels(self, rows: int, cells: int) -> dict[int, str]:
        """Return labels by row, with the unit at the topmost label, or below it if there is no room.

        A label that does not fit in any form is left out, because a truncated number is a wrong number.
        """
        texts, unit = self._number_labels(rows, cells), self.format.unit
        if texts.get(0) and not texts[0].endswith(unit) and 1 not in texts and rows > 2 and len(unit) <= cells:
            texts[1] = unit
        return texts

    def _number_labels(self, rows: int, cells: int) -> dict[int, str]:
        divisors = self._divisors()
        # At most every second row has a label, unless there would be fewer than two.
        roomy = [parts for parts in divisors if rows > 2 * parts or parts == 1]
        labels = self._best_labels(roomy, rows, cells)
        return labels if len(labels) > 1 else self._best_labels([*roomy, *divisors], rows, cells)

    def _best_labels(self, choices: Sequence[int], rows: int, cells: int) -> dict[int, str]:
        """Return the labels for the first number of intervals at which all labels fit, or the one with the most
        labels.
        """
        best: dict[int, str] = {}
        for parts in choices:
            values = [self.low + (self.high - self.low) * part / parts for part in range(parts + 1)]
            texts = [_format_number(value / self.format.divisor, self._digits(parts), cells) for value in values]
            with_unit = f"{texts[-1]} {self.format.unit}".rstrip()
            texts[-1] = with_unit if len(with_unit) <= cells else texts[-1]
            rows_of_labels = (round((rows - 1) * (1 - part / parts)) for part in range(parts + 1))
            labels = {row: text for row, text in zip(rows_of_labels, texts, strict=True) if len(text) <= cells}
            if all(len(text) <= cells for text in texts):
                return labels
            best = labels if len(labels) > len(best) else best
        return best

    def _digits(self, parts: int) -> int:
        """Return the number of digits needed to distinguish labels at equal distances, at least four."""
        interval, largest = (self.high - self.low) / max(1, parts), max(abs(self.low), abs(self.high))
        return max(4, floor(log10(largest / interval)) + 2) if interval > 0 else 4

    def _divisors(self) -> list[int]:
        """Return the possible numbers of intervals: the divisors of `intervals`, largest first."""
        return [self.intervals // divisor for divisor in range(1, self.intervals + 1) if self.intervals % divisor == 0]


def _format_number(value: float, digits: int, cells: int) -> str:
    """Format a number, with an exponent if it does not fit otherwise."""
    text = _shorten_exponent(f"{value:.{digits}g}")
    if len(text) <= cells:
        return text
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    return min(text, _shorten_exponent(f"{mantissa.rstrip('0').rstrip('.')}e{exponent}"), key=len)


def _shorten_exponent(text: str) -> str:
    return units.signed(text.replace("e+0", "e").replace("e+", "e").replace("e-0", "e-"))


def logged_axis(values: Iterable[float]) -> ValueAxis:
    """Return an axis for values that a run logged, rounded outward from the finite `values`."""
    finite = [value for value in values if isfinite(value)]
    if not finite:
        return ValueAxis(0.0, 1.0, 2, _BARE)
    low, high = min(finite), max(finite)
    if high <= low:
        low, high = low - abs(low or 1.0) * 0.5, high + abs(high or 1.0) * 0.5
    min_step = (high - low) / 4
    decade = 10.0 ** floor(log10(min_step)) if 0 < min_step < inf else 1.0
    step = next((n * decade for n in (1, 2, 2.5, 5, 10) if n * decade >= min_step * 0.999), 10 * decade)
    begin = floor(low / step + 1e-9) * step
    parts = max(1, ceil((high - begin) / step - 1e-9))
    return ValueAxis(begin, begin + step * parts, parts, _BARE)


def value_axis(metric: Metric, largest: float, limit: float = nan) -> ValueAxis:
    """Return the axis for values up to `largest`, or NaN; `limit`: the maximum possible value, or NaN.

    If both are unknown, the axis has no intervals and thus no labels.
    """
    if metric.unit is Unit.RATIO or _is_share(metric):
        return ValueAxis(0.0, 1.0, 4, number_format(metric, 1.0))
    if metric.unit is Unit.CELSIUS:
        parts = 4 if not largest > _HOTTEST else 5
        return ValueAxis(_COLDEST, _HOTTEST + 20.0 * (parts - 4), parts, number_format(metric, _HOTTEST))
    top = max((value for value in (largest, limit) if is_known(value) and value < inf), default=nan)
    if not is_known(top):
        return ValueAxis(0.0, 1.0, 0, number_format(metric, 1.0))
    if not top > 0:
        top = 1.0
    scale = number_format(metric, top).divisor
    step = _round_up(top / scale / 4) * scale
    return ValueAxis(0.0, 4 * step, 4, number_format(metric, 4 * step))


def number_format(metric: Metric, top: float) -> NumberFormat:
    """Return the number format for values up to `top`."""
    per_second = "/s" if metric.kind is Kind.COUNTER or metric.unit is Unit.BYTES_PER_SECOND else ""
    if metric.unit is Unit.RATIO or _is_share(metric):
        return NumberFormat(0.01, "%", 0)
    if metric.unit in (Unit.BYTES, Unit.BYTES_PER_SECOND):
        for power, name in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
            if top >= _KIB**power:
                return NumberFormat(_KIB**power, name + per_second, 1)
        return NumberFormat(1.0, "B" + per_second, 0)
    if metric.unit is Unit.HERTZ:
        return NumberFormat(1e9, "GHz", 2)  # as in the clock column
    if metric.unit is Unit.JOULES:
        return NumberFormat(1.0, "W" if per_second else "J", 0)
    return NumberFormat(
        1.0, {Unit.WATTS: "W", Unit.CELSIUS: "°C", Unit.SECONDS: "s"}.get(metric.unit, "") or per_second, 0
    )


def _is_share(metric: Metric) -> bool:
    """Whether the metric counts seconds, so that its rate is a share of time."""
    return metric.unit is Unit.SECONDS and metric.kind is Kind.COUNTER


def _round_up(value: float) -> float:
    decade = 10.0 ** floor(log10(value))
    return next((n * decade for n in _ROUND if n * decade >= value * (1 - 1e-9)), 10 * decade)
