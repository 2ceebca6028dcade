"""A real training beside a real daemon: every sample carries the epoch that was in force when it was taken."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gpumon.frame import Boundary, Frame, Mark, RunState
from gpumon.live import follow
from gpumon.paths import Places
from tests.nvml import Process, Stub
from tests.programs import PATIENCE, daemon, environment, until

# Prints, as JSON, the clock before and after each begin of an epoch: the boundary lies between them.
TRAINING = """
import json, random, sys, time, gpumon
epochs, shortest, longest = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
chance = random.Random(1)
times = []
with gpumon.run("short", epochs=epochs, devices=sys.argv[4:]) as run:
    print("ready", flush=True)
    sys.stdin.readline()
    before = time.monotonic_ns()
    for epoch in run.epochs():
        times.append((before, time.monotonic_ns()))
        run.step()
        time.sleep(chance.uniform(shortest, longest))
        before = time.monotonic_ns()
print(json.dumps(times), flush=True)
"""


def start(env: dict[str, str], *arguments: object) -> subprocess.Popen[str]:
    """A training that waits for a word before its first epoch."""
    training = subprocess.Popen(
        [sys.executable, "-c", TRAINING, *map(str, arguments)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert training.stdout is not None
    assert training.stdout.readline() == "ready\n"
    return training


def boundaries(frames: list[Frame]) -> dict[int, Boundary]:
    """Begin of each epoch, by epoch."""
    events = [event for frame in frames for event in frame.boundaries if event.mark is Mark.EPOCH_BEGIN]
    return {event.epoch: event for event in events}


def test_500_epochs_of_2_to_20_ms_at_1_hz_are_all_found_at_their_exact_times(live_dir: Path) -> None:
    env = environment(live_dir)
    live = follow(Places(explicit=str(live_dir)))
    with daemon("--interval", "1", env=env):
        training = start(env, 500, 0.002, 0.02)
        times = json.loads(training.communicate("go\n", timeout=120)[0])
        until(lambda: all(run.state is RunState.FINISHED for run in _runs(live.latest())) and len(_all(live)) >= 500)
        found = boundaries(live.since(0))
        frames = live.since(0)
    assert sorted(found) == list(range(500))
    assert all(run.lost_events == 0 for frame in frames for run in frame.runs)
    errors = []
    for epoch, (before, after) in enumerate(times):
        assert before <= found[epoch].monotonic_ns <= after, epoch
        errors.append((after - before) / 1e6)
    # Both readings of the clock are in the training, which the machine may halt between them.
    errors.sort()
    assert errors[len(errors) * 9 // 10] <= 1.0, "milliseconds"
    numbers = [event.number for frame in frames for event in frame.boundaries]
    assert numbers == list(range(1, len(numbers) + 1)), "each once, in order"


def _runs(frame: Frame | None) -> tuple[Any, ...]:
    return frame.runs if frame else ()


def _all(live: Any) -> dict[int, Boundary]:
    return boundaries(live.since(0))


def test_each_sample_of_the_runs_gpu_has_the_epoch_of_its_own_time(stub: Stub, live_dir: Path) -> None:
    env = environment(live_dir, stub.env())
    live = follow(Places(explicit=str(live_dir)))
    with daemon("--interval", "0.03", env=env):
        training = start(env, 12, 0.2, 0.3, stub.uuid(1))
        stub.set_processes(1, [Process(training.pid)])
        times = json.loads(training.communicate("go\n", timeout=PATIENCE)[0])
        until(lambda: all(run.state is RunState.FINISHED for run in _runs(live.latest())))
        frames = live.since(0)
    stamped = 0
    for frame in frames:
        first, second = frame.samples
        assert first.run == "", "not a GPU of this run"
        in_epoch = [epoch for epoch, (_, after) in enumerate(times) if after <= frame.monotonic_ns]
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
    assert stamped > 10  # of a hundred on an idle machine


def test_a_daemon_that_comes_late_still_learns_the_epochs_before_it(live_dir: Path) -> None:
    env = environment(live_dir)
    training = start(env, 20, 0.02, 0.05)
    times = json.loads(training.communicate("go\n", timeout=PATIENCE)[0])
    live = follow(Places(explicit=str(live_dir)))
    with daemon("--interval", "0.1", env=env):
        found = until(lambda: boundaries(live.since(0)))
    assert sorted(found) == list(range(20))
    assert all(before <= found[epoch].monotonic_ns <= after for epoch, (before, after) in enumerate(times))


def test_a_restarted_daemon_goes_on_with_the_run(live_dir: Path) -> None:
    env = environment(live_dir)
    live = follow(Places(explicit=str(live_dir)))
    training = start(env, 40, 0.03, 0.06)
    assert training.stdin is not None
    with daemon("--interval", "0.05", env=env) as first:
        training.stdin.write("go\n")
        training.stdin.flush()
        until(lambda: len(_all(live)) > 5)
        first.kill()
        first.wait()
    time.sleep(0.3)
    with daemon("--interval", "0.05", env=env):
        training.communicate(timeout=PATIENCE)
        until(lambda: len(_all(live)) == 40)
        assert all(run.lost_events == 0 for run in _runs(live.latest()))


@pytest.mark.parametrize("what", ["absent", "killed", "stopped"])
def test_the_training_is_not_affected_by_what_happens_to_the_daemon(live_dir: Path, what: str) -> None:
    env = environment(live_dir)
    if what == "absent":
        times = json.loads(start(env, 100, 0.002, 0.004).communicate("go\n", timeout=PATIENCE)[0])
    else:
        with daemon("--interval", "0.05", env=env) as process:
            training = start(env, 100, 0.002, 0.004)
            process.send_signal(signal.SIGKILL if what == "killed" else signal.SIGSTOP)
            times = json.loads(training.communicate("go\n", timeout=PATIENCE)[0])
            assert training.returncode == 0
    spent = sorted(after - before for before, after in times)
    assert len(times) == 100
    assert spent[len(spent) // 2] < 1_000_000, "a boundary takes microseconds, whoever listens"
