"""Values of epochs as the points of a line: each epoch has an equal part of the width."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, isfinite

from gpumon.common.numbers import NAN


def stretch_of(place: int, many: int, cells: int) -> int:
    """Return the cell in the middle of one of `many` epochs; where each of two points a cell has several, its own."""
    if many > 2 * cells:
        return ((place + 1) * cells - 1) // many
    return min(cells - 1, int((place + 0.5) * cells / max(1, many)))


def levels(values: Sequence[float], points: int) -> list[float]:
    """Return what holds for each epoch as a whole, such as a mean: level over its part, nothing where it is unknown.

    Of several epochs in one point their mean.
    """
    many = len(values)
    if many > points:
        return [_mean(_part(values, place, points)) for place in range(points)]
    return [_known(values[int((place + 0.5) * many / points)]) if many else NAN for place in range(points)]


def joined(values: Sequence[float], points: int) -> list[float]:
    """Return what is known of one moment of each epoch, such as a loss: straight lines between neighbors.

    No line crosses an epoch without a finite value. Of several epochs in one point their mean.
    """
    many = len(values)
    if many > points or not many:
        return levels(values, points)
    found = []
    for place in range(points):
        at = (place + 0.5) * many / points - 0.5
        own = min(many - 1, max(0, floor(at + 0.5)))
        other = own + (1 if at > own else -1)
        value = _known(values[own])
        if 0 <= other < many and isfinite(values[other]):
            value += (values[other] - value) * abs(at - own)
        found.append(value)
    return found


def extremes(values: Sequence[float], points: int, *, highest: bool) -> list[float]:
    """Return the lowest or the highest value of the epochs in each point; NaN of none."""
    if len(values) <= points:
        return levels(values, points)
    found = []
    for place in range(points):
        known = _finite(_part(values, place, points))
        found.append((max(known) if highest else min(known)) if known else NAN)
    return found


def _part(values: Sequence[float], place: int, points: int) -> Sequence[float]:
    return values[place * len(values) // points : (place + 1) * len(values) // points]


def _known(value: float) -> float:
    return value if isfinite(value) else NAN


def _mean(values: Sequence[float]) -> float:
    known = _finite(values)
    return sum(known) / len(known) if known else NAN


def _finite(values: Sequence[float]) -> Sequence[float]:
    # A sum is quick: most runs have thousands of values and all of them are finite.
    return values if isfinite(sum(values)) else [value for value in values if isfinite(value)]
