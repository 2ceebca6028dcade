"""How the view leaves its terminal, and how it ends when the terminal leaves it; on a real pseudo terminal."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from gpumon.common.program import callable_commands, program
from tests.programs import command, environment, until
from tests.tui.pseudo import Pseudo
from tests.tui.terminal import Terminal, shown


class Open(Protocol):
    def __call__(self, *words: str, controlling: bool = True) -> Pseudo: ...


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """Where the views of a test have their temporary files."""
    directory = tmp_path / "scratch"
    directory.mkdir()
    return directory


@pytest.fixture
def open_view(live_dir: Path, scratch: Path) -> Iterator[Open]:
    """Opens views, and checks that none leaves a temporary file behind."""
    opened: list[Pseudo] = []

    def make(*words: str, controlling: bool = True) -> Pseudo:
        env = {**environment(live_dir), "LC_ALL": "C.UTF-8", "TMPDIR": str(scratch)}
        opened.append(Pseudo(words or command("tui", "--source", "sim:one"), env, controlling=controlling))
        return opened[-1]

    yield make
    for view in opened:
        view.close()
    assert list(scratch.iterdir()) == []


def test_it_draws_on_its_terminal_where_stderr_is_a_file(open_view: Open, tmp_path: Path) -> None:
    log = tmp_path / "log"
    view = open_view("sh", "-c", f'exec "$@" 2>{log}', "sh", *command("tui", "--source", "sim:one"))
    view.until("resnet50")
    os.write(view.master, b"q")
    assert (view.ended(), view.left_behind(), log.read_bytes()) == (0, [], b"")


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        signal.SIGHUP,
        *(pytest.param(one, marks=pytest.mark.slow) for one in (signal.SIGQUIT, signal.SIGINT)),
    ],
)
def test_a_signal_that_ends_the_view_leaves_the_terminal_as_it_was(open_view: Open, number: signal.Signals) -> None:
    """Not slow: two of the four, which have one handler."""
    view = open_view()
    view.until("SIMULATED")
    assert "alternate screen" in view.left_behind()
    os.kill(view.program.pid, number)
    assert view.ended() == 128 + number
    assert view.left_behind() == []


@pytest.mark.parametrize("controlling", [True, False])
def test_the_view_ends_when_its_terminal_is_gone(open_view: Open, controlling: bool) -> None:
    """Under nohup, or in a container, no signal comes: the terminal itself says so."""
    view = open_view(controlling=controlling)
    view.until("SIMULATED")
    view.hang_up()
    assert view.ended() == 128 + signal.SIGHUP


def test_a_terminal_that_reads_nothing_cannot_keep_the_view_from_ending(open_view: Open) -> None:
    view = open_view()
    view.until("SIMULATED")
    master, view.master = view.master, -1  # from here on nobody reads
    os.write(master, b"gm" * 150)
    waiting = [-1, -2]
    while waiting[-1] != waiting[-2]:  # until no more has room
        time.sleep(0.5)
        waiting.append(int.from_bytes(fcntl.ioctl(master, termios.FIONREAD, bytes(4)), sys.byteorder))
    os.kill(view.program.pid, signal.SIGTERM)
    assert view.ended() == 128 + signal.SIGTERM
    view.master = master


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_the_first_picture_leaves_nothing_behind(
    open_view: Open, scratch: Path, number: signal.Signals
) -> None:
    view = open_view()
    until(lambda: list(scratch.glob("gpumon-tui-*")))  # other names are of `tempfile`, which tries to write
    os.kill(view.program.pid, number)
    assert view.ended() in (-number, 128 + number)


def test_a_temporary_directory_that_is_missing_is_one_line(live_dir: Path) -> None:
    code = "import gpumon.cli, tempfile; tempfile.tempdir = '/proc/nowhere'; raise SystemExit(gpumon.cli.main(['tui']))"
    view = Pseudo((sys.executable, "-c", code), environment(live_dir))
    try:
        assert view.ended() == 1
        assert "TMPDIR" in view.output
    finally:
        view.close()


def test_what_a_killed_view_left_behind_goes_with_the_next_one(open_view: Open, scratch: Path) -> None:
    old = time.time() - 120
    other = scratch / f"gpumon-tui-{'0' * 16}"
    for directory in (other, scratch / f"gpumon-web-{'0' * 16}"):
        directory.mkdir()
    (other / "mine").touch()
    killed, living = open_view(), open_view()
    for view in (killed, living):
        view.until("SIMULATED")
    held = set(scratch.iterdir())
    killed.program.kill()
    killed.ended()
    for directory in held:
        os.utime(directory, (old, old))
    after = open_view()
    after.until("SIMULATED")
    left = held & set(scratch.iterdir())
    assert len(left) == 2
    assert other in left, "it has a file that no view has"
    shutil.rmtree(other)
    for view in (living, after):
        os.kill(view.program.pid, signal.SIGTERM)
        view.ended()


CRASH = """
import sys
import gpumon.cli
from gpumon_tui.widgets.gpu_table import GpuTable

def lines(self):
    names = "of other people's processes"
    raise ValueError("broken")

GpuTable.lines = lines
sys.exit(gpumon.cli.main(["tui", "--source", "sim"]))  # of one GPU charts may be all there is
"""


def test_a_crash_is_one_sentence_and_its_details_lie_in_a_file(open_view: Open, live_dir: Path) -> None:
    view = open_view(sys.executable, "-c", CRASH)
    assert view.ended() == 1
    assert view.left_behind() == []
    told = view.output.rpartition("[?1004l")[2].strip()
    assert "please report it with the details in" in told
    assert len(told.splitlines()) <= 2, told  # of 80 cells, and the path whole
    assert "Traceback" not in view.output
    details = Path(told.split()[-1])
    assert details.stat().st_mode & 0o777 == 0o600
    assert "ValueError: broken" in details.read_text()
    assert "other people" not in details.read_text() + view.output


def test_what_is_no_terminal_is_refused_in_a_line(live_dir: Path) -> None:
    done = subprocess.run(command("tui"), env=environment(live_dir), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "gpumon status" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_terminal_without_unicode_is_drawn_on_in_ascii(live_dir: Path) -> None:
    env = {**environment(live_dir), "LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    view = Pseudo(command("tui", "--source", "sim:one"), env)
    try:
        view.until("* live")
        os.write(view.master, b"q")
        assert view.ended() == 0
        assert view.output.isascii()
        assert "\\u" not in view.output
    finally:
        view.close()


def test_a_terminal_whose_cursor_does_not_move_is_refused_in_a_sentence(live_dir: Path) -> None:
    view = Pseudo(command("tui", "--source", "sim:one"), environment(live_dir), term="dumb")
    try:
        assert view.ended() == 1
        told = " ".join(view.output.split())
        assert "TERM is 'dumb': use '" in told
        assert "gpumon top', or '" in told
        assert told.endswith("gpumon status' for one look")
        assert "\x1b" not in view.output
    finally:
        view.close()


def test_ctrl_z_goes_back_to_the_shell_and_fg_to_the_view(tmux: str, tmp_path: Path, live_dir: Path) -> None:
    terminal = Terminal(tmux, tmp_path, environment(live_dir), ["bash", "--norc", "-i"], "100x30")
    try:
        terminal.press(" ".join(command("tui", "--source", "sim:one")), "Enter")
        shown(terminal, "SIMULATED", "quit")
        terminal.press("C-z")
        shown(terminal, "Stopped")
        assert terminal("display", "-p", "#{alternate_on}#{mouse_any_flag}#{cursor_flag}").strip() == "001"
        terminal.press("fg", "Enter")
        assert "Stopped" not in shown(terminal, "SIMULATED", "quit")
        terminal.press("q")
        shown(terminal, "Stopped")
    finally:
        terminal.close()


def test_hints_name_a_program_that_can_be_called(tmp_path: Path) -> None:
    script = tmp_path / "bin dir" / "gpumon"
    script.parent.mkdir()
    script.touch(mode=0o755)
    assert program(["x"], {"PATH": str(script.parent)}) == "gpumon"
    assert program([str(script)], {"PATH": ""}) == f"'{script}'"
    assert program(["-c"], {"PATH": ""}) == f"{sys.executable} -m gpumon"


def test_commands_in_messages_can_be_run_where_gpumon_is_not_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "no such run: 'gpumon runs' lists all"
    monkeypatch.setattr("sys.argv", ["x"])
    monkeypatch.setenv("PATH", "")
    assert callable_commands(told) == f"no such run: '{sys.executable} -m gpumon runs' lists all"
