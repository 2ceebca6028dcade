"""The table of faults of a driver: the other GPUs keep every tick, nothing is made up, and all is back within 3 s.

On a daemon at 10 Hz with eight GPUs, read through its ring. `docs/inside/driver-faults.md` has the results for people.
"""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from gpumon.common.clock import SECOND
from gpumon.common.paths import Places
from gpumon.live import Live, follow
from gpumon.model.frame import Frame, Sample
from gpumon.model.metrics import PROCESSES, Availability
from tests.conftest import ROOT
from tests.faulty import (
    EACH,
    FAST,
    GPUS,
    RECOVERY,
    Machine,
    assert_nothing_is_made_up,
    assert_others_kept,
    machine,
    waited,
    whole_gpus,
)
from tests.nvml import Process, Stub, build
from tests.programs import Child, command, daemon, environment, slept_until_end, until

ONE = 3
"""The GPU that has a fault where one has."""
FOR_EVER, SLOW = 3_600_000_000, 20_000
"""µs."""
START = "nvmlInitWithFlags"
FIELDS, PROCESS_LIST = "nvmlDeviceGetFieldValues", "nvmlDeviceGetComputeRunningProcesses_v3"
FRAMES = 15
"""How long a fault lasts, from the first frame that shows it on."""
FEW = 5

Shows = Callable[[Sample], bool]


def is_(*states: Availability) -> Shows:
    return lambda sample: sample.state in states


def lacks(*metrics: str) -> Shows:
    """It is OK, and these are not known."""
    return lambda sample: (
        sample.state is Availability.OK
        and all(metric in sample.device.missing and math.isnan(sample.value(metric)) for metric in metrics)
    )


class Fault(NamedTuple):
    """A row of the table."""

    name: str
    begin: Callable[[Stub], object]
    shows: Shows
    """Holds for each GPU that has it, in each frame from the first in which it holds for all of them."""
    gpus: Sequence[int] = (ONE,)
    """Those that have it."""
    changed: Mapping[str, float] = {}
    """What it makes of gauges: the driver's own numbers, which are none of the fault."""


DIVIDED = {"gpu.memory_used": 3 * 2.0**30, "gpu.memory_reserved": 2.0**27}
"""Of two MIG instances."""


def slow_down(microseconds: int, *gpus: int | None, function: str | None = None) -> Callable[[Stub], None]:
    def begin(stub: Stub) -> None:
        for gpu in gpus:
            stub.set_latency(function, microseconds, gpu)

    return begin


def answer(code: int, function: str | None = None) -> Callable[[Stub], None]:
    return lambda stub: stub.set_error(function, code, ONE)


def set_driver_error(code: int) -> Callable[[Stub], None]:
    return lambda stub: setattr(stub, "driver_error", code)


def remove(left: int) -> Callable[[Stub], None]:
    return lambda stub: setattr(stub, "gpus", left)


def hold_lock(stub: Stub) -> None:
    stub.one_at_a_time = True
    stub.set_latency(FIELDS, FOR_EVER, ONE)


def fill(stub: Stub) -> None:
    """The largest number of each type."""
    for metric in FAST:
        stub.set_value(metric, 2**64 - 1, ONE)


BEYOND = {"gpu.temperature": 2**32 - 6, "gpu.power": 2**32 - 2, "gpu.memory_used": 2**52, "gpu.clock_sm": 2**31}


def exceed(stub: Stub) -> None:
    """Numbers that are the largest of no type, and that no card has."""
    for metric, number in BEYOND.items():
        stub.set_value(metric, number, ONE)


def garble_processes(stub: Stub) -> None:
    """As drivers were seen to do for processes that are gone: shares of 4 billion percent, memory of 16 EiB."""
    most = 2**32 - 2
    stub.set_processes(
        ONE,
        [
            Process(os.getpid(), None, sm=most, mem=most, enc=most, dec=most),
            Process(0, 2**64 - 2),
            Process(2**31, sm=101),
        ],
    )


LOST, NO_DRIVER, OK, STALE = Availability.LOST, Availability.NO_DRIVER, Availability.OK, Availability.STALE
TABLE = [
    Fault("the driver goes away", set_driver_error(9), is_(NO_DRIVER), EACH),
    Fault("a lock is held across the driver", hold_lock, is_(STALE), EACH),
    Fault("two GPUs are removed", remove(6), is_(LOST), (6, 7)),
    Fault("each call takes 20 ms", slow_down(SLOW, None), is_(OK, STALE), EACH),
]
LONG_TABLE = [
    Fault("one GPU falls off the bus", lambda stub: stub.set_lost(ONE), is_(LOST)),
    Fault("one GPU hangs", slow_down(FOR_EVER, ONE), is_(STALE)),
    Fault("seven GPUs hang", slow_down(FOR_EVER, *range(1, 8)), is_(STALE), range(1, 8)),
    Fault("all GPUs hang", slow_down(FOR_EVER, None), is_(STALE), EACH),
    Fault("one call of one GPU hangs", slow_down(FOR_EVER, ONE, function=FIELDS), is_(STALE)),
    Fault("one list of processes hangs", slow_down(FOR_EVER, ONE, function=PROCESS_LIST), is_(STALE)),
    Fault("each call of one GPU takes 20 ms", slow_down(SLOW, ONE), is_(OK, STALE)),
    Fault("one GPU must be reset", answer(16), is_(Availability.RESET_REQUIRED)),
    Fault("one GPU answers unknown errors", answer(999), is_(Availability.FAILED)),
    Fault("one GPU refuses", answer(4), is_(Availability.NO_PERMISSION)),
    Fault("one GPU supports nothing any more", answer(3), is_(Availability.NOT_SUPPORTED)),
    Fault("one GPU says that there is no driver", answer(9), is_(NO_DRIVER)),
    Fault("the field values of one GPU fail", answer(999, FIELDS), lacks("gpu.energy", "gpu.pcie_sent")),
    Fault("one GPU has no field values any more", answer(3, FIELDS), lacks("gpu.energy", "gpu.pcie_sent")),
    Fault("the driver is not initialized", set_driver_error(1), is_(NO_DRIVER), EACH),
    Fault("the driver is of another version", set_driver_error(18), is_(NO_DRIVER), EACH),
    Fault("all GPUs are removed", remove(0), is_(LOST), EACH),
    Fault("values are the largest of their type", fill, lacks(*FAST)),
    Fault("values are beyond what cards have", exceed, lacks(*BEYOND)),
    Fault("MIG is switched on", lambda stub: stub.set_mig(ONE, 2), lacks("gpu.utilization"), changed=DIVIDED),
    Fault("samples of processes are garbage", garble_processes, lacks()),
]


@pytest.fixture(scope="module")
def eight(driver_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    with Stub(driver_library, gpus=GPUS) as stub, machine(stub, live_directory(tmp_path_factory)) as served:
        yield served


def live_directory(factory: pytest.TempPathFactory) -> Path:
    directory = factory.mktemp("faults") / "live"
    directory.mkdir(mode=0o700)
    return directory


def suffer(served: Machine, fault: Fault, frames: int = FRAMES) -> None:
    """Do a fault to a machine, and hold what it shows against the table."""
    served.begin()
    try:
        fault.begin(served.stub)
        served.until(lambda frame: all(fault.shows(one) for gpu, one in whole_gpus(frame).items() if gpu in fault.gpus))
        for _ in range(0, frames, FEW):
            for frame in served.take(FEW):
                shown = whole_gpus(frame)
                assert [gpu for gpu in fault.gpus if not fault.shows(shown[gpu])] == []
    finally:
        seconds = served.recover()
    assert seconds <= RECOVERY
    assert_others_kept(served, fault.gpus)
    assert_nothing_is_made_up(served, fault.changed)


@pytest.mark.parametrize("fault", TABLE, ids=lambda fault: fault.name)
def test_a_fault_of_all_is_shown_and_over_within_3_s(eight: Machine, fault: Fault) -> None:
    suffer(eight, fault, FEW)


def test_faults_of_several_gpus_at_once_leave_the_others_their_ticks(eight: Machine) -> None:
    stub = eight.stub
    faulty: dict[int, Shows] = {
        1: is_(LOST),
        2: is_(STALE),
        3: lacks(*FAST),
        4: is_(Availability.FAILED),
        5: lacks("gpu.energy"),
        6: is_(OK, STALE),
    }
    eight.begin()
    try:
        fill(stub)
        garble_processes(stub)
        stub.set_lost(1)
        stub.set_latency(None, FOR_EVER, 2)
        stub.set_error(None, 999, 4)
        stub.set_error(FIELDS, 3, 5)
        stub.set_latency(None, SLOW, 6)
        eight.until(lambda frame: all(shows(frame.samples[gpu]) for gpu, shows in faulty.items()))
        for frame in eight.take(FRAMES):
            assert {gpu for gpu, shows in faulty.items() if not shows(frame.samples[gpu])} == set()
    finally:
        seconds = eight.recover()
    assert seconds <= RECOVERY
    assert_others_kept(eight, faulty)
    assert_nothing_is_made_up(eight)
    for frame in eight.frames:
        for process in frame.processes:
            assert not process.memory_used > 2**40
            assert not max(process.sm_utilization, process.memory_utilization) > 1


def test_one_gpu_that_says_that_there_is_no_driver_takes_none_along_that_is_late(eight: Machine) -> None:
    stub = eight.stub
    eight.begin()
    starts = stub.calls()[START]
    try:
        stub.set_error(None, 9, ONE)
        eight.until(lambda frame: frame.samples[ONE].state is NO_DRIVER)
        stub.set_latency(None, SLOW)
        eight.until(lambda frame: frame.samples[0].state is STALE)
        for frame in eight.take(2 * FRAMES):
            others = {gpu: state for gpu, state in states(frame).items() if gpu != ONE}
            assert frame.samples[ONE].state is NO_DRIVER
            assert set(others.values()) <= {OK, STALE}
    finally:
        seconds = eight.recover()
    assert seconds <= RECOVERY
    assert stub.calls()[START] == starts
    assert_nothing_is_made_up(eight)


def test_a_driver_that_goes_while_a_gpu_hangs_is_back_within_3_s_after_it_answers_again(eight: Machine) -> None:
    stub = eight.stub
    eight.begin()
    try:
        stub.set_latency(None, FOR_EVER, ONE)
        eight.until(lambda frame: frame.samples[ONE].state is STALE)
        stub.driver_error = 9
        eight.until(lambda frame: {*states(frame).values()} == {NO_DRIVER})
        stub.driver_error = 0
        ended, queued = time.monotonic_ns(), eight.queued()
        expected = {gpu: STALE if gpu == ONE else OK for gpu in EACH}
        back = eight.until(lambda frame: states(frame) == expected)
        assert (back.monotonic_ns - ended) / SECOND - (eight.queued() - queued) <= RECOVERY
    finally:
        seconds = eight.recover()
    assert seconds <= RECOVERY
    assert_nothing_is_made_up(eight)


@contextmanager
def starting(stub: Stub, live_dir: Path) -> Iterator[tuple[subprocess.Popen[str], Live]]:
    """A daemon that may not find its driver; it logs nothing."""
    env, words = environment(live_dir, stub.env()), command("daemon", "--interval", "0.1")
    live = follow(Places(explicit=str(live_dir)))
    with Child(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process, live
            process.terminate()
            assert process.wait() == 0
            assert process.stderr is not None
            assert process.stderr.read() == ""
        finally:
            process.kill()


@pytest.mark.parametrize("fault", ["fails", "hangs"])
def test_a_start_of_the_driver_that_is_no_good_at_first_is_found_to_be_later(
    stub: Stub, live_dir: Path, fault: str
) -> None:
    if fault == "fails":
        stub.set_error("nvmlInitWithFlags", 999)
    else:
        stub.set_latency("nvmlInitWithFlags", FOR_EVER)
    why = "does not answer" if fault == "fails" else "has not answered for"
    with starting(stub, live_dir) as (process, live):
        until(lambda: len(live.since(0)) > FEW and why in live.origin().problem)
        assert (live.origin().unanswered > 0) is (fault == "hangs")
        assert {frame.samples for frame in live.since(0)} == {()}
        stub.clear_faults()
        ended, queued = time.monotonic_ns(), waited(process)
        well = until(lambda: next((frame for frame in live.since(0) if frame.samples), None))
        assert (well.monotonic_ns - ended) / SECOND - (waited(process) - queued) <= RECOVERY
        assert [(sample.device.uuid, sample.state) for sample in well.samples] == [
            (stub.uuid(gpu), OK) for gpu in range(stub.gpus)
        ]
        until(lambda: live.origin().problem == "" and not live.origin().unanswered)


def test_a_daemon_with_one_gpu_that_hangs_for_ever_stops_at_once_and_the_next_one_starts(
    stub: Stub, live_dir: Path
) -> None:
    stub.gpus = GPUS
    with starting(stub, live_dir) as (process, live):
        until(lambda: any(sample.state is OK for sample in found.samples) if (found := live.latest()) else False)
        stub.set_latency(None, FOR_EVER, ONE)
        until(lambda: (found := live.latest()) and found.samples[ONE].state is STALE)
        process.terminate()
        assert slept_until_end(process) < RECOVERY, "a second, and what a busy disk adds to the last writes"
        with daemon("--interval", "0.1", env=environment(live_dir, stub.env())):
            expected = {index: OK if index != ONE else STALE for index in EACH}
            until(lambda: states(live.latest()) == expected)
            stub.clear_faults()
            until(lambda: states(live.latest()) == dict.fromkeys(EACH, OK))
            found = live.latest()
            assert found is not None
            assert [sample.device.uuid for sample in found.samples] == [stub.uuid(gpu) for gpu in EACH]


def states(frame: Frame | None) -> dict[int, Availability]:
    return {sample.device.index: sample.state for sample in frame.samples} if frame else {}


@pytest.mark.slow
@pytest.mark.parametrize("fault", LONG_TABLE, ids=lambda fault: fault.name)
def test_each_fault_is_shown_kept_from_the_others_and_over_within_3_s(eight: Machine, fault: Fault) -> None:
    suffer(eight, fault)


@pytest.mark.slow
@pytest.mark.parametrize("level", [390, 470, 580])
def test_older_drivers_have_the_same_faults(level: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    library = build(level, into=ROOT / ".cache")
    with Stub(library, gpus=GPUS) as stub, machine(stub, live_directory(tmp_path_factory)) as served:
        for fault in (*TABLE, *LONG_TABLE[:2]):
            suffer(served, fault, FEW)


@pytest.mark.slow
def test_a_gpu_that_hangs_for_a_minute_costs_no_other_a_tick(eight: Machine) -> None:
    suffer(eight, Fault("one GPU hangs", slow_down(FOR_EVER, ONE), is_(STALE)), 600)
    assert PROCESSES not in eight.frames[-1].samples[ONE].device.missing
