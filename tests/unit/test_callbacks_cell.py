"""A training in a notebook ends with its cell. IPython is a fake."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.callbacks.hook import Hook
from gpumon.common.paths import Places
from gpumon.model.frame import RunState
from gpumon.tracking.tag_reader import TagReader


class Shell:
    """The part of IPython's shell that gpumon uses."""

    def __init__(self) -> None:
        self.events = self
        self.held: list[Callable[[Any], None]] = []

    def register(self, event: str, function: Callable[[Any], None]) -> None:
        assert event == "post_run_cell"
        self.held.append(function)

    def unregister(self, event: str, function: Callable[[Any], None]) -> None:
        assert event == "post_run_cell"
        self.held.remove(function)

    def end_cell(self, error: BaseException | None = None) -> None:
        for function in self.held[:]:
            function(SimpleNamespace(error_in_exec=error))


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    found = Shell()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: found))
    return found


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hook:
    monkeypatch.setenv("GPUMON_DIR", str(tmp_path))
    return Hook("keras", "net")


def states(directory: Path) -> list[RunState]:
    reader = TagReader(Places(explicit=str(directory), uid=os.getuid()))
    found = [run.state for run in reader.poll().runs]
    reader.close()
    return found


@pytest.mark.parametrize(
    ("error", "state"),
    [(KeyboardInterrupt(), RunState.INTERRUPTED), (ValueError(), RunState.FAILED), (None, RunState.FAILED)],
)
def test_an_open_training_ends_with_its_cell(
    shell: Shell, hook: Hook, tmp_path: Path, error: BaseException | None, state: RunState
) -> None:
    hook.begin(3, 1)
    hook.begin_epoch(1)
    shell.end_cell(error)
    assert (states(tmp_path), hook.run, shell.held) == ([state], None, [])


def test_an_ended_training_is_unchanged_by_its_cell(shell: Shell, hook: Hook, tmp_path: Path) -> None:
    hook.begin(3, 1)
    hook.end()
    shell.end_cell(KeyboardInterrupt())
    assert (states(tmp_path), shell.held) == ([RunState.FINISHED], [])


def test_an_evaluation_in_a_later_cell_continues_the_run(shell: Shell, hook: Hook, tmp_path: Path) -> None:
    hook.begin(3, 1)
    run = hook.run
    hook.pause()
    shell.end_cell()
    assert hook.resume()
    assert hook.run is run
    hook.pause()
    shell.end_cell()
    assert (states(tmp_path), shell.held) == ([RunState.RUNNING], [])
    hook.resume()
    shell.end_cell(KeyboardInterrupt())
    assert (states(tmp_path), shell.held, hook.run) == ([RunState.INTERRUPTED], [], None)


def test_a_training_in_a_thread_outlives_the_cell(shell: Shell, hook: Hook) -> None:
    thread = Thread(target=hook.begin, args=(3, 1))
    thread.start()
    thread.join()
    assert (shell.held, hook.run is not None) == ([], True)
    hook.end()


def test_a_training_that_is_open_at_exit_has_failed(tmp_path: Path) -> None:
    # As where somebody catches the exception around `fit`, and the framework tells its callbacks nothing.
    source = (
        "from gpumon.callbacks.hook import Hook\nhook = Hook('keras', 'net')\nhook.begin(3, 1)\nhook.begin_epoch(1)"
    )
    subprocess.run([sys.executable, "-c", source], env={**os.environ, "GPUMON_DIR": str(tmp_path)}, check=True)
    assert states(tmp_path) == [RunState.FAILED]
