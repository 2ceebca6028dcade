"""Rows of a dialect: a family of its own name and unit for a metric of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import floor, inf
from typing import NamedTuple

from gpumon.common.numbers import NAN, is_known
from gpumon.exporters.family import Family, counter, gauge
from gpumon.exporters.snapshot import GpuFacts

Labels = Callable[[GpuFacts], tuple[str, ...]]


class DialectRow(NamedTuple):
    """A family."""

    name: str
    metric: str
    """Of the table of metrics; several, joined by ` + `, are added up, and ` - ` takes away."""
    factor: float
    """From the base unit to that of the dialect."""
    help: str
    is_counter: bool = False
    is_whole: bool = False
    """Whether the dialect has whole numbers alone: it rounds down, as NVIDIA's programs do."""
    optional: Sequence[str] = ()
    """Metrics that count as 0 where a GPU does not have them."""


def row_families(
    rows: Sequence[DialectRow], gpus: Sequence[GpuFacts], names: Sequence[str], labels: Labels
) -> Iterator[Family]:
    """Yield the families of `rows`; each GPU has the labels `names`. What a GPU does not have is absent."""
    answering = [(one, labels(one)) for one in gpus if one.answers]
    for row in rows:
        make = counter if row.is_counter else gauge
        terms = terms_of(row.metric)
        yield make(row.name, row.help, names, [(values, _value(row, terms, one)) for one, values in answering])


def terms_of(metric: str) -> Mapping[str, float]:
    """Return the metrics of a row, and the sign of each."""
    words = f"+ {metric}".split()
    return {name: -1.0 if sign == "-" else 1.0 for sign, name in zip(words[::2], words[1::2], strict=True)}


def _value(row: DialectRow, terms: Mapping[str, float], one: GpuFacts) -> float:
    found = 0.0
    for metric, sign in terms.items():
        value = one.sample.value(metric)
        if not is_known(value) and metric in row.optional:
            continue
        found += sign * value
    if not -inf < found < inf:
        return NAN
    # A value that went through a product is a little beside the number that it stands for.
    return float(floor(found * row.factor + 1e-6)) if row.is_whole else found * row.factor
