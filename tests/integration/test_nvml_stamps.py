"""When each GPU was read: a slow call delays only itself, and no rate is wrong for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from math import inf
from pathlib import Path
from threading import Thread

import pytest

from gpumon.common.clock import SECOND
from gpumon.common.paths import Places
from gpumon.live import follow
from gpumon.model.metrics import Availability
from gpumon.storage.history.query import Query
from gpumon.storage.history.recent import RecentHistory
from tests.nvml import Stub
from tests.programs import daemon, environment, until
from tests.sourced import Source, nvml_source

FIELDS = "nvmlDeviceGetFieldValues"
SLOW = 300_000
"""µs that the slow call takes here; it was 4 s where this was seen."""
HANG = 3_600_000_000
"""µs: it takes until it is let go."""


@pytest.fixture
def source(stub: Stub, tmp_path: Path) -> Iterator[Source]:
    stub.gpus = 4
    with nvml_source(stub, tmp_path) as read:
        yield read


def test_each_gpu_is_stamped_when_it_was_read_and_waits_for_no_slow_one_before(source: Source, stub: Stub) -> None:
    source()
    stub.reset_calls()
    stub.set_latency(FIELDS, HANG, gpu=1)
    asked: list[int] = []

    def let() -> None:
        until(lambda: FIELDS in stub.calls(1))
        asked.append(time.monotonic_ns())
        until(lambda: FIELDS in stub.calls(3))
        asked.append(time.monotonic_ns())
        stub.set_latency(FIELDS, 0, gpu=1)

    slow = Thread(target=let)
    slow.start()
    read = source()
    over = time.monotonic_ns()
    slow.join()
    stamps = [gpu.monotonic_ns for gpu in read.gpus]
    assert read.monotonic_ns <= min(stamps)
    assert max(stamps) <= over
    assert stamps[1] <= asked[0], "its utilization was there before the slow call"
    assert stamps[2] <= stamps[3] <= asked[1], "while that had not come back"
    for gpu in read.gpus:
        assert gpu["utilization"] == pytest.approx(
            stub.truth("gpu.utilization", gpu.index, gpu.monotonic_ns / SECOND), abs=0.011
        )


def test_a_slow_call_makes_no_rate_of_a_counter_wrong(source: Source, stub: Stub) -> None:
    stub.constant = True
    before = source()
    for slow in (True, False):
        stub.set_latency(FIELDS, SLOW if slow else 0, gpu=1)
        time.sleep(0.2)
        after = source()
        for a, b in zip(before.gpus, after.gpus, strict=True):
            seconds = (b.counters_monotonic_ns - a.counters_monotonic_ns) / SECOND
            watts = (b["energy"] - a["energy"]) / seconds
            assert watts == pytest.approx(b["power"], rel=0.01), b.index
            sent = (b["pcie_sent"] - a["pcie_sent"]) / seconds
            assert sent == pytest.approx(150e6 + 10e6 * b.index, rel=0.01)
        before = after


def test_the_counters_carry_the_drivers_own_stamp_and_never_one_outside_their_call(source: Source, stub: Stub) -> None:
    stub.set_latency(FIELDS, SLOW, gpu=2)
    begun = time.monotonic_ns()
    read = source()
    over = time.monotonic_ns()
    for gpu in read.gpus:
        assert begun <= gpu.counters_monotonic_ns <= over
        # What the driver counted at its own stamp, which it took at the end of the slow call.
        truth = stub.truth("gpu.pcie_sent", gpu.index, gpu.counters_monotonic_ns / SECOND)
        assert gpu["pcie_sent"] == pytest.approx(truth, abs=0.005 * 180e6)


def test_stamps_of_another_clock_are_not_believed(source: Source, stub: Stub) -> None:
    stub._file.t0_unix_ns -= 300 * SECOND
    for gpu in source(20.0).gpus:
        assert gpu.counters_monotonic_ns == gpu.monotonic_ns == stub._file.t0_ns + 20 * SECOND
        assert "gpu.energy" not in gpu.missing, "a call that took no time can only be of then"


def test_counters_of_a_slow_call_without_a_stamp_are_missing_and_its_gauges_are_not(source: Source, stub: Stub) -> None:
    source()
    stub._file.t0_unix_ns -= 300 * SECOND
    stub.set_latency(FIELDS, SLOW, gpu=1)
    second = source().gpus[1]
    for metric in ("gpu.energy", "gpu.pcie_sent", "gpu.throttled_sw_power"):
        assert second.missing[metric] is Availability.UNRELIABLE
    assert second["power"] > 0
    stub.set_latency(FIELDS, 0, gpu=1)
    until(lambda: "gpu.energy" in source().gpus[1].values)


def test_a_daemon_draws_no_false_rate_where_a_driver_call_hangs(stub: Stub, live_dir: Path) -> None:
    stub.gpus = 3
    with daemon("--interval", "0.2", env=environment(live_dir, stub.env())):
        live = follow(Places(explicit=str(live_dir)))
        for latency in (0, 600_000, 0):
            stub.set_latency(FIELDS, latency, gpu=1)
            begun = until(live.latest).number
            until(lambda begun=begun: live.latest().number >= begun + 4)  # type: ignore[misc, union-attr]
        history = RecentHistory()
        for frame in live.since(0):
            history.add(frame)
    for gpu in range(3):
        query = Query(stub.uuid(gpu), ("gpu.pcie_sent",), 0.0, inf)
        rates = [rate for rate in history.query(query)["gpu.pcie_sent"].mean if rate == rate]
        assert len(rates) >= 6
        assert rates == pytest.approx([150e6 + 10e6 * gpu] * len(rates), rel=0.03), gpu
