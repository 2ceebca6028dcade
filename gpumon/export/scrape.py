"""An exporter: each scrape reads the ring once, and asks no driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import NamedTuple

from gpumon.export.dcgm import HOST_LABEL, dcgm_families
from gpumon.export.exposition import Renderer, compressed
from gpumon.export.family import Family, counter
from gpumon.export.jobstats import jobstats_families
from gpumon.export.native import native_families, node_families
from gpumon.export.negotiation import PATIENCE, PLAIN, accepts_gzip
from gpumon.export.snapshot import Readable, Snapshot, UserNames, take


class DialectOptions(NamedTuple):
    """Choices of whoever runs the exporter."""

    users: UserNames = UserNames.NAME
    host_label: str | None = None
    """The label with the host's name, in dialects that have one; empty: none; None: the usual one."""
    hostname: str = ""


class Dialect(NamedTuple):
    """A dialect."""

    families: Callable[[Snapshot, DialectOptions], Sequence[Family]]
    plain: bool = False
    """Whether it is told in the text format alone: it has counters without `_total`, which OpenMetrics forbids."""


def _dcgm(snapshot: Snapshot, options: DialectOptions) -> Sequence[Family]:
    label = HOST_LABEL if options.host_label is None else options.host_label
    return [*node_families(snapshot), *dcgm_families(snapshot, label, options.hostname, options.users)]


def _jobstats(snapshot: Snapshot, options: DialectOptions) -> Sequence[Family]:
    return [*node_families(snapshot), *jobstats_families(snapshot, options.users)]


DIALECTS: Mapping[str, Dialect] = {
    "native": Dialect(lambda snapshot, options: native_families(snapshot, options.users)),
    "dcgm": Dialect(_dcgm, plain=True),
    "jobstats": Dialect(_jobstats, plain=True),
}


MOST_SERIES = 512
"""Series of a family: more than GPUs, users and runs of any node come to."""
MOST_OF_ALL = 4500
"""Series of a scrape: a server with the settings that we ship takes a few more, and of too many none."""
_LAST = "gpumon_gpu_unavailable"
"""The family that gets what the others leave: it may be as long as all of them, and is missed least."""


def bounded(families: Iterable[Family]) -> tuple[list[Family], int]:
    """Return families with at most so many series each and in all, and how many series were left out."""
    found = list(families)
    room, dropped = MOST_OF_ALL, 0
    for place in sorted(range(len(found)), key=lambda place: found[place].name == _LAST):
        family = found[place]
        most = room if family.name == _LAST else min(room, MOST_SERIES)
        kept = family.series[:most]
        dropped += len(family.series) - len(kept)
        room -= len(kept)
        found[place] = family._replace(series=kept)
    return [family for family in found if family.series], dropped


class Scraped(NamedTuple):
    """An answer to a scrape."""

    body: bytes
    content_type: str
    encoding: str
    """`gzip`, or empty."""


class Exporter:
    """Tells what a ring has, in a dialect."""

    def __init__(
        self, live: Readable, dialect: str = "native", options: DialectOptions | None = None, lock: Lock | None = None
    ) -> None:
        """`lock`: of `live`, where others read it, too."""
        self._live = live
        self._dialect = DIALECTS[dialect]
        self._options = options or DialectOptions()
        self._lock = lock or Lock()
        self._dropped = 0
        self._renderer = Renderer()

    def families(self) -> list[Family]:
        """Return what there is to tell now."""
        snapshot = take(self._live)
        options = self._options._replace(hostname=self._options.hostname or self._live.hostname())
        found, dropped = bounded(self._dialect.families(snapshot, options))
        self._dropped += dropped
        if not self._dialect.plain:
            told = "Series that scrapes left out, for being too many."
            found.append(counter("gpumon_exporter_dropped_series_total", told, (), [((), float(self._dropped))]))
        return found

    def scrape(self, accept: str = PLAIN, accept_encoding: str = "", patience: float = PATIENCE) -> Scraped:
        """Answer a scrape with these headers. Raises TimeoutError after `patience` seconds: others are at it."""
        if not self._lock.acquire(timeout=patience):
            raise TimeoutError
        try:
            body, content_type = self._renderer.render(self.families(), PLAIN if self._dialect.plain else accept)
        finally:
            self._lock.release()
        if accepts_gzip(accept_encoding):
            return Scraped(compressed(body), content_type, "gzip")
        return Scraped(body, content_type, "")

    def is_ready(self) -> bool:
        """Return whether there is a node to tell of: a daemon samples it, and can read its GPUs."""
        with self._lock:
            return self._live.state().live and not self._live.origin().problem
