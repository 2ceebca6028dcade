"""The parts of all callbacks: paused runs, parameters, and phases around methods of a framework."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpumon.callbacks.hook import Hook, in_phase
from gpumon.model.frame import RunState
from tests.trainings import told


@pytest.fixture
def live(live_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUMON_DIR", str(live_dir))
    return live_dir


def test_a_paused_run_finishes_with_the_next_training(live: Path) -> None:
    first, second = Hook("test", "first"), Hook("test", "second")
    first.begin(1, 0)
    first.pause()
    second.begin(1, 0)
    states = {one.run.name: one.run.state for one in told(live)}
    assert states == {"first": RunState.FINISHED, "second": RunState.RUNNING}
    assert not first.resume(), "it has ended"
    second.end()


def test_a_resumed_run_fails_if_it_is_dropped(live: Path) -> None:
    first, second = Hook("test", "first"), Hook("test", "second")
    first.begin(1, 0)
    first.pause()
    assert first.resume()
    assert not first.resume(), "it does already"
    second.begin(1, 0)
    assert {one.run.state for one in told(live)} == {RunState.RUNNING}
    del first
    assert {one.run.name: one.run.state for one in told(live)}["first"] is RunState.FAILED
    second.end()


def test_a_dropped_training_in_a_cycle_has_failed(live: Path) -> None:
    # One that has raised leaves callbacks, model and traceback in a cycle: what outlived a collection before the
    # rest was made may be finalized behind the rest.
    hook = Hook("test", "dropped")
    hook.cycle = hook  # type: ignore[attr-defined]
    gc.collect(0)
    hook.begin(3, 0)
    hook.begin_epoch(0)
    del hook
    gc.collect()
    assert [one.run.state for one in told(live)] == [RunState.FAILED]


def test_a_dropped_training_does_not_end_with_a_handled_exception(live: Path) -> None:
    hook = Hook("test", "dropped")
    hook.cycle = hook  # type: ignore[attr-defined]
    hook.begin(3, 0)
    del hook
    try:
        raise KeyboardInterrupt  # noqa: TRY301 - it has to be handled while objects are collected
    except KeyboardInterrupt:
        gc.collect()
    assert [one.run.state for one in told(live)] == [RunState.FAILED]


def test_open_runs_at_exit_print_nothing(live: Path) -> None:
    # Modules that something holds are emptied one by one, the last imported first: what json has outlives gpumon's.
    script = """
import atexit, json, sys
json.held = [sys.modules]
atexit.register(lambda: json.held.append(gpumon.run("begun at exit")))
import gpumon
from gpumon.callbacks.hook import Hook
for name in ("rests", "trains"):
    hook = Hook("test", name)
    hook.begin(1, 0)
    hook.begin_epoch(0)
    if name == "rests":
        hook.pause()
    json.held.append(hook)
run = gpumon.run("loop")
for one in (run.epochs(3), run.epoch(1).gen, run.phase("validate").gen, run.steps([1, 2])):
    json.held.append(iter(one))
    next(json.held[-1])
json.held += [run, *sys.modules.values()]
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    states = {one.run.name: one.run.state for one in told(live)}
    assert (states["rests"], states["trains"], states["loop"]) == (
        RunState.FINISHED, RunState.FAILED, RunState.FINISHED,
    )  # fmt: skip


def test_a_run_dropped_before_its_first_epoch_has_failed(live: Path) -> None:
    hook = Hook("test", "dropped")
    hook.begin(3, 0)
    hook.run = None
    assert [one.run.state for one in told(live)] == [RunState.FAILED], "nobody kept it for the rest of the program"


def test_passed_parameters_precede_those_of_the_framework(live: Path) -> None:
    hook = Hook("test", "given", config={"learning_rate": 0.5})
    hook.begin(None, 0)
    hook.config({"learning_rate": 0.1, "optimizer": "SGD", "precision": None})
    hook.end()
    assert told(live)[0].config == {"learning_rate": 0.5, "optimizer": "SGD"}


class Saver:
    """A class of a framework."""

    def save(self, path: str) -> str:
        if not path:
            raise OSError("no path")
        return path


def test_in_phase_survives_exceptions_of_method_and_phase(
    caplog: pytest.LogCaptureFixture,
) -> None:
    phases: list[str] = []

    def enter(name: str) -> str:
        phases.append(name)
        return "train"

    def broken(_: Any) -> Any:
        raise RuntimeError("a tag is never worth a checkpoint")

    save = in_phase(Saver.save, lambda _: enter, "checkpoint")
    assert save(Saver(), "there") == "there"
    with pytest.raises(OSError, match="no path"):
        save(Saver(), "")
    assert phases == ["checkpoint", "train", "checkpoint", "train"]
    assert in_phase(Saver.save, lambda _: None, "checkpoint")(Saver(), "there") == "there"
    assert in_phase(Saver.save, broken, "another")(Saver(), "there") == "there"
    assert in_phase(Saver.save, lambda _: broken, "a third")(Saver(), "there") == "there"
    assert [record.getMessage().split(":")[1].strip() for record in caplog.records] == ["another", "a third"]
