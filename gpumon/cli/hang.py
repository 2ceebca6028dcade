"""Print where each process of a hanging run waits, and the rank that is most likely the cause.

RUN is the id or name of one of your running runs, or an unambiguous prefix of either. Without RUN, it is the run that
is stalled, or the only one. For each rank and its loader workers, the state, the system call, the use of the CPU and
the innermost calls are printed. Stacks come from py-spy if it is installed and permitted. Otherwise the training writes
them itself, which needs no permission and does not disturb it.

  gpumon hang
  gpumon hang resnet50 --json
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpumon.analysis.ranks import Ranks
from gpumon.cli.options import add_places, resolve_options
from gpumon.cli.streams import output_width, print_json, print_lines
from gpumon.common.errors import EXIT_OK, GpumonError, UsageError
from gpumon.common.numbers import is_known
from gpumon.common.paths import Places
from gpumon.live import follow
from gpumon.model.frame import RunState

if TYPE_CHECKING:
    from gpumon.hang.report import HangReport

_MAX_NAMED = 5
"""Maximum number of runs that a message lists."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", nargs="?", default="", help="id, name or unambiguous prefix of a run")
    parser.add_argument("--json", action="store_true", help="print one JSON object for programs")
    add_places(parser)


def run(arguments: argparse.Namespace) -> int:
    places, arguments = resolve_options(arguments)
    report = _report(places, arguments.run)
    from gpumon.hang.output import as_json, lines

    if arguments.json:
        print_json(as_json(report))
    else:
        print_lines(lines(report, output_width()))
    return EXIT_OK


def _report(places: Places, wanted: str) -> HangReport:
    from gpumon.hang.own_runs import current_frame, read_own_runs
    from gpumon.hang.report import collect, driver_events

    live = follow(places)
    try:
        frame = current_frame(live)
    finally:
        live.close()
    ranks = choose(read_own_runs(places, frame), wanted)
    report = collect(ranks, time.time())
    return report._replace(events=driver_events(places, ranks.gpus, time.time() - report.silent))


def choose(runs: Sequence[Ranks], wanted: str) -> Ranks:
    """Return the run whose id or name is `wanted`, or begins with it.

    If `wanted` is empty, return the run that is stalled, or the only running run. Raises UsageError if there is none,
    or if several match.
    """
    running = [ranks for ranks in runs if any(run.state is RunState.RUNNING for run in ranks.all)]
    if not running:
        raise GpumonError("no run of yours is running on this machine")
    stalled = [ranks for ranks in running if is_known(ranks.stalled_since)]
    levels = [stalled, running] if not wanted else [
        [ranks for ranks in running if ranks.first.id == wanted],
        [ranks for ranks in running if ranks.first.name == wanted],
        [ranks for ranks in running if wanted and _starts_with(ranks, wanted)],
    ]  # fmt: skip
    matches = next(filter(None, levels), [])
    if len(matches) == 1:
        return matches[0]
    problem = f"no such running run: '{wanted}'" if not matches else f"{len(matches)} runs match: give the id of one"
    names = ", ".join(ranks.first.id for ranks in (matches or running)[:_MAX_NAMED])
    raise UsageError(f"{problem}. Running are {names}" if not matches else f"{problem} of {names}")


def _starts_with(ranks: Ranks, prefix: str) -> bool:
    return ranks.first.id.startswith(prefix) or ranks.first.name.startswith(prefix)
