"""The exporter, and the sets of metric names (dialects) that it can serve.

A scrape reads the ring once and makes no driver call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Lock

from gpumon.export.dcgm import HOST_LABEL, dcgm_families
from gpumon.export.exposition import render
from gpumon.export.family import Family, counter
from gpumon.export.jobstats import jobstats_families
from gpumon.export.native import native_families, node_families
from gpumon.export.snapshot import LiveData, Snapshot, UserNames, take_snapshot


@dataclass(frozen=True, slots=True)
class DialectOptions:
    """Options of a dialect that determine the labels."""

    users: UserNames = UserNames.NAME
    host_label: str | None = None
    """Name of the label with the host name, in dialects that have one. Empty for no label, None for the default."""
    hostname: str = ""


def _dcgm(snapshot: Snapshot, options: DialectOptions) -> Sequence[Family]:
    label = HOST_LABEL if options.host_label is None else options.host_label
    return [*node_families(snapshot), *dcgm_families(snapshot, label, options.hostname, options.users)]


def _jobstats(snapshot: Snapshot, options: DialectOptions) -> Sequence[Family]:
    return [*node_families(snapshot), *jobstats_families(snapshot, options.users)]


def _native(snapshot: Snapshot, options: DialectOptions) -> Sequence[Family]:
    return native_families(snapshot, options.users)


DIALECTS: Mapping[str, Callable[[Snapshot, DialectOptions], Sequence[Family]]] = {
    "native": _native,
    "dcgm": _dcgm,
    "jobstats": _jobstats,
}
"""The families of a snapshot, by name of the set of metric names."""


MAX_FAMILY_SERIES = 512
"""Maximum number of series of a family. The GPUs, users and runs of a node never need so many."""
MAX_SERIES = 4500
"""Maximum number of series of a scrape. A server rejects a scrape with too many series. The server settings that gpumon
ships allow a few more than this number."""
_LAST = "gpumon_gpu_unavailable"
"""The family that is cut first if there are too many series. It is the least important family, and may be as long as
all other families together."""


def limit_series(families: Iterable[Family]) -> tuple[list[Family], int]:
    """Return the families without excess series, and the number of series that were left out.

    The limits are `MAX_FAMILY_SERIES` for each family, and `MAX_SERIES` in total.
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


class Exporter:
    """Serves the newest data of a ring with one set of metric names. May be used by several threads."""

    def __init__(
        self, live: LiveData, dialect: str = "native", options: DialectOptions | None = None, lock: Lock | None = None
    ) -> None:
        """`dialect`: name of the set of metric names. `lock`: protects `live` if other code reads it, too."""
        self._live = live
        self._families = DIALECTS[dialect]
        self._options = options or DialectOptions()
        self._lock = lock or Lock()
        self._dropped = 0

    def families(self) -> list[Family]:
        """Return the metric families of the newest frame."""
        with self._lock:
            snapshot = take_snapshot(self._live)
            hostname = self._options.hostname or self._live.hostname()
            families, dropped = limit_series(self._families(snapshot, replace(self._options, hostname=hostname)))
            self._dropped += dropped
            total = float(self._dropped)
        help = "Series that were dropped from scrapes because there were too many."
        return [*families, counter("gpumon_exporter_dropped_series_total", help, (), [((), total)])]

    def scrape(self) -> bytes:
        """Return the answer to a scrape, as text in UTF-8."""
        return render(self.families())

    def is_ready(self) -> bool:
        """Return True if a daemon is sampling this machine and can read its GPUs."""
        with self._lock:
            return self._live.state().live and not self._live.origin().problem
