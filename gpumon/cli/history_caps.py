"""`gpumon history caps`: how much of each configured cap on usage is used, and when it will be reached."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from gpumon.cli.daemon_lookup import why_no_history
from gpumon.cli.options import add_command, add_places
from gpumon.cli.streams import output_width
from gpumon.common.errors import EXIT_OK, GpumonError, UsageError
from gpumon.common.paths import Places, history_paths

_TEXT = "show the caps of users and groups: how much is used, and when they will be reached"


def add_parser(commands: Any, formatter: Any) -> None:
    """Add the subcommand to `gpumon history`."""
    parser = add_command(commands, formatter, "caps", _TEXT)
    parser.add_argument("--json", action="store_true", default=False, help="print one JSON object for programs")
    add_places(parser)


def run(places: Places, arguments: argparse.Namespace) -> int:
    """Print the caps. Raises GpumonError."""
    from gpumon.caps import read_cap_states
    from gpumon.reports import caps

    if arguments.caps is None:
        raise UsageError("no caps are configured: add a table [caps] to config.toml (docs/reference/settings.md)")
    paths = history_paths(places)
    if not paths:
        raise GpumonError(why_no_history(places, "accounts"))
    now = time.time()
    states = read_cap_states(paths[0], arguments.caps, arguments.user_groups, arguments.prices, now)
    if arguments.json:
        json.dump(caps.as_json(states, arguments.prices), sys.stdout, allow_nan=False)
        print()
    elif not states:
        print("no usage recorded in this period by users that have a cap")
    else:
        for line in caps.lines(states, arguments.prices, output_width()):
            print(line)
    return EXIT_OK
