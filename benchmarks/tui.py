"""The terminal view at 1 Hz in 160x50, with its own sampler and with a daemon, beside nvitop and, if installed, nvtop.

All run side by side in terminals of this process: CPU of exactly that process, and bytes that it sent. A key is timed
from the byte written to the first byte of the answer. The first frame is whole when it shows every GPU and a screenful
of processes; for it the programs are started anew, in turn. nvtop shows no screenful of processes in this size.
Behind that a window of half the length with 16 GPUs, and one with 8 beside programs that take every core they get.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from shutil import which
from typing import NamedTuple

from benchmarks.report import Budget, Result, number
from benchmarks.stage import GPUS, Effort, Place, Stage, loaded, tool
from benchmarks.terminal import Complete, Terminal, in_terminal
from benchmarks.usage import Figures, memory, watch_cpu
from tests.programs import daemon

Programs = dict[str, tuple[list[str], Place]]
"""Commands by name, each with the machine it is shown."""
OURS, BESIDE, NVITOP, NVTOP = "gpumon tui", "gpumon tui, daemon runs", "nvitop", "nvtop"
MANY_GPUS = 16
_SCREENFUL = 8
"""Processes that a first frame must show; more than this has room in both."""
A_GPU = {OURS: r"\d+\s*%", NVITOP: r"80\.0+G"}
"""Text that each GPU has once: its utilization, or its memory."""
_WARM = 8.0
_KEYS = (b"j", b"k")
"""Move the cursor, in all of them."""
_COLUMNS = (
    "program", "CPU s a minute", "least and most", "bytes/s", "key, ms", "most", "first frame, wall s",
    "least and most", "RSS MB",
)  # fmt: skip


class Window(NamedTuple):
    """Programs side by side, by name."""

    cpu: dict[str, Figures]
    """Seconds a minute."""
    sent: dict[str, float]
    """Bytes a second to the terminal."""
    size: dict[str, float]
    """Resident set, MB."""
    keys: dict[str, Figures]
    """Seconds from a key to its answer, where keys were pressed."""


def measure(stage: Stage, effort: Effort) -> Result:
    """A window side by side, keys in turn, then starts in turn; then windows with more GPUs, and beside a load."""
    programs = _programs(stage, GPUS)
    usual = _window(programs, effort, has_keys=True)
    with daemon(env=programs[BESIDE][1].env):
        first = _first_frames(programs, stage.pids, effort)
    brief = effort._replace(seconds=max(12.0, effort.seconds / 2))
    many = _window(_programs(stage, MANY_GPUS), brief)
    with loaded():
        busy = _window(_programs(stage, GPUS, "-loaded"), brief)
    result = Result("The terminal view at 1 Hz, 160×50", _COLUMNS)
    for where, window in (("", usual), (f", {MANY_GPUS} GPUs", many), (", loaded machine", busy)):
        for name, cpu in window.cpu.items():
            keys = window.keys.get(name)
            pressed = (number(1000 * keys.median), number(1000 * max(keys.values))) if keys else ("–", "–")
            started = _spread(first[name]) if name in first and window is usual else ("–", "–")
            size = f"{window.size[name]:.1f}"
            result.rows.append((name + where, *_spread(cpu), number(window.sent[name]), *pressed, *started, size))
        if NVITOP in programs:
            for ours in (OURS, BESIDE):
                ratio = window.cpu[ours].median / window.cpu[NVITOP].median
                result.budgets.append(Budget(f"CPU of {ours}{where}, beside nvitop", ratio, 0.6, "×"))
    if NVITOP in programs:
        ratio = first[BESIDE].median / first[NVITOP].median
        result.budgets.append(Budget(f"first frame of {BESIDE}, beside nvitop", ratio, 1, "×"))
    result.budgets.append(Budget("to the terminal", usual.sent[OURS] / 1000, 4, " kB/s"))
    result.budgets.append(Budget("key to its answer", 1000 * usual.keys[OURS].median, 50, " ms"))
    result.budgets.append(Budget("memory", usual.size[OURS], 65, " MB"))
    return result


def _window(programs: Programs, effort: Effort, *, has_keys: bool = False) -> Window:
    """All programs side by side; keys in turn behind that."""
    with daemon(env=programs[BESIDE][1].env), ExitStack() as stack:
        terminals = {name: stack.enter_context(in_terminal(*program)) for name, program in programs.items()}
        time.sleep(_WARM)
        before, begun = {name: terminal.received for name, terminal in terminals.items()}, time.monotonic()
        pids = {name: terminal.process.pid for name, terminal in terminals.items()}
        cpu = watch_cpu(pids, effort.seconds, 6 if effort.seconds >= 30 else 3)
        passed = time.monotonic() - begun
        sent = {name: (terminal.received - before[name]) / passed for name, terminal in terminals.items()}
        sizes = {name: memory(pid)[0] for name, pid in pids.items()}
        return Window(cpu, sent, sizes, _keys(terminals, effort) if has_keys else {})


def _programs(stage: Stage, gpus: int, mark: str = "") -> Programs:
    """Return the commands, each with a place of its own; `mark` tells places with as many GPUs apart."""

    def place(name: str) -> Place:
        return stage.place(f"{name}-{gpus}{mark}", gpus=gpus)

    gpumon = tool("gpumon")
    ours = [gpumon, "tui"] if gpumon else [sys.executable, "-m", "gpumon", "tui"]
    programs = {OURS: (ours, place("gpumon")), BESIDE: (ours, place("beside"))}
    if found := tool("nvitop"):
        programs[NVITOP] = ([found, "--interval", "1"], place("nvitop"))
    if found := which("nvtop"):
        programs[NVTOP] = ([found, "--delay", "10"], place("nvtop"))
    return programs


def _keys(terminals: dict[str, Terminal], effort: Effort) -> dict[str, Figures]:
    """Seconds from a key to the first byte that follows, in turn."""
    found = {name: Figures() for name in terminals}
    for turn in range(2 * effort.rounds):
        for name, terminal in terminals.items():
            found[name].add(terminal.press(_KEYS[turn % 2]))
    return found


def _first_frames(
    programs: dict[str, tuple[list[str], Place]], pids: Sequence[int], effort: Effort
) -> dict[str, Figures]:
    """Seconds from the start to the first whole frame; the first round warms the caches."""
    started = {name: program for name, program in programs.items() if name != NVTOP}
    first = {name: Figures() for name in started}
    for turn in range(effort.rounds + 1):
        for name, (command, place) in started.items():
            wall = _first_frame(command, place, whole(pids, A_GPU[NVITOP if name == NVITOP else OURS]))
            if turn:
                first[name].add(wall)
    return first


def _spread(figures: Figures) -> tuple[str, str]:
    return number(figures.median), f"{number(figures.least)}–{number(max(figures.values))}"


def whole(pids: Sequence[int], gpu: str) -> Complete:
    """Whether a screen shows all GPUs, each by a match of `gpu`, and a screenful of these processes."""
    known = set(pids)

    def complete(text: str) -> bool:
        shown = {int(found) for found in re.findall(r"\b\d+\b", text)}
        return len(shown & known) >= _SCREENFUL and len(re.findall(gpu, text)) >= GPUS

    return complete


def _first_frame(command: list[str], place: Place, complete: Complete) -> float:
    with in_terminal(command, place, complete) as terminal:
        if not terminal.complete.wait(timeout=30):
            raise RuntimeError(f"{command[0]} showed no whole frame: {terminal.shown()}")
        assert terminal.first_frame is not None
        return terminal.first_frame
