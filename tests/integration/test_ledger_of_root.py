"""The ledger of a daemon for the whole machine, opened by another user, who reads it and is told who may change it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpumon.storage.ledger.schema import LEDGER_FILE
from gpumon.storage.sqlite.write import open_to_write
from tests.conftest import ROOT
from tests.runs import Book, training

NOBODY = 65534
Other = Callable[..., "subprocess.CompletedProcess[str]"]


def of_nobody(words: list[str], state: Path) -> subprocess.CompletedProcess[str]:
    env = {
        "PATH": os.defpath, "HOME": "/nonexistent", "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1",
        "GPUMON_STATE_DIR": str(state),
    }  # fmt: skip
    return subprocess.run(
        words, env=env, cwd="/", user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def interpreter() -> str:
    """A Python that another user can run, with the package."""
    if os.getuid() != 0:
        pytest.skip("only root can become another user")
    ask = "import sys, gpumon.storage.ledger.api; assert sys.version_info >= (3, 11)"
    for found in (sys.executable, "/usr/bin/python3"):
        try:
            if of_nobody([found, "-c", ask], Path("/")).returncode == 0:
                return found
        except OSError:
            continue
    pytest.skip("no Python here can be run by another user: they lie in a directory of root's")


@pytest.fixture
def state() -> Iterator[Path]:
    """A directory that others can reach, unlike those of the tests of root."""
    made = Path(tempfile.mkdtemp(prefix="gpumon-test-"))
    made.chmod(0o755)
    yield made / "state"
    shutil.rmtree(made)


@pytest.fixture
def other(interpreter: str, state: Path) -> Other:
    """Runs a command of gpumon, or with `code` a program, as another user."""

    def run(*arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
        words = ["-c", code] if code else ["-m", "gpumon", *arguments]
        return of_nobody([interpreter, *words], state)

    return run


def fill(state: Path, source: Path) -> None:
    """Put a run of root's into the ledger of a daemon for all."""
    with Book(source) as book:
        training(book, "net-1", user="root")
    path = str(state / "ledger.sqlite")
    with closing(open_to_write(path, LEDGER_FILE, shared=True, uid=0, log=print)) as db:
        db.execute("ATTACH DATABASE ? AS made", (str(book.path),))
        for (table,) in db.execute("SELECT name FROM made.sqlite_master WHERE type = 'table'").fetchall():
            db.execute(f"INSERT OR IGNORE INTO main.{table} SELECT * FROM made.{table}")
        db.execute("DETACH DATABASE made")


@pytest.mark.parametrize("is_written", [True, False], ids=["beside its daemon", "without its daemon"])
def test_another_user_reads_the_ledger_of_the_machine_and_is_told_who_can_change_it(
    other: Other, state: Path, tmp_path: Path, is_written: bool
) -> None:
    fill(state, tmp_path)
    daemon = open_to_write(str(state / "ledger.sqlite"), LEDGER_FILE, shared=True, uid=0, log=print)
    daemon.execute("UPDATE run SET name = 'written'")
    if not is_written:
        daemon.close()
    try:
        listed = other("runs")
        assert (listed.returncode, "net-1" in listed.stdout, listed.stderr) == (0, True, ""), listed.stderr
        assert other("runs", "show", "net-1").stdout.startswith("written")
        found = other(code="import gpumon; print([run.name for run in gpumon.ledger().runs()])")
        assert found.stdout == "['written']\n", found.stderr
        for action, last in (("rename", "x"), ("note", "x"), ("tag", "x"), ("delete", "--yes")):
            done = other("runs", action, "net-1", last)
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
            assert "it belongs to root, who runs its daemon. Only root can rename, annotate, tag" in done.stderr
        assert other("runs").stdout == listed.stdout
    finally:
        daemon.close()


def test_a_ledger_that_another_user_keeps_to_himself_is_not_said_to_be_empty(other: Other, state: Path) -> None:
    open_to_write(str(state / "ledger.sqlite"), LEDGER_FILE, shared=False, uid=0, log=print).close()
    for done in (other("runs"), other("runs", "show", "last"), other(code="import gpumon; gpumon.ledger()")):
        assert done.returncode == 1
        assert f"no permission to read {state}" in done.stderr.splitlines()[-1]
