"""Options of `gpumon daemon`, and its subcommands."""

from __future__ import annotations

import argparse
from typing import Any

from gpumon.cli.options import add_places, add_source

SUBCOMMANDS = {
    "status": "show whether a daemon runs, since when, what it samples and what it lacks",
    "stop": "stop your daemon, and wait until it has stopped",
    "restart": "stop your daemon, and start one with the same options in the background",
}


def add_daemon(parser: argparse.ArgumentParser) -> None:
    """Add the options and the subcommands of `gpumon daemon`."""
    parser.set_defaults(action="")
    parser.add_argument(
        "--detach", action="store_true", help="run in the background, and return after the first sample"
    )
    add_source(parser)
    parser.add_argument(
        "--no-gpm", dest="gpm", action="store_false", default=None,
        help="do not read GPM, the performance counters of Hopper and newer GPUs, for a profiler that requires them "
        "for itself (GPUMON_GPM=off, or gpm = false in the file)",
    )  # fmt: skip
    parser.add_argument(
        "--idle-interval", metavar="SECONDS", help="sample so seldom while no GPU does anything and none has a process "
        "(default: as always)",
    )  # fmt: skip
    parser.add_argument(
        "--job-dir", metavar="DIR", help="directory with a file for each GPU that names its job, as for "
        "--hpc-job-mapping-dir of dcgm-exporter (default: none); /run/gpustat of jobstats is read wherever it is",
    )  # fmt: skip
    add_places(parser)
    commands: Any = parser.add_subparsers(metavar="COMMAND", title="subcommands")
    for name, text in SUBCOMMANDS.items():
        # What is not given must not hide what was given before the subcommand.
        below = commands.add_parser(
            name, help=text, description=f"{text[0].upper()}{text[1:]}.", argument_default=argparse.SUPPRESS,
            formatter_class=parser.formatter_class,
        )  # fmt: skip
        below.set_defaults(action=name)
        add_places(below)
