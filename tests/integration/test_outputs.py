"""Every command with outputs that are closed, full, or of another encoding: never a traceback, always an exit code."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from gpumon import cli
from gpumon.cli import COMMANDS
from tests.crossed import crossed
from tests.nvml import Stub
from tests.programs import PATIENCE, Child, command, daemon, environment, gpumon, in_process, until

TRAINING = """
import gpumon
with gpumon.run("Übung", epochs=2) as run:
    for epoch in run.epochs(): run.log(loss=0.5)
"""
WORDS: dict[str, list[list[str]]] = {
    "status": [["status"], ["status", "--json"], ["status", "--help"], ["status", "--source", "nothing"]],
    "why": [["why"], ["why", "--json"], ["why", "--help"], ["why", "nobody"], ["why", "0"], ["why", "77"]],
    "runs": [
        ["runs"], ["runs", "list", "--json"], ["runs", "show", "last"], ["runs", "show", "last", "--json"],
        ["runs", "show", "nobody"], ["runs", "compare", "last", "last"], ["runs", "export", "last", "--format", "csv"],
        ["runs", "export", "last", "--format", "json"], ["runs", "report", "last", "-o", "report.html"],
        ["runs", "list", "--tag", "good", "--where", "lr=0.1"], ["runs", "list", "--where", "lr"],
        ["runs", "tag", "last", "good"], ["runs", "tag", "last", "no-such", "--remove"],
        ["runs", "note", "last", "one", "line"], ["runs", "rename", "last", "Übung"], ["runs", "rename", "last", ""],
        ["runs", "delete", "last"], ["runs", "delete", "nobody", "--yes"],
    ],
    "notify": [["notify"], ["notify", "--help"], ["notify", "no-such-program"], ["notify", "https://ntfy.sh/x"],
               ["notify", "--test", "/bin/false"]],
    "mcp": [["mcp"], ["mcp", "--help"], ["mcp", "--dir", "nowhere"]],
    "hang": [["hang"], ["hang", "--help"], ["hang", "--json"], ["hang", "nobody"], ["hang", "--dir", "nowhere"]],
    "wait": [["wait"], ["wait", "--help"], ["wait", "--gpus", "0", "--", "true"],
             ["wait", "--memory", "x", "--", "true"], ["wait", "--dir", "nowhere", "--", "true"]],
    "run": [["run", "--", "true"], ["run", "--", "no-such-command"], ["run"]],
    "tui": [["tui"], ["tui", "--readonly"], ["tui", "--help"]],
    "top": [["top", "-n", "1"], ["top", "-n", "2", "--interval", "0.05"], ["top", "--help"], ["top", "-n", "0"]],
    "web": [["web", "--interval", "0"], ["web", "--help"], ["web", "--alias", "ada"], ["web", "--names", "none"]],
    "daemon": [["daemon", "--help"], ["daemon", "--interval", "0"], ["daemon", "status"],
               ["daemon", "status", "--dir", "nowhere"], ["daemon", "stop", "--dir", "nowhere"],
               ["daemon", "stop", "--help"], ["daemon", "--detach", "restart"]],
    "history": [["history"], ["history", "--help"], ["history", "export", "--format", "csv", "--last", "1h"],
                ["history", "totals"], ["history", "totals", "--json"], ["history", "totals", "--help"],
                ["history", "accounts"], ["history", "accounts", "--by", "day", "--json"],
                ["history", "accounts", "--csv"], ["history", "accounts", "--since", "never"],
                ["history", "caps"], ["history", "caps", "--json"],
                ["history", "events"], ["history", "events", "--json"], ["history", "events", "--kind", "run_began"],
                ["history", "events", "--kind", "miracle"],
                ["history", "processes"], ["history", "processes", "--json"], ["history", "processes", "--csv"],
                ["history", "processes", "--gpu", "7"]],
    "export": [["export", "--once"], ["export", "--help"], ["export", "--once", "--dir", "nowhere"],
               ["export", "--dialect", "klingon"], ["export", "--once", "--dialect", "dcgm", "--users", "off"],
               ["export", "--once", "--textfile", "gpumon.prom"], ["export", "--listen", "9401"],
               ["export", "--tls-cert", "nowhere.pem", "--tls-key", "nowhere.pem"],
               ["export", "--socket-group", "video"]],
    "doctor": [["doctor"], ["doctor", "--json"], ["doctor", "--help"], ["doctor", "--dir", "nowhere"]],
    "service": [["service"], ["service", "--help"], ["service", "status"], ["service", "install", "--print"],
                ["service", "uninstall", "--print"], ["service", "begin"]],
    "completion": [["completion"], ["completion", "--help"], ["completion", "zsh"], ["completion", "tcsh"]],
    "record": [["record"], ["record", "--help"], ["record", "-o", "a", "--force", "--last", "1m"]],
    "": [[], ["--help"], ["--version"], ["statsu"]],
}  # fmt: skip
ALL = [words for group in WORDS.values() for words in group]


@pytest.fixture(scope="module")
def env(driver_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a machine with two GPUs, where a run was recorded and a daemon runs."""
    live_dir = tmp_path_factory.mktemp("live")
    live_dir.chmod(0o700)
    with Stub(driver_library) as stub:
        env = environment(live_dir, stub.env())
        with daemon("--interval", "0.1", env=env):
            subprocess.run([sys.executable, "-c", TRAINING], env=env, check=True)
            until(lambda: "finished" in gpumon("runs", env=env).stdout)
            yield env


def through_shell(words: list[str], env: Mapping[str, str], redirected: str, cwd: Path) -> tuple[int, str]:
    """Exit code, and what is on the output that is not `redirected`, both read to their ends."""
    script = f'"$@" {redirected}'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *command(*words)], env={**env, "PYTHONPATH": os.getcwd()}, capture_output=True,
        text=True, errors="replace", cwd=cwd, timeout=PATIENCE, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def is_orderly(words: list[str], code: int, said: str) -> None:
    assert "Traceback" not in said, (words, said)
    assert "Exception ignored" not in said, (words, said)
    assert "internal error" not in said, (words, said)
    assert code in (0, 1, 2, 3, 127), (words, code, said)  # 127: the command that `run` did not find


def test_the_words_are_of_every_command() -> None:
    assert set(WORDS) - {""} == set(COMMANDS)


# Python and what all commands import are loaded once for each way to begin, then every command is a fork of that.
# Descriptors that are closed stay so: nothing is open while a command begins.
BATCH = """
import json, os, runpy, sys
from importlib import import_module
from gpumon.cli import COMMANDS, options
for name in COMMANDS:
    import_module(f"gpumon.cli.{name}")
kept, free, commands = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
for number, words in enumerate(commands):
    pid = os.fork()
    if pid == 0:
        break
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with open(f"{kept}/{number}.code", "w") as file:
        print(code, file=file)
else:
    os._exit(0)
for descriptor in free:
    file = os.open(f"{kept}/{number}.{descriptor}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, descriptor)
    os.close(file)
sys.argv[:] = ["gpumon", *words]
runpy.run_module("gpumon", run_name="__main__", alter_sys=True)
"""


def all_are_orderly(
    env: Mapping[str, str], directory: Path, commands: list[list[str]], redirected: str = "", encoding: str = "utf-8"
) -> None:
    """Run commands with outputs `redirected`; what they say on those that are not is of `encoding`."""
    kept = directory / "said"
    kept.mkdir()
    free = [fd for fd, words in ((1, (">&-", ">/dev/full")), (2, ("2>&-", "2>/dev/full"))) if not
            any(word in redirected.split() for word in words)]  # fmt: skip
    line = [sys.executable, "-c", BATCH, str(kept), json.dumps(free), json.dumps(commands)]
    subprocess.run(
        ["sh", "-c", f'"$@" {redirected}', "sh", *line], env={**env, "PYTHONPATH": os.getcwd()}, cwd=directory,
        timeout=2 * PATIENCE, check=True,
    )  # fmt: skip
    for number, words in enumerate(commands):
        said = "".join((kept / f"{number}.{fd}").read_bytes().decode(encoding) for fd in free)
        is_orderly(words, int((kept / f"{number}.code").read_text()), said)


def part(number: int, parts: int) -> list[list[str]]:
    """One of so many parts of the commands: each meets some ways, and each way commands of every group."""
    return ALL[number % parts :: parts]


def others(number: int, parts: int) -> list[list[str]]:
    """All commands beside such a part."""
    return [words for one in range(parts) if one != number % parts for words in part(one, parts)]


WAYS = (">/dev/full", ">&-", "2>/dev/full", "2>&-", "<&- >&- 2>&-")


@pytest.mark.parametrize("redirected", WAYS)
def test_no_command_fails_by_an_output_that_takes_nothing(env: dict[str, str], redirected: str, tmp_path: Path) -> None:
    all_are_orderly(env, tmp_path, part(WAYS.index(redirected), 4), redirected)


@pytest.mark.slow
@pytest.mark.parametrize("redirected", WAYS)
def test_nor_does_any_other(env: dict[str, str], redirected: str, tmp_path: Path) -> None:
    all_are_orderly(env, tmp_path, others(WAYS.index(redirected), 4), redirected)


ENCODINGS: dict[str, dict[str, str]] = {
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "posix": {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_no_command_fails_by_an_encoding(env: dict[str, str], name: str, tmp_path: Path) -> None:
    all_are_orderly({**env, **ENCODINGS[name]}, tmp_path, part([*ENCODINGS].index(name), 3), encoding="latin-1")


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCODINGS)
def test_nor_does_any_other_by_an_encoding(env: dict[str, str], name: str, tmp_path: Path) -> None:
    all_are_orderly({**env, **ENCODINGS[name]}, tmp_path, others([*ENCODINGS].index(name), 3), encoding="latin-1")


def test_what_an_encoding_lacks_is_written_in_plainer_characters(env: dict[str, str]) -> None:
    plain = gpumon("status", env={**env, "PYTHONIOENCODING": "ascii"}).stdout
    assert "  -  driver" in plain.splitlines()[0]
    assert re.search(r"  [#-]{10} ", plain)
    assert "Ubung" in gpumon("runs", env={**env, "PYTHONIOENCODING": "ascii"}).stdout
    told = gpumon("run", "--", "true", env={**env, "PYTHONIOENCODING": "ascii"}).stderr
    assert re.search(r"GPU time +-  ", told)


@pytest.mark.parametrize(
    ("words", "redirected"),
    crossed([
        ["status"], ["status", "--json"], ["runs"], ["runs", "export", "last", "--format", "csv"],
        ["runs", "--help"], ["daemon", "--help"],
    ], [">/dev/full", ">&-"]),
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)  # fmt: skip
def test_an_output_that_is_lost_is_one_line_and_exit_code_1(
    env: dict[str, str], words: list[str], redirected: str, tmp_path: Path
) -> None:
    code, said = through_shell(words, env, redirected, tmp_path)
    assert code == 1
    assert re.fullmatch(r"gpumon: cannot write the output: .*\n", said)


@pytest.mark.parametrize("redirected", ["2>&-", "2>/dev/full", ">&-", "<&- >&- 2>&-"])
def test_the_exit_code_of_a_command_does_not_depend_on_our_outputs(
    env: dict[str, str], redirected: str, tmp_path: Path
) -> None:
    assert through_shell(["run", "--", "sh", "-c", "exit 7"], env, redirected, tmp_path)[0] == 7


@pytest.mark.parametrize("words", [["daemon", "--interval", "0.1"], ["web", "--socket", "web", "--source", "sim:one"]])
@pytest.mark.parametrize("redirected", [">/dev/full", ">&-"])
def test_a_command_that_goes_on_for_hours_does_so_with_an_output_that_takes_nothing(
    env: dict[str, str], words: list[str], redirected: str, tmp_path: Path
) -> None:
    own = {
        **env, "GPUMON_DIR": str(tmp_path / "live"), "GPUMON_STATE_DIR": str(tmp_path / "state"),
        "PYTHONPATH": os.getcwd(),
    }  # fmt: skip
    (tmp_path / "live").mkdir(mode=0o700)
    line = ["sh", "-c", f'exec "$@" {redirected}', "sh", *command(*words)]
    with Child(line, env=own, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            until(lambda: _began(words[0], tmp_path) or process.poll() is not None)
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0, process.stderr.read() if process.stderr else ""


def _began(name: str, directory: Path) -> bool:
    if name == "daemon":
        return (directory / "live" / "ring").exists()
    with socket.socket(socket.AF_UNIX) as asking, suppress(OSError):
        asking.connect(str(directory / "web"))
        asking.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return bool(asking.recv(1))
    return False


CRASHING = """
import os, sys
import gpumon.reports.status_text
def lines(*of, **more):
    secret = "pass" + str(6 * 7)
    raise ZeroDivisionError("in a view")
gpumon.reports.status_text.lines = lines
from gpumon.cli import main
sys.exit(main(["status", "--source", "sim:one"]))
"""


def test_a_fault_of_our_own_is_one_line_and_a_file_that_others_cannot_read(env: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", CRASHING], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    path = Path(env["GPUMON_STATE_DIR"]) / "crash.txt"
    assert done.stderr == (f"gpumon: internal error (ZeroDivisionError); please report it with the details in {path}\n")
    assert path.stat().st_mode & 0o777 == 0o600
    details = path.read_text()
    assert "ZeroDivisionError: in a view" in details
    assert "pass42" not in details, "no values of variables, which may be other people's"


def test_a_crash_whose_details_cannot_be_kept_says_where_it_was(env: dict[str, str]) -> None:
    own = {**env, "GPUMON_STATE_DIR": "/proc/nowhere"}
    done = subprocess.run([sys.executable, "-c", CRASHING], env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.fullmatch(
        r"gpumon: internal error \(ZeroDivisionError at <string>:6\); its details could not be saved: .*\n", done.stderr
    )


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("source = true", "source must be a string, not true"), ("interval = true", "interval must be a number, "
                                                                                    "not true"),
        ('interval = "fast"', "interval must be a number, not 'fast'"), ("dir = 3", "dir must be a string, not 3"),
        ("speed = [1]", "speed must be a number, not [1]"), ("interval = nan", "interval must be a number, not nan"),
        ("speed = -1", "invalid speed -1"), ("interval = 0", "invalid interval 0 s"),
        (r'dir = "/tmp/\u0000x"', "a NUL character"),
    ],
)  # fmt: skip
def test_a_setting_of_the_wrong_kind_is_one_line_that_names_the_file(
    env: dict[str, str], tmp_path: Path, settings: str, told: str
) -> None:
    (tmp_path / "gpumon").mkdir()
    (tmp_path / "gpumon" / "config.toml").write_text(settings + "\n")
    own = {name: value for name, value in env.items() if name != "GPUMON_DIR"} | {"XDG_CONFIG_HOME": str(tmp_path)}
    done = in_process("status", *([] if "source" in settings else ["--source", "sim:one"]), env=own)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert told in done.stderr
    assert "config.toml" in done.stderr


def put_unreadable(path: Path, kind: str) -> None:
    """Put something at `path` that is no settings file."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(str(path))
    elif kind == "directory":
        path.mkdir()
    elif kind in LINKS:
        path.symlink_to(LINKS[kind])
    else:
        path.write_bytes(b"# " + (b"x" * 2**17 if kind == "too large" else b"\xff\xfe"))


LINKS = {"endless": "/dev/zero", "loop": "config.toml", "broken link": "nowhere"}


@pytest.mark.parametrize("kind", ["pipe", "socket", "directory", "too large", "not UTF-8", *LINKS])
def test_a_settings_file_that_cannot_be_read_is_one_line_and_not_waited_for(
    env: dict[str, str], tmp_path: Path, kind: str
) -> None:
    (tmp_path / "gpumon").mkdir()
    path = tmp_path / "gpumon" / "config.toml"
    put_unreadable(path, kind)
    done = in_process("status", env={**env, "XDG_CONFIG_HOME": str(tmp_path)})
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert done.stderr.startswith(f"gpumon: cannot read {path}: ")
    if kind == "pipe":
        assert gpumon("run", "--", "true", env={**env, "XDG_CONFIG_HOME": str(tmp_path)}).returncode == 0


@pytest.mark.parametrize("home", ["/dev/null", "/nowhere"])
def test_a_home_that_has_no_settings_is_no_fault(env: dict[str, str], home: str) -> None:
    assert "config" not in in_process("status", env={**env, "XDG_CONFIG_HOME": home}).stderr


def test_a_number_that_makes_no_sense_names_the_variable_or_the_option(env: dict[str, str]) -> None:
    done = in_process("status", env={**env, "GPUMON_INTERVAL": "x"})
    assert "GPUMON_INTERVAL: interval must be a number" in done.stderr
    for words in (["--source", "sim:one"], ["--source", "replay:/no"], []):
        done = in_process("status", "--speed", "-1", *words, env=env)
        assert done.returncode == 2
        assert "--speed: invalid speed -1" in done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["web", "--prometheus-config", "a.toml"], "--prometheus-config is for --prometheus"),
        (["top", "--prometheus-config", "a.toml"], "--prometheus-config is for --prometheus"),
        (["top", "--period", "day"], "--period is for --prometheus"),
        (["web", "--end-session", ""], "--end-session is empty"),
        (["web", "--alias", ""], "--alias is empty"),
        (["web", "--token-file", ""], "--token-file is empty"),
        (["top", "--prometheus", ""], "--prometheus is empty"),
        (["web", "--socket", "s", "--port", "0"], "--socket replaces --host and --port"),
        (["web", "--socket", "s", "--host", "127.0.0.1"], "--socket replaces --host and --port"),
        (["web", "--port", "0", "token", "list"], "'gpumon web token' takes only --dir and --state-dir"),
        (["status", "--source", "sim:one", "--speed", "10"], "--speed, --from and --to are for a recording"),
        (["runs", "--user", "ann", "show", "last"], "'gpumon runs show' has no --user"),
        (["runs", "--limit", "0", "compare", "a", "b"], "'gpumon runs compare' has no --limit"),
        (["runs", "--json", "tag", "last", "x"], "'gpumon runs tag' has no --json"),
        *(
            (words, "expected one argument")
            for words in (
                ["runs", "list", "--limit=--"], ["status", "--dir=--"], ["web", "--port=--"],
                ["run", "--name=--", "true"],
            )
        ),
    ],
)  # fmt: skip
def test_an_option_without_an_effect_or_a_value_is_refused(env: dict[str, str], words: list[str], why: str) -> None:
    done = in_process(*words, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_command_that_is_nearly_one_is_asked_back(env: dict[str, str]) -> None:
    assert "Did you mean 'status'?" in in_process("statsu", env=env).stderr
    done = in_process("xyzzy", env=env)
    assert done.returncode == 2
    assert "Did you mean" not in done.stderr
    assert f"Commands: {', '.join(COMMANDS)}" in done.stderr


def test_a_token_file_that_is_a_directory_is_one_line(env: dict[str, str], tmp_path: Path) -> None:
    done = gpumon("web", "--port", 0, "--token-file", tmp_path, env=env)
    assert done.returncode in (1, 2)
    assert (len(done.stderr.splitlines()), "Traceback" in done.stderr) == (1, False)
    assert str(tmp_path) in done.stderr


def test_json_is_the_same_whatever_the_encoding(env: dict[str, str]) -> None:
    found = json.loads(gpumon("runs", "--json", env={**env, "PYTHONIOENCODING": "ascii"}).stdout)
    assert "Übung" in [run["name"] for run in found["runs"]]


@pytest.mark.parametrize(
    "words",
    [["runs", "show"], ["runs", "list", "--name"], ["runs", "list", "--tag"], ["history", "events", "--user"]],
    ids=" ".join,
)
def test_an_argument_that_is_not_utf_8_is_named_and_no_file_is_blamed(env: dict[str, str], words: list[str]) -> None:
    done = in_process(*words, "\udcff", env=env)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "udcff" in line
    assert ".sqlite" not in line


def test_a_limit_beyond_the_integers_of_sqlite_lists_all_runs(env: dict[str, str]) -> None:
    listed = [
        json.loads(in_process("runs", "--json", "--limit", limit, env=env).stdout) for limit in (0, 1 << 63, 1 << 90)
    ]
    assert listed[0]["runs"]
    assert [len(each["runs"]) for each in listed] == [len(listed[0]["runs"])] * 3


# Sends SIGINT to itself at the n-th line of gpumon that it runs. Each n is a fork of its own.
INTERRUPTED = """
import os, re, signal, sys
root, lines, *sys.argv[1:] = sys.argv[1:]
for left in eval(lines):
    pid = os.fork()
    if pid == 0:
        break
    _, status = os.waitpid(pid, 0)
    print(left, os.waitstatus_to_exitcode(status))
else:
    os._exit(0)
def trace(frame, event, argument):
    global left
    if not frame.f_code.co_filename.startswith(root):
        return None
    left -= event == "line"
    if left == 0:
        os.kill(os.getpid(), signal.SIGINT)
    return trace
sys.stdout.flush()
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
import gpumon
sys.settrace(trace)
from gpumon.__main__ import entry
sys.exit(entry())
"""


@pytest.mark.parametrize("lines", [range(3, 40), range(40, 3000, 99)], ids=["at its start", "later"])
def test_ctrl_c_ends_a_command_silently_at_any_line(env: dict[str, str], lines: range) -> None:
    root = str(Path(cli.__file__).parents[2])
    words = [sys.executable, "-c", INTERRUPTED, f"{root}/gpumon", repr(lines), "status", "--source", "sim:one"]
    done = subprocess.run(words, env=env, cwd=root, capture_output=True, text=True, check=True)
    ends = dict(tuple(map(int, line.split())) for line in done.stdout.splitlines())
    assert (list(ends), set(ends.values()) <= {-signal.SIGINT, 130}) == ([*lines], True), ends
    assert done.stderr == ""
