"""GPUs that say that there is no driver, beside others that are late, lost, failing or asleep: has the driver gone?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpumon.model.metrics import Availability
from tests.nvml import Stub
from tests.programs import asked, environment, until
from tests.sourced import pci_device

READ = """
import json, os, sys
from gpumon.common.clock import SystemClock
from gpumon.model.metrics import GPU_INDEX
from gpumon.sources.base import ProcessInfo
from gpumon.sources.nvml import NvmlSource, source as module

module.SCAN_EVERY = 0.1
source = NvmlSource(SystemClock(), lambda pid: ProcessInfo(), timeout=0.05, pci=os.environ["PCI"])
for line in sys.stdin:
    (reading,) = source.read()
    samples = sorted(reading.samples, key=lambda sample: sample.device.index)
    print(json.dumps({
        "states": [sample.state for sample in samples],
        "uuids": [sample.device.uuid for sample in samples],
        "xids": [sample.values[GPU_INDEX["gpu.xid"]] == 0 for sample in samples],
        "calls": {call.function: call.calls for call in source.driver_calls()},
        "problem": source.origin().problem,
    }), flush=True)
"""
GPUS = 8
FOR_EVER = 3_600_000_000
"""µs."""
OFTEN = "nvmlDeviceGetUtilizationRates"
COUNT, START = "nvmlDeviceGetCount_v2", "nvmlInitWithFlags"
OK, STALE, NO_DRIVER = Availability.OK, Availability.STALE, Availability.NO_DRIVER
ASLEEP, LOST, FAILED = Availability.ASLEEP, Availability.LOST, Availability.FAILED


class Machine(NamedTuple):
    """A machine with eight GPUs, and a source in a process of its own that is read again and again."""

    stub: Stub
    pci: Path
    ask: Any

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(0)
        return found

    def make(self, gpu: int, state: Availability) -> None:
        """Let a GPU be in this state."""
        if state is ASLEEP:
            self.power(gpu, "suspended")
        elif state is STALE:
            self.stub.set_latency(None, FOR_EVER, gpu)
        elif state is LOST:
            self.stub.set_lost(gpu)
        elif state is not OK:
            self.stub.set_error(None, {NO_DRIVER: 9, FAILED: 999}[state], gpu)

    def power(self, gpu: int, status: str) -> None:
        pci_device(self.pci, f"0000:{16 + 4 * gpu:02x}:00.0", status=status)

    def until_states(self, *states: Availability) -> dict[str, Any]:
        return until(lambda: found if (found := self.read())["states"] == list(states) else None)

    def looks(self, count: int) -> Iterator[dict[str, Any]]:
        """Read until the driver has been looked for so many times more."""
        begun = self.stub.calls().get(COUNT, 0)
        while self.stub.calls().get(COUNT, 0) < begun + count:
            yield self.read()


@pytest.fixture
def machine(driver_library: Path, tmp_path: Path) -> Iterator[Machine]:
    pci = tmp_path / "pci"
    pci.mkdir()
    with Stub(driver_library, gpus=GPUS) as stub:
        stub.event_look = 0.01
        with asked(READ, {**environment(tmp_path, stub.env()), "PCI": str(pci)}) as ask:
            made = Machine(stub, pci, ask)
            for gpu in range(GPUS):
                made.power(gpu, "active")
            made.until_states(*[OK] * GPUS)
            until(lambda: all(made.read()["xids"]))
            yield made
            stub.clear_faults()


DOUBTS = [
    pytest.param([STALE] * 7, id="all others hang"),
    pytest.param([LOST] * 7, id="all others are lost"),
    pytest.param([FAILED] * 7, id="all others fail"),
    pytest.param([ASLEEP] * 7, id="all others sleep"),
    pytest.param([STALE, LOST, FAILED, ASLEEP, NO_DRIVER, NO_DRIVER, STALE], id="each other has something else"),
    pytest.param([NO_DRIVER] * 6 + [STALE], id="one hangs and the others say so too"),
    pytest.param([NO_DRIVER] * 6 + [OK], id="one is well and the others say so too"),
]


@pytest.mark.parametrize("others", DOUBTS)
def test_a_driver_that_is_there_is_not_opened_anew_and_each_gpu_tells_of_itself(
    machine: Machine, others: list[Availability]
) -> None:
    states = [NO_DRIVER, *others]
    for gpu, state in enumerate(states):
        machine.make(gpu, state)
    machine.until_states(*states)
    for found in machine.looks(5):
        assert found["states"] == states
        assert "went away" not in found["problem"]
    assert machine.stub.calls()[START] == 1


@pytest.mark.parametrize("others", DOUBTS)
def test_a_driver_that_goes_then_is_found_gone_and_there_again_when_it_comes_back(
    machine: Machine, others: list[Availability]
) -> None:
    states = [NO_DRIVER, *others]
    for gpu, state in enumerate(states):
        machine.make(gpu, state)
    uuids = machine.until_states(*states)["uuids"]
    machine.stub.driver_error = 9
    gone = machine.until_states(*[NO_DRIVER] * GPUS)
    assert gone["uuids"] == uuids
    machine.stub.driver_error = 0
    found = machine.until_states(*states)
    assert found["uuids"] == uuids
    assert "went away" not in found["problem"]


def test_a_driver_that_goes_under_a_call_that_hangs_is_read_again_as_it_is_where_it_answers(machine: Machine) -> None:
    machine.make(3, STALE)
    states = [OK if gpu != 3 else STALE for gpu in range(GPUS)]
    machine.until_states(*states)
    machine.stub.driver_error = 9
    machine.until_states(*[NO_DRIVER] * GPUS)
    found = until(lambda: found if "hangs" in (found := machine.read())["problem"] else None)
    assert "once the driver is back" in found["problem"]
    machine.stub.driver_error = 0
    found = machine.until_states(*states)
    assert found["problem"] == ""
    assert machine.stub.calls()[START] == 1, "it cannot be opened anew under a call"
    assert not machine.read()["xids"][0], "nobody waits for errors as long as one GPU cannot be registered for them"
    machine.stub.set_latency(None, 0, 3)
    machine.until_states(*[OK] * GPUS)
    until(lambda: all(machine.read()["xids"]))


def test_calls_are_counted_on_over_devices_that_leave_and_a_driver_that_is_opened_anew(machine: Machine) -> None:
    for left in (6, GPUS):
        machine.stub.gpus = left
        machine.until_states(*[OK] * left, *[LOST] * (GPUS - left))
        assert_all_calls_are_counted(machine)
    for _ in range(2):
        machine.stub.driver_error = 9
        machine.until_states(*[NO_DRIVER] * GPUS)
        assert_all_calls_are_counted(machine)
        machine.stub.driver_error = 0
        machine.until_states(*[OK] * GPUS)
        assert_all_calls_are_counted(machine)


def assert_all_calls_are_counted(machine: Machine) -> None:
    counted = machine.read()["calls"][OFTEN]
    assert counted == machine.stub.calls()[OFTEN] > 0


def test_a_driver_that_goes_under_a_call_that_hangs_is_opened_anew_when_the_call_has_come_back(
    machine: Machine,
) -> None:
    machine.make(3, STALE)
    machine.until_states(*[OK if gpu != 3 else STALE for gpu in range(GPUS)])
    machine.stub.driver_error = 9
    until(lambda: "hangs" in machine.read()["problem"])
    begun = machine.stub.calls()[START]
    machine.stub.set_latency(None, 0, 3)
    until(lambda: machine.read() and machine.stub.calls()[START] > begun)
    assert "hangs" not in machine.read()["problem"]
    machine.stub.driver_error = 0
    assert machine.until_states(*[OK] * GPUS)["problem"] == ""
