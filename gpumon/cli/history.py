"""Show the recorded history: totals of a window, usage by user, processes and events; or export a window.

A daemon stores values of each GPU in the state directory: every second for an hour, every 10 s for a day and every 5
min for a month. It stores values of each process every 10 s for a day and every 5 min for a month. Without a
subcommand, list the stored time ranges and their size.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import closing
from itertools import chain

from gpumon.cli import history_accounts, history_events, history_processes
from gpumon.cli.daemon_lookup import why_no_history
from gpumon.cli.options import add_commands, add_places, add_window_and_gpus, gpu_option, resolve_options
from gpumon.cli.streams import output_width, print_json, print_lines, print_message, write_output
from gpumon.common.clock import positive_seconds
from gpumon.common.errors import EXIT_OK, GpumonError, UsageError
from gpumon.common.paths import Places, history_paths
from gpumon.live import follow
from gpumon.model.units import bytes_binary, counted, fine_duration, moment
from gpumon.model.vendors import is_part
from gpumon.reports.text_table import TextColumn, draw
from gpumon.storage.history.open import open_history
from gpumon.storage.history.overview import Overview, overview
from gpumon.storage.history.tiered_history import TieredHistory
from gpumon.storage.history.tiers import DAY, SHAPES

_WHEN_WRITTEN = "a running daemon writes it every 5 minutes, and when it stops"
EMPTY = f"no history yet: {_WHEN_WRITTEN}"
_STEPS = [str(shape.step) for shape in SHAPES]
_COLUMNS = (
    TextColumn("CELLS", 3),
    TextColumn("FROM", 2),
    TextColumn("TO", 2),
    TextColumn("SPAN", 1),
    TextColumn("SIZE", 1),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(action="")
    add_places(parser)
    add_commands(parser, {name: (text, options) for name, (text, options, _) in _COMMANDS.items()})


def _export_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=("csv", "parquet"), required=True, help="format of the output")
    parser.add_argument("--last", metavar="DURATION", default="24h", help="length of the window (default: 24h)")
    parser.add_argument(
        "--step", choices=_STEPS, help="seconds per row (default: the finest step recorded for the whole window)"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", default="", help="output file (overwritten if it exists); default: stdout"
    )


def _totals_options(parser: argparse.ArgumentParser) -> None:
    add_window_and_gpus(parser)
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", default=False, help="print one JSON object for programs")
    output.add_argument("--csv", action="store_true", default=False, help="print CSV, one row per GPU and total")


def run(arguments: argparse.Namespace) -> int:
    places, arguments = resolve_options(arguments)
    if arguments.action:
        _COMMANDS[arguments.action][2](places, arguments)
    else:
        _list(places)
    return EXIT_OK


def _list(places: Places) -> None:
    """Print the stored time ranges and their size. Raises GpumonError."""
    paths, problems = history_paths(places), []
    if not paths:
        print(why_no_history(places))
    for path in paths:
        try:
            _print_overview(overview(path))
        except GpumonError as error:  # the other file may be readable
            problems.append(str(error))
    if problems:
        raise GpumonError("; ".join(problems))


def _print_overview(history: Overview) -> None:
    rows = [
        (
            f"{size.shape.step} s",
            moment(size.begin),
            moment(size.end),
            fine_duration(size.end - size.begin),
            bytes_binary(size.bytes),
        )
        for size in history.tiers
    ]
    for table in history.others:
        size = counted(table.rows, "row") if table.rows else bytes_binary(table.bytes)
        rows.append((table.name, moment(table.begin), moment(table.end), fine_duration(table.end - table.begin), size))
    gpus = sum(not is_part(uuid) for uuid in history.subjects)
    print(f"{history.path}  {bytes_binary(history.bytes)}  {counted(gpus, 'GPU')}")
    print_lines(draw(_COLUMNS, rows) if rows else [EMPTY])
    if history.damaged:
        print(f"damaged and moved aside: {', '.join(history.damaged)}")


def _totals(places: Places, arguments: argparse.Namespace) -> None:
    """Print the totals of a window. Raises GpumonError if there is no data for the window."""
    from gpumon.reports import history

    with closing(follow(places)) as live:
        gpus = [gpu_option(name) for name in arguments.gpu]
        totals = live.totals(begin=arguments.since, end=arguments.until, devices=gpus or None)
    if not totals.devices:
        paths = history_paths(places)
        for path in paths:
            overview(path)  # raises GpumonError if the file cannot be read
        message = "no GPU was sampled in this window: 'gpumon history' lists the recorded time ranges"
        raise GpumonError(message if paths else why_no_history(places))
    if totals.problem:
        print_message(f"gpumon: the output lacks the stored history: {totals.problem}")
    if arguments.json:
        print_json(history.document(totals))
    elif arguments.csv:
        sys.stdout.writelines(history.table(totals))
    else:
        print_lines(history.text(totals, output_width()))


def _export(places: Places, arguments: argparse.Namespace) -> None:
    length = positive_seconds(arguments.last)
    if arguments.format == "parquet" and arguments.output in ("", "-"):
        raise UsageError("parquet is binary: pass -o FILE")
    paths = history_paths(places)
    if not paths:
        raise GpumonError(why_no_history(places))
    with closing(open_history()) as history:
        _export_window(history, paths[0], length, places, arguments)


def _export_window(
    history: TieredHistory, path: str, length: float, places: Places, arguments: argparse.Namespace
) -> None:
    from gpumon.reports.history import lines, parquet, rows_of

    live, kept = follow(places), overview(path)
    history.set_path(path)
    if live.history_file() == path:
        for frame in live.since(0):  # the file does not contain the newest frames yet
            history.add(frame)
    end = max([time.time()] if live.is_alive() else [size.end for size in kept.tiers], default=time.time())
    live.close()
    begin = end - length
    covering = [size.shape.step for size in kept.tiers if size.begin <= begin + size.shape.step]
    step = float(getattr(arguments, "step", None) or min(covering, default=SHAPES[-1].step))
    begins = [size.begin for size in kept.tiers if size.shape.step <= step]
    begin = max(begin, min(begins, default=end - DAY) - step)  # earlier rows have no values
    rows = rows_of(history, kept.subjects, begin, end, step)
    first = next(rows, None)
    if first is None:
        print_message(f"gpumon: no history in this window: {_WHEN_WRITTEN}")
    rows = chain(() if first is None else (first,), rows)
    if arguments.format == "parquet":
        write_output(arguments.output, parquet(rows))
    elif arguments.output in ("", "-"):
        sys.stdout.writelines(lines(rows))
    else:
        write_output(arguments.output, "".join(lines(rows)).encode())


_COMMANDS: dict[
    str, tuple[str, Callable[[argparse.ArgumentParser], None], Callable[[Places, argparse.Namespace], None]]
] = {
    "export": (
        "export a window as CSV or Parquet: minimum, mean and maximum of each metric", _export_options, _export,
    ),
    "totals": (
        "show energy, utilization, throttling, peak memory and PCIe bytes of a window, and its gaps", _totals_options,
        _totals,
    ),
    "accounts": (
        "show who used the GPUs: held, busy and idle time and energy of each user",
        history_accounts.add_account_options, history_accounts.print_accounts,
    ),
    "caps": (
        "show the caps of users and groups: how much is used, and when they will be reached",
        history_accounts.add_cap_options, history_accounts.print_caps,
    ),
    "processes": (
        "list the processes that used the GPUs: user, time, memory, share of the SMs",
        history_processes.add_process_options, history_processes.print_processes,
    ),
    "events": (
        "list events: runs, out of memory, throttling, lost or idle GPUs, the driver, the daemon",
        history_events.add_event_options, history_events.print_events,
    ),
}  # fmt: skip
"""Help, options and function of each subcommand."""
