"""The terminal view at 1 Hz in 160x50, with its own sampler (no daemon), beside nvitop.

Both run side by side in terminals of this process: CPU of exactly that process, and bytes that it
sent. The first frame is whole when it shows every GPU and a screenful of processes; for it both are
started anew, in turn.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks.report import Budget, Result, number
from benchmarks.stage import GPUS, Effort, Place, Stage, tool
from benchmarks.terminal import Complete, in_terminal
from benchmarks.usage import Figures, memory, watch_cpu

OURS, NVITOP = "gpumon tui", "nvitop"
_SCREENFUL = 8
"""Processes that a first frame must show; more than this has room in both."""
_WARM = 8.0


def measure(stage: Stage, effort: Effort) -> Result:
    """A window side by side, then starts in turn."""
    gpumon = tool("gpumon")
    programs: dict[str, tuple[list[str], Place]] = {
        OURS: ([gpumon, "tui"] if gpumon else [sys.executable, "-m", "gpumon", "tui"], stage.place("gpumon"))
    }
    if found := tool("nvitop"):
        programs[NVITOP] = ([found, "--interval", "1"], stage.place("nvitop"))
    with ExitStack() as stack:
        terminals = {name: stack.enter_context(in_terminal(*program)) for name, program in programs.items()}
        time.sleep(_WARM)
        sent, begun = {name: terminal.received for name, terminal in terminals.items()}, time.monotonic()
        pids = {name: terminal.process.pid for name, terminal in terminals.items()}
        cpu = watch_cpu(pids, effort.seconds, 6 if effort.seconds >= 30 else 3)
        passed = time.monotonic() - begun
        bytes_a_second = {name: (terminal.received - sent[name]) / passed for name, terminal in terminals.items()}
        sizes = {name: memory(pid) for name, pid in pids.items()}
    first = {name: Figures() for name in programs}
    for turn in range(effort.rounds + 1):
        for name, (command, place) in programs.items():
            wall = _first_frame(command, place, whole(stage.pids))
            if turn:
                first[name].add(wall)

    result = Result(
        "The terminal view at 1 Hz, 160×50",
        ("program", "CPU s a minute", "least and most", "bytes/s", "first frame, wall s", "least and most", "RSS MB"),
    )
    for name in programs:
        result.rows.append(
            (
                name, number(cpu[name].median), f"{number(cpu[name].least)}–{number(max(cpu[name].values))}",
                number(bytes_a_second[name]), number(first[name].median),
                f"{number(first[name].least)}–{number(max(first[name].values))}",
                f"{sizes[name][0]:.1f}",
            )
        )  # fmt: skip
    if NVITOP in programs:
        result.budgets.append(Budget("CPU beside nvitop", cpu[OURS].median / cpu[NVITOP].median, 0.5, "×"))
        ratio = first[OURS].median / first[NVITOP].median
        result.budgets.append(Budget("first frame beside nvitop", ratio, 2, "×"))
    result.budgets.append(Budget("to the terminal", bytes_a_second[OURS] / 1000, 4, " kB/s"))
    return result


def whole(pids: Sequence[int]) -> Complete:
    """Whether a screen shows all GPUs, each with its memory, and a screenful of these processes."""
    known = set(pids)

    def complete(text: str) -> bool:
        shown = {int(found) for found in re.findall(r"\b\d+\b", text)}
        return len(shown & known) >= _SCREENFUL and len(re.findall(r"80\.0+G", text)) >= GPUS

    return complete


def _first_frame(command: list[str], place: Place, complete: Complete) -> float:
    with in_terminal(command, place, complete) as terminal:
        if not terminal.complete.wait(timeout=30):
            raise RuntimeError(f"{command[0]} showed no whole frame: {terminal.shown()}")
        assert terminal.first_frame is not None
        return terminal.first_frame
