"""CPU and memory of daemons that keep history, beside daemons that keep none (`benchmarks.without_history`)."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import NamedTuple

from benchmarks.stage import Effort, Place, Stage, background
from benchmarks.usage import cpu_seconds, memory, watch_cpu
from gpumon.common.paths import HISTORY
from gpumon.live import connect
from gpumon.storage.history.tiers import SHAPES
from tests.programs import until

_PAIRS = 3
_WARM = 14
"""Frames of each daemon before the window: by then it has opened its file, and seen what was left undone in it."""
BLOCK = SHAPES[0].block
"""Seconds between two writes."""
_LATE = 20
"""Seconds after a write was due by which it is over."""
WITH, WITHOUT = "with", "without"
_MODULES = {WITH: "gpumon", WITHOUT: "benchmarks.without_history"}


class Daemons(NamedTuple):
    """Cost of daemons, by whether they keep history."""

    cpu: dict[str, list[float]]
    """Seconds of CPU a minute, of each daemon."""
    starts: dict[str, list[float]]
    """Seconds of CPU before the window."""
    memory: dict[str, float]
    """Resident MB at the end, of the largest."""
    seconds: float
    """The window, which has no write where it is shorter than the time between two, else as many as it should."""

    def median(self, kind: str) -> float:
        return statistics.median(self.cpu[kind])

    def start(self, kind: str) -> float:
        """Seconds of CPU before the window."""
        return statistics.median(self.starts[kind])


def watch(stage: Stage, effort: Effort, month: str) -> Daemons:
    """Run daemons of both kinds side by side, those that keep history on a copy each of the file `month`."""
    with ExitStack() as stack:
        pids: dict[str, int] = {}
        places = []
        for pair in range(_PAIRS):
            for kind in (WITH, WITHOUT):
                place = stage.place(f"{kind}-{pair}")
                if kind == WITH:
                    _copy(month, place)
                command = [sys.executable, "-m", _MODULES[kind], "daemon"]
                pids[f"{kind} {pair}"] = stack.enter_context(background(command, place)).pid
                places.append(place)
        for place in places:
            _await_frames(place)
        starts = {name: cpu_seconds(pid) for name, pid in pids.items()}
        seconds = effort.seconds if effort.seconds < BLOCK else effort.seconds // BLOCK * BLOCK
        _await_window(seconds)
        found = watch_cpu(pids, seconds, 1)
        sizes = {name: memory(pid)[0] for name, pid in pids.items()}
    return Daemons(
        cpu=_by_kind({name: figures.median for name, figures in found.items()}),
        starts=_by_kind(starts),
        memory={kind: max(found) for kind, found in _by_kind(sizes).items()},
        seconds=seconds,
    )


def _by_kind(found: Mapping[str, float]) -> dict[str, list[float]]:
    return {kind: [value for name, value in found.items() if name.split()[0] == kind] for kind in (WITH, WITHOUT)}


def _await_window(seconds: float) -> None:
    """Wait until no write is due for some seconds; before a window with writes, until the first one is over.

    The first one costs more: the daemon opens its file, and sees what an earlier one has left undone.
    """
    passed = time.time() % BLOCK
    if seconds >= BLOCK or passed < _LATE or passed + seconds > BLOCK:
        time.sleep((_LATE - passed) % BLOCK)


def _copy(month: str, place: Place) -> None:
    state = place.live / "state"
    state.mkdir(mode=0o700)
    shutil.copy(month, state / HISTORY)
    os.chmod(state / HISTORY, 0o600)


def _await_frames(place: Place) -> None:
    live = connect(str(place.live))
    until(lambda: (newest := live.latest()) is not None and newest.number >= _WARM)
    live.close()
