"""When the driver's list of processes is read: each 3 s, and at once where the memory says that somebody came or went.

NVML keeps its state for the life of a process, so the source runs in one of its own, on the test's clock, which
is the driver's too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpumon.common.clock import SECOND
from tests.nvml import Process, Stub
from tests.programs import asked, environment

LIST = "nvmlDeviceGetComputeRunningProcesses_v3"
CLIENT = """
import json, sys
from gpumon.common.clock import SystemClock
from gpumon.sources.base import ProcessInfo
from gpumon.sources.nvml import NvmlSource

class Clock(SystemClock):
    at = 0
    def monotonic(self): return self.at

clock = Clock()
source = NvmlSource(clock, lambda pid: ProcessInfo(), timeout=60.0)
for line in sys.stdin:
    clock.at = int(line)
    (reading,) = source.read()
    print(json.dumps([process.pid for process in reading.processes]), flush=True)
"""
See = Callable[[float], list[int]]
RAMP = 240.0
"""The driver's memory grows by 256 MiB at each even second, and begins anew after so many seconds."""


@pytest.fixture
def see(stub: Stub, tmp_path: Path) -> Iterator[See]:
    """The pids that a read so many seconds after the driver's start tells."""
    stub.gpus = 1
    with asked(CLIENT, environment(tmp_path, stub.env())) as ask:

        def at(seconds: float) -> list[int]:
            stub.hold_clock(seconds)
            found: list[int] = ask(stub._file.t0_ns + round(seconds * SECOND))
            return found

        yield at


def test_who_comes_or_goes_is_seen_at_the_next_tick(see: See, stub: Stub) -> None:
    assert see(RAMP + 1.0) == []
    stub.set_processes(0, [Process(4711)])
    assert see(RAMP + 1.5) == [], "the memory has not moved"
    assert see(RAMP + 2.0) == [4711]
    stub.set_processes(0, [])
    assert see(RAMP + 4.0) == []


def test_memory_that_never_rests_is_no_reason_to_look_all_the_time(see: See, stub: Stub) -> None:
    stub.set_processes(0, [Process(4711)])
    see(0.0)
    stub.reset_calls()
    for second in range(1, 61):
        assert see(second) == [4711]
    looks = stub.calls()[LIST]
    assert 20 <= looks <= 22, "each 3 s, and twice for the memory"
