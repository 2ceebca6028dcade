"""`gpumon history totals`: energy, utilization, throttling, memory, PCIe bytes and gaps of a window."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from gpumon.cli.daemon_lookup import why_no_history
from gpumon.cli.options import add_command, add_places, add_window_and_gpus, gpu_option
from gpumon.cli.streams import output_width, print_message
from gpumon.common.errors import EXIT_OK, GpumonError
from gpumon.common.paths import Places, history_paths
from gpumon.live import follow

_TEXT = "show energy, utilization, throttling, peak memory and PCIe bytes of a window, and its gaps"


def add_parser(commands: Any, formatter: Any) -> None:
    """Add the subcommand to `gpumon history`."""
    parser = add_command(commands, formatter, "totals", _TEXT)
    add_window_and_gpus(parser)
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", default=False, help="print one JSON object for programs")
    output.add_argument("--csv", action="store_true", default=False, help="print CSV, one row per GPU and total")
    add_places(parser)


def run(places: Places, arguments: argparse.Namespace) -> int:
    """Print the totals. Raises GpumonError if there is no data for the window."""
    from gpumon.reports import history
    from gpumon.storage.history.overview import overview

    live = follow(places)
    try:
        gpus = [gpu_option(name) for name in arguments.gpu]
        totals = live.totals(begin=arguments.since, end=arguments.until, devices=gpus or None)
    finally:
        live.close()
    if not totals.devices:
        paths = history_paths(places)
        for path in paths:
            overview(path)  # raises GpumonError if the file cannot be read
        message = "no GPU was sampled in this window: 'gpumon history' lists the recorded time ranges"
        raise GpumonError(message if paths else why_no_history(places))
    if totals.problem:
        print_message(f"gpumon: the output lacks the stored history: {totals.problem}")
    if arguments.json:
        print(json.dumps(history.document(totals)))
    elif arguments.csv:
        sys.stdout.writelines(history.table(totals))
    else:
        for line in history.text(totals, output_width()):
            print(line)
    return EXIT_OK
