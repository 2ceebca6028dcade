"""Writes families in Prometheus' text format.

Every scraper reads this format, so there is no content negotiation. prometheus-client is not used because it takes ten
times as long (7 ms instead of 0.7 ms for 759 series). This is more than a whole scrape may cost; see
`benchmarks/exporter.py`. https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from functools import lru_cache

from gpumon.export.family import Family, FamilyKind, truncate

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LEVEL = 1
"""Compression level of gzip. Higher levels take three times as long, and make the answer only ten percent smaller."""


def render(families: Iterable[Family]) -> bytes:
    """Return the text of the families in UTF-8. Labels without a value are left out."""
    return "".join([line for family in families for line in _lines(family)]).encode()


def compress(text: bytes) -> bytes:
    """Return the text compressed with gzip."""
    return gzip.compress(text, _LEVEL, mtime=0)


def accepts_gzip(accept_encoding: str) -> bool:
    """Return True if the answer may be compressed with gzip. `accept_encoding`: value of the request's header."""
    choices = [choice.replace(" ", "").lower().partition(";") for choice in accept_encoding.split(",")]
    return any(name in ("gzip", "*") and quality not in ("q=0", "q=0.0") for name, _, quality in choices)


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {_escape_help(family.help)}\n# TYPE {family.name} {_type(family)}\n"
    name, names = family.name, family.labels
    for values, value in family.series:
        yield f"{name}{_labels(names, values)} {value!r}\n"


def _type(family: Family) -> str:
    """Return the type of a family.

    A counter without `_total` has no type, as in NVIDIA's exporter for fields of DCGM.
    """
    if family.kind is not FamilyKind.COUNTER:
        return "gauge"
    return "counter" if family.name.endswith("_total") else "untyped"


@lru_cache(8192)  # the labels of a GPU are the same in a hundred families and in the next scrape
def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    labels = [f'{name}="{_escape(truncate(text))}"' for name, text in zip(names, values, strict=True) if text]
    return f"{{{','.join(labels)}}}" if labels else ""


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
