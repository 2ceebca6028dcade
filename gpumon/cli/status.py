"""Print the status of GPUs, processes and runs once, and exit.

Reads the newest frame of a running daemon; without one, takes a sample itself.
The exit code is 3 if no GPU can be read.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser, Namespace
from typing import Any, NamedTuple

from gpumon.analysis.gpu_status import is_unreadable, no_gpu_reason
from gpumon.cli.options import DEFAULT_SOURCE, add_places, add_source, resolve_options, source_name
from gpumon.cli.streams import print_json, print_lines, print_message, terminal_width
from gpumon.common.clock import SECOND
from gpumon.common.errors import EXIT_NO_GPU, EXIT_OK, GpumonError
from gpumon.common.numbers import NAN
from gpumon.common.paths import Places, dir_option, ring_paths, unreadable_rings, without_daemon
from gpumon.diagnosis.live_findings import earlier_frames, epochs_from_boundaries
from gpumon.live import Live, follow
from gpumon.model.frame import empty_frame
from gpumon.model.origin import Capability, Driver, Origin
from gpumon.model.units import duration

_PATIENCE = 2.0
"""Seconds to wait for the driver to respond."""


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object for programs")
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="add processes, clock event reasons, skipped samples and the cost of driver calls",
    )
    add_source(parser, f"the source of the running daemon, else {DEFAULT_SOURCE}")
    add_places(parser)


class _Selection(NamedTuple):
    """The ring to show, and who sampled it."""

    live: Live | None
    """Ring or simulation that the frame comes from. None if there are neither current nor earlier values."""
    note: str
    """Text that says whether a daemon or this command sampled the frame."""
    daemon: dict[str, Any] | None = None
    """Data about the daemon for JSON; None if this command sampled."""
    stale: str = ""
    """Why the values are not current but the last ones that were read. Empty if they are current."""
    problem: str = ""
    """Why this command could not sample. Empty if it sampled or did not try to."""


def run(arguments: Namespace) -> int:
    places, arguments = resolve_options(arguments)
    live, note, daemon, stale, problem = _select_ring(places, arguments)
    frame = live.latest() if live else empty_frame(time.monotonic_ns(), time.time_ns())
    if frame is None:
        raise GpumonError(f"nothing to show: {live.state().text if live else stale}")
    if live:
        origin, driver, hostname = live.origin(), live.driver(), live.hostname()
        origin = origin._replace(problem=problem or origin.problem)
    else:
        origin, driver, hostname = Origin(source_name(arguments), problem=stale), Driver(), os.uname().nodename
    is_live = not (stale or origin.ended or origin.unanswered)
    is_current = Capability.NOW in origin.capabilities
    age = max(0.0, (time.monotonic_ns() - frame.monotonic_ns) / SECOND) if is_current else NAN
    earlier, epochs = (earlier_frames(live, frame), epochs_from_boundaries(live, frame)) if live else ((), None)
    if arguments.json:
        from gpumon.reports.status_json import document

        problem = no_gpu_reason(frame, origin.problem) if is_unreadable(frame) else ""
        origin = origin._replace(problem=origin.problem or problem)
        status = document(frame, origin, driver, hostname, daemon, live=is_live, age=age, before=earlier, epochs=epochs)
        print_json(status)
    else:
        from gpumon.reports.status_text import lines

        width = terminal_width()
        text = lines(
            frame, origin, driver, hostname, note, before=earlier, live=is_live, age=age, width=width, epochs=epochs
        )
        print_lines(text)
        for part in origin.parts:
            if part.origin.problem and not origin.problem:
                print(f"{part.origin.source}: {part.origin.problem}")
        if arguments.verbose:
            from gpumon.common.driver_calls import read_calls
            from gpumon.reports.status_details import call_costs, details, process_lines

            calls = read_calls(os.path.dirname(ring_paths(places)[0])) if daemon else ()
            print(*process_lines(frame), *details(frame), *call_costs(calls), sep="\n")
    if not (stale or origin.problem or is_unreadable(frame)):
        return EXIT_OK
    if not arguments.json:
        sys.stdout.flush()
        print_message(f"gpumon: {stale or no_gpu_reason(frame, origin.problem)}")
    return EXIT_NO_GPU


def _select_ring(places: Places, arguments: Namespace) -> _Selection:
    """Return the ring of the daemon, even if the daemon does not respond.

    Without a daemon, return a new ring with one tick.
    """
    shared = follow(places) if arguments.source is None else None
    heartbeat = shared.heartbeat() if shared else None
    if shared and heartbeat:
        state, pid, age = shared.state(), shared.writer_pid(), duration(heartbeat.age)
        daemon = {"pid": pid, "interval": shared.interval(), "age": round(heartbeat.age, 3)}
        if state.stale:
            stale = f"the daemon (pid {pid}) has been silent for {age}: it is waiting for the driver, or was suspended"
            return _Selection(shared, f"stale: daemon, pid {pid}, silent for {age}", daemon, stale)
        if state.live or (shared.origin().ended and shared.is_alive()):
            late = f", silent for {age}" if heartbeat.age > max(2 * shared.interval(), 1.0) else ""
            return _Selection(shared, f"daemon, pid {pid}{late}", daemon)
    from gpumon.cli.sampling import sample_once

    unreadable = shared.unreadable() if shared else ""
    if unreadable:
        print_message(f"gpumon: {unreadable}")
    note = "the daemon's ring cannot be read" if unreadable and not unreadable_rings(places) else without_daemon(places)
    own = sample_once(places, arguments, _PATIENCE)
    if own is None:
        problem = (
            f"the driver did not answer within {_PATIENCE:g} s: it hangs, or its GPUs are slow to wake. "
            f"'gpumon daemon --detach{dir_option(places)}' waits for it"
        )
    elif not (problem := own.origin().problem) or not (shared and _had_gpus(shared)):
        return _Selection(own, note)
    if shared and heartbeat and heartbeat.age != float("inf"):
        return _Selection(shared, f"stale: no daemon for {duration(heartbeat.age)}", stale=problem, problem=problem)
    return _Selection(own, note, stale="" if own else problem)


def _had_gpus(live: Live) -> bool:
    """Whether the last frame that an exited daemon wrote contains GPUs of this machine."""
    frame = live.latest()
    return frame is not None and bool(frame.samples) and Capability.LIVE in live.origin().capabilities
