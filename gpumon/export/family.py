"""Prometheus metric families: their samples and names, and limits on label values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf

from gpumon.common.text import clean
from gpumon.model.metrics import METRICS, Kind, Metric, Unit

Series = tuple[tuple[str, ...], float]
"""The label values, in the order of the family's label names, and the value."""


class FamilyKind(Enum):
    """Type of a family, as written in the text format."""

    GAUGE = "gauge"
    COUNTER = "counter"
    INFO = "info"
    """A gauge that is always 1. The information is in its labels."""


@dataclass(frozen=True, slots=True)
class Family:
    """Samples with the same name. The name of a counter contains `_total` if the dialect uses this suffix."""

    name: str
    help: str
    kind: FamilyKind
    labels: tuple[str, ...]
    series: Sequence[Series]


def gauge(name: str, help: str, labels: Sequence[str], series: Iterable[Series]) -> Family:
    """Return a family of gauges. `labels`: label names. Series whose value is NaN or infinite are left out."""
    return Family(name, help, FamilyKind.GAUGE, tuple(labels), _drop_missing(series))


def counter(name: str, help: str, labels: Sequence[str], series: Iterable[Series]) -> Family:
    """Return a family of counters. `labels`: label names. Series whose value is NaN or infinite are left out."""
    return Family(name, help, FamilyKind.COUNTER, tuple(labels), _drop_missing(series))


def info(name: str, help: str, labels: Sequence[str], series: Iterable[tuple[str, ...]]) -> Family:
    """Return a family with information in its labels. All values are 1.

    `labels`: label names. `series`: label values of each series; duplicates are left out.
    """
    return Family(name, help, FamilyKind.INFO, tuple(labels), [(values, 1.0) for values in dict.fromkeys(series)])


def _drop_missing(series: Iterable[Series]) -> list[Series]:
    """Return the series with finite values. Prometheus would treat NaN as a value."""
    return [sample for sample in series if -inf < sample[1] < inf]


MAX_LETTERS = 100
MAX_BYTES = 190
"""Maximum size of a label value in bytes of UTF-8. Prometheus rejects the whole scrape if a value exceeds its limit."""
_MORE = "…"


def label_text(text: str, letters: int = MAX_LETTERS) -> str:
    """Return an untrusted text as a safe label value of at most `letters` characters.

    >>> len(label_text("\\u6a21" * 70))
    63
    """
    return truncate(clean(text, letters))


def sentence(text: str) -> str:
    """Return a sentence as a label value. A long sentence is cut between words and ends with an ellipsis.

    >>> sentence("restart it " * 20)[-22:]
    'restart it restart it…'
    """
    whole = clean(text, 2 * MAX_BYTES)
    if (safe := truncate(whole)) == whole:
        return whole
    return truncate(safe, MAX_BYTES - len(_MORE.encode())).rpartition(" ")[0] + _MORE


def truncate(text: str, max_bytes: int = MAX_BYTES) -> str:
    """Cut a string to at most `max_bytes` of UTF-8 without splitting a character."""
    if len(text) * 4 <= max_bytes or (text.isascii() and len(text) <= max_bytes):
        return text
    return text.encode(errors="replace")[:max_bytes].decode(errors="ignore")


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
    """Return the exported name of a metric. It consists of the metric's name, its unit, and `_total` for a counter.

    >>> from gpumon.model.metrics import BY_NAME
    >>> exported_name(BY_NAME["gpu.energy"])
    'gpumon_gpu_energy_joules_total'
    """
    name = f"{PREFIX}{metric.name.replace('.', '_')}{_SUFFIXES[metric.unit]}"
    return f"{name}_total" if metric.kind is Kind.COUNTER else name


EXPORTED: Mapping[str, str] = {metric.name: exported_name(metric) for metric in METRICS}
"""The exported name of each metric, by its name in the metric table."""
