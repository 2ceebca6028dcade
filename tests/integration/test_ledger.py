"""A real training beside a real daemon on the stub driver: what the ledger says, against what was so."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.paths import LEDGER, Places
from gpumon.live import follow
from gpumon.model.frame import RunState
from tests.contracts.test_house import loaded_by
from tests.nvml import Process, Stub
from tests.programs import PATIENCE, daemon, environment, until, waited

# Prints, as JSON, both clocks before and after the begin and the end of each epoch. An epoch lasts so many
# seconds or, with 'wait', until it is sent a line.
TRAINING = """
import json, sys, time, gpumon
epochs, seconds, devices = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
def now():
    return time.time_ns(), time.monotonic_ns()
begins, ends = [], []
with gpumon.run("truth", epochs=epochs, devices=devices) as run:
    print("ready", flush=True)
    sys.stdin.readline()
    before = now()
    for epoch in run.epochs():
        begins.append((before, now()))
        if seconds == "wait":
            print(epoch, flush=True)
            sys.stdin.readline()
        for step in range(10):
            run.step()
            time.sleep(0 if seconds == "wait" else float(seconds) / 10)
        run.log(loss=1 / (epoch + 1))
        before = now()
        ends.append(before)
    ends = zip(ends, [after for _, after in begins[1:]] + [now()])
times = list(zip(begins, ends))
print(json.dumps(times), flush=True)
"""

LATE = "nvmlDeviceGetFieldValues"
RUNS = "SELECT run.*, key, pid FROM run JOIN rank ON rank.run = run.id"
ENERGIES = "SELECT energy FROM usage WHERE phase = '' AND ordinal >= 0 AND energy IS NOT NULL"


@contextmanager
def training(stub: Stub, env: Mapping[str, str], *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A training on the first GPU that is ready to begin; ended at the end, if need be."""
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINING, *map(str, arguments), stub.uuid(0)],
        env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        stub.set_processes(0, [Process(process.pid)])
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def say(process: subprocess.Popen[str], expected: str = "") -> None:
    """Let a training go on; then it says `expected`."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    if expected:
        assert process.stdout.readline() == f"{expected}\n"


def times_of(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    found = json.loads(process.stdout.readline())
    process.wait(timeout=PATIENCE)
    return found


def ask(live_dir: Path, question: str) -> list[dict[str, Any]]:
    """Rows of the ledger; none while there is no ledger."""
    path = live_dir / "state" / LEDGER
    if not path.exists():
        return []
    with closing(sqlite3.connect(path, timeout=PATIENCE)) as connection:
        connection.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in connection.execute(question)]
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []  # in the making
            raise


def ended(live_dir: Path) -> list[dict[str, Any]]:
    return ask(live_dir, "SELECT * FROM run WHERE ended IS NOT NULL")


def by_pid(live_dir: Path) -> dict[int, dict[str, Any]]:
    """Runs by the pid in the name of their board."""
    return {int(run["key"].split(".")[2]): run for run in ask(live_dir, RUNS)}


def usage(live_dir: Path, ordinal: int) -> dict[str, Any]:
    (row,) = ask(live_dir, f"SELECT * FROM usage WHERE phase = '' AND ordinal = {ordinal}")
    return row


def counted(live_dir: Path, ordinal: int) -> dict[str, Any]:
    """Usage without utilization, which the driver's own samples make better when they come."""
    row = usage(live_dir, ordinal)
    return {name: value for name, value in row.items() if not name.startswith(("utilization", "idle"))}


def check_times(live_dir: Path, times: Any, pid: int | None = None) -> list[dict[str, Any]]:
    """Each boundary in the ledger lies between two readings of the clock around it; gives the epochs.

    `pid`: that of the training, where there are several.
    """
    of_process = "" if pid is None else f"WHERE key LIKE 'tag.%.{pid}.%'"
    rows = ask(live_dir, f"SELECT epoch.* FROM epoch JOIN rank ON key = epoch.rank {of_process} ORDER BY ordinal")
    assert [row["epoch"] for row in rows] == list(range(len(times)))
    for row, (begun, over) in zip(rows, times, strict=True):
        assert begun[0][0] <= row["begun"] <= begun[1][0]
        assert over[0][0] <= row["ended"] <= over[1][0]
        assert (over[0][1] - begun[1][1]) / 1e9 <= row["seconds"] <= (over[1][1] - begun[0][1]) / 1e9
        assert row["steps"] == 10
        assert json.loads(row["metrics"]) == {"loss": 1 / (row["epoch"] + 1)}
    return rows


def energy_between(stub: Stub, begun: Any, over: Any) -> float:
    """What the stub's counter grew in an epoch, joules."""
    return stub.truth("gpu.energy", 0, over[0][1] / 1e9) - stub.truth("gpu.energy", 0, begun[1][1] / 1e9)


def spread(begun: Any, over: Any) -> float:
    """Joules by which the energy of an epoch may differ.

    Those of a quarter of a second at 400 W, for which a busy machine may hold the daemon between clock and counter, and
    of the time for which it held the training between two readings of its clock.
    """
    return 100 + 700 * (begun[1][1] - begun[0][1] + over[1][1] - over[0][1]) / 1e9


def energy_of(stub: Stub, run: Mapping[str, Any], seconds: float) -> float:
    """What it grew in the last `seconds` of a run, up to its end in the ledger."""
    over = (run["ended"] - (time.time_ns() - time.monotonic_ns())) / 1e9
    return stub.truth("gpu.energy", 0, over) - stub.truth("gpu.energy", 0, over - seconds)


def test_epochs_have_the_training_own_times_and_the_energy_of_the_counter(stub: Stub, live_dir: Path) -> None:
    env = environment(live_dir, stub.env())
    with daemon("--interval", "0.1", env=env), training(stub, env, 2, 3.0) as process:
        say(process)
        times = times_of(process)
        (run,) = until(lambda: ended(live_dir))
    check_times(live_dir, times)
    assert (run["name"], run["state"], run["source"]) == ("truth", RunState.FINISHED, "nvml")
    for ordinal, (begun, over) in enumerate(times):
        row = usage(live_dir, ordinal)
        assert row["energy"] == pytest.approx(energy_between(stub, begun, over), abs=spread(begun, over))
        assert row["utilization_from"] in ("ticks", "driver")
    whole = usage(live_dir, -1)
    assert whole["energy"] == pytest.approx(energy_of(stub, run, whole["seconds"]), abs=100)
    assert ask(live_dir, "SELECT * FROM progress") == []
    (trace,) = ask(live_dir, "SELECT points, step FROM trace WHERE uuid != ''")
    assert trace["points"] * trace["step"] >= 4


def test_a_driver_that_answers_late_for_a_while_changes_no_energy_of_an_epoch(stub: Stub, live_dir: Path) -> None:
    env = environment(live_dir, stub.env())
    with daemon("--interval", "0.1", env=env) as sampler, training(stub, env, 4, 1.5) as process:
        say(process)
        until(lambda: ask(live_dir, "SELECT * FROM epoch WHERE ended IS NOT NULL"))
        pause = LongestPause(stub)
        stub.set_latency(LATE, 1_600_000, gpu=0)
        # A whole call is longer than an epoch. After four slow ones in a row it is asked more seldom: there are two.
        # On a busy machine other calls are slow as well, and then energies may stay unknown.
        asked = stub.calls(0)[LATE]
        until(lambda: pause.update() and stub.calls(0)[LATE] >= asked + 2)
        stub.set_latency(LATE, 0, gpu=0)
        until(lambda: pause.update() and ended(live_dir))
        times = times_of(process)
        # Its row is there once it has ended, and complete once the driver has answered again.
        until(lambda: pause.update() and (len(ask(live_dir, ENERGIES)) == len(times) or pause.seconds > SELDOM))
        queued = waited(sampler)
    check_times(live_dir, times)
    for ordinal, (begun, over) in enumerate(times):
        row, true = usage(live_dir, ordinal), energy_between(stub, begun, over)
        error = spread(begun, over) + 400 * queued
        if row["energy"] is None:
            assert row["energy_least"] is None or row["energy_least"] <= true + error
        else:
            assert row["energy"] == pytest.approx(true, abs=error)
            assert row["power_mean"] == pytest.approx(row["energy"] / row["seconds"], rel=0.03)


SELDOM = 1.9
"""Seconds without a call from which on calls are late for another reason than the latency of one."""


class LongestPause:
    """The longest time so far between two calls of `LATE`, as far as `update` was called meanwhile."""

    def __init__(self, stub: Stub) -> None:
        self.seconds = 0.0
        self._stub, self._calls, self._at = stub, -1, time.monotonic()

    def update(self) -> bool:
        calls, now = self._stub.calls(0)[LATE], time.monotonic()
        self.seconds = max(self.seconds, now - self._at)
        if calls != self._calls:
            self._calls, self._at = calls, now
        return True


@pytest.mark.slow
def test_energy_of_epochs_of_ten_seconds_is_within_one_percent(stub: Stub, live_dir: Path) -> None:
    env = environment(live_dir, stub.env())
    with daemon("--interval", "1", env=env), training(stub, env, 4, 10.0) as process:
        say(process)
        times = times_of(process)
        until(lambda: ended(live_dir))
    for ordinal, (begun, over) in enumerate(times):
        row = usage(live_dir, ordinal)
        assert row["energy"] == pytest.approx(energy_between(stub, begun, over), rel=0.01)
        moments = [(begun[1][1] + (over[0][1] - begun[1][1]) * i / 1000) / 1e9 for i in range(1000)]
        # One sampling period: the value of a tick holds until the next one.
        shifted = [sum(stub.truth("gpu.utilization", 0, m - by) for m in moments) / 1000 for by in (0.0, 1.0)]
        assert min(shifted) - 0.02 <= row["utilization_mean"] <= max(shifted) + 0.02


def test_the_peak_of_an_epoch_is_exact_and_stays_in_its_epoch(stub: Stub, live_dir: Path) -> None:
    env = environment(live_dir, stub.env())
    live = follow(Places(explicit=str(live_dir)))

    def shown(seconds: float) -> float:
        """Let the driver's time stand at `seconds`, until samples show its memory."""
        stub.hold_clock(seconds)
        truth = stub.truth("gpu.memory_used", 0)
        until(lambda: (frame := live.latest()) and frame.samples[0].value("gpu.memory_used") == truth)
        return truth

    stub.hold_clock(10.0)
    with daemon("--interval", "0.05", env=env), training(stub, env, 2, "wait") as process:
        say(process, "0")
        low, high, middle = shown(10.0), shown(60.0), shown(30.0)
        say(process, "1")
        shown(30.0)
        seen = live.latest()
        assert seen is not None
        until(lambda: (frame := live.latest()) is not None and frame.number > seen.number + 3)
        say(process)
        times = times_of(process)
        until(lambda: ended(live_dir))
    check_times(live_dir, times)
    assert low < middle < high
    assert usage(live_dir, 0)["memory_used_peak"] == high
    assert usage(live_dir, 1)["memory_used_peak"] == middle
    assert usage(live_dir, -1)["memory_used_peak"] == high


def test_a_training_that_is_killed_died_and_keeps_its_open_epoch(stub: Stub, live_dir: Path) -> None:
    env = environment(live_dir, stub.env())
    with daemon("--interval", "0.1", env=env), training(stub, env, 9, "wait") as process:
        for epoch in range(3):
            say(process, str(epoch))
        until(lambda: len(ask(live_dir, "SELECT * FROM epoch")) == 3)
        process.send_signal(signal.SIGKILL)
        process.wait()
        killed = time.time_ns()
        (run,) = until(lambda: ended(live_dir))
    rows = ask(live_dir, "SELECT * FROM epoch ORDER BY ordinal")
    assert run["state"] == RunState.DIED
    assert rows[-1]["begun"] <= run["ended"] <= killed
    assert [row["ended"] is None for row in rows] == [False, False, True]
    assert usage(live_dir, 2)["seconds"] == pytest.approx(rows[-1]["seconds"])
    assert ask(live_dir, "SELECT * FROM progress") == []


def test_a_daemon_that_is_killed_and_comes_back_has_lost_nothing_that_was_recorded(stub: Stub, live_dir: Path) -> None:
    env = environment(live_dir, stub.env())
    live = follow(Places(explicit=str(live_dir)))
    with ExitStack() as stack:
        first = stack.enter_context(daemon("--interval", "0.1", env=env))
        process = stack.enter_context(training(stub, env, 8, 1.5))
        say(process)
        until(lambda: len(ask(live_dir, "SELECT * FROM epoch WHERE ended IS NOT NULL")) >= 2)
        before = counted(live_dir, 0)
        first.kill()
        first.wait()
        last = live.latest()  # now that no other comes
        time.sleep(2.5)  # over a gap a value holds for its own interval
        stack.enter_context(daemon("--interval", "0.1", env=env))
        assert last is not None
        newest, *_ = until(lambda: live.since(last.number))
        times = times_of(process)
        (run,) = until(lambda: ended(live_dir))
        frames = live.since(0)
    rows = check_times(live_dir, times)
    assert len(rows) == 8
    assert counted(live_dir, 0) == before, "what was written stays as it was"
    whole = usage(live_dir, -1)
    assert whole["energy"] == pytest.approx(energy_of(stub, run, whole["seconds"]), abs=100), (
        "the counter went on while nobody looked"
    )
    ticks = [frame.monotonic_ns / 1e9 for frame in frames]
    missed = sum(after - before for before, after in pairwise(ticks) if after - before > 0.15)
    assert missed > (newest.monotonic_ns - last.monotonic_ns) / 1e9 - 0.1
    unseen = whole["seconds"] - whole["sampled"]
    at_the_ends = 2 * 0.1  # the run begins and ends between two ticks
    assert 0.4 < unseen <= missed + at_the_ends, "it is said that nobody looked, and what the ring still had was used"
    (rank,) = ask(live_dir, "SELECT lost_events, state FROM rank")
    assert rank == {"lost_events": 0, "state": RunState.FINISHED}


def test_runs_that_end_while_no_daemon_runs_are_finished_by_the_next_one(stub: Stub, live_dir: Path) -> None:
    """One finishes; the other is killed, and its board is gone, too."""
    env = environment(live_dir, stub.env())
    with ExitStack() as stack:
        finishes = stack.enter_context(training(stub, env, 3, "wait"))
        dies = stack.enter_context(training(stub, env, 9, "wait"))
        with daemon("--interval", "0.1", env=env):
            for process in (finishes, dies):
                say(process, "0")
            until(lambda: len(ask(live_dir, "SELECT * FROM epoch")) == 2)
        left = by_pid(live_dir)
        assert {(run["state"], run["ended"]) for run in left.values()} == {(RunState.RUNNING, None)}
        dies.kill()
        dies.wait()
        (board,) = (live_dir / "tags").glob(f"tag.*.{dies.pid}.*")
        board.unlink()
        for answer in ("1", "2", ""):
            say(finishes, answer)
        times = times_of(finishes)
        with daemon("--interval", "0.1", env=env):
            until(lambda: len(ended(live_dir)) == 2)
    found = by_pid(live_dir)
    assert (found[finishes.pid]["state"], found[finishes.pid]["pid"]) == (RunState.FINISHED, finishes.pid)
    check_times(live_dir, times, finishes.pid)
    assert found[dies.pid]["state"] == RunState.DIED
    assert found[dies.pid]["ended"] == left[dies.pid]["updated"]


def test_a_simulation_leaves_no_ledger_and_a_state_directory_that_cannot_be_made_no_trouble(
    stub: Stub, live_dir: Path
) -> None:
    with daemon("--source", "sim:one", "--interval", "0.1", env=environment(live_dir)):
        pass
    assert not (live_dir / "state").exists()
    (live_dir / "state").write_text("in the way")
    live = follow(Places(explicit=str(live_dir)))
    env = environment(live_dir, stub.env())
    with daemon("--interval", "0.1", env=env) as process, training(stub, env, 1, "wait"):
        until(lambda: (frame := live.latest()) is not None and frame.runs)
        process.terminate()
        process.wait(timeout=PATIENCE)
        assert process.stderr is not None
        complaint = process.stderr.read().splitlines()
    for name in ("ledger", "history"):
        assert len([line for line in complaint if f"cannot write {live_dir}/state/{name}.sqlite" in line]) == 1


def test_only_a_daemon_that_keeps_runs_loads_sqlite() -> None:
    assert "sqlite3" not in loaded_by("import gpumon.cli.daemon, gpumon.cli.status, gpumon.cli.tui")
