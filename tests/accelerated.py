"""A daemon's way from the driver to the file of history, by a clock that does not wait.

`python -m tests.accelerated STUB DIRECTORY PLAN`: source, sampler, ring and history are those of a daemon; the time
of the stub driver is set before each tick. It prints a line when the plan is over, and ends with its standard input.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from select import select
from typing import NamedTuple

import gpumon.storage.history.recorder
from gpumon.common.clock import SECOND
from gpumon.daemon.recovery import frames_since
from gpumon.daemon.sampler import Sampler
from gpumon.ring.writer import RingWriter
from gpumon.sources.base import ProcessInfo
from gpumon.sources.nvml import NvmlSource
from gpumon.storage.history.recorder import HistoryRecorder
from gpumon.storage.history.tiers import HistoryLimits
from tests.fakes import FakeClock, Inline
from tests.nvml import Stub
from tests.nvml.truth import driver_value
from tests.programs import PATIENCE


class EpochSpan(NamedTuple):
    """A time in which a daemon runs without an interruption; times in seconds since 1970."""

    begin: float
    end: float
    driver_begin: float
    """The time at which the driver's counters stood at their start."""
    interval: float = 1.0
    is_new: bool = True
    """Whether a new daemon begins with it; else the one before goes on, as behind a reset of the driver."""
    is_killed: bool = False
    """Whether the daemon that ends with it writes nothing any more: what it has not written is in the ring alone."""
    rebooted: bool = False
    """Whether the machine was started again before it."""
    wraps: tuple[tuple[str, int, int], ...] = ()
    """Counters of the driver that begin at another number, and of how many bits they are: (metric, start, bits)."""
    lost: tuple[int, ...] = ()
    """GPUs that the driver has lost."""


_KEPT = {1: 1200.0, 2: 7200.0}
"""Seconds that the finer tiers are kept, so that some hours have cells of every length."""


class ShortLimits(HistoryLimits):
    """As many tiers in some hours as else in a month."""

    def keep(self) -> Mapping[int, float]:
        return {**super().keep(), **_KEPT}


def play(stub: Stub, directory: Path, plan: Sequence[EpochSpan]) -> RingWriter:
    """Sample every stretch of the plan; the last daemon goes on."""
    where, state = directory / "live", directory / "state"
    where.mkdir(mode=0o700)
    state.mkdir(mode=0o700)
    recorder, sampler, ring, clock = None, None, None, FakeClock()
    for stretch in plan:
        stub.set_start(stretch.driver_begin)
        for gpu in range(stub.gpus):
            stub.set_lost(gpu, gpu in stretch.lost)
        if stretch.is_new:
            if recorder is not None and sampler is not None and ring is not None:
                sampler.close()
                ring.close()
            passed = stretch.begin - clock.time() / SECOND
            uptime = 100.0 if stretch.rebooted or recorder is None else clock.now / SECOND + passed
            clock = FakeClock(round(uptime * SECOND), round(stretch.begin * SECOND))
            stub.hold_clock(stretch.begin - stretch.driver_begin)
            sampler = Sampler(NvmlSource(clock, lambda pid: ProcessInfo(), executor=Inline()), clock, stretch.interval)
            ring = RingWriter.create(
                str(where / "ring"), stub.gpus, round(stretch.interval * SECOND),
                continues=None if stretch.rebooted else "nvml",
            )  # fmt: skip
            if stretch.rebooted:
                booted = os.urandom(16)
                gpumon.storage.history.recorder.boot_id = lambda booted=booted: booted
            recorder = HistoryRecorder(
                str(state / "history.sqlite"), os.getuid(), print, limits=ShortLimits(), directory=str(where),
                earlier=partial(frames_since, str(where / "ring")),
            ).start()  # fmt: skip
        assert recorder is not None
        assert sampler is not None
        assert ring is not None
        clock.advance(stretch.begin - clock.time() / SECOND)
        for number in range(round((stretch.end - stretch.begin) / stretch.interval)):
            stub.hold_clock(clock.time() / SECOND - stretch.driver_begin)
            _set_counters(stub, stretch.wraps)
            for tick in sampler.ticks():
                ring.append(tick)
                recorder.add(tick)
            clock.advance(stretch.interval)
            while number % 100 == 0 and len(recorder._ticks) > 100:
                time.sleep(0.002)
        if not stretch.is_killed and stretch is not plan[-1] and _ends(plan, stretch):
            recorder.close(PATIENCE)
    assert ring is not None
    return ring


def _set_counters(stub: Stub, wraps: Sequence[tuple[str, int, int]]) -> None:
    for metric, start, bits in wraps:
        for gpu in range(stub.gpus):
            grown = driver_value(metric, gpu, stub.elapsed) - driver_value(metric, gpu, 0)
            stub.set_value(metric, (start + grown) % 2**bits, gpu)


def _ends(plan: Sequence[EpochSpan], stretch: EpochSpan) -> bool:
    """Whether the daemon ends with it."""
    return plan[plan.index(stretch) + 1].is_new


def main() -> None:
    stub, directory, plan = Stub.attach(Path(sys.argv[1])), Path(sys.argv[2]), json.loads(sys.argv[3])
    ring = play(stub, directory, [EpochSpan(*row[:-1], lost=tuple(row[-1])) for row in plan])
    print("over", flush=True)
    while not select([sys.stdin], [], [], 0.5)[0]:
        ring.heartbeat()


if __name__ == "__main__":
    main()
