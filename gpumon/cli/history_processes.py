"""`gpumon history processes`: the processes that used the GPUs, with their memory and share of the SMs."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing

from gpumon.cli.daemon_lookup import why_no_history
from gpumon.cli.options import add_window_and_gpus, gpu_option
from gpumon.cli.streams import output_width, print_json, print_lines, print_message
from gpumon.common.errors import GpumonError
from gpumon.common.paths import Places, history_paths
from gpumon.common.text import clean
from gpumon.live import follow
from gpumon.storage.history.buckets import WindowSpan


def add_process_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `gpumon history processes`."""
    add_window_and_gpus(parser)
    parser.add_argument("--user", metavar="USER", default="", help="only processes of this user")
    parser.add_argument("--pid", metavar="PID", type=_pid, default=0, help="only processes with this pid")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", default=False, help="print one JSON object for programs")
    output.add_argument("--csv", action="store_true", default=False, help="print CSV, one row per process and GPU")


def _pid(text: str) -> int:
    """Parse the value of `--pid`. 0 is an error, because it would mean all processes."""
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text)):
        raise argparse.ArgumentTypeError(f"not a pid: {clean(text, 100)}")
    return int(text)


def print_processes(places: Places, arguments: argparse.Namespace) -> None:
    """Print the processes. Raises GpumonError."""
    from gpumon.reports import processes

    is_kept = bool(history_paths(places))
    gpus = [gpu_option(name) for name in arguments.gpu]
    with closing(follow(places)) as live:
        if not (is_kept or live.is_alive()):
            raise GpumonError(why_no_history(places, "processes"))
        window = live.processes(
            begin=arguments.since, end=arguments.until, devices=gpus or None, user=arguments.user, pid=arguments.pid
        )
    if not is_kept:  # the daemon may belong to another user whose state directory is not readable
        if not window.processes:
            raise GpumonError(why_no_history(places, "processes"))
        print_message(
            "gpumon: showing only what the daemon has in memory, not the whole window: no history file was found"
        )
    if window.problem:
        print_message(f"gpumon: the output lacks the stored history: {window.problem}")
    left_out = _left_out(history_paths(places)[0], window.span) if is_kept and not window.problem else 0
    if arguments.json:
        print_json(processes.as_json(window, left_out))
    elif arguments.csv:
        sys.stdout.writelines(processes.csv(window))
    else:
        print_lines(processes.lines(window, output_width(), left_out))


def _left_out(path: str, span: WindowSpan) -> int:
    """Return the largest number of processes that the history left out at any time in a window. Raises GpumonError."""
    from gpumon.model.events import LEFT_OUT
    from gpumon.storage.events.query import EventFilter, read_events
    from gpumon.storage.events.run_watch import REPEAT_INTERVAL

    events = read_events(path, span.begin - REPEAT_INTERVAL, span.end, EventFilter(kinds=(LEFT_OUT,)))
    counts = [event.details.get("left_out") for event in events]
    return max((count for count in counts if isinstance(count, int)), default=0)
