"""Where everything runs: 8 GPUs of the stub driver with 40 real processes that sleep.

Each program gets a control file of its own, with the same GPUs and processes, so its driver calls
are counted apart while all of them run side by side.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.usage import ROOT
from tests.nvml import Stub, build, sleepers
from tests.programs import environment

GPUS, PROCESSES = 8, 40
_SHARED_MEMORY = "/dev/shm"
_EVENT_LOOK = 2.0
"""Seconds between two looks of the stub for events: a wait for them costs no CPU, as with a real driver."""
_LEFT_OUT = ("NVITOP_", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
"""Variables that programs are not given: all are measured compiled, as those that were installed beside ours are."""


class Effort(NamedTuple):
    """Durations of measurements."""

    seconds: float = 60.0
    """Length of a window."""
    rounds: int = 15
    """Repeats of what is started anew each time."""
    scale: float = 1.0
    """Of the number of repeats in one process."""
    prepared: str = ""
    """A directory with files that take long to make; they are made where it lacks them. Empty: there is none."""

    def times(self, number: int) -> int:
        return max(10, int(number * self.scale))


QUICK = Effort(12.0, 4, 0.15)


class Place(NamedTuple):
    """A driver, directories and an environment for one program."""

    stub: Stub
    live: Path
    env: dict[str, str]


class Stage:
    """The machine that is shown to everybody."""

    def __init__(self, library: Path, pids: list[int], scratch: Path, stack: ExitStack) -> None:
        self.pids = pids
        self.scratch = scratch
        self._library = library
        self._stack = stack

    def place(self, name: str, *, gpus: int = GPUS) -> Place:
        """The same GPUs and processes for one more program."""
        stub = self._stack.enter_context(Stub(self._library, gpus=gpus))
        stub.spread(self.pids)
        stub.event_look = _EVENT_LOOK
        live = self.scratch / name
        live.mkdir(mode=0o700)
        env = {**environment(live, stub.env()), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        return Place(stub, live, {name: value for name, value in env.items() if not name.startswith(_LEFT_OUT)})


@contextmanager
def stage() -> Iterator[Stage]:
    """Build the driver and start the processes; all gone at the end."""
    within = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else None
    with ExitStack() as stack:
        library = build(into=ROOT / ".cache")
        pids = stack.enter_context(sleepers(PROCESSES))
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="gpumon-bench-", dir=within))
        yield Stage(library, pids, Path(scratch), stack)


@contextmanager
def loaded() -> Iterator[None]:
    """A busy machine for the length of a block: as many programs that only count as there are cores."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def tool(name: str) -> str | None:
    """A command of this Python environment, or None when it is not installed."""
    path = Path(sys.executable).with_name(name)
    return str(path) if path.exists() else None


@contextmanager
def background(command: Sequence[str], place: Place) -> Iterator[subprocess.Popen[bytes]]:
    """A program without a terminal, for the length of a block."""
    process = subprocess.Popen(command, env=place.env, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield process
        if process.poll() is not None:
            raise RuntimeError(f"{' '.join(command)} ended by itself with {process.returncode}")
    finally:
        process.terminate()
        process.wait(timeout=20)
