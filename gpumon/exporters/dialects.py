"""The dialects in which a node can tell what it knows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gpumon.exporters.dcgm import HOST_LABEL, dcgm_families
from gpumon.exporters.family import Family
from gpumon.exporters.jobstats import jobstats_families
from gpumon.exporters.native import native_families, node_families
from gpumon.exporters.people import UserNames
from gpumon.exporters.snapshot import Snapshot


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
