"""The terminal view where life is rough: sizes change, a daemon is killed, processes are many, names are hostile."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests.nvml import Process, Stub
from tests.programs import Child, command, daemon, environment, until, wait_for_end
from tests.tui.pseudo import Pseudo
from tests.tui.terminal import Terminal, shown

SIZES = ((20, 5), (320, 90), (40, 10), (9, 3), (200, 50), (80, 24))
HOSTILE = "a\x1b]0;pwn\x07\x1b[31m\x9b2J"


def test_it_follows_every_size_on_every_page_and_a_daemon_that_is_killed(
    tmux: str, tmp_path: Path, stub: Stub, live_dir: Path
) -> None:
    env = environment(live_dir, stub.env())
    with daemon("--interval", "0.5", env=env) as sampler:
        terminal = Terminal(tmux, tmp_path, env, command("tui"), "120x40")
        try:
            shown(terminal, "● live")
            for page, (columns, rows) in zip("234512", SIZES, strict=True):
                terminal.press(page)
                terminal.resize(columns, rows)

                def fits(columns: int = columns, rows: int = rows) -> bool:
                    lines = terminal.screen().splitlines()
                    return lines[0].startswith(" gpumon") and len(lines) == rows and max(map(len, lines)) <= columns

                until(fits)
            sampler.kill()
            wait_for_end(sampler)
            shown(terminal, "no longer running")
            terminal.press("1")
            shown(terminal, "stale")
            terminal.press("q")
            until(terminal.is_over)
        finally:
            terminal.close()


def test_five_hundred_processes_scroll_and_all_are_there(tmux: str, tmp_path: Path, stub: Stub, live_dir: Path) -> None:
    stub.gpus = 8
    for gpu in range(8):
        stub.set_processes(gpu, [Process(4_000_000 + 100 * gpu + n, (n + 1) * 2**20) for n in range(63)])
    terminal = Terminal(tmux, tmp_path, environment(live_dir, stub.env()), command("tui"), "80x24")
    try:
        shown(terminal, "gpumon")
        terminal.press("3")
        screen = shown(terminal, "t tree", "4000062")
        assert "more have no room" in screen or "504" in screen
        terminal.press("G")
        until(lambda: "4000062" not in terminal.screen())
        terminal.press("C-u", "C-u", "g")
        shown(terminal, "4000062")
        terminal.resize(40, 20)
        until(lambda: max(map(len, terminal.screen().splitlines())) <= 40)
        shown(terminal, "program", "+398 ▼")  # pids have no room there
    finally:
        terminal.close()


def test_one_that_ended_meanwhile_is_refused_and_a_hostile_name_orders_nothing(stub: Stub, live_dir: Path) -> None:
    """A name with escape sequences stands on the page as text."""
    stub.gpus = 1
    env = {**environment(live_dir, stub.env()), "LC_ALL": "C.UTF-8"}
    name = f"import ctypes, sys; ctypes.CDLL(None).prctl(15, {HOSTILE.encode('latin-1')!r}); sys.stdin.read()"
    with Child(["python3", "-c", name], stdin=subprocess.PIPE) as odd:
        stub.set_processes(0, [Process(odd.pid)])
        view = Pseudo(command("tui"), env)
        try:
            view.until("gpumon")
            view.until(str(odd.pid))
            os.write(view.master, b"3")
            view.until("tree")
            os.write(view.master, b"K")
            view.until("No, keep it")
            odd.kill()
            wait_for_end(odd)
            os.write(view.master, b"\t\r")
            view.until("has ended already")
            os.write(view.master, b"q")
            assert view.ended() == 0
            for sequence in ("\x1b]0;", "\x1b[31m", "\x9b", "pwn\x07"):
                assert sequence not in view.output
        finally:
            odd.kill()
            view.close()


def test_init_is_refused_without_a_question(tmux: str, tmp_path: Path, stub: Stub, live_dir: Path) -> None:
    """Init belongs to root and is nobody's to end; no question is asked."""
    stub.gpus = 1
    stub.set_processes(0, [Process(1)])
    terminal = Terminal(tmux, tmp_path, environment(live_dir, stub.env()), command("tui"), "100x30")
    try:
        shown(terminal, "gpumon")
        terminal.press("3")
        shown(terminal, " 1    0 ")
        terminal.press("K")
        shown(terminal, "not one to be ended from here")
        assert "No, keep it" not in terminal.screen()
    finally:
        terminal.close()


def test_a_signal_on_another_page_and_with_a_list_open_leaves_the_terminal_as_it_was(live_dir: Path) -> None:
    env = {**environment(live_dir), "LC_ALL": "C.UTF-8"}
    view = Pseudo(command("tui", "--source", "sim:one"), env)
    try:
        view.until("SIMULATED")
        os.write(view.master, b"2\r")
        view.until("enter shows it")
        view.program.send_signal(signal.SIGTERM)
        assert view.ended() == 128 + signal.SIGTERM
        assert view.left_behind() == []
    finally:
        view.close()
