"""What the terminal view sends besides pictures: title, notifications, the clipboard; nothing where none is known."""

from __future__ import annotations

import base64
import os
import re
import signal
from pathlib import Path

import pytest

from tests.nvml import Process, Stub
from tests.programs import PATIENCE, command, environment, until
from tests.tui.lab import SLEEPER, LabProcess
from tests.tui.pseudo import Pseudo

NOTIFIED = re.compile("\x1b]9;([^\x1b]*)\x1b\\\\\x1b]777;notify;gpumon;([^\x1b]*)\x1b\\\\")
TITLE = re.compile("\x1b]2;([^\x1b]*)\x1b\\\\")
COPIED = re.compile("\x1b]52;c;([^\x07\x1b]*)")
RUN = """
import sys
import gpumon
with gpumon.run("quick", epochs=2) as run:
    with run.epoch(0):
        print("up", flush=True)
        sys.stdin.readline()
"""


@pytest.fixture
def machine(stub: Stub, live_dir: Path) -> dict[str, str]:
    """The environment of a machine with one GPU, which does nothing."""
    stub.gpus = 1
    for metric in ("gpu.utilization", "gpu.memory_utilization", "gpu.memory_used"):
        stub.set_value(metric, 0)
    return {**environment(live_dir, stub.env()), "LC_ALL": "C.UTF-8"}


def test_what_happens_is_notified_once_and_a_row_is_copied(stub: Stub, machine: dict[str, str], tmp_path: Path) -> None:
    training = LabProcess(tmp_path, "quick.py", RUN, env=machine)
    holder = LabProcess(tmp_path, "holder.py", SLEEPER, env=machine)
    stub.set_processes(0, [Process(holder.pid)])
    stub.set_value("gpu.memory_used", 2 * 2**30)
    view = Pseudo(command("tui", "--notify", "--interval", "0.5"), machine)
    try:
        view.until("quick")
        view.until("own sampler")
        until(lambda: "quick" in "".join(TITLE.findall(view.read(0.1))))
        training.program.communicate("\n", timeout=PATIENCE)
        view.until("\x1b]9;gpumon: quick ")
        stub.set_processes(0, [])
        stub.set_value("gpu.memory_used", 0)
        view.until("\x1b]9;gpumon: GPU 0 free")
        until(lambda: "1 free" in TITLE.findall(view.read(0.1))[-1])
        titles = len(TITLE.findall(view.output))
        for _ in range(8):  # frames go by
            view.read(0.3)
        texts = [both[0] for both in NOTIFIED.findall(view.output)]
        assert texts == ["gpumon: quick finished", "gpumon: GPU 0 free"]
        assert len(TITLE.findall(view.output)) == titles, "written where it changes"
        stub.set_processes(0, [Process(os.getpid())])
        os.write(view.master, b"3")
        view.until(str(os.getpid()))
        os.write(view.master, b"y")
        until(lambda: COPIED.findall(view.read(0.1)))
        copied = base64.b64decode(COPIED.findall(view.output)[-1]).decode()
        assert str(os.getpid()) in copied.split("\t")
        os.write(view.master, b"q")
        assert view.ended() == 0
        assert view.left_behind() == []
        assert "\x1b[23;2t" in view.output, "the title of before"
    finally:
        view.close()
        training.close()
        holder.close()


def test_nothing_is_notified_unasked_and_a_linux_console_gets_neither_title_nor_notification(
    stub: Stub, machine: dict[str, str], tmp_path: Path
) -> None:
    for term, options in (("xterm-256color", ()), ("linux", ("--notify",))):
        training = LabProcess(tmp_path, "quick.py", RUN, env=machine)
        view = Pseudo(command("tui", "--interval", "0.5", *options), machine, term=term)
        try:
            view.until("quick")
            training.program.communicate("\n", timeout=PATIENCE)
            view.until("finished")
            view.read(0.5)
            view.program.send_signal(signal.SIGTERM)
            assert view.ended() == 128 + signal.SIGTERM
            assert not NOTIFIED.findall(view.output)
            assert "\x1b]9;" not in view.output
            assert bool(TITLE.findall(view.output)) is (term != "linux")
            assert view.left_behind() == []
        finally:
            view.close()
            training.close()


def test_top_in_a_pipe_and_on_a_dumb_terminal_sends_no_sequence_at_all(machine: dict[str, str]) -> None:
    for env in ({"TERM": "dumb"}, {"NO_COLOR": "1"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        words = ["sh", "-c", " ".join([*command("top", "-n", "2", "--interval", "0.2"), "| cat"])]
        view = Pseudo(words, {**machine, **env}, term=env.get("TERM", "xterm-256color"))
        try:
            assert view.ended() == 0
            assert "\x1b" not in view.output
            assert "H100" in view.output
            assert "LC_ALL" not in env or view.output.isascii()
        finally:
            view.close()
