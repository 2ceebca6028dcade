"""A GPU that the system has powered down is asked nothing: each call of its driver would wake it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.clock import SECOND
from gpumon.model.metrics import Availability
from gpumon.sources.nvml.xid import WAIT_MS
from tests.nvml import Process, Stub
from tests.programs import asked, environment, until
from tests.sourced import pci_device

CLIENT = """
import json, os, sys
from gpumon.common.clock import SystemClock
from gpumon.sources.base import ProcessInfo
from gpumon.sources.nvml import NvmlSource

class Clock(SystemClock):
    at = 0
    def monotonic(self): return self.at

clock = Clock()
source = NvmlSource(clock, lambda pid: ProcessInfo(), timeout=60.0, pci=os.environ["PCI"])
for line in sys.stdin:
    clock.at = int(line)
    (reading,) = source.read()
    print(json.dumps({
        "states": {s.device.uuid: s.state for s in reading.samples},
        "known": {s.device.uuid: sum(v == v for v in s.values) for s in reading.samples},
        "missing": {s.device.uuid: s.device.missing.get("gpu.processes") for s in reading.samples},
        "pids": [process.pid for process in reading.processes],
        "xids": [xid.code for xid in reading.xids],
        "problem": source.origin().problem,
    }), flush=True)
"""
REGISTER = "nvmlDeviceRegisterEvents"
OK, ASLEEP = int(Availability.OK), int(Availability.ASLEEP)
See = Callable[[float], dict[str, Any]]


@pytest.fixture
def see(stub: Stub, tmp_path: Path) -> Iterator[See]:
    """What a read so many seconds after the driver's start gives."""
    (tmp_path / "pci").mkdir()
    with asked(CLIENT, {**environment(tmp_path, stub.env()), "PCI": str(tmp_path / "pci")}) as ask:

        def at(seconds: float) -> dict[str, Any]:
            stub.hold_clock(seconds)
            found: dict[str, Any] = ask(stub._file.t0_ns + round(seconds * SECOND))
            return found

        yield at


def put(tmp_path: Path, stub: Stub, index: int, status: str) -> None:
    pci_device(tmp_path / "pci", ADDRESSES[index], status=status)


ADDRESSES = ("0000:10:00.0", "0000:14:00.0")


def test_a_gpu_that_falls_asleep_is_asked_nothing_and_the_other_goes_on(see: See, stub: Stub, tmp_path: Path) -> None:
    first, second = stub.uuid(0), stub.uuid(1)
    for index in range(2):
        put(tmp_path, stub, index, "active")
    stub.set_processes(0, [Process(41)])
    before = see(1.0)
    assert (before["states"], before["pids"]) == ({first: OK, second: OK}, [41])
    put(tmp_path, stub, 0, "suspended")
    stub.reset_calls()
    for tenth in range(11, 120):
        found = see(tenth / 10)
    assert found["states"] == {first: ASLEEP, second: OK}
    assert (found["known"][first], found["pids"], found["problem"]) == (0, [], "")
    assert found["missing"][first] == Availability.ASLEEP, "nobody knows who is on it"
    assert sum(stub.calls(0).values()) == 0
    assert sum(stub.calls(1).values()) > 100
    put(tmp_path, stub, 0, "active")
    found = see(12.1)
    assert (found["states"][first], found["pids"]) == (OK, [41])
    assert found["known"] == {**before["known"], **found["known"]}
    assert found["missing"][first] is None


def test_where_every_gpu_has_fallen_asleep_the_driver_is_asked_nothing_at_all(
    see: See, stub: Stub, tmp_path: Path
) -> None:
    stub.event_look = 0.01
    states = [{stub.uuid(index): state for index in range(2)} for state in (OK, ASLEEP)]
    for index in range(2):
        put(tmp_path, stub, index, "active")
    see(1.0)
    see(3.1)
    until(lambda: stub.calls(1).get(REGISTER, 0) == 1)
    for index in range(2):
        put(tmp_path, stub, index, "suspended")
    assert see(12.0)["states"] == states[1]
    see(14.1)
    until(lambda: is_quiet(stub))
    stub.reset_calls()
    for tenth in range(142, 200):
        assert see(tenth / 10)["states"] == states[1]
    assert stub.calls() == {}
    put(tmp_path, stub, 0, "active")
    put(tmp_path, stub, 1, "active")
    assert see(20.1)["states"] == states[0]
    see(22.2)
    stub.xid(1, 48)
    until(lambda: see(22.3)["xids"] == [48])


def is_quiet(stub: Stub) -> bool:
    """Whether a wait for errors is longer ago than one takes, at most."""
    before = stub.calls()
    time.sleep(WAIT_MS / 1000)
    return stub.calls() == before


def test_where_every_gpu_sleeps_when_gpumon_starts_the_driver_is_not_even_opened(
    see: See, stub: Stub, tmp_path: Path
) -> None:
    stub.gpus = 1
    put(tmp_path, stub, 0, "suspended")
    found = see(1.0)
    assert found["states"] == {f"PCI-{ADDRESSES[0]}": ASLEEP}
    assert found["problem"] == ""
    see(4.0)
    assert stub.calls() == {}
    put(tmp_path, stub, 0, "active")
    assert see(7.0)["states"] == {stub.uuid(0): OK}


def test_no_wait_for_errors_wakes_a_gpu_that_sleeps_while_its_driver_is_opened_anew(
    see: See, stub: Stub, tmp_path: Path
) -> None:
    for index in range(2):
        put(tmp_path, stub, index, "active")
    see(1.0)
    see(3.1)
    until(lambda: stub.calls(0).get(REGISTER, 0) == 1)
    stub.driver_error = 9
    see(5.2)
    put(tmp_path, stub, 0, "suspended")
    stub.reset_calls()
    stub.driver_error = 0
    see(7.3)
    until(lambda: stub.calls(1).get(REGISTER, 0) == 1)
    for tenth in range(74, 120):
        found = see(tenth / 10)
    assert found["states"] == {stub.uuid(0): ASLEEP, stub.uuid(1): OK}
    assert REGISTER not in stub.calls(0)
