"""Formats that a scraper accepts, and for how long it waits, by the headers of its request."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from gpumon.common.errors import MissingPackage
from gpumon.common.numbers import is_known
from gpumon.export.family import Family, FamilyKind, within

PLAIN = "text/plain; version=0.0.4"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
_OPENMETRICS_KIND = OPENMETRICS.partition(";")[0]
_PLAIN_KINDS = ("text/plain", "text/*", "*/*")
_VERSIONS = ("1.0.0", "0.0.1", "")
_MOST = 32
TIMEOUT = "X-Prometheus-Scrape-Timeout-Seconds"
PATIENCE = 10.0
"""Seconds for which a scrape waits for others at most."""
_SPARE = 0.5
"""Seconds that an answer needs on its way, of those that a scraper waits."""


def accepted_format(accept: str) -> str:
    """Return `OPENMETRICS` where it is asked for before any text, else `PLAIN`, which every scraper reads.

    >>> accepted_format("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1")
    'application/openmetrics-text; version=1.0.0'
    """
    for _, kind, parameters in sorted(_asked(accept), key=lambda one: -one[0]):
        if kind == _OPENMETRICS_KIND and parameters.get("version", "") in _VERSIONS:
            return OPENMETRICS
        if kind in _PLAIN_KINDS:
            return PLAIN
    return PLAIN


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether an answer may be compressed with gzip."""
    return any(quality > 0 and kind in ("gzip", "x-gzip", "*") for quality, kind, _ in _asked(accept_encoding))


def patience_of(timeout: str) -> float:
    """Return for how many seconds a scraper that says it waits for `timeout` can be kept waiting."""
    try:
        seconds = float(timeout)
    except ValueError:
        return PATIENCE
    return min(PATIENCE, max(0.1, seconds - _SPARE)) if is_known(seconds) else PATIENCE


def _asked(header: str) -> Iterator[tuple[float, str, dict[str, str]]]:
    """Quality, name and parameters of each choice, in their order."""
    for choice in header.split(",")[:_MOST]:
        kind, *rest = (part.strip() for part in choice.split(";"))
        parameters = {key.strip().lower(): value.strip() for key, _, value in (part.partition("=") for part in rest)}
        try:
            quality = float(parameters.get("q", "1"))
        except ValueError:
            quality = 0.0
        if kind and quality > 0:
            yield quality, kind.lower(), parameters


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
