"""The page of processes in a real terminal: on real processes of a stub driver, one of which is really ended."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nvml import Process, Stub
from tests.programs import PATIENCE, Child, command, environment, until
from tests.tui.terminal import Terminal, shown

SCRIPT = "import time\nprint('up', flush=True)\ntime.sleep(86400)\n"
SECRET = "--token=hunter2"


@pytest.fixture
def training(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A script with a secret among its arguments."""
    path = tmp_path / "train_here.py"
    path.write_text(SCRIPT)
    line = [sys.executable, str(path), SECRET]
    with Child(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process
        process.kill()


def opened(tmux: str, tmp_path: Path, stub: Stub, live_dir: Path, *options: str) -> Terminal:
    env = environment(live_dir, stub.env())
    return Terminal(tmux, tmp_path, env, command("tui", *options), "100x30")


def test_a_process_is_named_filtered_and_ended(
    tmux: str, tmp_path: Path, stub: Stub, live_dir: Path, training: subprocess.Popen[str]
) -> None:
    with Child(["sleep", "86400"], stdin=subprocess.DEVNULL) as sleeping:
        stub.gpus = 2
        stub.set_processes(0, [Process(training.pid, memory=2 * 2**30)])
        stub.set_processes(1, [Process(sleeping.pid)])
        terminal = opened(tmux, tmp_path, stub, live_dir)
        try:
            shown(terminal, "gpumon")
            terminal.press("3")
            screen = shown(terminal, "train_here.py", "sleep", str(training.pid), "by user")
            assert "hunter2" not in screen
            terminal.press("/", "s", "l", "e", "e")
            shown(terminal, "1 of 2")
            terminal.press("Enter", "K")
            shown(terminal, f"End process {sleeping.pid}?", "No, keep it")
            terminal.press("Enter")
            until(lambda: "End process" not in terminal.screen())
            assert sleeping.poll() is None, "No is the default"
            terminal.press("K", "Tab", "Enter")  # as fast as one can
            assert sleeping.wait(PATIENCE) == -signal.SIGTERM
            shown(terminal, f"{sleeping.pid} sleep")
            terminal.press("/", "C-u", "Enter", "Home", "Enter")
            shown(terminal, f"{training.pid}", "train_here.py", "0–100 %", "started by")
            terminal.press("Enter", "o")
            shown(terminal, "Sort by", "program")
            terminal.press("Enter", "I", "u")  # the same column again turns the order, and it is turned back
            shown(terminal, "processes", "GPUs")
            terminal.press("u", "t")
            shown(terminal, "train_here.py")
            terminal("set-option", "-s", "set-clipboard", "on")
            terminal.press("y")
            until(lambda: "train_here.py" in terminal("show-buffer"))
            terminal.press("q")
            until(terminal.is_over)
            assert training.poll() is None
        finally:
            terminal.close()
            sleeping.kill()


def test_readonly_ends_nothing(
    tmux: str, tmp_path: Path, stub: Stub, live_dir: Path, training: subprocess.Popen[str]
) -> None:
    stub.gpus = 1
    stub.set_processes(0, [Process(training.pid)])
    terminal = opened(tmux, tmp_path, stub, live_dir, "--readonly")
    try:
        shown(terminal, "gpumon")
        terminal.press("3")
        assert "end…" not in shown(terminal, "train_here.py").splitlines()[-1]
        terminal.press("K")
        shown(terminal, "started with --readonly")
        assert training.poll() is None
    finally:
        terminal.close()
