"""`gpumon history accounts` and `gpumon history caps`: what each user used of the GPUs, and how much of each cap on it
is left."""

from __future__ import annotations

import argparse
import sys
import time

from gpumon.cli.daemon_lookup import why_no_history
from gpumon.cli.streams import output_width, print_json, print_lines
from gpumon.common.errors import GpumonError, UsageError
from gpumon.common.paths import Places, history_paths
from gpumon.reports import usage
from gpumon.storage.history.buckets import resolve_window
from gpumon.storage.history.tiers import HOUR
from gpumon.storage.usage.period_totals import GROUPINGS, summary
from gpumon.storage.usage.query import by_group, read_accounts


def add_account_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gpumon history accounts`."""
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


def print_accounts(places: Places, arguments: argparse.Namespace) -> None:
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
        print_json(usage.as_json(groups, arguments.by, begin, end, *priced))
    elif arguments.csv:
        sys.stdout.writelines(usage.csv(groups, *priced))
    elif not groups:
        print(
            "no usage recorded in this window: no daemon sampled the GPUs; a running daemon records usage within a "
            "minute"
        )
    else:
        print_lines(usage.lines(groups, arguments.by, output_width(), *priced))


def add_cap_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gpumon history caps`."""
    parser.add_argument("--json", action="store_true", default=False, help="print one JSON object for programs")


def print_caps(places: Places, arguments: argparse.Namespace) -> None:
    """Print how much of each configured cap is used. Raises GpumonError."""
    from gpumon.caps import read_cap_states
    from gpumon.reports import caps

    if arguments.caps is None:
        raise UsageError("no caps are configured: add a table [caps] to config.toml (docs/reference/settings.md)")
    paths = history_paths(places)
    if not paths:
        raise GpumonError(why_no_history(places, "accounts"))
    states = read_cap_states(paths[0], arguments.caps, arguments.user_groups, arguments.prices, time.time())
    if arguments.json:
        print_json(caps.as_json(states, arguments.prices))
    elif not states:
        print("no cap applies to a user or group with recorded usage in this period")
    else:
        print_lines(caps.lines(states, arguments.prices, output_width()))
