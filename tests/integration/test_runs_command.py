"""`gpumon runs` as people call it."""

from __future__ import annotations

import csv
import errno
import io
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpumon.model import units
from gpumon.model.frame import RunState
from gpumon.storage.sqlite.read import NO_LOCKS
from tests.programs import environment, gpumon, in_process
from tests.runs import BEGAN, HOSTILE, Book, training


@pytest.fixture
def env(live_dir: Path) -> dict[str, str]:
    return {name: value for name, value in environment(live_dir).items() if name != "COLUMNS"}


@pytest.fixture
def book(env: dict[str, str]) -> Book:
    return Book(Path(env["GPUMON_STATE_DIR"]))


@pytest.fixture
def filled(book: Book) -> Book:
    now = time.time()
    training(book, "resnet50-1a2b", 6, began=now - 7200)
    training(book, "resnet50-77aa", 6, began=now - 3600, seconds=13, seed=2)
    seen = round((now + 3600) * 1e9)  # a slow test does not outlive it
    training(book, "vit-0001", 4, gpus=2, began=now - 60, user="bob", state=RunState.RUNNING, updated=seen)
    return book


def test_before_anything_is_recorded_it_says_how_to_begin(env: dict[str, str]) -> None:
    listed = in_process("runs", env=env)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "gpumon daemon" in listed.stdout
    assert json.loads(in_process("runs", "--json", env=env).stdout) == {"schema": 1, "runs": []}
    shown = in_process("runs", "show", "x", env=env)
    assert (shown.returncode, shown.stdout) == (1, "")
    assert "no runs recorded yet" in shown.stderr


def test_an_empty_ledger_says_the_same(env: dict[str, str], book: Book) -> None:
    assert "no runs recorded yet" in in_process("runs", env=env).stdout
    assert "no runs recorded yet" in in_process("runs", "show", "last", env=env).stderr


def test_the_list_has_a_line_for_each_run_newest_first(env: dict[str, str], filled: Book) -> None:
    for arguments in (("runs",), ("runs", "list")):
        lines = in_process(*arguments, env=env).stdout.splitlines()
        assert [line.split()[0] for line in lines] == ["RUN", "vit-0001", "resnet50-77aa", "resnet50-1a2b"]
    assert "2 h ago" in lines[3]
    assert "6/6" in lines[3]
    assert "running" in lines[1]


def test_the_list_can_be_narrowed_before_and_behind_the_subcommand(env: dict[str, str], filled: Book) -> None:
    for arguments in (("runs", "--user", "bob"), ("runs", "list", "--user", "bob"), ("runs", "--user", "bob", "list")):
        assert [line.split()[0] for line in in_process(*arguments, env=env).stdout.splitlines()] == ["RUN", "vit-0001"]
    limited = in_process("runs", "--limit", 1, env=env).stdout.splitlines()
    assert len(limited) == 3
    assert "--limit 0 lists all" in limited[2]
    assert "no matching runs" in in_process("runs", "--user", "nobody", env=env).stdout
    assert in_process("runs", "--limit", -1, env=env).returncode == 2
    found = json.loads(in_process("runs", "list", "--running", "--json", env=env).stdout)
    assert [run["id"] for run in found["runs"]] == ["vit-0001"]


def test_the_list_has_the_costs_of_each_run_only_where_there_are_prices(
    env: dict[str, str], filled: Book, tmp_path: Path
) -> None:
    assert "COST" not in in_process("runs", env=env).stdout
    assert "cost" not in json.loads(in_process("runs", "--json", env=env).stdout)["runs"][0]
    (tmp_path / "gpumon").mkdir()
    (tmp_path / "gpumon" / "config.toml").write_text('[cost]\ncurrency = "EUR"\ngpu-hour = 3.0\nkwh = 0.5\n')
    priced = {**env, "XDG_CONFIG_HOME": str(tmp_path)}
    heading, *rows = in_process("runs", env=priced).stdout.splitlines()
    assert [name in heading for name in ("  COST", "IDLE COST", "POWER COST", "CO2")] == [True, True, True, False]
    (ended,) = [row for row in rows if row.startswith("resnet50-1a2b")]
    shown = json.loads(in_process("runs", "show", "resnet50-1a2b", "--json", env=priced).stdout)["total"]["cost"]
    for column, name in (("  COST", "held"), ("IDLE COST", "idle_held"), ("POWER COST", "energy")):
        end = heading.index(column) + len(column)
        assert ended[:end].endswith(f"{units.money(shown[name]['value'], 'EUR')}")
    narrow = in_process("runs", env={**priced, "COLUMNS": "80"}).stdout.splitlines()[0]
    assert ("  COST" in narrow, "IDLE COST" in narrow) == (True, False), "the cost goes last"
    listed = json.loads(in_process("runs", "list", "--json", env=priced).stdout)["runs"]
    assert next(one for one in listed if one["id"] == "resnet50-1a2b")["cost"] == shown


def test_the_state_directory_can_be_named(env: dict[str, str], filled: Book, tmp_path: Path) -> None:
    elsewhere = {**env, "GPUMON_STATE_DIR": str(tmp_path / "other")}
    assert "resnet50" not in in_process("runs", env=elsewhere).stdout
    for arguments in (("--state-dir", filled.path.parent), ("list", "--state-dir", filled.path.parent)):
        assert "resnet50-1a2b" in in_process("runs", *arguments, env=elsewhere).stdout


def test_a_run_is_shown_by_a_prefix_and_fits_the_terminal(env: dict[str, str], filled: Book) -> None:
    done = in_process("runs", "show", "resnet50-1", "--phases", env={**env, "COLUMNS": "80"})
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "resnet50  ·  run resnet50-1a2b"
    assert max(len(line) for line in lines) <= 80
    assert sum("validate" in line for line in lines) == 6
    assert "2 of 2 ranks" in in_process("runs", "show", "last", "--ranks", env=env).stdout
    found = json.loads(in_process("runs", "show", "vit", "--json", env=env).stdout)
    assert [len(epoch["phases"]) for epoch in found["epochs"]] == [2] * 4
    assert found["run"]["watched"] is True


def test_an_ambiguous_or_unknown_run_lists_candidates_on_one_line(env: dict[str, str], filled: Book) -> None:
    for wanted in ("resnet5", "res", "bert"):
        done = in_process("runs", "show", wanted, env=env)
        assert done.returncode == 1
        assert "resnet50-77aa (resnet50, " in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_run_whose_epochs_nobody_saw_is_named_without_a_number_of_them(env: dict[str, str], filled: Book) -> None:
    filled.rank(filled.run("late-1", name="late", epochs=40), steps=2016)
    assert "(late, " in (told := in_process("runs", "show", "bert", env=env).stderr)
    assert "no epoch seen" in told
    listed = json.loads(in_process("runs", "--json", env=env).stdout)["runs"]
    assert {run["id"]: run["epochs_done"] for run in listed}["late-1"] is None


def test_runs_are_compared(env: dict[str, str], filled: Book) -> None:
    done = in_process("runs", "compare", "resnet50-1", "resnet50-7", "vit", env=env)
    assert done.returncode == 0
    assert "\nTime " in done.stdout
    assert "Caution: different numbers of GPUs: A 1, B 1, C 2" in done.stdout
    found = json.loads(in_process("runs", "compare", "resnet50-1", "resnet50-7", "--json", env=env).stdout)
    assert found["measures"][0]["name"] == "seconds"
    assert found["measures"][0]["differences"][0]["clear"] is True
    assert in_process("runs", "compare", "resnet50-1", env=env).returncode == 2


def test_a_report_is_a_page(env: dict[str, str], filled: Book, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("something older")
    done = in_process("runs", "report", "resnet50-1", "-o", target, env=env)
    assert (done.returncode, done.stdout) == (0, f"wrote {target}\n")
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert in_process("runs", "report", "resnet50-1", env=env).returncode == 2
    refused = in_process("runs", "report", "resnet50-1", "-o", tmp_path / "no" / "x.html", env=env)
    assert refused.returncode == 1
    assert "cannot write" in refused.stderr


def test_a_run_is_exported(env: dict[str, str], filled: Book, tmp_path: Path) -> None:
    done = gpumon("runs", "export", "resnet50-1", "--format", "csv", env=env)
    assert len(list(csv.DictReader(io.StringIO(done.stdout)))) == 6 * 3 + 1
    gpumon("runs", "export", "resnet50-1", "--format", "csv", "-o", tmp_path / "x.csv", env=env)
    assert (tmp_path / "x.csv").read_text(encoding="utf-8") == done.stdout
    found = json.loads(gpumon("runs", "export", "resnet50-1", "--format", "json", env=env).stdout)
    assert {"run", "total", "epochs", "ranks", "marks", "devices", "rank_epochs", "usage", "traces"} <= found.keys()
    refused = gpumon("runs", "export", "resnet50-1", "--format", "parquet", env=env)
    assert refused.returncode == 2
    assert "-o FILE" in refused.stderr
    assert gpumon("runs", "export", "resnet50-1", env=env).returncode == 2


def test_no_stranger_moves_the_cursor(env: dict[str, str], book: Book) -> None:
    training(book, "x-1", 2, name=HOSTILE, user=HOSTILE, hostname=HOSTILE, framework=HOSTILE)
    for arguments in (("runs",), ("runs", "show", "x-1"), ("runs", "compare", "x-1", "x-1"), ("runs", "show", "q")):
        done = in_process(*arguments, env=env)
        assert "\x1b" not in done.stdout + done.stderr


def test_a_ledger_that_is_none_is_one_line(env: dict[str, str]) -> None:
    path = Path(env["GPUMON_STATE_DIR"]) / "ledger.sqlite"
    path.parent.mkdir()
    path.write_bytes(b"something else, and long enough " * 100)
    done = in_process("runs", env=env)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is damaged" in done.stderr
    assert len(done.stderr.splitlines()) == 1


WITHOUT_LOCKS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
static int refuse(const char *name, int fd, int command, void *argument) {
    if (command == F_SETLK || command == F_SETLKW || command == F_GETLK) { errno = atoi(getenv("REFUSED")); return -1; }
    return ((int (*)(int, int, ...)) dlsym(RTLD_NEXT, name))(fd, command, argument);
}
#define WRAP(name) int name(int fd, int command, ...) { \\
    va_list list; va_start(list, command); void *argument = va_arg(list, void *); va_end(list); \\
    return refuse(#name, fd, command, argument); }
WRAP(fcntl)
WRAP(fcntl64)
"""


@pytest.fixture(scope="module")
def without_locks(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library that lets each request for a lock fail with the error number of the variable REFUSED."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    source = tmp_path_factory.mktemp("nolock") / "nolock.c"
    source.write_text(WITHOUT_LOCKS)
    library = str(source.with_suffix(".so"))
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, str(source), "-ldl"], check=True)
    return library


@pytest.mark.parametrize(
    ("refused", "words"), [(errno.ENOLCK, NO_LOCKS), (errno.EOPNOTSUPP, NO_LOCKS), (errno.EIO, "Input/output error")]
)
def test_a_file_system_without_locks_is_not_told_as_the_lock_of_another_program(
    env: dict[str, str], filled: Book, without_locks: str, refused: int, words: str
) -> None:
    for command in (["runs"], ["runs", "rename", "last", "other"]):
        done = gpumon(*command, env={**env, "LD_PRELOAD": without_locks, "REFUSED": str(refused)})
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert words in line
        assert str(filled.path) in line


def test_listing_and_showing_load_nothing_heavy(env: dict[str, str], filled: Book) -> None:
    code = (
        "import sys; from gpumon.cli import main; main(['runs']); main(['runs', 'show', 'last']);"
        "print(*sorted(name.partition('.')[0] for name in sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    heavy = {"numpy", "textual", "dash", "plotly", "torch", "asyncio", "psutil", "pynvml", "rich", "pyarrow"}
    assert set(done.stderr.split()) & heavy == set()


def test_a_state_directory_that_is_none_is_not_a_ledger_without_runs(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = in_process("runs", env={**env, "GPUMON_STATE_DIR": str(tmp_path / "file" / "state")})
    assert done.returncode == 1
    assert "not a directory" in done.stderr
    assert "no runs recorded yet" not in done.stdout + done.stderr


def test_the_newest_of_a_name_is_meant_and_said_on_stderr(env: dict[str, str], filled: Book) -> None:
    training(filled, "twice-1", 2, began=BEGAN, name="twice")
    training(filled, "twice-2", 2, began=BEGAN + 50, name="twice")
    done = in_process("runs", "show", "twice", "--tail", "1", env=env)
    assert done.returncode == 0
    assert "run twice-2" in done.stdout
    assert "the last 1 of 2 epochs" in done.stdout
    assert done.stderr == "2 runs are named 'twice'; this is the newest, twice-2\n"
    assert in_process("runs", "show", "twice", "--tail", "0", env=env).returncode == 2
