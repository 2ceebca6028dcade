"""`/proc/<pid>/stat` is read at one place, whatever name a process gave itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpumon.common.procfs import cpu_time, is_alive, parse_stat, read_stat, start_time
from tests.programs import Child, until

FIELDS = "4711 ({}) S 17 4711 4711 0 -1 4194304 0 0 0 0 300 20 0 0 20 0 1 0 8800 1000000 512 0"
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["python", "a b", "tmux: server", "x) R 1 (", "))((", "", "\xff"])
def test_a_name_may_hold_anything(name: str) -> None:
    stat = parse_stat(FIELDS.format(name).encode("latin-1"))
    assert stat is not None
    assert stat == (name.encode("latin-1"), "S", 17, 320, 8800, 512)


@pytest.mark.parametrize("raw", [b"", b"4711", b"4711 (python) S 17", b"4711 (python) " + b"x " * 50, b")" * 5])
def test_what_is_no_stat_is_nothing(raw: bytes) -> None:
    assert parse_stat(raw) is None


def test_a_process_knows_itself() -> None:
    own = read_stat()
    assert own is not None
    assert (own.parent, own.started) == (os.getppid(), start_time(os.getpid()))
    assert is_alive(os.getpid(), own.started)
    assert not is_alive(os.getpid(), own.started + 1), "another process that had this pid"


def test_the_time_for_which_a_process_has_run_stands_still_while_it_sleeps() -> None:
    before = cpu_time(os.getpid())
    assert 0 < before < cpu_time(os.getpid())
    with Child(["sleep", "600"]) as sleeping:
        try:
            asleep = until(lambda: cpu_time(sleeping.pid) if is_at_rest(sleeping.pid) else 0)
            assert cpu_time(sleeping.pid) == asleep
        finally:
            sleeping.kill()
    assert cpu_time(sleeping.pid) == -1
    assert cpu_time(2**32 - 1) == -1, "whatever a driver calls a pid"


def is_at_rest(pid: int) -> bool:
    """Whether it is `sleep`, and sleeps: before that it is still a copy of this process that starts it."""
    found = read_stat(pid)
    return found is not None and (found.name, found.state) == (b"sleep", "S")


def test_a_process_that_is_not_there_has_no_start(tmp_path: Path) -> None:
    assert (read_stat(1, str(tmp_path)), start_time(1, str(tmp_path))) == (None, 0)


def test_nobody_else_takes_a_stat_apart() -> None:
    parsers = [path for path in (ROOT / "gpumon").rglob("*.py") if 'b")")' in path.read_text(encoding="utf-8")]
    assert [path.name for path in parsers] == ["procfs.py"]
