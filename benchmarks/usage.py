"""Usage of a process: CPU of exactly one process, memory, and how figures are summed up."""

from __future__ import annotations

import os
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
_SCHEDULED = 2


def cpu_seconds(pid: int) -> float:
    """Time for which the scheduler has run all threads of `pid`, ended ones too; without its children.

    This is the process's CPU clock (clock_getcpuclockid(3)): nanoseconds, where utime and stime of
    /proc/PID/stat count in ticks of 10 ms.
    """
    return time.clock_gettime_ns((~pid << 3) | _SCHEDULED) / 1e9


def memory(pid: int) -> tuple[float, float]:
    """Resident and proportional set of `pid`, MB (10^6 bytes)."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        found[name] = int(rest.split()[0]) * 1024 / 1e6
    return found["Rss"], found["Pss"]


class Once(NamedTuple):
    """One run of a command from start to end."""

    wall: float
    cpu: float
    """Of the process and of the children that it waited for."""


def run_once(command: Sequence[str], env: Mapping[str, str]) -> Once:
    """Run a command to its end, its output thrown away."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        command, env=dict(env), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    complaint = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {complaint.decode()}")
    return Once(wall, used.ru_utime + used.ru_stime)


@dataclass
class Figures:
    """Repeats of one figure."""

    values: list[float] = field(default_factory=list)

    def add(self, value: float) -> None:
        self.values.append(value)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def least(self) -> float:
        return min(self.values)

    def quantile(self, share: float) -> float:
        """The value that this share of all lies below."""
        ordered = sorted(self.values)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def watch_cpu(pids: Mapping[str, int], seconds: float, slices: int) -> dict[str, Figures]:
    """CPU seconds per minute of processes that run side by side, one figure for each slice of the window.

    Side by side, because a slow spell of a shared machine then falls on all of them.
    """
    found = {name: Figures() for name in pids}
    for _ in range(slices):
        begun, before = time.monotonic(), {name: cpu_seconds(pid) for name, pid in pids.items()}
        time.sleep(seconds / slices)
        minutes = (time.monotonic() - begun) / 60
        for name, pid in pids.items():
            found[name].add((cpu_seconds(pid) - before[name]) / minutes)
    return found
