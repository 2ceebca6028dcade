"""XID errors of the stub driver reach the frames, the findings and the event log, with their own times."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon.model.metrics import Availability
from tests.nvml import Stub
from tests.programs import PATIENCE, asked, daemon, environment, gpumon, status, until

LOST, NOT_SUPPORTED, NO_PERMISSION = 15, 3, 4
START = "nvmlInitWithFlags"
SETS = 16
"""Sets of events that the stub has for a process."""
READ = """
import json, sys
from gpumon.common.clock import SystemClock
from gpumon.sources.nvml import NvmlSource, source as module
from gpumon.model.metrics import GPU_INDEX

module.SCAN_EVERY = 0.1  # errors are waited for from the second look on
source = NvmlSource(SystemClock(), lambda pid: ("", "", 0.0, 0.0, 0.0))
for line in sys.stdin:
    if not json.loads(line):
        break
    (reading,) = source.read()
    print(json.dumps({
        "states": [s.state for s in reading.samples],
        "codes": [s.values[GPU_INDEX["gpu.xid"]] for s in reading.samples],
        "missing": [s.device.missing.get("gpu.xid") for s in reading.samples],
        "xids": [[x.uuid, x.code, x.time_ns, x.monotonic_ns] for x in reading.xids],
    }), flush=True)
source.close()
"""


@pytest.fixture
def stub(driver_library: Path) -> Iterator[Stub]:
    with Stub(driver_library, gpus=3) as stub:
        yield stub


class Reader:
    """A source in a process of its own, read again and again."""

    def __init__(self, ask: Any, stub: Stub) -> None:
        self._ask, self._stub = ask, stub
        self.xids: list[list[Any]] = []

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] = self._ask(True)
        self.xids += found["xids"]
        return found

    def until_codes(self, *codes: float | None) -> dict[str, Any]:
        """Read until the GPUs have these codes; None is missing."""

        def fits() -> dict[str, Any] | None:
            found = self.read()
            told = [code if code == code else None for code in found["codes"]]
            return found if told == list(codes) else None

        return until(fits)

    def until_opened(self) -> None:
        """Read until the driver was opened once more, or would have been if it were there."""
        before = self._stub.calls()[START]
        until(lambda: self.read() and self._stub.calls()[START] > before)

    def until_told(self, *codes: int) -> None:
        """Read until these errors have come."""
        until(lambda: self.read() and len(self.xids) >= len(codes))
        assert [xid[1] for xid in self.xids] == list(codes)


@pytest.fixture
def reader(stub: Stub, tmp_path: Path) -> Iterator[Reader]:
    with asked(READ, environment(tmp_path, stub.env())) as ask:
        yield Reader(ask, stub)


def test_an_error_comes_with_the_time_of_its_report(stub: Stub, reader: Reader) -> None:
    reader.until_codes(0, 0, 0)
    before = time.time_ns(), time.monotonic_ns()
    stub.xid(1, 48)
    reader.until_told(48)
    uuid, _, *times = reader.xids[0]
    assert uuid == stub.uuid(1)
    assert all(0 <= at - begun < PATIENCE * 1e9 for at, begun in zip(times, before, strict=True))
    assert reader.until_codes(0, 48, 0)["states"] == [Availability.OK] * 3


def test_a_wait_delays_no_tick_and_costs_half_a_call_a_second(stub: Stub, reader: Reader) -> None:
    reader.until_codes(0, 0, 0)
    stub.reset_calls()
    stub.set_latency("nvmlEventSetWait_v2", 3_600_000_000)  # hangs
    stub.xid(0, 31)
    begun = time.monotonic()
    for _ in range(100):
        assert reader.read()["states"] == [Availability.OK] * 3
    seconds = time.monotonic() - begun
    assert stub.calls().get("nvmlEventSetWait_v2", 0) <= 1 + seconds
    stub.set_latency("nvmlEventSetWait_v2", 0)
    until(lambda: reader.read() and reader.xids)
    assert [xid[1] for xid in reader.xids] == [31]


def test_a_gpu_without_events_has_a_reason_and_the_others_are_watched(stub: Stub, reader: Reader) -> None:
    stub.set_error("nvmlDeviceRegisterEvents", NO_PERMISSION, gpu=1)
    stub.set_error("nvmlDeviceGetSupportedEventTypes", NOT_SUPPORTED, gpu=2)
    found = reader.until_codes(0, None, None)
    assert found["missing"] == [None, Availability.NO_PERMISSION, Availability.NOT_SUPPORTED]
    assert found["states"] == [Availability.OK] * 3
    stub.xid(0, 63)
    reader.until_codes(63, None, None)


def test_one_that_falls_off_the_bus_is_told_and_the_others_are_watched_on(stub: Stub, reader: Reader) -> None:
    reader.until_codes(0, 0, 0)
    stub.xid(2, 79)
    stub.set_lost(2)
    reader.until_told(79)
    found = reader.until_codes(0, 0, 79)
    assert found["states"][2] == Availability.LOST
    stub.xid(0, 13)
    reader.until_told(79, 13)
    stub.set_lost(2, False)
    reader.until_codes(0, 0, 0)
    stub.xid(2, 94)
    reader.until_codes(0, 0, 94)


def test_gpus_that_the_driver_no_longer_lists_keep_the_error_before(stub: Stub, reader: Reader) -> None:
    reader.until_codes(0, 0, 0)
    stub.xid(1, 48)
    stub.xid(2, 79)
    reader.until_codes(0, 48, 79)
    stub.gpus = 1
    until(lambda: reader.read()["states"][1:] == [Availability.LOST] * 2)
    found = reader.until_codes(0, 48, 79)
    assert found["missing"] == [None] * 3
    stub.driver_error = 9
    gone = until(lambda: (found := reader.read())["states"] == [Availability.NO_DRIVER] * 3 and found)
    assert sorted(code for code in gone["codes"] if code > 0) == [48, 79]
    reader.until_opened()
    stub.driver_error = 0
    until(lambda: reader.read()["states"] == [Availability.OK, Availability.LOST, Availability.LOST])
    reader.until_codes(0, 48, 79)
    stub.gpus = 3
    until(lambda: reader.read()["states"] == [Availability.OK] * 3)
    reader.until_codes(0, 0, 0)


@pytest.mark.parametrize("is_closed_meanwhile", [False, True], ids=["for a moment", "while it is opened anew"])
def test_a_driver_that_was_loaded_anew_more_often_than_it_has_sets_of_events_is_watched(
    stub: Stub, reader: Reader, is_closed_meanwhile: bool
) -> None:
    stub.event_look = 0.01
    reader.until_codes(0, 0, 0)
    for _ in range(SETS + 2):
        stub.driver_error = 9
        until(lambda: Availability.NO_DRIVER in reader.read()["states"])
        if is_closed_meanwhile:
            reader.until_opened()
        stub.driver_error = 0
        reader.until_codes(0, 0, 0)
    stub.xid(1, 95)
    reader.until_codes(0, 95, 0)


def test_a_program_that_waits_for_errors_ends_when_it_is_told_to(stub: Stub, tmp_path: Path) -> None:
    with asked(READ, environment(tmp_path, stub.env())) as ask:
        reader = Reader(ask, stub)
        reader.until_codes(0, 0, 0)
        stub.set_latency("nvmlEventSetWait_v2", 3_600_000_000)
        begun = time.monotonic()
        with pytest.raises(json.JSONDecodeError):
            ask(False)
        assert time.monotonic() - begun < PATIENCE


def test_a_daemon_keeps_errors_and_views_tell_what_to_do(stub: Stub, tmp_path: Path) -> None:
    env = environment(tmp_path, stub.env())
    with daemon("--interval", "0.2", env=env):
        until(lambda: status(env)["gpus"][0]["xid"] == 0)
        before = time.time()
        stub.xid(0, 31)
        stub.xid(1, 48)
        found = until(lambda: (now := status(env))["gpus"][1]["xid"] == 48 and now)
        assert found["gpus"][0]["xid"] == 0, "an application's own fault"
        (finding,) = (one for one in found["findings"] if one["kind"] == "xid_error")
        assert finding["subject"]["id"] == stub.uuid(1)
        after = time.time()
    listed = json.loads(gpumon("history", "events", "--json", "--kind", "xid", env=env).stdout)["events"]
    assert [(one["uuid"], one["details"]["code"], one["severity"]) for one in listed] == [
        (stub.uuid(0), 31, "info"), (stub.uuid(1), 48, "critical"),
    ]  # fmt: skip
    assert all(before <= one["time"] <= after for one in listed)
    text = gpumon("history", "events", env=env).stdout
    assert "31: an application accessed GPU memory that is not its own; the GPU has no fault" in text
