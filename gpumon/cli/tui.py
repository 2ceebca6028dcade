"""The terminal view: every GPU, live, with the epochs of the trainings on it.

Joins the daemon that runs; without one it samples by itself. Press ? in it for the keys.
"""

from __future__ import annotations

import argparse

from gpumon.cli.alone import alone
from gpumon.cli.options import add_places, add_source, settle
from gpumon.live import Live, follow


def add_options(parser: argparse.ArgumentParser) -> None:
    add_source(parser, "default: what the daemon samples, else nvml")
    add_places(parser)


def run(arguments: argparse.Namespace) -> int:
    where, arguments = settle(arguments)
    from gpumon_tui.guard import check

    check()
    live = follow(where)
    if arguments.source is None and live.is_alive():
        return _show(live, live.interval())
    live.close()
    with alone(where, arguments) as own:
        return _show(own, arguments.interval)


def _show(live: Live, interval: float) -> int:
    from gpumon_tui import app

    return app.run(live, interval=min(max(interval, 0.25), 1.0))
