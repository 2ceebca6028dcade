"""`gpumon status` from start to end: wall and CPU time, with and without a daemon.

Commands are started in turn, round after round, so that a slow spell falls on all of them.
"""

from __future__ import annotations

import sys

from benchmarks.report import Budget, Result, number
from benchmarks.stage import Effort, Stage, tool
from benchmarks.usage import Figures, run_once
from tests.programs import daemon

WITH, WITHOUT, PYTHON = "gpumon status, daemon runs", "gpumon status, no daemon", "python -c pass"


def measure(stage: Stage, effort: Effort) -> Result:
    """Run each command so many times, interleaved; the first round warms the caches."""
    served, alone, peers = stage.place("served"), stage.place("alone"), stage.place("peers")
    gpumon = tool("gpumon")
    ours = [gpumon, "status"] if gpumon else [sys.executable, "-m", "gpumon", "status"]
    commands = {WITH: (ours, served), WITHOUT: (ours, alone)}
    for name, words in {"gpustat": ["gpustat"], "nvitop -1": ["nvitop", "-1"]}.items():
        if found := tool(words[0]):
            commands[name] = ([found, *words[1:]], peers)
    commands[PYTHON] = ([sys.executable, "-c", "pass"], peers)
    wall = {name: Figures() for name in commands}
    cpu = {name: Figures() for name in commands}
    with daemon(env=served.env):
        for turn in range(effort.rounds + 1):
            for name, (command, place) in commands.items():
                once = run_once(command, place.env)
                if turn:
                    wall[name].add(once.wall)
                    cpu[name].add(once.cpu)

    result = Result("`gpumon status`", ("command", "wall s", "least", "CPU s", "least"))
    for name in commands:
        figures = wall[name].median, wall[name].least, cpu[name].median, cpu[name].least
        result.rows.append((name, *map(number, figures)))
    for name in (WITH, WITHOUT):
        result.budgets.append(Budget(f"wall of {name}", 1000 * wall[name].median, 150, " ms"))
    return result
