"""One writer for a directory, and who may take over."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.common.errors import AlreadyRunning, GpumonError
from gpumon.ring.lock import SILENT_AFTER, WriterLock

HOLDER = """
import sys, time
from gpumon.ring.lock import WriterLock
lock = WriterLock(sys.argv[1])
print("held", flush=True)
time.sleep(3600)
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "lock")


@pytest.fixture
def holder(path: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_living_owner_keeps_it(path: str, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(AlreadyRunning, match=str(holder.pid)):
        WriterLock(path)


def test_a_dead_owner_loses_it(path: str, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    assert WriterLock(path).is_mine()


def test_an_owner_that_has_been_silent_for_long_is_replaced_and_sees_it(path: str) -> None:
    first = WriterLock(path)
    with pytest.raises(AlreadyRunning):
        WriterLock(path, lambda: SILENT_AFTER - 1)
    second = WriterLock(path, lambda: SILENT_AFTER + 1)
    assert second.is_mine()
    assert not first.is_mine()


@pytest.mark.parametrize("pid", [1, os.getpid()], ids=["the first", "our own"])
def test_a_lock_that_a_killed_newcomer_left_half_made_stops_nobody_and_goes(path: str, pid: int) -> None:
    Path(f"{path}.{pid}").touch()
    first = WriterLock(path)
    Path(f"{path}.{pid}").touch()
    assert WriterLock(path, lambda: SILENT_AFTER + 1).is_mine()
    assert not first.is_mine()
    assert os.listdir(os.path.dirname(path)) == ["lock"]


def test_others_cannot_open_the_lock(path: str) -> None:
    WriterLock(path)
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_a_link_in_its_place_is_not_followed(path: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("")
    os.symlink(tmp_path / "elsewhere", path)
    with pytest.raises(OSError, match="symbolic"):
        WriterLock(path)


def test_a_lock_that_says_nothing_of_its_owner_does_not_stop_anybody(path: str) -> None:
    Path(path).write_bytes(b"rubbish that is no pid")
    assert WriterLock(path).is_mine()


def test_it_can_be_taken_again_after_its_release(path: str) -> None:
    WriterLock(path).release()
    assert WriterLock(path).is_mine()


def test_a_file_system_without_locks_is_told_as_that(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("gpumon.ring.lock.fcntl.flock", flock)
    with pytest.raises(GpumonError, match=f"{path}.*No locks available"):
        WriterLock(path)
