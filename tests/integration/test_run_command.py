"""`gpumon run`: the command has everything to itself, and the table says what it cost."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from gpumon.common.paths import Places
from gpumon.common.procfs import Stat
from gpumon.launcher.child_process import ExitStatus, command_name
from gpumon.launcher.process_tree import ProcessTree
from gpumon.launcher.summary import Training, text
from gpumon.launcher.watcher import CommandReport
from gpumon.live import follow
from gpumon.model.frame import Run, RunState
from gpumon.model.metrics import Availability
from tests.nvml import Process, Stub
from tests.programs import PATIENCE, command, daemon, environment, gpumon, status, until, with_its_table
from tests.tui.pseudo import Pseudo

TABLE = re.compile(r"^gpumon  ", re.MULTILINE)


@pytest.fixture
def env(stub: Stub, live_dir: Path) -> dict[str, str]:
    return environment(live_dir, stub.env())


def sampler_of(live_dir: Path) -> int:
    """The pid of who samples into `live_dir` now; 0 for nobody."""
    live = follow(Places(explicit=str(live_dir)))
    return live.writer_pid() if live.is_alive() and live.latest() else 0


def runs_in(live_dir: Path) -> dict[str, Run]:
    """The runs of the newest frame, by name."""
    frame = follow(Places(explicit=str(live_dir))).latest()
    return {run.name: run for run in frame.runs} if frame else {}


def listed(env: Mapping[str, str]) -> list[dict[str, Any]]:
    """The runs of the ledger."""
    found: list[dict[str, Any]] = json.loads(gpumon("runs", "--json", env=env).stdout)["runs"]
    return found


def python(source: str) -> list[str]:
    return [sys.executable, "-c", source]


def beside(env: Mapping[str, str], *words: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """`gpumon run -- words`, to its end."""
    return gpumon("run", *options, "--", *words, env=env, timeout=PATIENCE)


@pytest.mark.parametrize(("word", "code"), [("no-such-command", 127), ("./no/such", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_start_is_one_line(env: dict[str, str], word: str, code: int) -> None:
    done = beside(env, word)
    assert done.returncode == code
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert word in done.stderr


def test_a_command_that_cannot_start_is_told_to_a_terminal_in_whole_words(env: dict[str, str]) -> None:
    terminal = Pseudo(command("run", "--", "no-such-command-of-a-long-name"), env)
    try:
        terminal.ended()
        rows = terminal.output.split("\r\n")
    finally:
        terminal.close()
    assert len(rows[0]) <= 100
    assert rows[1].split()[-1] == "--", rows


def test_no_command_is_wrong_usage(env: dict[str, str]) -> None:
    assert gpumon("run", "--", env=env).returncode == 2
    assert gpumon("run", "--", "", env=env).returncode == 2, "a shell variable without a value"
    assert gpumon("run", env=env).returncode == 2


def test_a_script_without_a_first_line_runs_in_the_shell(env: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('echo "$0 $1"\n')
    script.chmod(0o755)
    assert beside(env, str(script), "word").stdout == f"{script} word\n"


def test_output_is_the_commands_to_the_byte_and_input_comes_through(env: dict[str, str]) -> None:
    given = os.urandom(300_000)
    done = subprocess.run(command("run", "--", "cat"), env=env, input=given, capture_output=True, check=True)
    assert done.stdout == given
    assert b"time" in done.stderr


def test_words_of_the_command_are_not_ours(env: dict[str, str]) -> None:
    done = beside(env, "echo", "--name", "x", "--", "--auto")
    assert done.stdout == "--name x -- --auto\n"
    assert gpumon("run", "echo", "-n", "--dir", "y", env=env).stdout == "--dir y"


def test_the_command_starts_as_it_would_without_us(env: dict[str, str]) -> None:
    """Signals that are blocked or ignored, open files, directory, group and environment."""
    source = """
import os, signal, sys
print(sorted(map(int, signal.pthread_sigmask(signal.SIG_BLOCK, []))), os.getcwd(), sorted(os.listdir("/proc/self/fd")))
print([signal.getsignal(number) for number in signal.valid_signals()], os.getpgrp() == int(sys.argv[1]))
print(sorted(os.environ.items()), os.getsid(0))
"""
    group = str(os.getpgrp())
    plain = subprocess.run([*python(source), group], env=env, capture_output=True, text=True, check=True)
    done = beside(env, *python(source), group)
    assert done.stdout == plain.stdout
    assert "True" in plain.stdout


# Without print in the handler: it may come while the print before it ends, and print must not be entered twice.
WAITING = """
import os, signal, sys
def told(number, _):
    os.write(1, f"{signal.Signals(number).name}\\n".encode())
    if number != signal.SIGUSR1: sys.exit(7)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1): signal.signal(number, told)
print("ready", flush=True)
while True: signal.pause()
"""


@pytest.fixture
def waiting(env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """`gpumon run` with a command that says which signals come to it."""
    process = subprocess.Popen(
        command("run", "--", *python(WAITING)), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_gpumon_comes_to_the_command(waiting: subprocess.Popen[str], number: signal.Signals) -> None:
    waiting.send_signal(signal.SIGUSR1)
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == "SIGUSR1\n"
    waiting.send_signal(number)
    out, _ = waiting.communicate(timeout=PATIENCE)
    assert out == f"{number.name}\n"
    assert waiting.returncode == 7


def test_a_signal_that_the_command_sends_to_its_group_comes_to_it_once(env: dict[str, str]) -> None:
    source = """
import os, signal, time
seen = []
signal.signal(signal.SIGUSR2, lambda *_: seen.append(1))
os.kill(0, signal.SIGUSR2)
time.sleep(0.5)
print(len(seen))
"""
    done = subprocess.run(
        command("run", "--", *python(source)), env=env, capture_output=True, text=True, start_new_session=True,
        check=True,
    )  # fmt: skip
    assert done.stdout == "1\n"


class Terminal:
    """`gpumon run` as the job of a terminal: the shell is this class."""

    def __init__(self, env: Mapping[str, str], *words: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(sys.executable, command("run", "--", *words), dict(env))
        self.output = b""
        os.set_blocking(self.fd, False)

    def shows(self, *texts: str) -> str:
        def look() -> bool:
            with suppress(OSError):  # nothing yet, or the other side has gone
                self.output += os.read(self.fd, 65536)
            return all(text.encode() in self.output for text in texts)

        until(look)
        return self.output.decode()

    def press(self, key: bytes) -> None:
        os.write(self.fd, key)

    def ended(self) -> int:
        """Its status, as waitpid has it."""
        found = until(lambda: (got := os.waitpid(self.pid, os.WNOHANG))[0] and got)
        self.pid = 0
        return found[1]

    def close(self) -> None:
        if self.pid:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def test_ctrl_c_comes_to_the_command_once_and_gpumon_outlives_it(
    env: dict[str, str], terminals: list[Terminal]
) -> None:
    source = """
import time
try:
    print("ready", flush=True); time.sleep(3600)
except KeyboardInterrupt:
    print("first", flush=True)
    try: time.sleep(0.5); print("only", flush=True)
    except KeyboardInterrupt: print("second", flush=True)
    raise SystemExit(5)
"""
    terminal = Terminal(env, *python(source))
    terminals.append(terminal)
    terminal.shows("ready")
    terminal.press(b"\x03")
    output = terminal.shows("first", "only", "exit code 5")
    assert "second" not in output
    assert "Traceback" not in output
    assert os.waitstatus_to_exitcode(terminal.ended()) == 5


def test_the_command_has_the_terminal_its_size_and_its_keys(env: dict[str, str], terminals: list[Terminal]) -> None:
    source = """
import os, signal, sys, termios, tty
print(os.isatty(0), os.isatty(1), os.isatty(2), os.tcgetpgrp(0) == os.getpgrp(), flush=True)
signal.signal(signal.SIGWINCH, lambda *_: os.write(1, f"{os.get_terminal_size()}\\n".encode()))
before = termios.tcgetattr(0)
tty.setraw(0)
print("ready", flush=True)
print(repr(os.read(0, 1)), flush=True)
termios.tcsetattr(0, termios.TCSADRAIN, before)
"""
    terminal = Terminal(env, *python(source))
    terminals.append(terminal)
    terminal.shows("True True True True", "ready")
    termios.tcsetwinsize(terminal.fd, (33, 99))
    terminal.shows("columns=99, lines=33")
    terminal.press(b"\x03")
    terminal.shows("b'\\x03'", "GPU time")
    assert os.waitstatus_to_exitcode(terminal.ended()) == 0


def test_ctrl_z_stops_both_and_the_shell_continues_both(env: dict[str, str], tmux: str, tmp_path: Path) -> None:
    """In a real shell with job control."""
    shell = [tmux, "-S", str(tmp_path / "tmux"), "-f", os.devnull]
    own = {**env, "TERM": "xterm-256color", "PS1": "$ ", "PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}

    def ask(*words: str) -> str:
        return subprocess.run([*shell, *words], env=own, capture_output=True, text=True, check=False).stdout

    def screen(*texts: str) -> None:
        until(lambda: all(text in ask("capture-pane", "-p") for text in texts))

    ask("new-session", "-d", "-x", "120", "-y", "40", "bash", "--norc", "--noprofile", "-i")
    try:
        line = f'{sys.executable} -m gpumon run -- {sys.executable} -uc \'print("rea" + "dy"); print(input()[::-1])\''
        ask("send-keys", line, "Enter")
        screen("ready")
        ask("send-keys", "C-z")
        screen("Stopped")
        ask("send-keys", "jobs -r; echo no''ne", "Enter")
        screen("none")
        ask("send-keys", "fg", "Enter")
        until(lambda: ask("capture-pane", "-p").rstrip().endswith("'"))
        ask("send-keys", "-l", "olleh")
        ask("send-keys", "Enter")
        screen("hello", "GPU time")
        ask("send-keys", "echo code $?", "Enter")
        screen("code 0")
    finally:
        ask("kill-server")


HOLDING = """
import os, sys, time
print(os.getpid(), flush=True)
sys.stdin.readline()
"""


Holding = Callable[..., tuple["subprocess.Popen[str]", int]]


@pytest.fixture
def holding() -> Iterator[Holding]:
    """Starts `gpumon run` with a command that waits for a line, and gives it and the command's pid."""
    begun: list[subprocess.Popen[str]] = []

    def begin(env: Mapping[str, str], *options: str, source: str = HOLDING) -> tuple[subprocess.Popen[str], int]:
        process = subprocess.Popen(
            command("run", *options, "--", *python(source)), env=dict(env), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        begun.append(process)
        assert process.stdout is not None
        return process, int(process.stdout.readline())

    yield begin
    for process in begun:
        if process.poll() is None:
            process.terminate()
        process.communicate()


@pytest.mark.parametrize("source", [None, "try: sys.stdin.readline()\nexcept KeyboardInterrupt: sys.exit(130)"])
def test_a_command_that_ctrl_c_ended_is_kept_as_interrupted(
    env: dict[str, str], holding: Holding, live_dir: Path, source: str | None
) -> None:
    line = "sys.stdin.readline()"
    process, _ = holding(env, "--interval", "0.1", source=HOLDING.replace(line, source or line))
    until(lambda: runs_in(live_dir))
    process.send_signal(signal.SIGINT)
    process.wait(PATIENCE)  # before its input ends, which would be an end of its own
    assert process.returncode in (-signal.SIGINT, 130)
    assert [run["state"] for run in listed(env)] == ["interrupted"]


ENDS: dict[str, tuple[str, int | None, int | None, str]] = {
    "killed": ("kill -9 $$", None, 9, "ended by SIGKILL"),
    "crashed": ("kill -11 $$", None, 11, "ended by SIGSEGV"),
    "real-time": ("kill -34 $$", None, 34, "ended by SIGRTMIN"),
    "failed": ("exit 255", 255, None, "exit code 255"),
    "fine": ("exit 0", None, None, ""),
}
"""How a command of that name ends, the exit code and the signal that are kept, and the words for them."""


def test_the_signal_or_exit_code_of_a_command_is_that_of_gpumon_and_the_same_in_every_view(env: dict[str, str]) -> None:
    with daemon("--interval", "0.1", env=env):
        processes = {
            name: subprocess.Popen(
                command("run", "--name", name, "--", "sh", "-c", f"read line; {end}"), env=env, stdin=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True,
            )
            for name, (end, *_) in ENDS.items()
        }  # fmt: skip
        until(lambda: {run["name"] for run in status(env)["runs"]} == set(ENDS))
        tables = {name: process.communicate("\n", timeout=PATIENCE)[1] for name, process in processes.items()}
        until(lambda: all(run["state"] != "running" for run in status(env)["runs"]))
        runs = status(env)["runs"]
        lines = gpumon("status", env=env).stdout.splitlines()
    events = json.loads(gpumon("history", "events", "--json", env=env).stdout)["events"]
    for run in runs:
        name = run["name"]
        _, code, number, ending = ENDS[name]
        assert processes[name].returncode == (-number if number else code or 0)
        shown = json.loads(gpumon("runs", "show", run["id"], "--json", env=env).stdout)
        (ended,) = (one for one in events if (one["kind"], one["run"]) == ("run_ended", run["id"]))
        for facts in (run, shown["ranks"][0], {"exit_code": None, "exit_signal": None, **ended["details"]}):
            assert (facts["exit_code"], facts["exit_signal"]) == (code, number)
        (line,) = (line for line in lines if line.startswith("run  ") and line.split()[1].startswith(name))
        for text_of in (tables[name], line, gpumon("runs", "show", run["id"], env=env).stdout):
            assert ending in text_of
            assert ("ended by" in text_of, "exit code" in text_of) == (number is not None, code is not None)
    listed_events = gpumon("history", "events", env=env).stdout
    assert all(ending in listed_events for *_, ending in ENDS.values())


def number_of(table: str, title: str) -> str:
    """What the table says for `title`."""
    found = re.search(rf"^  {title} +(\S+(?: (?:J|s|Wh|W|%|GiB|MiB))?)(  .*)?$", table, re.MULTILINE)
    assert found, table
    return found[1]


def test_the_table_tells_memory_energy_and_time_of_the_commands_processes(
    env: dict[str, str], holding: Holding, live_dir: Path, stub: Stub
) -> None:
    stub.constant = True
    process, pid = holding(env, "--interval", "0.1")
    until(lambda: sampler_of(live_dir))
    began = time.monotonic()
    stub.set_processes(1, [Process(pid, memory=3 * 2**30), Process(os.getpid(), memory=2**30)])
    until(lambda: [run for run in runs_in(live_dir).values() if run.gpus])
    time.sleep(4)
    _, table = process.communicate("\n", timeout=PATIENCE)
    longest = time.monotonic() - began
    assert number_of(table, "GPU memory") == "3.0 GiB"
    assert "GPU 1: H100 80GB HBM3" in table
    seconds = float(number_of(table, "GPU time").removeprefix("≥").removesuffix(" s"))
    assert 0 < seconds <= longest + 0.1
    joules = float(number_of(table, "energy").removeprefix("≥").removesuffix(" J").replace(",", ""))
    watts = stub.truth("gpu.power", 1)
    assert joules / seconds == pytest.approx(watts, rel=0.06)  # seconds are rounded to a tenth
    assert number_of(table, "utilization") == f"{stub.truth('gpu.utilization', 1) * 100:.0f} %"


def test_the_ledger_has_the_energy_of_a_command_of_seconds_that_no_daemon_saw(
    env: dict[str, str], holding: Holding, live_dir: Path, stub: Stub
) -> None:
    """Its run begins with the first sample: what lies before it is between no two readings of the counter."""
    stub.constant = True
    process, pid = holding(env)
    stub.set_processes(0, [Process(pid, memory=2**30)])
    until(lambda: [run for run in runs_in(live_dir).values() if run.gpus])
    live = follow(Places(explicit=str(live_dir)))
    seen = until(live.latest).number
    until(lambda: until(live.latest).number >= seen + 2)  # two readings of the counter
    _, table = process.communicate("\n", timeout=PATIENCE)
    assert number_of(table, "energy") != "–"
    (kept,) = listed(env)
    assert kept["energy"] == pytest.approx(
        float(number_of(table, "energy").removeprefix("≥").removesuffix(" J").replace(",", "")), rel=0.2
    )


def test_a_command_without_a_gpu_is_told_so(env: dict[str, str], holding: Holding, live_dir: Path) -> None:
    process, _ = holding(env, "--interval", "0.1")
    until(lambda: sampler_of(live_dir))
    time.sleep(0.3)
    _, table = process.communicate("\n", timeout=PATIENCE)
    assert "no process seen on a GPU" in table
    assert "energy" not in table


def test_without_a_driver_the_time_is_told_and_why_there_is_no_more(live_dir: Path, holding: Holding) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has a driver")
    env = environment(live_dir)
    env.pop("LD_LIBRARY_PATH", None)
    process, _ = holding(env, "--interval", "0.1")
    until(lambda: sampler_of(live_dir))
    time.sleep(0.3)
    _, table = process.communicate("\n", timeout=PATIENCE)
    assert process.returncode == 0
    assert "libnvidia-ml" in table


TRAINING = """
import gpumon, os, sys, time
print(os.getpid(), flush=True)
with gpumon.run("inner", epochs=3) as run:
    for epoch in run.epochs():
        time.sleep(0.4)
        run.log(loss=1 / (epoch + 1), accuracy=0.5)
    sys.stdin.readline()
"""
BEGUN = """
import gpumon, os, sys, time
with gpumon.run("inner", epochs=3) as run:
    print(os.getpid(), flush=True)
    for epoch in run.epochs():
        time.sleep(0.4)
    sys.stdin.readline()
"""


def test_energy_of_a_training_that_began_before_the_first_sample_is_at_least_that_in_table_and_ledger(
    env: dict[str, str], holding: Holding, live_dir: Path, stub: Stub
) -> None:
    stub.constant = True
    stub.set_latency("nvmlInitWithFlags", 3_600_000_000)  # µs: no sample before the run has begun and holds its GPU
    process, pid = holding(env, source=BEGUN)
    stub.set_processes(0, [Process(pid, memory=2**30)])
    time.sleep(0.5)  # the part of the run that is never sampled
    stub.set_latency("nvmlInitWithFlags", 0)
    live = follow(Places(explicit=str(live_dir)))
    seen = until(lambda: (frame := live.latest()) and frame.processes and frame.runs and frame).number
    until(lambda: until(live.latest).number >= seen + 3)
    _, table = process.communicate("\n", timeout=PATIENCE)
    listed_energy = re.search(r"(≥?)([\d,]+) J", gpumon("runs", env=env).stdout)
    told = re.fullmatch(r"(≥?)([\d,]+) J", number_of(table, "energy"))
    assert told
    assert listed_energy
    assert (told[1], listed_energy[1]) == ("≥", "≥")
    joules = [float(found[2].replace(",", "")) for found in (told, listed_energy)]
    assert joules[0] == pytest.approx(joules[1], rel=0.2)


def test_epochs_of_a_training_inside_are_told_and_its_run_stands_for_the_command(
    env: dict[str, str], holding: Holding, live_dir: Path
) -> None:
    process, pid = holding(env, "--interval", "0.2", source=TRAINING)
    until(lambda: set(runs_in(live_dir)) == {"inner"})
    assert runs_in(live_dir)["inner"].pid == pid
    until(lambda: runs_in(live_dir)["inner"].epoch == 2)
    until(lambda: set(runs_in(live_dir)) == {"inner"})
    _, table = process.communicate("\n", timeout=PATIENCE)
    assert re.search(r"epochs +3  ([4-9]\d\d ms|\S+ s) each, loss 0\.3333\n", table), table
    kept = until(lambda: "inner" in (listed := gpumon("runs", "list", env=env).stdout) and listed)
    assert "python-" not in kept, "one row for one training"


def test_an_epoch_that_an_exception_left_is_not_among_the_whole_ones(env: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "breaks.py"
    script.write_text(
        "import gpumon\nwith gpumon.run('breaks') as run:\n"
        "    for epoch in run.epochs(3):\n        run.step()\n        if epoch == 2: raise ValueError('no good')\n"
    )
    done = with_its_table(lambda: beside(env, sys.executable, str(script)))
    assert done.returncode == 1
    assert re.search(r"epochs +2 ", done.stderr), done.stderr


SHORT = "import gpumon\nwith gpumon.run({!r}) as run:\n    for epoch in run.epochs(2): run.log(loss=0.5)\n"


@pytest.mark.parametrize("with_daemon", [False, True])
def test_trainings_shorter_than_a_sample_in_children_of_the_command_are_its_trainings(
    env: dict[str, str], live_dir: Path, with_daemon: bool
) -> None:
    """The command is a shell: neither training has its pid, and both are over before anybody asks for theirs."""
    names = {"first", "second"}
    for name in names:
        (live_dir / f"{name}.py").write_text(SHORT.format(name))
    script = f'{sys.executable} {live_dir}/first.py; {sys.executable} {live_dir}/second.py; read line; echo "$line"'
    with daemon("--interval", "0.5", env=env) if with_daemon else nullcontext():
        done = with_its_table(lambda: gpumon("run", "--", "sh", "-c", script, env=env, given="done\n"))
        assert done.stdout == "done\n"
        for name in names:
            assert re.search(rf"epochs +2  {name}, .* each, loss 0.5$", done.stderr, re.MULTILINE), done.stderr
        # The command itself is no run beside them: it is gone with the next sample.
        until(lambda: {run["name"] for run in listed(env)} == names)


def test_a_loss_that_diverged_is_told_as_nan(env: dict[str, str]) -> None:
    words = python(SHORT.format("diverged").replace("loss=0.5", "loss=float('nan')"))
    done = with_its_table(lambda: beside(env, *words))
    assert re.search(r"epochs +2  .* each, loss nan$", done.stderr, re.MULTILINE), done.stderr


def test_the_last_four_trainings_have_a_line_each_and_those_before_are_counted() -> None:
    trainings = [Training(f"net-{n}-1a", f"net-{n}", 3, 1.0, {"loss": 0.5}) for n in range(6)]
    table = text("python", ExitStatus(0), 5.0, CommandReport(trainings=trainings), color=False)
    assert re.findall(r"^  epochs +3  (net-\d), ", table, re.MULTILINE) == ["net-2", "net-3", "net-4", "net-5"]
    assert "and 2 earlier trainings" in table


def test_a_training_of_another_command_is_not_among_the_trainings(env: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "other.py"
    script.write_text(SHORT.format("other"))
    subprocess.run([sys.executable, str(script)], env=env, check=True)
    done = with_its_table(lambda: beside(env, *python(SHORT.format("own"))))
    assert re.search(r"epochs +2  .* each, loss 0.5$", done.stderr, re.MULTILINE), done.stderr
    assert "other" not in done.stderr


def test_epochs_are_told_where_nothing_can_be_sampled(env: dict[str, str]) -> None:
    source = SHORT.format("own") + "import time; time.sleep(1)"
    done = with_its_table(lambda: beside(env, *python(source), options=("--interval", "0")))
    assert "--interval: invalid interval 0 s" in done.stderr
    assert re.search(r"epochs +2 ", done.stderr), done.stderr


def test_a_command_shows_as_a_run_while_it_runs(
    env: dict[str, str], holding: Holding, live_dir: Path, stub: Stub
) -> None:
    process, pid = holding(env, "--name", "night shift", "--interval", "0.1")
    stub.set_processes(0, [Process(pid)])

    until(lambda: (run := runs_in(live_dir).get("night shift")) and run.gpus == (stub.uuid(0),))
    process.communicate("\n", timeout=PATIENCE)
    assert runs_in(live_dir)["night shift"].state is RunState.FINISHED


def test_two_at_once_share_a_sampler_and_the_second_takes_over(
    env: dict[str, str], holding: Holding, live_dir: Path
) -> None:
    first, _ = holding(env, "--interval", "0.1")
    pid = until(lambda: sampler_of(live_dir))
    assert pid == first.pid
    second, _ = holding(env, "--interval", "0.1")
    time.sleep(0.5)
    assert sampler_of(live_dir) == pid
    first.communicate("\n", timeout=PATIENCE)
    until(lambda: sampler_of(live_dir) == second.pid)
    _, table = second.communicate("\n", timeout=PATIENCE)
    assert second.returncode == 0
    assert "no process seen on a GPU" in table


@pytest.mark.parametrize("options", [("--dir", "/proc/nowhere"), ("--interval", "0"), ("--source", "cuda")])
def test_what_is_wrong_with_gpumon_leaves_the_command_alone(env: dict[str, str], options: tuple[str, ...]) -> None:
    done = beside(env, "sh", "-c", "sleep 1; echo fine; exit 4", options=options)
    assert done.stdout == "fine\n"
    assert done.returncode == 4
    assert "GPU time" in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_that_make_no_sense_leave_the_command_alone(env: dict[str, str], live_dir: Path) -> None:
    (live_dir / ".config" / "gpumon").mkdir(parents=True)
    (live_dir / ".config" / "gpumon" / "config.toml").write_text("sauce = 1\n")
    done = beside(env, "sh", "-c", "echo fine; exit 4")
    assert (done.stdout, done.returncode) == ("fine\n", 4)
    assert "unknown setting 'sauce'" in done.stderr


def test_nobody_who_reads_errors_is_no_matter(env: dict[str, str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command("run", "--", "sh", "-c", "exit 4"), env=env, stdout=subprocess.PIPE, stderr=writing, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stdout) == (4, b"")


def test_a_driver_that_hangs_does_not_hold_the_command_up(
    env: dict[str, str], holding: Holding, live_dir: Path, stub: Stub
) -> None:
    process, _ = holding(env, "--interval", "0.1")
    until(lambda: sampler_of(live_dir))
    stub.set_latency(None, 3_600_000_000)
    live = follow(Places(explicit=str(live_dir)))
    until(lambda: (frame := live.latest()) and frame.samples[0].state is Availability.STALE)
    _, table = process.communicate("\n", timeout=PATIENCE)
    assert process.returncode == 0
    assert "the figures are incomplete" in table


def test_a_process_that_left_its_parents_still_belongs_to_the_command(
    env: dict[str, str], holding: Holding, live_dir: Path, stub: Stub
) -> None:
    source = """
import os, sys, time
if os.fork():
    os.wait()
else:
    os.setsid()
    if os.fork():
        os._exit(0)
    time.sleep(0.8)
    print(os.getpid(), flush=True)
    time.sleep(3600)
sys.stdin.readline()
"""
    process, pid = holding(env, "--interval", "0.1", source=source)
    try:
        stub.set_processes(0, [Process(pid, memory=2**30)])
        until(lambda: [run for run in runs_in(live_dir).values() if run.gpus])
    finally:
        os.kill(pid, signal.SIGKILL)
    assert process.stdout is not None
    _, table = process.communicate("\n", timeout=PATIENCE)
    assert number_of(table, "GPU memory") == "1.0 GiB"


def test_a_pid_that_is_used_again_does_not_belong_to_the_command() -> None:
    def process(parent: int, started: int) -> Stat:
        return Stat(b"", "S", parent, 0, started, 0)

    known = {10: process(2, 100), 11: process(10, 110), 12: process(1, 120), 2: process(1, 5)}
    tree = ProcessTree(10, 2, known.get)
    assert tree.has_member(11)
    assert not tree.has_member(12)
    assert not tree.has_member(2), "that is gpumon itself"
    del known[11]
    assert tree.has_member(11), "it was one to its end"
    known[11] = process(1, 500)
    assert not tree.has_member(11)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["python", "-u", "train.py", "--lr", "1"], "train"), (["/usr/bin/make", "all"], "make"),
        (["torchrun", "--nproc-per-node", "2", "ddp.py"], "ddp"), (["python3", "-m", "pkg.train", "x"], "train"),
        (["python"], "python"), (["./run.sh"], "run.sh"),
    ],
)  # fmt: skip
def test_a_command_is_called_what_people_call_it(words: list[str], name: str) -> None:
    assert command_name(words) == name


def test_a_command_that_used_no_gpu_for_long_is_told_so_and_one_that_nobody_could_see_is_not_told_zero() -> None:
    assert "0 s  none of the 2 GPUs was used" in text("x", ExitStatus(0), 60.0, CommandReport(devices=2), color=False)
    for report in (CommandReport(), CommandReport(devices=2, hidden=True), CommandReport(problem="no driver")):
        assert re.search("GPU time +–  ", text("x", ExitStatus(0), 60.0, report, color=False))


def test_the_table_is_plain_text_whatever_names_hold() -> None:
    table = text("evil\x1b[31m", ExitStatus(0), 1.0, CommandReport(problem="bad\x1b]0;x\x07"), color=False)
    assert "\x1b" not in table
    assert "\x07" not in table


def test_variables_in_front_of_the_command_are_set_as_a_shell_sets_them(env: dict[str, str]) -> None:
    script = 'echo "<$CUDA_VISIBLE_DEVICES> <$EMPTY> $1"'
    done = gpumon("run", "CUDA_VISIBLE_DEVICES=0,1", "EMPTY=", "--", "sh", "-c", script, "sh", "A=B", env=env)
    assert (done.returncode, done.stdout) == (0, "<0,1> <> A=B\n"), done.stderr
    assert gpumon("run", "A=B", env=env).returncode == 2
