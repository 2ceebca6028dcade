"""CPU and memory of the daemon at 1 Hz, with 8 GPUs and 40 processes.

First the daemon's driver calls are counted for a window. Then the daemon, nvitop in a terminal, a
bare loop that makes those calls (`benchmarks.floor`), and a loop with nvidia-ml-py run side by side,
and the scheduler's own count of each process is read at the edges of slices of a window.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack

from benchmarks.nvml_calls import WARM, calls_between_frames
from benchmarks.report import Budget, Result, number, times
from benchmarks.stage import GPUS, Effort, Stage, background, tool
from benchmarks.terminal import in_terminal
from benchmarks.usage import memory, watch_cpu
from tests.programs import daemon

OURS, NVITOP, BARE, LIBRARY = "gpumon daemon", "nvitop", "bare loop, same calls", "loop with nvidia-ml-py"


def measure(stage: Stage, effort: Effort) -> Result:
    """Count, then watch everybody at once."""
    slices = 6 if effort.seconds >= 30 else 3
    counted = max(5, min(30, round(effort.seconds)))
    place = stage.place("daemon")
    with ExitStack() as stack:
        ours = stack.enter_context(daemon(env=place.env))
        at_start = memory(ours.pid)
        calls = calls_between_frames(place, WARM, counted)
        rates = {name: count / counted / GPUS for name, count in calls.items()}
        floors = {BARE: ["bare", json.dumps(rates)], LIBRARY: ["library"]}
        pids, stubs = {OURS: ours.pid}, {OURS: place.stub}
        for name, words in floors.items():
            room = stage.place(words[0])
            process = stack.enter_context(background([sys.executable, "-m", "benchmarks.floor", *words], room))
            pids[name], stubs[name] = process.pid, room.stub
        if found := tool("nvitop"):
            room = stage.place("nvitop")
            terminal = stack.enter_context(in_terminal([found, "--interval", "1"], room))
            pids[NVITOP], stubs[NVITOP] = terminal.process.pid, room.stub
        time.sleep(5)
        for stub in stubs.values():
            stub.reset_calls()
        begun = time.monotonic()
        cpu = watch_cpu(pids, effort.seconds, slices)
        passed = time.monotonic() - begun
        made = {name: sum(stub.calls().values()) / passed for name, stub in stubs.items()}
        sizes = {name: memory(pid) for name, pid in pids.items()}

    result = Result(
        "The daemon at 1 Hz",
        ("program", "CPU s a minute", "least and most", "ours is 1", "calls/s", "RSS MB", "PSS MB"),
    )
    for name, figures in cpu.items():
        spread = f"{number(figures.least)}–{number(max(figures.values))}"
        ratio = times(figures.median, cpu[OURS].median)
        rss, pss = sizes[name]
        result.rows.append(
            (name, number(figures.median), spread, ratio, number(made[name]), f"{rss:.1f}", f"{pss:.1f}")
        )
    if NVITOP in cpu:
        result.budgets.append(Budget("CPU beside nvitop", cpu[OURS].median / cpu[NVITOP].median, 0.1, "×"))
    result.budgets.append(Budget("CPU beside the bare loop", cpu[OURS].median / cpu[BARE].median, 6, "×"))
    result.budgets.append(Budget("memory at the end (RSS)", sizes[OURS][0], 40, " MB"))
    grown = sizes[OURS][0] - at_start[0]
    result.notes.append(f"RSS {at_start[0]:.1f} MB after the first frame, {grown:+.2f} MB at the end of the window.")
    return result
