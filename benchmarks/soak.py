"""A daemon at 100 Hz while the driver fails at random: its memory, descriptors and threads must stay flat.

Each second another fault begins, of those that were seen on real machines, and an older one ends. The measure is the
daemon's own: resident memory, open files and threads, and the longest time between two frames.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from itertools import pairwise
from subprocess import Popen
from typing import NamedTuple

from benchmarks.report import Budget, Result, number
from benchmarks.stage import GPUS, Effort, Place, Stage
from benchmarks.usage import cpu_seconds
from gpumon.common.clock import SECOND
from gpumon.common.paths import Places
from gpumon.live import follow
from tests.nvml import Process, Stub
from tests.nvml.layout import FUNCTIONS, METRICS
from tests.programs import daemon

_HERTZ = 100
_SEED = 20_261_122
_CODES = (2, 3, 4, 10, 13, 15, 16, 25, 999)
"""NVML return codes that a device may answer with: nvml.h, nvmlReturn_t."""
_GONE = (1, 9, 18)
"""Return codes of a driver that is gone, not loaded, or newer than its library."""
_XIDS = (13, 31, 43, 48, 63, 74, 79, 94, 119, 4711)
_AT_ONCE = 6
"""Faults that last at the same time."""
_ROWS = 8
_SETTLED, _LEAST_SETTLED = 700.0, 0.25
"""Seconds after which nothing may grow: caches, the ring's pages, and blocks of cells of 10 s, which take 640 s, are
filled by then. A window in which these are more than half of it leaves out a share of it instead."""


class _Held(NamedTuple):
    """Resources of the daemon at one moment."""

    after: float
    """Seconds since the start."""
    megabytes: float
    files: int
    threads: int


def measure(stage: Stage, effort: Effort) -> Result:
    """Faults at random for the length of the window."""
    place = stage.place("soak")
    result = Result(
        f"{effort.seconds / 60:.0f} minutes at {_HERTZ} Hz with faults at random",
        ("after, s", "RSS, MB", "open files", "threads"),
    )
    with daemon("--interval", str(1 / _HERTZ), env=place.env) as process:
        held, faults, longest, frames = _soak(place, process, effort.seconds)
        seconds = cpu_seconds(process.pid)
    step = max(1, len(held) // _ROWS)
    result.rows += [
        (f"{one.after:.0f}", f"{one.megabytes:.1f}", str(one.files), str(one.threads)) for one in held[::step]
    ]
    left_out = _SETTLED if effort.seconds >= 2 * _SETTLED else _LEAST_SETTLED * effort.seconds
    settled = [one for one in held if one.after >= left_out]
    half = len(settled) // 2
    before, after = settled[:half], settled[half:]
    result.budgets += [
        Budget("memory gained once it has settled", _growth(before, after, "megabytes"), 1.0, " MB"),
        Budget("open files gained once it has settled", _growth(before, after, "files"), 0),
        Budget("threads gained once it has settled", _growth(before, after, "threads"), 0),
        Budget("the longest time between two frames", longest, 1.0, " s"),
    ]
    result.notes.append(
        f"{faults} faults, {frames} frames, {number(100 * seconds / effort.seconds)} % of a core. Gains are between "
        f"the highest of one half and the highest of the other, the first {left_out:.0f} s left out."
    )
    return result


def _growth(before: list[_Held], after: list[_Held], what: str) -> float:
    if not before or not after:
        return float("nan")
    highest = [max(float(getattr(one, what)) for one in part) for part in (before, after)]
    return max(0.0, highest[1] - highest[0])


def _soak(place: Place, process: Popen[str], seconds: float) -> tuple[list[_Held], int, float, int]:
    """Return its resources over time, the faults, the longest time between two frames (s), and the frames."""
    chance = random.Random(_SEED)
    place.stub.set_gpm(True)
    live = follow(Places(explicit=str(place.live)))
    begun = time.monotonic()
    held, ends, faults, longest, frames, last = [], list[Callable[[], object]](), 0, 0.0, 0, 0
    while (now := time.monotonic() - begun) < seconds:
        ends.append(_fault(place.stub, chance))
        faults += 1
        if len(ends) > _AT_ONCE:
            ends.pop(0)()
        for _ in range(4):
            time.sleep(0.25)
            new = live.since(last)
            times = [frame.monotonic_ns for frame in new]
            longest = max([longest, *((b - a) / SECOND for a, b in pairwise(times))])
            frames += len(new)
            last = new[-1].number if new else last
        if process.poll() is not None:
            said = process.stderr.read() if process.stderr else ""
            raise RuntimeError(f"the daemon ended with {process.returncode} after {now:.0f} s: {said}")
        held.append(_held(process.pid, now))
    place.stub.clear_faults()
    return held, faults, longest, frames


def _held(pid: int, after: float) -> _Held:
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        fields = dict(line.split(":", 1) for line in file if ":" in line)
    return _Held(
        after=after,
        megabytes=int(fields["VmRSS"].split()[0]) / 1024,
        files=len(os.listdir(f"/proc/{pid}/fd")),
        threads=int(fields["Threads"]),
    )


def _fault(stub: Stub, chance: random.Random) -> Callable[[], object]:
    """Begin one, and return what ends it."""
    gpu, function = chance.randrange(GPUS), chance.choice(sorted(FUNCTIONS))
    kind = chance.randrange(13)
    if kind == 0:
        stub.set_error(function, chance.choice(_CODES), gpu)
        return lambda: stub.set_error(function, 0, gpu)
    if kind == 1:
        stub.set_error(None, chance.choice(_CODES), gpu)
        return lambda: stub.set_error(None, 0, gpu)
    if kind == 2:
        stub.set_lost(gpu)
        return lambda: stub.set_lost(gpu, False)
    if kind == 3:
        stub.set_latency(None, chance.choice((20_000, 3_000_000)), gpu)
        return lambda: stub.set_latency(None, 0, gpu)
    if kind == 4:
        stub.driver_error = chance.choice(_GONE)
        return lambda: setattr(stub, "driver_error", 0)
    if kind == 5:
        stub.gpus = chance.randrange(GPUS + 1)
        return lambda: setattr(stub, "gpus", GPUS)
    if kind == 6:
        stub.set_processes(gpu, [Process(chance.randrange(1, 2**31), memory=None, sm=chance.randrange(300))] * 60)
        return lambda: stub.set_processes(gpu, [])
    if kind == 7:
        stub.set_mig(gpu, chance.randrange(8))
        return lambda: stub.set_mig(gpu, None)
    if kind == 8:
        metric = chance.choice(sorted(METRICS))
        stub.set_value(metric, 2**64 - 1, gpu)
        return lambda: stub.set_value(metric, None, gpu)
    if kind == 9:
        for _ in range(chance.randrange(1, 40)):
            stub.xid(gpu, chance.choice(_XIDS))
        return lambda: None
    if kind == 10:
        stub.set_gpm(False, gpu)
        return lambda: stub.set_gpm(True, gpu)
    if kind == 11:
        stub.one_at_a_time = True
        stub.set_latency(function, 200_000, gpu)
        return lambda: _unlock(stub, function, gpu)
    stub.set_latency(function, 50_000)
    return lambda: stub.set_latency(function, 0)


def _unlock(stub: Stub, function: str, gpu: int) -> None:
    stub.one_at_a_time = False
    stub.set_latency(function, 0, gpu)
