"""Show the recorded history: totals of a window, usage by user, processes and events; or export a window.

A daemon keeps values of each GPU in the state directory: every second for an hour, every 10 s for a day and every 5 min
for a month; of each process, every 10 s for a day and every 5 min for a month. Without a subcommand, list the kept
time ranges and their size.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import closing
from itertools import chain
from types import ModuleType
from typing import Any

from gpumon.cli import history_accounts, history_events, history_processes, history_totals
from gpumon.cli.daemon_lookup import why_no_history
from gpumon.cli.options import add_command, add_places, resolve_options
from gpumon.cli.streams import say, write_output
from gpumon.common.clock import positive_seconds
from gpumon.common.errors import EXIT_OK, GpumonError, UsageError
from gpumon.common.paths import Places, history_paths
from gpumon.live import follow
from gpumon.model.units import bytes_binary, counted, moment, span
from gpumon.model.vendors import is_part
from gpumon.reports.text_table import TextColumn, draw
from gpumon.storage.history.open import open_history
from gpumon.storage.history.overview import Overview, overview
from gpumon.storage.history.tiered import LongHistory
from gpumon.storage.history.tiers import DAY, SHAPES

_MORE: dict[str, ModuleType] = {
    "totals": history_totals, "accounts": history_accounts, "processes": history_processes, "events": history_events,
}  # fmt: skip
"""Subcommands with a file of their own."""
_WRITES = "a running daemon writes it every 5 minutes, and when it stops"
EMPTY = f"no history yet: {_WRITES}"
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
    below = add_command(commands, parser.formatter_class, "export", text)
    below.add_argument("--format", choices=("csv", "parquet"), required=True, help="format of the output")
    below.add_argument("--last", metavar="DURATION", default="24h", help="length of the window (default: 24h)")
    below.add_argument(
        "--step", choices=_STEPS, help="seconds per row (default: the finest step kept for the whole window)"
    )
    below.add_argument(
        "-o", "--output", metavar="FILE", default="", help="output file (overwritten if it exists); default: stdout"
    )
    add_places(below)
    for one in _MORE.values():
        one.add_parser(commands, parser.formatter_class)


def run(arguments: argparse.Namespace) -> int:
    where, arguments = resolve_options(arguments)
    if arguments.action == "export":
        return _export(where, arguments)
    if arguments.action in _MORE:
        code: int = _MORE[arguments.action].run(where, arguments)
        return code
    paths, problems = history_paths(where), []
    if not paths:
        print(why_no_history(where))
    for path in paths:
        try:
            _show(overview(path))
        except GpumonError as error:  # the other one can be read nevertheless
            problems.append(str(error))
    if problems:
        raise GpumonError("; ".join(problems))
    return EXIT_OK


def _show(found: Overview) -> None:
    rows = [
        (
            f"{size.shape.step} s",
            moment(size.begin),
            moment(size.end),
            span(size.end - size.begin),
            bytes_binary(size.bytes),
        )
        for size in found.tiers
    ]
    for one in found.others:
        size = counted(one.rows, "row") if one.rows else bytes_binary(one.bytes)
        rows.append((one.name, moment(one.begin), moment(one.end), span(one.end - one.begin), size))
    gpus = sum(not is_part(uuid) for uuid in found.subjects)
    print(f"{found.path}  {bytes_binary(found.bytes)}  {counted(gpus, 'GPU')}")
    for line in draw(_COLUMNS, rows) if rows else [EMPTY]:
        print(line)
    if found.damaged:
        print(f"damaged and moved aside: {', '.join(found.damaged)}")


def _export(where: Places, arguments: argparse.Namespace) -> int:
    length = positive_seconds(arguments.last)
    if arguments.format == "parquet" and arguments.output in ("", "-"):
        raise UsageError("parquet is binary: pass -o FILE")
    paths = history_paths(where)
    if not paths:
        raise GpumonError(why_no_history(where))
    with closing(open_history()) as history:
        _export_window(history, paths[0], length, where, arguments)
    return EXIT_OK


def _export_window(
    history: LongHistory, path: str, length: float, where: Places, arguments: argparse.Namespace
) -> None:
    from gpumon.reports.history import lines, parquet, rows_of

    live, known = follow(where), overview(path)
    history.look_in(path)
    if live.history_file() == path:
        for frame in live.since(0):  # the newest are not in the file yet
            history.add(frame)
    end = max([time.time()] if live.is_alive() else [size.end for size in known.tiers], default=time.time())
    live.close()
    begin = end - length
    reaching = [size.shape.step for size in known.tiers if size.begin <= begin + size.shape.step]
    step = float(getattr(arguments, "step", None) or min(reaching, default=SHAPES[-1].step))
    reach = [size.begin for size in known.tiers if size.shape.step <= step]
    begin = max(begin, min(reach, default=end - DAY) - step)  # before that no row has a value
    rows = rows_of(history, known.subjects, begin, end, step)
    first = next(rows, None)
    if first is None:
        say(f"gpumon: no history in this window: {_WRITES}")
    rows = chain(() if first is None else (first,), rows)
    if arguments.format == "parquet":
        write_output(arguments.output, parquet(rows))
    elif arguments.output in ("", "-"):
        sys.stdout.writelines(lines(rows))
    else:
        write_output(arguments.output, "".join(lines(rows)).encode())
