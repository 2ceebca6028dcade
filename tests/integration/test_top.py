"""`gpumon top`: pictures one after the other, in a terminal and in a pipe."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest

from gpumon.cli.top import with_hint
from gpumon.common.errors import EXIT_NO_GPU, EXIT_OK
from tests.nvml import Stub
from tests.programs import PATIENCE, command, daemon, environment, gpumon, status, until
from tests.tui.pseudo import Pseudo

CLEARED = "\x1b[H\x1b[2J"


def in_time(*words: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """What it prints to its end where its last picture is in time.

    On a busy machine the sampler may be late for that one, which the exit code says: then once more.
    """

    def ended() -> subprocess.CompletedProcess[str] | None:
        done = gpumon("top", *words, env=env)
        assert done.returncode in (EXIT_OK, EXIT_NO_GPU), done.stderr
        return done if done.returncode == EXIT_OK else None

    return until(ended)


@contextmanager
def two_pictures(source: str, live_dir: Path, term: str = "xterm-256color") -> Iterator[Pseudo]:
    """A terminal in which it showed two pictures, the last one in time as above."""
    words = command("top", "-n", "2", "--source", source, "--interval", "0.1")
    with ExitStack() as stack:

        def ended() -> Pseudo | None:
            terminal = Pseudo(words, environment(live_dir), term=term)
            stack.callback(terminal.close)
            code = terminal.ended()
            assert code in (EXIT_OK, EXIT_NO_GPU), terminal.output
            return terminal if code == EXIT_OK else None

        yield until(ended)


def read_up_to(pictures: IO[str], words: str) -> None:
    """Read lines, as fast as they come, up to the one with these words, which may end it."""
    end = time.monotonic() + PATIENCE
    while words not in f"{pictures.readline().rstrip()}  ":
        assert time.monotonic() < end, f"no {words!r} within {PATIENCE} s"


def test_in_a_pipe_an_empty_line_comes_between_pictures(watched: Path, stub: Stub) -> None:
    env = environment(watched, stub.env())
    done = in_time("-n", "3", "--interval", "0.1", env=env)
    assert done.stderr == ""
    pictures = done.stdout.split("\n\n")
    assert len(pictures) == 3
    titles = [picture.splitlines()[0] for picture in pictures]
    assert all(f"daemon, pid {status(env)['daemon']['pid']}" in title for title in titles)
    assert all(picture.splitlines()[1].startswith("  0  H100") for picture in pictures)
    assert "\x1b" not in done.stdout


def test_without_a_daemon_it_samples_itself_and_every_picture_is_newer(live_dir: Path) -> None:
    done = in_time("-n", "2", "--source", "sim:one", "--interval", "1.5", env=environment(live_dir))
    first, second = (picture.splitlines()[0] for picture in done.stdout.split("\n\n"))
    assert "SIMULATED" in first
    assert first != second


def test_a_terminal_is_cleared_and_what_has_no_room_is_counted(live_dir: Path) -> None:
    with two_pictures("sim:sixteen", live_dir) as terminal:
        assert terminal.output.count(CLEARED) == 1
        assert terminal.output.count("\x1b[H") == 2
        assert "more lines: enlarge the window" in terminal.output
        last = terminal.output.rpartition("\x1b[H")[2]
        assert last.count("\n") < 30
        assert max(map(len, last.replace("\x1b[K", "").replace("\x1b[J", "").split("\r\n"))) <= 100
        assert not terminal.left_behind()


def test_a_dumb_terminal_gets_no_escape_code(live_dir: Path) -> None:
    with two_pictures("sim:one", live_dir, term="dumb") as terminal:
        assert "\x1b" not in terminal.output
        assert "\r\n\r\n" in terminal.output


def test_ctrl_c_ends_it_without_a_traceback(live_dir: Path) -> None:
    terminal = Pseudo(command("top", "--source", "sim:one", "--interval", "0.1"), environment(live_dir))
    try:
        terminal.until("SIMULATED")
        terminal.program.send_signal(signal.SIGINT)
        assert terminal.ended() == 130
        assert "Traceback" not in terminal.output
        assert not terminal.left_behind()
    finally:
        terminal.close()


def test_a_daemon_that_stops_is_not_called_live_and_the_next_one_is_found(live_dir: Path) -> None:
    env = environment(live_dir)
    with daemon("--source", "sim:one", "--interval", "0.1", env=env):
        top = subprocess.Popen(command("top", "--interval", "0.1"), env=env, stdout=subprocess.PIPE, text=True)
        assert top.stdout is not None
        read_up_to(top.stdout, "daemon, pid")
    read_up_to(top.stdout, "the daemon stopped")
    with daemon("--source", "sim:one", "--interval", "0.1", env=env) as second:
        read_up_to(top.stdout, f"daemon, pid {second.pid}  ")
        top.terminate()
        top.stdout.close()
        top.wait(timeout=PATIENCE)


def test_no_gpu_that_can_be_read_is_3(stub: Stub, live_dir: Path) -> None:
    stub.set_lost(0)
    stub.set_lost(1)
    done = gpumon("top", "-n", "1", env=environment(live_dir, stub.env()))
    assert done.returncode == 3
    assert "gpumon: " in done.stdout


def test_it_loads_neither_textual_nor_numpy() -> None:
    ask = "import sys, gpumon.cli.top; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"textual", "rich", "numpy", "pynvml", "sqlite3"}


def test_status_has_the_width_of_a_terminal_and_a_pipe_has_all(live_dir: Path) -> None:
    env = environment(live_dir) | {"COLUMNS": "40"}
    words = ("status", "--source", "sim")
    assert max(map(len, gpumon(*words, env=env).stdout.splitlines())) > 100
    terminal = Pseudo(command(*words), env)
    try:
        assert terminal.ended() == 0
        assert max(map(len, terminal.output.splitlines())) <= 40
        assert any(line.startswith("  7") and line.endswith("free") for line in terminal.output.splitlines())
    finally:
        terminal.close()


@pytest.mark.parametrize(("width", "rows"), [(100, 3), (40, 5), (12, 30)])
def test_what_helps_where_lines_have_no_room_is_said_whole(width: int, rows: int) -> None:
    told = with_hint([f"line {at}" for at in range(90)], width, rows + 1, "print all with '-n 1 | less'")
    assert len(told) == rows
    shown = [line for line in told if line.startswith("line ")]
    hint = " ".join(told[len(shown) :])
    assert hint == f"and {90 - len(shown)} more lines: enlarge the window, or print all with '-n 1 | less'"
