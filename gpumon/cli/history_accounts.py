"""`gpumon history accounts`: the time and energy of each user of the GPUs."""

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
from gpumon.reports import usage
from gpumon.storage.history.buckets import resolve_window
from gpumon.storage.history.tiers import HOUR
from gpumon.storage.usage.period_totals import GROUPINGS, summary
from gpumon.storage.usage.query import by_group, read_accounts

_TEXT = "show who used the GPUs: held, busy and idle time and energy of each user"


def add_parser(commands: Any, formatter: Any) -> None:
    """Add the subcommand to `gpumon history`."""
    parser = add_command(commands, formatter, "accounts", _TEXT)
    parser.add_argument(
        "--since", metavar="TIME", default="7d",
        help="start of the window, in whole hours: 7d for 7 days ago, or 2026-01-31 (default: 7d)",
    )  # fmt: skip
    parser.add_argument(
        "--until", metavar="TIME", default=None, help="end of the window, in whole hours (default: now)"
    )
    parser.add_argument("--by", choices=GROUPINGS, default="user", help="how to group the usage (default: user)")
    parser.add_argument(
        "--groups",
        action="store_true",
        default=False,
        help="sum users by group, as defined by [groups] in the settings file",
    )
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", default=False, help="print one JSON object for programs")
    output.add_argument("--csv", action="store_true", default=False, help="print CSV, one row per user and group")
    add_places(parser)


def run(places: Places, arguments: argparse.Namespace) -> int:
    """Print the accounts. Raises GpumonError."""
    if arguments.groups and arguments.user_groups is None:
        raise UsageError('--groups needs a table [groups] in config.toml, with lines such as vision = ["ann", "bob"]')
    now = time.time()
    span = resolve_window(None, arguments.since, arguments.until, now)
    begin = span.begin // HOUR * HOUR
    end = max(begin, min(-(-span.end // HOUR) * HOUR, now))  # whole hours, but not beyond now
    paths = history_paths(places)
    if not paths:
        raise GpumonError(why_no_history(places, "accounts"))
    accounts = read_accounts(paths[0], begin, end)
    if arguments.groups:
        accounts = by_group(accounts, arguments.user_groups)
    groups = summary(accounts, begin, end, arguments.by)
    priced = accounts.devices, arguments.prices, usage.GROUP if arguments.groups else usage.USER
    if arguments.json:
        json.dump(usage.as_json(groups, arguments.by, begin, end, *priced), sys.stdout, allow_nan=False)
        print()
    elif arguments.csv:
        sys.stdout.writelines(usage.csv(groups, *priced))
    elif not groups:
        print(
            "no usage recorded in this window: no daemon sampled the GPUs; a running daemon records usage within a "
            "minute"
        )
    else:
        for line in usage.lines(groups, arguments.by, output_width(), *priced):
            print(line)
    return EXIT_OK
