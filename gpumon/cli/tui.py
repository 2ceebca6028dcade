"""The terminal view: every GPU, live, with the epochs of the trainings on it.

Joins the daemon that runs; without one it samples by itself. Press ? in it for the keys.
"""

from __future__ import annotations

import argparse
import sys

from gpumon.cli.alone import alone
from gpumon.cli.options import add_places, add_source, settle
from gpumon.errors import EXIT_OK, GpumonError
from gpumon.live import Live, follow


def add_options(parser: argparse.ArgumentParser) -> None:
    add_source(parser, "default: what the daemon samples, else nvml")
    add_places(parser)


def run(arguments: argparse.Namespace) -> int:
    where, arguments = settle(arguments)
    if not sys.stdout.isatty():
        raise GpumonError("the terminal view needs a terminal: use 'gpumon status' in a script or a pipe")
    live = follow(where)
    if arguments.source is None and live.is_alive():
        _show(live, live.interval())
        return EXIT_OK
    live.close()
    with alone(where, arguments) as own:
        _show(own, arguments.interval)
    return EXIT_OK


def _show(live: Live, interval: float) -> None:
    from gpumon_tui.app import GpumonApp

    GpumonApp(live, interval=min(max(interval, 0.25), 1.0)).run()
