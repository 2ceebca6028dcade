"""An exporter: each scrape reads the ring once, and asks no driver."""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple

from gpumon.exporters.accepted import PATIENCE, PLAIN, accepts_gzip
from gpumon.exporters.dialects import DIALECTS, DialectOptions
from gpumon.exporters.family import Family, counter
from gpumon.exporters.limits import bounded
from gpumon.exporters.render import Renderer, compressed
from gpumon.exporters.snapshot import Readable, take


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
