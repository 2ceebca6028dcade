"""Stacks of other processes: how a training prepares them without being disturbed, and how they are read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumon.hang.process_state import children_of, read_states
from gpumon.hang.stacks import Stacks, parse_faulthandler, parse_py_spy, read_stacks
from gpumon.tracking.stack_dump import NAME, SIGNAL
from tests.programs import PATIENCE, environment, until

BEGIN = """
import gpumon, os, signal, sys, time, threading
run = gpumon.run("net")
"""
WAITS = """
def hang():
    print("ready", flush=True)
    time.sleep(3600)
hang()
"""


@contextmanager
def program(code: str, live: Path) -> Iterator[subprocess.Popen[str]]:
    """A training that has printed `ready`."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment(live), stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE)


def functions(stacks: Stacks) -> list[str]:
    return [frame.function for frame in stacks.main]


@pytest.fixture(autouse=True)
def without_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumon.hang.stacks.shutil.which", lambda name: None)


class TestTraining:
    def test_writes_the_stacks_of_all_threads(self, live_dir: Path) -> None:
        thread = "threading.Thread(target=lambda: time.sleep(3600), daemon=True).start()\n"
        with program(BEGIN + thread + WAITS, live_dir) as training:
            for _ in range(3):
                stacks = read_stacks(training.pid)
                assert functions(stacks) == ["hang", "<module>"]
                assert len(stacks.threads) == 2
            assert training.poll() is None

    def test_writes_them_while_it_holds_the_gil(self, live_dir: Path) -> None:
        code = "import re\ndef spin():\n  print('ready', flush=True)\n  re.match('(a+)+$', 'a' * 60 + 'b')\nspin()"
        with program(BEGIN + code, live_dir) as training:
            assert "spin" in functions(read_stacks(training.pid, timeout=PATIENCE))
            assert until(lambda: read_states([training.pid])[training.pid].cpu > 0.1)

    def test_is_not_signaled_if_it_handles_the_signal(self, live_dir: Path) -> None:
        handler = "import os, signal\nsignal.signal(signal.SIGURG, lambda *_: os._exit(3))\n"
        with program(handler + BEGIN + WAITS, live_dir) as training:
            assert not read_stacks(training.pid).threads
            assert training.poll() is None

    def test_is_not_signaled_if_it_ignores_the_signal(self, live_dir: Path) -> None:
        with program("import signal\nsignal.signal(signal.SIGURG, signal.SIG_IGN)\n" + BEGIN + WAITS, live_dir) as it:
            assert not read_stacks(it.pid).threads

    def test_is_not_signaled_if_it_handles_the_signal_later(self, live_dir: Path) -> None:
        later = """
for _ in run.steps(range(15)):  # the descriptor and the handler are checked once a second
    signal.signal(signal.SIGURG, lambda *_: os._exit(3))
    time.sleep(0.1)
"""
        with program(BEGIN + later + WAITS, live_dir) as training:
            assert not read_stacks(training.pid).threads
            assert training.poll() is None

    def test_writes_into_no_file_that_reuses_the_descriptor(self, live_dir: Path, tmp_path: Path) -> None:
        reuse = f"""
name = next(name for name in os.listdir("/proc/self/fd") if "{NAME}" in os.readlink("/proc/self/fd/" + name))
os.close(int(name))
file = os.open("{tmp_path}/checkpoint", os.O_RDWR | os.O_CREAT)
os.dup2(file, int(name))
for _ in run.steps(range(15)):  # the descriptor and the handler are checked once a second
    time.sleep(0.1)
"""
        with program(BEGIN + reuse + WAITS, live_dir) as training:
            assert not read_stacks(training.pid).threads
            os.kill(training.pid, SIGNAL)
            time.sleep(0.5)
            assert training.poll() is None
            assert (tmp_path / "checkpoint").read_bytes() == b""

    def test_a_forked_child_writes_its_own(self, live_dir: Path) -> None:
        fork = """
def child():
    time.sleep(3600)
if os.fork() == 0:
    child()
"""
        with program(BEGIN + fork + WAITS, live_dir) as training:
            (pid,) = until(lambda: children_of(training.pid))
            until(lambda: functions(read_stacks(pid))[0] == "child")  # not in a hook of the fork any more
            assert functions(read_stacks(training.pid))[0] == "hang"

    def test_a_started_program_is_not_disturbed(self, live_dir: Path) -> None:
        start = "import subprocess\nsubprocess.Popen(['sleep', '3600'])\n"
        with program(BEGIN + start + WAITS, live_dir) as training:
            (pid,) = until(lambda: children_of(training.pid))
            assert until(lambda: read_states([pid], 0.1)[pid].name == "sleep")
            assert not read_stacks(pid).threads
            os.kill(pid, SIGNAL)
            assert read_states([pid], 0.2)[pid].state == "S"

    def test_a_stopped_one_is_left_alone(self, live_dir: Path) -> None:
        with program(BEGIN + WAITS, live_dir) as training:
            os.kill(training.pid, signal.SIGSTOP)
            state = until(lambda: (read_states([training.pid], 0.05)[training.pid].state == "T") and "T")
            assert not read_stacks(training.pid, state).threads
            os.kill(training.pid, signal.SIGCONT)
            assert functions(read_stacks(training.pid))[0] == "hang"

    def test_a_process_that_has_ended_has_none(self) -> None:
        ended = subprocess.Popen(["true"])
        ended.wait()
        assert not read_stacks(ended.pid).threads
        assert read_states([ended.pid], 0.01) == {}


class TestState:
    def test_names_call_and_file_where_they_are_readable(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "shard")
        fd = os.open(tmp_path / "shard", os.O_RDWR)
        reader = subprocess.Popen(["cat"], stdin=fd, stdout=subprocess.DEVNULL)
        try:
            state = until(lambda: (s := read_states([reader.pid], 0.05)[reader.pid]).name == "cat" and s)
            assert state.state == "S"
            assert (state.syscall, state.path) in (("read", f"{tmp_path}/shard"), ("", ""))
            assert state.parent == os.getpid()
        finally:
            reader.kill()
            reader.wait()
            os.close(fd)

    def test_text_of_a_process_is_cleaned(self, tmp_path: Path) -> None:
        program = tmp_path / "\x1b[31m"
        program.symlink_to("/bin/sleep")
        process = subprocess.Popen([program, "3600"])
        try:
            state = until(lambda: (s := read_states([process.pid], 0.05)[process.pid]).name.isprintable() and s)
            assert "\x1b" not in state.name
        finally:
            process.kill()
            process.wait()


class TestFaulthandler:
    DUMP = """Thread 0x00007f124fbe76c0 (most recent call first):
  File "/lib/a.py", line 11 in wait

Current thread 0x00007f1250884b80 (most recent call first):
  File "/home/x/train.py", line 12 in step
  File "/home/x/train.py", line ??? in <module>
  ...
"""

    def test_the_last_thread_is_the_main_one(self) -> None:
        stacks = parse_faulthandler(self.DUMP)
        assert [len(thread.frames) for thread in stacks.threads] == [1, 2]
        assert [(frame.function, frame.line) for frame in stacks.main] == [("step", 12), ("<module>", 0)]

    def test_newer_versions_name_their_threads(self) -> None:
        (thread,) = parse_faulthandler(
            'Thread 0x0a [loader] (most recent call first):\n  File "a", line 1 in f'
        ).threads
        assert thread.name == "loader"

    @pytest.mark.parametrize("text", ["", "garbage\n" * 100, '  File "a", line 1 in f', "\x00" * 1000])
    def test_garbage_has_no_stacks(self, text: str) -> None:
        stacks = parse_faulthandler(text)
        assert not stacks.threads
        assert stacks.problem

    def test_a_hostile_dump_is_bounded_and_clean(self) -> None:
        thread = "Thread 0x01 (most recent call first):\n" + '  File "\x1b[2J", line 1 in \x1b[31m\n' * 1000
        stacks = parse_faulthandler(thread * 1000)
        assert len(stacks.threads) <= 256
        assert all(len(thread.frames) <= 100 for thread in stacks.threads)
        assert "\x1b" not in stacks.main[0].file + stacks.main[0].function


class TestPySpy:
    def test_its_json_is_read(self) -> None:
        frames = [{"name": "step", "filename": "/home/x/train.py", "line": 12}]
        output = [
            {"thread_name": None, "os_thread_id": 8, "frames": frames},
            {"thread_name": "MainThread", "os_thread_id": 7, "frames": frames * 2},
        ]
        stacks = parse_py_spy(json.dumps(output).encode(), 7)
        assert [thread.is_main for thread in stacks.threads] == [False, True]
        assert functions(stacks) == ["step", "step"]

    @pytest.mark.parametrize("output", [b"", b"{}", b"[1]", b'[{"frames": 3}]', b"[" * 100_000, b'[{"frames":[{}]}]'])
    def test_unknown_output_has_a_reason(self, output: bytes) -> None:
        stacks = parse_py_spy(output, 7)
        assert not stacks.threads
        assert stacks.problem
