"""A daemon that samples seldom while no GPU does anything, on the stub driver."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from gpumon.analysis.thresholds import SILENT
from gpumon.common.paths import Places
from gpumon.diagnosis.live_findings import JudgedFrame
from gpumon.live import follow
from gpumon.model.metrics import Availability
from tests.nvml import Process, Stub, sleepers
from tests.programs import daemon, environment, status, until


def test_frames_come_seldom_until_a_process_is_there_and_the_daemon_is_live_all_the_time(
    stub: Stub, live_dir: Path
) -> None:
    stub.gpus = 1
    stub.set_value("gpu.utilization", 0)
    env = environment(live_dir, stub.env())
    live = follow(Places(explicit=str(live_dir)))
    with sleepers(1) as (pid,), daemon("--interval", "0.1", "--idle-interval", "1", env=env):
        until(lambda: (frame := live.latest()) is not None and frame.number >= 4)
        frames = live.since(0)
        for before, after in pairwise(frames[1:]):
            apart = (after.monotonic_ns - before.monotonic_ns) / 1e9
            assert apart >= 0.9
            assert after.interval == 1.0
        assert live.state().live
        assert live.interval() == 0.1
        stub.set_processes(0, [Process(pid)])
        until(lambda: (frame := live.latest()) is not None and frame.processes and frame.interval == 0.1)
        assert status(env)["live"]
        stub.set_processes(0, [])
        until(lambda: (frame := live.latest()) is not None and frame.interval == 1.0)


def test_a_gpu_that_answers_a_second_late_after_a_pause_is_no_driver_that_has_not_answered_for_that_long(
    stub: Stub, live_dir: Path
) -> None:
    stub.set_value("gpu.utilization", 0)
    live = follow(Places(explicit=str(live_dir)))
    pause = SILENT + 1
    with daemon("--interval", "0.2", "--idle-interval", str(pause), env=environment(live_dir, stub.env())):
        until(lambda: (frame := live.latest()) is not None and frame.interval == pause)
        stub.set_latency(None, 100_000, 1)
        until(lambda: any(frame.samples[1].state is Availability.STALE for frame in live.since(0)))
        stub.set_latency(None, 0, 1)
        until(lambda: (frame := live.latest()) and frame.samples[1].state is Availability.OK)
        late = [frame for frame in live.since(0) if frame.samples[1].state is Availability.STALE]
    assert [frame for frame in late if frame.samples[1].age > SILENT], "its values are old"
    assert [
        finding.summary for frame in late for finding in JudgedFrame(frame).findings() if "answer" in finding.summary
    ] == []
