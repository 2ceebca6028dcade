"""One look at GPUs, processes and runs, then exit.

Reads the newest frame of the daemon that runs; without one it takes a sample by itself.
The exit code is 3 when no GPU can be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from gpumon.cli.options import add_places, add_source, settle
from gpumon.errors import EXIT_NO_GPU, EXIT_OK, GpumonError
from gpumon.frame import Boundary, Frame, RunState
from gpumon.live import Live, follow
from gpumon.metrics import Availability
from gpumon.paths import Places

_LOOK_BACK = 600
"""Frames that are looked through for what befell a run."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object for programs")
    add_source(parser, "default: what the daemon samples, else nvml")
    add_places(parser)


def run(arguments: argparse.Namespace) -> int:
    where, arguments = settle(arguments)
    live, daemon = _look(where, arguments)
    frame = live.latest()
    if frame is None:
        raise GpumonError(f"nothing to show: {live.state().text}")
    origin, driver, hostname = live.origin(), live.driver(), live.hostname()
    if arguments.json:
        from gpumon.document import document

        json.dump(document(frame, origin, driver, hostname, daemon), sys.stdout, allow_nan=False)
        print()
    else:
        from gpumon.summary import lines

        note = f"daemon, pid {daemon['pid']}" if daemon else "no daemon"
        for line in lines(frame, origin, driver, hostname, note, _recent(live, frame)):
            print(line)
    if any(sample.state is Availability.OK for sample in frame.samples):
        return EXIT_OK
    if not arguments.json:
        print(f"gpumon: {_why(frame, origin.problem)}", file=sys.stderr)
    return EXIT_NO_GPU


def _look(where: Places, arguments: argparse.Namespace) -> tuple[Live, dict[str, Any] | None]:
    """The daemon's ring and what is known of it; else a ring of our own with one tick in it."""
    if arguments.source is None:
        live = follow(where)
        pulse = live.pulse()
        if pulse is not None and live.is_alive():
            return live, {"pid": live.writer_pid(), "interval": live.interval(), "age": round(pulse.age, 3)}
        live.close()
    from gpumon.clock import SystemClock
    from gpumon.daemon import Recorder, make_sampler

    clock = SystemClock()
    source = arguments.source or "nvml"
    recorder = Recorder(make_sampler(source, where, clock, arguments.interval, arguments.speed), clock, slots=4)
    recorder.take_one()
    return Live(recorder.open_ring), None


def _recent(live: Live, newest: Frame) -> list[Boundary]:
    """Boundaries of the last while, where a run has one that people should be told of."""
    if not any(run.memory.ooms > 0 or run.state in (RunState.FAILED, RunState.DIED) for run in newest.runs):
        return []
    return [boundary for frame in live.since(max(0, newest.number - _LOOK_BACK)) for boundary in frame.boundaries]


def _why(frame: Frame, problem: str) -> str:
    if problem:
        return f"{problem}; a look without one: gpumon status --source sim"
    return "no GPU answers: " + ", ".join(
        sorted({sample.state.reason for sample in frame.samples}) or ["there is none"]
    )
