"""A call of the driver that turns slow: made more seldom, said so, and the other GPUs keep every tick."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from gpumon.clock import SECOND
from gpumon.driver_calls import read_calls
from gpumon.frame import Frame
from gpumon.live import follow
from gpumon.metrics import Availability
from gpumon.paths import Places
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
    assert "slow, so only every " in done.stdout
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
