"""Show the recorded history: totals of a window, usage by user, processes and events; or export a window.

A daemon stores values of each GPU in the state directory: every second for an hour, every 10 s for a day and every 5
min for a month. It stores values of each process every 10 s for a day and every 5 min for a month. Without a
subcommand, list the stored time ranges and their size.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing
from itertools import chain
from types import ModuleType
from typing import Any

from gpumon.cli import history_accounts, history_caps, history_events, history_processes, history_totals
from gpumon.cli.daemon_lookup import why_no_history
from gpumon.cli.options import add_command, add_places, resolve_options
from gpumon.cli.streams import print_message, write_output
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

_SUBCOMMANDS: dict[str, ModuleType] = {
    "totals": history_totals, "accounts": history_accounts, "caps": history_caps, "processes": history_processes,
    "events": history_events,
}  # fmt: skip
"""Subcommands with their own modules."""
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
    parser.set_defaults(action="list")
    add_places(parser)
    commands: Any = parser.add_subparsers(metavar="COMMAND", title="subcommands")
    text = "export a window as CSV or Parquet: minimum, mean and maximum of each metric"
    export = add_command(commands, parser.formatter_class, "export", text)
    export.add_argument("--format", choices=("csv", "parquet"), required=True, help="format of the output")
    export.add_argument("--last", metavar="DURATION", default="24h", help="length of the window (default: 24h)")
    export.add_argument(
        "--step", choices=_STEPS, help="seconds per row (default: the finest step recorded for the whole window)"
    )
    export.add_argument(
        "-o", "--output", metavar="FILE", default="", help="output file (overwritten if it exists); default: stdout"
    )
    add_places(export)
    for subcommand in _SUBCOMMANDS.values():
        subcommand.add_parser(commands, parser.formatter_class)


def run(arguments: argparse.Namespace) -> int:
    places, arguments = resolve_options(arguments)
    if arguments.action == "export":
        return _export(places, arguments)
    if arguments.action in _SUBCOMMANDS:
        code: int = _SUBCOMMANDS[arguments.action].run(places, arguments)
        return code
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
    return EXIT_OK


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
    for line in draw(_COLUMNS, rows) if rows else [EMPTY]:
        print(line)
    if history.damaged:
        print(f"damaged and moved aside: {', '.join(history.damaged)}")


def _export(places: Places, arguments: argparse.Namespace) -> int:
    length = positive_seconds(arguments.last)
    if arguments.format == "parquet" and arguments.output in ("", "-"):
        raise UsageError("parquet is binary: pass -o FILE")
    paths = history_paths(places)
    if not paths:
        raise GpumonError(why_no_history(places))
    with closing(open_history()) as history:
        _export_window(history, paths[0], length, places, arguments)
    return EXIT_OK


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
