"""`gpumon history totals`: energy, utilization, throttling, memory and PCIe of a window, and what is missing of it."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from gpumon.cli.daemon_lookup import why_no_history
from gpumon.cli.options import add_command, add_places, add_window_and_gpus, named_gpu
from gpumon.cli.streams import output_width, say
from gpumon.common.errors import EXIT_OK, GpumonError
from gpumon.common.paths import Places, history_paths
from gpumon.live import follow

_TEXT = "show energy, utilization, throttling, peak memory and PCIe bytes of a window, and its gaps"


def add_parser(commands: Any, formatter: Any) -> None:
    """Add the subcommand to those of `gpumon history`."""
    parser = add_command(commands, formatter, "totals", _TEXT)
    add_window_and_gpus(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", default=False, help="print one JSON object for programs")
    how.add_argument("--csv", action="store_true", default=False, help="print CSV, one row per GPU and total")
    add_places(parser)


def run(where: Places, arguments: argparse.Namespace) -> int:
    """Print the totals. Raises GpumonError where nothing of the window is known."""
    from gpumon.reports import history
    from gpumon.storage.history.overview import overview

    live = follow(where)
    try:
        wanted = [named_gpu(name) for name in arguments.gpu]
        found = live.totals(begin=arguments.since, end=arguments.until, devices=wanted or None)
    finally:
        live.close()
    if not found.devices:
        paths = history_paths(where)
        for path in paths:
            overview(path)  # raises what makes it unreadable
        shown = "no GPU was sampled in this window: 'gpumon history' shows what is kept"
        raise GpumonError(shown if paths else why_no_history(where))
    if found.problem:
        say(f"gpumon: what was kept is missing here: {found.problem}")
    if arguments.json:
        print(json.dumps(history.document(found)))
    elif arguments.csv:
        sys.stdout.writelines(history.table(found))
    else:
        for line in history.text(found, output_width()):
            print(line)
    return EXIT_OK
