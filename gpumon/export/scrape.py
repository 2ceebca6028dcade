"""The exporter and the sets of metric names (dialects) that it can serve.

A scrape reads the ring once and makes no driver call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock

from gpumon.export.dcgm import HOST_LABEL, dcgm_families
from gpumon.export.exposition import Renderer, compress
from gpumon.export.family import Family, counter
from gpumon.export.jobstats import jobstats_families
from gpumon.export.native import native_families, node_families
from gpumon.export.negotiation import MAX_WAIT, PLAIN, accepts_gzip
from gpumon.export.snapshot import LiveData, Snapshot, UserNames, take_snapshot


@dataclass(frozen=True, slots=True)
class DialectOptions:
    """Options of a dialect that determine the labels."""

    users: UserNames = UserNames.NAME
    host_label: str | None = None
    """Name of the label with the host name, in dialects that have one. Empty for no label, None for the default."""
    hostname: str = ""


@dataclass(frozen=True, slots=True)
class Dialect:
    """A set of metric names and labels that the exporter can serve."""

    families: Callable[[Snapshot, DialectOptions], Sequence[Family]]
    plain: bool = False
    """True if the dialect has no OpenMetrics form, because its counters lack the `_total` that OpenMetrics requires."""


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


MAX_FAMILY_SERIES = 512
"""Maximum number of series of a family. It is more than the GPUs, users and runs of any node need."""
MAX_SERIES = 4500
"""Maximum number of series of a scrape. A server rejects a scrape with too many, and the shipped server settings allow
a few more than this."""
_LAST = "gpumon_gpu_unavailable"
"""The family that is cut first if there are too many series. It is the least important one, and may be as long as all
others together."""


def limit_series(families: Iterable[Family]) -> tuple[list[Family], int]:
    """Return the families, cut to the maximum number of series, and the number of series that were left out.

    The maximum numbers are `MAX_FAMILY_SERIES` for a family and `MAX_SERIES` in total.
    """
    limited = list(families)
    remaining, dropped = MAX_SERIES, 0
    for index in sorted(range(len(limited)), key=lambda index: limited[index].name == _LAST):
        family = limited[index]
        limit = remaining if family.name == _LAST else min(remaining, MAX_FAMILY_SERIES)
        kept = family.series[:limit]
        dropped += len(family.series) - len(kept)
        remaining -= len(kept)
        limited[index] = replace(family, series=kept)
    return [family for family in limited if family.series], dropped


@dataclass(frozen=True, slots=True)
class ScrapeResult:
    """The answer to one scrape."""

    body: bytes
    content_type: str
    encoding: str
    """`gzip` if the body is compressed, otherwise empty."""


class Exporter:
    """Serves the newest data of a ring with one set of metric names."""

    def __init__(
        self, live: LiveData, dialect: str = "native", options: DialectOptions | None = None, lock: Lock | None = None
    ) -> None:
        """`dialect`: name of the set of metric names. `lock`: protects `live` if it is also read elsewhere."""
        self._live = live
        self._dialect = DIALECTS[dialect]
        self._options = options or DialectOptions()
        self._lock = lock or Lock()
        self._dropped = 0
        self._renderer = Renderer()

    def families(self) -> list[Family]:
        """Return the metric families of the newest frame."""
        snapshot = take_snapshot(self._live)
        options = replace(self._options, hostname=self._options.hostname or self._live.hostname())
        families, dropped = limit_series(self._dialect.families(snapshot, options))
        self._dropped += dropped
        if not self._dialect.plain:
            help = "Series that were dropped from scrapes because there were too many."
            families.append(counter("gpumon_exporter_dropped_series_total", help, (), [((), float(self._dropped))]))
        return families

    def scrape(self, accept: str = PLAIN, accept_encoding: str = "", max_wait: float = MAX_WAIT) -> ScrapeResult:
        """Answer a scrape. `accept`, `accept_encoding`: values of the request's headers.

        Raises TimeoutError if it had to wait for other scrapes for more than `max_wait` seconds.
        """
        if not self._lock.acquire(timeout=max_wait):
            raise TimeoutError
        try:
            body, content_type = self._renderer.render(self.families(), PLAIN if self._dialect.plain else accept)
        finally:
            self._lock.release()
        if accepts_gzip(accept_encoding):
            return ScrapeResult(compress(body), content_type, "gzip")
        return ScrapeResult(body, content_type, "")

    def is_ready(self) -> bool:
        """Return True if a daemon is sampling this machine and can read its GPUs."""
        with self._lock:
            return self._live.state().live and not self._live.origin().problem
