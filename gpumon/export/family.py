"""A family of samples as an exporter tells it, before anything is rendered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from gpumon.common.text import clean
from gpumon.model.metrics import METRICS, Kind, Metric, Unit

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


MOST_LETTERS = 100
MOST_BYTES = 190
"""Of a value in UTF-8, which is what Prometheus counts: with one that is longer it refuses the whole scrape."""
_MORE = "…"


def label_text(text: str, letters: int = MOST_LETTERS) -> str:
    """Return a text of other people as the value of a label.

    >>> len(label_text("\\u6a21" * 70))
    63
    """
    return within(clean(text, letters))


def sentence(text: str) -> str:
    """Return a text for people as the value of a label: whole words, of which the end says that some are left out.

    >>> sentence("restart it " * 20)[-22:]
    'restart it restart it…'
    """
    whole = clean(text, 2 * MOST_BYTES)
    if (safe := within(whole)) == whole:
        return whole
    return within(safe, MOST_BYTES - len(_MORE.encode())).rpartition(" ")[0] + _MORE


def within(text: str, most: int = MOST_BYTES) -> str:
    """Return as many whole letters of a text as `most` bytes hold."""
    if len(text) * 4 <= most or (text.isascii() and len(text) <= most):
        return text
    return text.encode(errors="replace")[:most].decode(errors="ignore")


PREFIX = "gpumon_"
_SUFFIXES: Mapping[Unit, str] = {
    Unit.RATIO: "_ratio",
    Unit.BYTES: "_bytes",
    Unit.WATTS: "_watts",
    Unit.JOULES: "_joules",
    Unit.CELSIUS: "_celsius",
    Unit.HERTZ: "_hertz",
    Unit.SECONDS: "_seconds",
    Unit.COUNT: "",
    Unit.BITS: "",
    Unit.BYTES_PER_SECOND: "_bytes_per_second",
    Unit.PER_SECOND: "_per_second",
}


def exported_name(metric: Metric) -> str:
    """Return the name of a metric: its own, its unit, and `_total` where it is a counter.

    >>> from gpumon.model.metrics import BY_NAME
    >>> exported_name(BY_NAME["gpu.energy"])
    'gpumon_gpu_energy_joules_total'
    """
    name = f"{PREFIX}{metric.name.replace('.', '_')}{_SUFFIXES[metric.unit]}"
    return f"{name}_total" if metric.kind is Kind.COUNTER else name


EXPORTED: Mapping[str, str] = {metric.name: exported_name(metric) for metric in METRICS}
"""Names in Prometheus by names of the table."""
