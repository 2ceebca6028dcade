"""CPU and memory of the daemon at 1 Hz, with 8 GPUs and 40 processes.

First the daemon's driver calls are counted for a window. Then the daemon, nvitop in a terminal, a
bare loop that makes those calls (`benchmarks.floor`), and a loop with nvidia-ml-py run side by side,
and the scheduler's own count of each process is read at the edges of slices of a window.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import AbstractContextManager, ExitStack

from benchmarks.latencies import SEEN, slow_down
from benchmarks.nvml_calls import WARM, calls_between_frames
from benchmarks.report import Budget, Result, number, times
from benchmarks.stage import GPUS, Effort, Place, Stage, background, tool
from benchmarks.terminal import in_terminal
from benchmarks.usage import memory, watch_cpu
from tests.programs import daemon

OURS, NVITOP, BARE, LIBRARY = "gpumon daemon", "nvitop", "bare loop, same calls", "loop with nvidia-ml-py"


def measure(stage: Stage, effort: Effort) -> Result:
    """Count, then watch everybody at once; after that the daemon and its floor with the times that real calls take."""
    slices = 6 if effort.seconds >= 30 else 3
    counted = max(5, min(30, round(effort.seconds)))
    place = stage.place("daemon")
    with ExitStack() as stack:
        ours = stack.enter_context(daemon(env=place.env))
        at_start = memory(ours.pid)
        rates = _rates(place, counted)
        pids, stubs = {OURS: ours.pid}, {OURS: place.stub}
        for name, words in {BARE: ["bare", json.dumps(rates)], LIBRARY: ["library"]}.items():
            room = stage.place(words[0])
            pids[name], stubs[name] = stack.enter_context(_floor(room, words)).pid, room.stub
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
        result.budgets.append(Budget("CPU beside nvitop", cpu[OURS].median / cpu[NVITOP].median, 0.15, "×"))
    slow = _with_latencies(stage, effort, slices)
    result.budgets.append(Budget("memory at the end (RSS)", sizes[OURS][0], 60, " MB"))
    grown = sizes[OURS][0] - at_start[0]
    result.notes.append(f"RSS {at_start[0]:.1f} MB after the first frame, {grown:+.2f} MB at the end of the window.")
    seen = ", ".join(f"{name.removeprefix('nvml')} {taken} µs" for name, taken in SEEN.items())
    result.notes.append(
        f"With calls that take as long as they were seen to ({seen}): {number(slow[OURS])} CPU s a minute, "
        f"the bare loop {number(slow[BARE])}."
    )
    return result


def _with_latencies(stage: Stage, effort: Effort, slices: int) -> dict[str, float]:
    """CPU seconds a minute of the daemon and its floor, on a driver whose calls take time."""
    ours, floor = stage.place("slow-daemon"), stage.place("slow-bare")
    slow_down(ours.stub)
    slow_down(floor.stub)
    with daemon(env=ours.env) as process:
        rates = _rates(ours, max(5, min(30, round(effort.seconds))))
        with _floor(floor, ["bare", json.dumps(rates)]) as bare:
            time.sleep(5)
            cpu = watch_cpu({OURS: process.pid, BARE: bare.pid}, effort.seconds, slices)
    return {name: figures.median for name, figures in cpu.items()}


def _rates(place: Place, counted: int) -> dict[str, float]:
    """The daemon's driver calls, by function, per GPU and second."""
    calls = calls_between_frames(place, WARM, counted)
    return {name: count / counted / GPUS for name, count in calls.items()}


def _floor(place: Place, words: list[str]) -> AbstractContextManager[subprocess.Popen[bytes]]:
    return background([sys.executable, "-m", "benchmarks.floor", *words], place)
