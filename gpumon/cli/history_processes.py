"""`gpumon history processes`: the processes that were on the GPUs, with their memory and their share of the time."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing
from typing import Any

from gpumon.cli.daemon_lookup import why_no_history
from gpumon.cli.options import add_command, add_places, add_window_and_gpus, named_gpu
from gpumon.cli.streams import output_width, say
from gpumon.common.errors import EXIT_OK, GpumonError
from gpumon.common.paths import Places, history_paths
from gpumon.common.text import clean
from gpumon.live import follow
from gpumon.storage.history.grid import WindowSpan

_TEXT = "list the processes that used the GPUs: user, time, memory, share of the SMs"


def add_parser(commands: Any, formatter: Any) -> None:
    """Add the subcommand to those of `gpumon history`."""
    parser = add_command(commands, formatter, "processes", _TEXT)
    add_window_and_gpus(parser)
    parser.add_argument("--user", metavar="USER", default="", help="only processes of this user")
    parser.add_argument("--pid", metavar="PID", type=_pid, default=0, help="only processes with this pid")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", default=False, help="print one JSON object for programs")
    output.add_argument("--csv", action="store_true", default=False, help="print CSV, one row per process and GPU")
    add_places(parser)


def _pid(text: str) -> int:
    """Return the pid of `--pid`; 0 would be all processes."""
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text)):
        raise argparse.ArgumentTypeError(f"not a pid: {clean(text, 100)}")
    return int(text)


def run(where: Places, arguments: argparse.Namespace) -> int:
    """Print the processes. Raises GpumonError."""
    from gpumon.reports import processes

    is_kept = bool(history_paths(where))
    wanted = [named_gpu(name) for name in arguments.gpu]
    with closing(follow(where)) as live:
        if not (is_kept or live.is_alive()):
            raise GpumonError(why_no_history(where, "processes"))
        found = live.processes(
            begin=arguments.since, end=arguments.until, devices=wanted or None, user=arguments.user, pid=arguments.pid
        )
    if not is_kept:  # as of the daemon of another user, whose directory is closed
        if not found.processes:
            raise GpumonError(why_no_history(where, "processes"))
        say("gpumon: only what the daemon has in memory is shown, not the whole window: no file with history is found")
    if found.problem:
        say(f"gpumon: what was kept is missing here: {found.problem}")
    left_out = _left_out(history_paths(where)[0], found.span) if is_kept and not found.problem else 0
    if arguments.json:
        json.dump(processes.as_json(found, left_out), sys.stdout, allow_nan=False)
        print()
    elif arguments.csv:
        sys.stdout.writelines(processes.csv(found))
    else:
        for line in processes.lines(found, output_width(), left_out):
            print(line)
    return EXIT_OK


def _left_out(path: str, span: WindowSpan) -> int:
    """Return how many processes at once were not kept in a window, at most. Raises GpumonError."""
    from gpumon.model.events import LEFT_OUT
    from gpumon.storage.events.query import EventFilter, read_events
    from gpumon.storage.events.run_watch import AGAIN

    noted = read_events(path, span.begin - AGAIN, span.end, EventFilter(kinds=(LEFT_OUT,)))
    counts = [event.details.get("left_out") for event in noted]
    return max((count for count in counts if isinstance(count, int)), default=0)
