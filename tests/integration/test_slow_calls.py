"""A call of the driver that turns slow: made more seldom, said so, and the other GPUs keep every tick."""

from __future__ import annotations

import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from gpumon.common.clock import SECOND
from gpumon.common.driver_calls import read_calls
from gpumon.common.paths import Places
from gpumon.live import follow
from gpumon.model.frame import Frame
from gpumon.model.metrics import Availability
from gpumon.ring.reader import RingReader
from gpumon.storage.usage.running_sums import Totals, totals_from_sums
from tests.nvml import Stub
from tests.programs import daemon, environment, gpumon, until

SLOW = "nvmlDeviceGetUtilizationRates"
HANG = 3_600_000_000
"""µs: it takes until it is let go."""


def test_a_call_that_turns_slow_is_made_more_seldom_and_status_says_what_it_costs(stub: Stub, live_dir: Path) -> None:
    env = environment(live_dir, stub.env())
    with daemon("--interval", "0.05", env=env) as process:
        until(lambda: read_calls(str(live_dir)))
        stub.set_latency(SLOW, 30_000, gpu=1)
        slow = until(lambda: next((call for call in read_calls(str(live_dir)) if call.every), None))
        done = gpumon("status", "--verbose", env=env)
        process.terminate()
        errors = process.stderr.read() if process.stderr else ""
    assert slow.function == SLOW
    assert slow.worst >= 0.03
    assert f"{SLOW}  " in done.stdout
    assert "slow, so made only every " in done.stdout
    assert f"{SLOW} takes " in str(errors)


def test_the_other_gpus_keep_every_tick_while_one_hangs(stub: Stub, live_dir: Path) -> None:
    stub.gpus = 8
    with daemon("--interval", "0.5", env=environment(live_dir, stub.env())):
        live = follow(Places(explicit=str(live_dir)))

        def newest(number: int = 0) -> Frame | None:
            frame = live.latest()
            return frame if frame and frame.number >= number else None

        until(newest)
        stub.set_latency(None, HANG, gpu=3)
        hung = until(lambda: one if (one := newest()) and one.samples[3].state is Availability.STALE else None)
        until(lambda: newest(hung.number + 6))
        frames = live.since(hung.number)
        stub.set_latency(None, 0, gpu=3)
        well = until(lambda: one if (one := newest()) and one.samples[3].state is Availability.OK else None)
    for before, frame in pairwise(frames):
        for gpu, sample in enumerate(frame.samples):
            if gpu != 3:
                assert sample.state is Availability.OK
                assert sample.monotonic_ns > before.samples[gpu].monotonic_ns, "read anew"
        stale = frame.samples[3]
        assert stale.state is Availability.STALE
        assert stale.age >= (frame.monotonic_ns - hung.monotonic_ns) / SECOND
        assert stale.values[0] == hung.samples[3].values[0], "the last that is known"
    assert [sample.device.uuid for sample in well.samples] == [stub.uuid(gpu) for gpu in range(8)]


def used(live_dir: Path) -> Totals:
    """Sums of use as an exporter finds them."""
    with closing(RingReader.open(str(live_dir / "ring"))) as reader:
        found = reader.sums()
    return totals_from_sums(found) if found else Totals(0, 0.0, 0, {}, {}, {})


@pytest.mark.parametrize(
    ("interval", "slow"),
    [
        pytest.param("0.1", 20_000, id="10 Hz"),
        pytest.param("1", 100_000, id="1 Hz", marks=pytest.mark.slow),
    ],
)
def test_slow_calls_and_a_hung_gpu_lose_no_energy_of_the_others(
    interval: str, slow: int, stub: Stub, live_dir: Path
) -> None:
    """And that of the hung one is what its counter tells, as long as it is asked again soon."""
    stub.gpus = 4
    with daemon("--interval", interval, env=environment(live_dir, stub.env())):
        live = follow(Places(explicit=str(live_dir)))
        stub.set_latency(None, slow)
        until(lambda: any(call.every for call in read_calls(str(live_dir))))
        begin, since = used(live_dir), time.time()
        stub.set_latency(None, HANG, gpu=3)
        until(lambda: (one := live.latest()) and one.samples[3].age > 3)
        stub.set_latency(None, slow, gpu=3)
        until(lambda: time.time() > since + 15)
        end, until_time, then = used(live_dir), time.time(), time.monotonic_ns()
        ticks = {frame.monotonic_ns: frame for frame in live.since(0)}
        # Each has read its counter twice since: the first of these may be of the second that the window ends in.
        for _ in range(2):
            until(lambda then=then: (one := live.latest()) and min(  # type: ignore[misc]
                gpu.counters_monotonic_ns for gpu in one.samples) > then)  # fmt: skip
            then = time.monotonic_ns()
        live.since(0)
        totals = live.totals(begin=since, end=until_time)
    first, last = ticks[begin.monotonic_ns], ticks[end.monotonic_ns]
    ahead = last.time - last.monotonic_ns / SECOND
    for gpu, (before, after) in enumerate(zip(first.samples, last.samples, strict=True)):
        uuid = after.device.uuid
        stamps = [one.counters_monotonic_ns / SECOND for one in (before, after)]
        true = stub.truth("gpu.energy", gpu, stamps[1]) - stub.truth("gpu.energy", gpu, stamps[0])
        use, earlier = end.devices[uuid].use, begin.devices[uuid].use
        assert use.energy - earlier.energy == pytest.approx(true, rel=0.01)
        assert use.metered <= use.observed + 1e-6
        total = totals.devices[uuid]["energy"]
        true = stub.truth("gpu.energy", gpu, until_time - ahead) - stub.truth("gpu.energy", gpu, since - ahead)
        # Of the one that hung, history may lack the second in which it did: it then says so.
        assert total.missing_seconds < (2.0 if gpu == 3 else 0.5), gpu
        told = 1 - total.missing_seconds / (until_time - since)
        assert 0.96 * told * true <= total.value <= 1.04 * true, gpu


def test_a_glitch_of_the_energy_counter_is_in_no_sum(stub: Stub, live_dir: Path) -> None:
    with daemon("--interval", "0.1", env=environment(live_dir, stub.env())):
        live = follow(Places(explicit=str(live_dir)))
        until(lambda: (one := live.latest()) and one.number > 20)
        begin, since = used(live_dir), time.time()
        for glitch in (2**62, 4_290_000_000 + round(1000 * stub.truth("gpu.energy", 1)), 0):
            stub.set_value("gpu.energy", glitch, 1)
            until(lambda glitch=glitch: (one := live.latest()) and one.samples[1].value("gpu.energy") == glitch / 1000)
            stub.set_value("gpu.energy", None, 1)
            until(lambda: (one := live.latest()) and 8e6 < one.samples[1].value("gpu.energy") < 9e6)
        until(lambda: time.time() > since + 5)
        end, until_time = used(live_dir), time.time()
        ticks = {frame.monotonic_ns: frame for frame in live.since(0)}
        until(lambda: (one := live.latest()) and one.time > until_time + 1)
        totals = live.totals(begin=since, end=until_time)
    first, last = ticks[begin.monotonic_ns].samples[1], ticks[end.monotonic_ns].samples[1]
    uuid, grown = last.device.uuid, last.value("gpu.energy") - first.value("gpu.energy")
    assert end.devices[uuid].use.energy - begin.devices[uuid].use.energy == pytest.approx(grown, rel=0.01)
    total = totals.devices[uuid]["energy"]
    assert total.value == pytest.approx(grown, rel=0.1)
    assert total.missing_seconds < 0.5
