"""What goes wrong around a training: it is never disturbed, and what was recorded is kept."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from gpumon.callbacks.hook import Hook
from gpumon.common.paths import HISTORY, LEDGER, Places
from gpumon.live import follow
from gpumon.model.frame import Mark, RunState
from tests.conftest import ROOT
from tests.integration.test_ledger import ask, ended
from tests.nvml import Stub
from tests.programs import PATIENCE, daemon, environment, until
from tests.trainings import need

# Says "there" in the middle of its second epoch; then it raises, or waits for what is done to it.
BY_HAND = """
import signal, sys, time, gpumon
signal.signal(signal.SIGINT, signal.default_int_handler)
def stop():
    print("there", flush=True)
    if sys.argv[1] == "raise":
        raise ValueError("no good")
    while True:
        time.sleep(0.05)
with gpumon.run("broken", epochs=5) as run:
    for epoch in run.epochs():
        for step in run.steps(range(4)):
            if (epoch, step) == (1, 2):
                stop()
"""
KERAS = (
    BY_HAND.partition("with gpumon")[0]
    + """
import keras, numpy
from gpumon.callbacks.keras import GpuMonitor
class Stop(keras.callbacks.Callback):
    epoch = 0
    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch
    def on_train_batch_begin(self, batch, logs=None):
        if (self.epoch, batch) == (1, 2):
            stop()
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = numpy.ones((32, 2), "float32")
model.fit(x, x[:, :1], batch_size=8, epochs=5, verbose=0, callbacks=[GpuMonitor("broken"), Stop()])
"""
)


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("by hand", "raise"), ("by hand", "interrupt"),
        # Keras that breaks off: its board is held by test_callback_keras, what a ledger makes of one by those above.
        *(pytest.param("keras", what, marks=pytest.mark.slow) for what in ("raise", "interrupt")),
    ],
)  # fmt: skip
def test_a_training_that_breaks_off_says_so_and_keeps_what_its_epoch_came_to(
    watched: Path, kind: str, what: str
) -> None:
    if kind == "keras":
        need("torch", "keras")
    env = {**environment(watched), "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "torch", "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.Popen(
        [sys.executable, "-c", KERAS if kind == "keras" else BY_HAND, what],
        env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        if what == "interrupt":
            process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=PATIENCE)[1]
    finally:
        process.kill()
        process.wait()
    assert ("ValueError: no good" if what == "raise" else "KeyboardInterrupt") in errors.splitlines()[-1], errors
    how = RunState.FAILED if what == "raise" else RunState.INTERRUPTED
    # Where it ends right after a sample, the tick after that has how.
    (run,) = until(lambda: [run for run in ended(watched) if run["state"] == how])
    assert run["name"] == "broken"
    epochs = ask(watched, "SELECT * FROM epoch ORDER BY ordinal")
    assert [row["ended"] is None for row in epochs] == [False, True]
    # By hand a step counts once its batch is handed out; in Keras once it is done.
    assert [row["steps"] for row in epochs] == [4, 2 if kind == "keras" else 3]


@pytest.fixture
def small_disk(live_dir: Path) -> Iterator[Path]:
    """A state directory on a file system of its own with 16 MiB."""
    state = live_dir / "state"
    state.mkdir(mode=0o700)
    words = ["mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "gpumon-test", str(state)]
    try:
        mounted = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no 'mount' here")
    if mounted.returncode:
        pytest.skip(f"a file system may not be mounted here: {mounted.stderr.strip()}")
    yield state
    subprocess.run(["umount", "-l", str(state)], check=True)


def fill(directory: Path) -> Path:
    """A file that takes all the room there is."""
    path = directory / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return path


# Makes one epoch, and many once it is told to go on.
MANY = """
import sys, time, gpumon
with gpumon.run("many") as run:
    for epoch in run.epochs(800):
        run.step()
        if epoch == 1:
            print("there", flush=True)
            sys.stdin.readline()
        time.sleep(0.005)
print("done", flush=True)
"""


def test_a_full_disk_is_said_once_and_written_to_when_there_is_room(
    stub: Stub, live_dir: Path, small_disk: Path
) -> None:
    env = environment(live_dir, stub.env())
    told: list[str] = []
    with ExitStack() as stack:
        sampler = stack.enter_context(daemon("--interval", "0.1", env=env))
        assert sampler.stderr is not None
        error = sampler.stderr.fileno()
        os.set_blocking(error, False)

        def said(text: str) -> bool:
            with suppress(BlockingIOError):  # nothing new
                told.append(os.read(error, 1 << 16).decode())
            return text in "".join(told)

        training = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", MANY], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True,
            )
        )  # fmt: skip
        stack.callback(training.kill)
        assert training.stdout is not None
        assert training.stdout.readline() == "there\n"
        until(lambda: ask(live_dir, "SELECT * FROM epoch"))
        filler = fill(small_disk)
        printed, errors = training.communicate("go\n", timeout=120)
        assert (training.returncode, printed, errors) == (0, "done\n", "")
        until(lambda: said(f"cannot write {small_disk}/{LEDGER}"))
        live = follow(Places(explicit=str(live_dir)))
        frame = until(live.latest)
        until(lambda: (now := live.latest()) and now.number > frame.number + 5)
        filler.unlink()
        until(lambda: said(f"{LEDGER} is writable again"), timeout=120)
        (run,) = until(lambda: ended(live_dir))
    assert "".join(told).count(f"cannot write {small_disk}/{LEDGER}") == 1, told
    assert run["state"] == RunState.FINISHED
    rows = ask(live_dir, "SELECT * FROM epoch ORDER BY ordinal")
    epochs = [row["epoch"] for row in rows]
    assert epochs == sorted(set(epochs))
    (rank,) = ask(live_dir, "SELECT * FROM rank")
    assert (epochs[0], epochs[-1], len(epochs) + (rank["folded_epochs"] or 0)) == (0, 799, 800)
    assert all(row["ended"] for row in rows)
    with closing(sqlite3.connect(small_disk / LEDGER)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_history_without_room_costs_no_live_frame_and_is_written_when_there_is_room(
    stub: Stub, live_dir: Path, small_disk: Path
) -> None:
    filler = fill(small_disk)
    with daemon("--interval", "0.05", env=environment(live_dir, stub.env())) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith(f"gpumon: cannot write {small_disk}/{HISTORY}"), line
        live = follow(Places(explicit=str(live_dir)))
        newest = until(live.latest).number
        until(lambda: (now := live.latest()) and now.number > newest + 100)
        filler.unlink()
        line = process.stderr.readline()
        assert line.startswith(f"gpumon: {small_disk}/{HISTORY} is writable again"), line
        process.terminate()
        assert (process.wait(timeout=PATIENCE), process.stderr.read()) == (0, "")
    frames = live.since(0)
    assert [frame.number for frame in frames] == list(range(1, len(frames) + 1))
    with closing(sqlite3.connect(small_disk / HISTORY)) as connection:
        rows = connection.execute(
            "SELECT number * 300 + first, number * 300 + last FROM block WHERE tier = 1"
        ).fetchall()
    assert {int(frame.time) for frame in frames} <= {cell for begin, end in rows for cell in range(begin, end + 1)}


# Holds its first epoch open until its input is closed.
ONE_OF_MANY = """
import sys, gpumon
with gpumon.run(sys.argv[1], epochs=3) as run:
    for epoch in run.epochs():
        run.step()
        if epoch == 0:
            sys.stdin.read()
"""


def test_64_runs_at_once_are_all_shown_and_kept(watched: Path) -> None:
    names = [f"run-{number:02}" for number in range(64)]
    env = environment(watched)
    live = follow(Places(explicit=str(watched)))
    with ExitStack() as stack:
        waiting, go = os.pipe()
        held = [go]
        stack.callback(lambda: [os.close(fd) for fd in held])
        processes = []
        for name in names:
            process = subprocess.Popen([sys.executable, "-c", ONE_OF_MANY, name], env=env, stdin=waiting)
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
        os.close(waiting)

        def shown() -> bool:
            frame = live.latest()
            running = [run for run in frame.runs if run.state is RunState.RUNNING] if frame else []
            return sorted(run.name for run in running if run.epoch == 0) == names

        until(shown, timeout=120)
        os.close(held.pop())
        assert [process.wait(timeout=PATIENCE) for process in processes] == [0] * 64
        until(lambda: len(ended(watched)) == 64)
    assert sorted(row["name"] for row in ended(watched)) == names
    kept = ask(
        watched,
        "SELECT state, lost_events, count(epoch.ended) AS n FROM rank JOIN epoch ON epoch.rank = rank.key GROUP BY key",
    )
    assert kept == [{"state": RunState.FINISHED, "lost_events": 0, "n": 3}] * 64

    def ends() -> int:
        return sum(b.mark is Mark.EPOCH_END for frame in live.since(0) for b in frame.boundaries)

    until(lambda: ends() == 64 * 3)


@pytest.mark.parametrize("another", [copy.deepcopy, lambda hook: pickle.loads(pickle.dumps(hook))])
def test_a_callback_that_is_copied_or_pickled_in_mid_run_leaves_the_run_to_the_first(another, live_dir: Path) -> None:  # type: ignore[no-untyped-def]
    hook = Hook("keras/torch", "copied", directory=str(live_dir))
    hook.begin(3, 1)
    hook.begin_epoch(1)
    other = another(hook)
    assert hook.run is not None
    assert hook.run.on
    assert other.run is None
    other.end_epoch()
    other.end(failed=True)
    assert hook.run.on
    hook.end_epoch()
    hook.end()
