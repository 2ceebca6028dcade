"""Families as text, by prometheus-client: the text format, or OpenMetrics where the scraper asks for it.

From one scrape to the next, values change and little else. prometheus-client therefore writes the lines of a family
once, and again when its labels change; in between only the values are replaced, in a tenth of the time.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gpumon.common.errors import MissingPackage
from gpumon.export.family import Family, FamilyKind, within
from gpumon.export.negotiation import accepted_format

try:
    from prometheus_client import Metric
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector
    from prometheus_client.utils import floatToGoString
except ImportError as error:
    raise MissingPackage("gpumon export", "prometheus-client") from error

_LEVEL = 1
"""Of gzip: higher ones take three times the time for a tenth less."""

_END = "# EOF\n"
"""Of a text in OpenMetrics."""


class _Lines(NamedTuple):
    """The lines of a family, and what they were with their values of the last scrape: many do not change."""

    help: str
    labels: list[tuple[str, ...]]
    head: str
    begins: list[str]
    values: tuple[float, ...] = ()
    text: str = ""


class Renderer:
    """Renders the families of an exporter, scrape after scrape."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Lines] = {}
        """By content type and name."""

    def render(self, families: Sequence[Family], accept: str) -> tuple[bytes, str]:
        """Return the text and its content type, as a scraper accepts it."""
        encode, content_type = choose_encoder(accepted_format(accept))
        parts, names = [], {family.name for family in families}
        for family in families:
            labels = [labels for labels, _ in family.series]
            known = self._known.get((content_type, family.name))
            if known is None or known.labels != labels or known.help != family.help:
                known = self._known[content_type, family.name] = _lines(family, labels, encode)
            values = tuple([value for _, value in family.series])
            if not known.text or known.values != values:
                lines = [
                    f"{begin}{floatToGoString(value)}\n"  # type: ignore[no-untyped-call]
                    for begin, value in zip(known.begins, values, strict=True)
                ]
                known = known._replace(values=values, text="".join((known.head, *lines)))
                self._known[content_type, family.name] = known
            parts.append(known.text)
        if encode(_One()).endswith(_END.encode()):
            parts.append(_END)
        for key in [key for key in self._known if key[1] not in names]:
            del self._known[key]
        return "".join(parts).encode(), content_type


def compressed(text: bytes) -> bytes:
    """Compress with gzip, which is what scrapers ask for."""
    return gzip.compress(text, _LEVEL, mtime=0)


class _One(Collector):
    """Stands in for a registry with one family, or none."""

    def __init__(self, *metrics: Metric) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _lines(family: Family, labels: list[tuple[str, ...]], encode: Callable[..., bytes]) -> _Lines:
    head, begins = [], []
    for line in encode(_One(_metric(family))).decode().removesuffix(_END).split("\n")[:-1]:
        if line.startswith("#"):
            head.append(f"{line}\n")
        else:
            begins.append(line[: line.rindex(" ") + 1])
    return _Lines(family.help, labels, "".join(head), begins)


def _metric(family: Family) -> Metric:
    is_counter = family.kind is FamilyKind.COUNTER
    is_total = is_counter and family.name.endswith("_total")
    # The type of counters adds a suffix to a family's name in the text: these have it.
    name = family.name.removesuffix("_total") if is_total else family.name
    kind = "counter" if is_total else "unknown" if is_counter else "gauge"
    metric = Metric(name, family.help, kind)
    for values, value in family.series:
        told = {label: within(text) for label, text in zip(family.labels, values, strict=True) if text}
        metric.add_sample(family.name, told, value)
    return metric
