"""A real training and a real daemon: each sample has the epoch of its own time."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.paths import Places
from gpumon.live import Live, follow
from gpumon.model.frame import Boundary, Frame, Mark, RunState
from tests.nvml import Process, Stub
from tests.programs import PATIENCE, daemon, environment, until

# Prints, as JSON, the clock before and after each begin of an epoch, between which the boundary lies, and the CPU time
# between the two, ns. Waits for a line before its first epoch, and after each so many of them; at the end of the input
# it waits no more.
TRAINING = """
import json, random, sys, time, gpumon
epochs, shortest, longest, at_once = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
chance = random.Random(1)
times = []
with gpumon.run("short", epochs=epochs, devices=sys.argv[5:]) as run:
    print("ready", flush=True)
    sys.stdin.readline()
    before, used = time.monotonic_ns(), time.thread_time_ns()
    for epoch in run.epochs():
        used = time.thread_time_ns() - used
        times.append((before, time.monotonic_ns(), used))
        run.step()
        time.sleep(chance.uniform(shortest, longest))
        if not (epoch + 1) % at_once:
            sys.stdin.readline()
        before, used = time.monotonic_ns(), time.thread_time_ns()
print(json.dumps(times), flush=True)
"""
MILLISECOND = 1_000_000
AT_ONCE = 100
"""Epochs that a training begins before it waits for its reader: fewer than its board holds, however late that is."""


def start(
    env: dict[str, str], epochs: int, shortest: float, longest: float, *devices: str, at_once: int = AT_ONCE
) -> subprocess.Popen[str]:
    """A training that waits for a line before its first epoch and after each `at_once` of them."""
    words = map(str, (epochs, shortest, longest, at_once, *devices))
    training = subprocess.Popen(
        [sys.executable, "-c", TRAINING, *words], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert training.stdout is not None
    assert training.stdout.readline() == "ready\n"
    return training


def send(training: subprocess.Popen[str]) -> None:
    """Let a training continue."""
    assert training.stdin is not None
    training.stdin.write("go\n")
    training.stdin.flush()


def boundaries(frames: list[Frame]) -> dict[int, Boundary]:
    """Begin of each epoch, by epoch."""
    events = [event for frame in frames for event in frame.boundaries if event.mark is Mark.EPOCH_BEGIN]
    return {event.epoch: event for event in events}


def test_500_epochs_of_2_to_20_ms_are_found_at_1_hz_with_exact_times(live_dir: Path) -> None:
    env = environment(live_dir)
    live = follow(Places(explicit=str(live_dir)))
    with daemon("--interval", "1", env=env):
        training = start(env, 500, 0.002, 0.02)
        for begun in range(AT_ONCE, 501, AT_ONCE):
            send(training)
            until(lambda begun=begun: len(_all(live)) >= begun)  # type: ignore[misc]
        times = json.loads(training.communicate(timeout=PATIENCE)[0])
        until(lambda: all(run.state is RunState.FINISHED for run in _runs(live.latest())))
        found = boundaries(live.since(0))
        frames = live.since(0)
    assert sorted(found) == list(range(500))
    assert all(run.lost_events == 0 for frame in frames for run in frame.runs)
    ends = {b.epoch: b.monotonic_ns for frame in frames for b in frame.boundaries if b.mark is Mark.EPOCH_END}
    for epoch, (before, after, _) in enumerate(times):
        assert before <= found[epoch].monotonic_ns <= after, epoch
        assert epoch == 0 or before <= ends[epoch - 1] <= after, "an epoch ends when the next one begins"
    assert len(ends) == 500
    # Of its own time: the machine may halt a training between the two readings of the clock.
    used = sorted(used for *_, used in times)
    assert used[len(used) * 98 // 100] <= MILLISECOND
    numbers = [event.number for frame in frames for event in frame.boundaries]
    assert numbers == list(range(1, len(numbers) + 1)), "each once, in order"


def _runs(frame: Frame | None) -> tuple[Any, ...]:
    return frame.runs if frame else ()


def _all(live: Live) -> dict[int, Boundary]:
    return boundaries(live.since(0))


def test_each_sample_of_the_runs_gpu_has_the_epoch_of_its_own_time(stub: Stub, live_dir: Path) -> None:
    env = environment(live_dir, stub.env())
    live = follow(Places(explicit=str(live_dir)))
    with daemon("--interval", "0.03", env=env):
        training = start(env, 12, 0.2, 0.3, stub.uuid(1), at_once=1)
        stub.set_processes(1, [Process(training.pid)])
        for epoch in range(12):
            send(training)
            until(lambda epoch=epoch: _sampled_in(live, epoch) >= 6)  # type: ignore[misc]
        times = json.loads(training.communicate(timeout=PATIENCE)[0])
        until(lambda: all(run.state is RunState.FINISHED for run in _runs(live.latest())))
        frames = live.since(0)
    stamped = 0
    for frame in frames:
        first, second = frame.samples
        assert first.run == "", "not a GPU of this run"
        in_epoch = [epoch for epoch, (_, after, _) in enumerate(times) if after <= frame.monotonic_ns]
        surely_ended = frame.monotonic_ns > times[-1][1] + 300_000_000
        if not in_epoch or surely_ended:
            continue
        (run,) = frame.runs
        assert run.epoch == in_epoch[-1] or (
            run.epoch == in_epoch[-1] + 1 and frame.monotonic_ns >= times[run.epoch][0]
        )
        if run.state is RunState.RUNNING:
            assert second.run == run.key
            stamped += 1
    assert stamped > 50


def _sampled_in(live: Live, epoch: int) -> int:
    """How many frames were taken in an epoch of the only run."""
    return sum(run.epoch == epoch for frame in live.since(0) for run in frame.runs)


def test_a_late_daemon_reads_earlier_epochs(live_dir: Path) -> None:
    env = environment(live_dir)
    training = start(env, 20, 0.02, 0.05)
    times = json.loads(training.communicate("go\n", timeout=PATIENCE)[0])
    live = follow(Places(explicit=str(live_dir)))
    with daemon("--interval", "0.1", env=env):
        found = until(lambda: boundaries(live.since(0)))
    assert sorted(found) == list(range(20))
    assert all(before <= found[epoch].monotonic_ns <= after for epoch, (before, after, _) in enumerate(times))


def test_a_restarted_daemon_continues_the_run(live_dir: Path) -> None:
    env = environment(live_dir)
    live = follow(Places(explicit=str(live_dir)))
    training = start(env, 40, 0.03, 0.06)
    with daemon("--interval", "0.05", env=env) as first:
        send(training)
        until(lambda: len(_all(live)) > 5)
        first.kill()
        first.wait()
    time.sleep(0.3)
    with daemon("--interval", "0.05", env=env):
        training.communicate(timeout=PATIENCE)
        until(lambda: len(_all(live)) == 40)
        assert all(run.lost_events == 0 for run in _runs(live.latest()))


@pytest.mark.parametrize("what", ["absent", "killed", "stopped"])
def test_a_training_does_not_depend_on_the_daemon(live_dir: Path, what: str) -> None:
    env = environment(live_dir)
    if what == "absent":
        times = json.loads(start(env, 100, 0.002, 0.004).communicate("go\n", timeout=PATIENCE)[0])
    else:
        with daemon("--interval", "0.05", env=env) as process:
            training = start(env, 100, 0.002, 0.004)
            process.send_signal(signal.SIGKILL if what == "killed" else signal.SIGSTOP)
            times = json.loads(training.communicate("go\n", timeout=PATIENCE)[0])
            assert training.returncode == 0
    spent = sorted(after - before for before, after, _ in times)
    assert len(times) == 100
    assert spent[len(spent) // 2] < MILLISECOND, "a boundary takes microseconds, whoever listens"
