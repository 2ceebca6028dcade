"""A family of samples as an exporter tells it, before anything is rendered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

Series = tuple[tuple[str, ...], float]
"""Values of the labels, in the family's order, and the value."""


class FamilyKind(Enum):
    """Type of a family, as the text format has it."""

    GAUGE = "gauge"
    COUNTER = "counter"
    INFO = "info"
    """A gauge that is always 1: its labels are what it tells."""


class Family(NamedTuple):
    """Samples of one name. The name is whole: a counter's has `_total` where its dialect has it."""

    name: str
    help: str
    kind: FamilyKind
    labels: tuple[str, ...]
    series: Sequence[Series]


def gauge(name: str, help: str, labels: Sequence[str], series: Iterable[Series]) -> Family:
    """Return a family of gauges, without those that are missing."""
    return Family(name, help, FamilyKind.GAUGE, tuple(labels), _known(series))


def counter(name: str, help: str, labels: Sequence[str], series: Iterable[Series]) -> Family:
    """Return a family of counters, without those that are missing."""
    return Family(name, help, FamilyKind.COUNTER, tuple(labels), _known(series))


def info(name: str, help: str, labels: Sequence[str], series: Iterable[tuple[str, ...]]) -> Family:
    """Return a family that tells of things by its labels; each is told once."""
    return Family(name, help, FamilyKind.INFO, tuple(labels), [(one, 1.0) for one in dict.fromkeys(series)])


def _known(series: Iterable[Series]) -> list[Series]:
    """A missing value has no sample: a NaN in Prometheus is a value."""
    # NaN is not itself; in place, because there are hundreds of series in each scrape.
    return [one for one in series if one[1] == one[1]]
