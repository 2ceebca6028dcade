"""Cost of reading AMD GPUs from files: 8 cards, with few and with many processes, on a tree of ordinary files.

The kernel takes longer to produce the content of a file than a file system on a disk, by an unknown amount. These
figures are gpumon's own part.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.report import Budget, Result, number
from benchmarks.stage import Effort, Stage
from gpumon.common.clock import SECOND, SystemClock
from gpumon.sources.base import ProcessInfo
from gpumon.sources.drm import DrmSource
from tests.drm import trees
from tests.drm.trees import Program, Tree

TICKS = 60
"""Seconds, at a tick a second."""


class StepClock(SystemClock):
    """A clock that moves only by `step`."""

    now = 1_000 * SECOND

    def step(self) -> None:
        self.now += SECOND

    def monotonic(self) -> int:
        return self.now


def cpu_per_tick(root: Path, programs: int, others: int) -> tuple[float, float]:
    """Return the CPU time of a tick in ms: the mean over a minute, and the longest.

    `programs`: processes on the cards. `others`: processes with 10 descriptors each, none of which is a GPU.
    """
    cards = [trees.mi300x(number) for number in range(8)]
    tree = Tree(root, cards)
    tree.add(
        *(Program(1000 + n, cards[n % 8], client=n + 1, vram=2**30, kfd_vram=2**30, units=9) for n in range(programs))
    )
    for pid in range(20_000, 20_000 + others):
        folder = root / "proc" / str(pid) / "fd"
        folder.mkdir(parents=True)
        for descriptor in range(10):
            (folder / str(descriptor)).symlink_to("/dev/null")

    clock = StepClock()
    source = DrmSource(clock, lambda pid: ProcessInfo(), timeout=5.0, root=str(root))
    times = []
    for _ in range(TICKS):
        clock.step()
        before = time.process_time()
        source.read()
        times.append(1e3 * (time.process_time() - before))
    source.close()
    return sum(times[1:]) / (TICKS - 1), max(times[1:])


def measure(stage: Stage, effort: Effort) -> Result:
    """Measure three machines of eight cards."""
    del stage, effort
    result = Result("AMD GPUs from files", ("processes on 8 cards", "other processes", "ms a tick", "longest tick, ms"))
    for programs, others in ((0, 0), (8, 200), (64, 400)):
        with tempfile.TemporaryDirectory() as folder:
            mean, longest = cpu_per_tick(Path(folder), programs, others)
        result.rows.append((number(programs), number(others), number(mean), number(longest)))
    result.budgets.append(Budget("CPU of a tick, 64 processes on the cards and 400 others", mean, 10, " ms"))
    result.notes.append("Of gpumon's own part: the kernel's time to make the content of a file is not included.")
    return result
