"""Options of commands that show a whole cluster."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gpumon.common.errors import MissingPackage, UsageError

if TYPE_CHECKING:
    from gpumon.cluster.client import Engine, EngineAccess

CLUSTER_TICK = 15.0
"""Seconds from picture to picture: exporters are scraped no more often."""
PERIODS = ("day", "week", "month", "this-month", "last-month")


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """`--prometheus` and `--prometheus-config`."""
    group = parser.add_argument_group("cluster")
    group.add_argument(
        "--prometheus", metavar="URL",
        help="a Prometheus, or what answers as one (VictoriaMetrics, Mimir, Thanos), that scrapes 'gpumon export' on "
        "the nodes",
    )  # fmt: skip
    group.add_argument(
        "--prometheus-config", metavar="FILE",
        help="TOML file of mode 0600 with token, or username and password, ca, certificate, key and headers for it",
    )  # fmt: skip


def open_engine(arguments: argparse.Namespace) -> tuple[Engine, EngineAccess]:
    """Return the engine of `--prometheus`, and how to reach it. Raises UsageError, MissingPackage without httpx."""
    if arguments.source is not None:
        raise UsageError("--prometheus shows other machines: leave out --source")
    try:
        from gpumon.cluster.client import Engine
    except ImportError as error:
        raise MissingPackage("--prometheus", error.name or "httpx") from error
    from gpumon.cluster.client import NO_ACCESS, read_access

    path = arguments.prometheus_config
    access = read_access(path) if path else NO_ACCESS
    return Engine(arguments.prometheus, access), access
