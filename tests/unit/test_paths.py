"""Where files go, and which directories are refused."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from gpumon.cli.daemon_lookup import find_daemon, why_no_history, why_no_runs
from gpumon.cli.daemon_restart import restart
from gpumon.common.errors import GpumonError
from gpumon.common.paths import (
    Places,
    history_paths,
    is_missing,
    ledger_paths,
    live_dirs,
    make_live_dir,
    make_private_dir,
    make_tag_dir,
    places,
    ring_paths,
    tag_dir_for_client,
    tag_dirs,
    unreadable_rings,
    untrusted_rings,
    why_unread,
    without_daemon,
)
from gpumon.live import follow
from gpumon.storage.history.file import HistoryFile
from tests.strangers import as_nobody, foreign_directory

UID = os.getuid()
needs_root = pytest.mark.skipif(UID != 0, reason="only root can give a directory to somebody else")


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.fixture(autouse=True)
def a_usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def machine(tmp_path: Path) -> Places:
    """A machine of its own, with no daemon's directory yet."""
    for name in ("run/user", "shm", "state", "runtime"):
        (tmp_path / name).mkdir(parents=True)
    return Places(
        system=f"{tmp_path}/run/gpumon", runtime=f"{tmp_path}/runtime", shared_memory=f"{tmp_path}/shm",
        state=f"{tmp_path}/state/gpumon", user_runtime=f"{tmp_path}/run/user", uid=UID,
    )  # fmt: skip


def test_the_order_is_explicit_system_runtime_shared_memory_state(machine: Places) -> None:
    assert machine.candidates() == [
        machine.system, f"{machine.runtime}/gpumon", f"{machine.shared_memory}/gpumon-{UID}", f"{machine.state}/live",
    ]  # fmt: skip
    assert machine._replace(explicit="/x").candidates() == ["/x"]
    assert machine._replace(runtime="", state="").candidates() == [machine.system, machine.private]


def test_a_flag_wins_over_the_environment_and_the_environment_over_the_usual_place() -> None:
    env = {"GPUMON_DIR": "/e", "GPUMON_STATE_DIR": "/s", "XDG_RUNTIME_DIR": "/r", "HOME": "/h"}
    assert places("/f", "/g", env)[0] == "/f"
    assert places("/f", "/g", env).state == "/g"
    assert (places(env=env).explicit, places(env=env).state, places(env=env).runtime) == ("/e", "/s", "/r")
    assert places(env={"HOME": "/h"}).state == "/h/.local/state/gpumon"
    assert places(env={"HOME": "/h", "XDG_STATE_HOME": "/x"}).state == "/x/gpumon"
    assert places(env={}).state == places(env={}).explicit == ""


def test_a_ring_is_looked_for_in_order(machine: Places) -> None:
    assert ring_paths(machine) == []
    for directory in reversed(machine.candidates()):
        os.makedirs(directory)
        Path(directory, "ring").touch()
        assert ring_paths(machine)[0] == f"{directory}/ring"


def test_a_live_directory_is_made_for_its_user_alone(machine: Places) -> None:
    made = make_live_dir(machine._replace(explicit=f"{machine.shared_memory}/mine"))
    assert made == f"{machine.shared_memory}/mine"
    assert mode(made) == 0o700
    assert make_live_dir(machine._replace(explicit=made)) == made, "a second daemon finds it"


@needs_root
def test_the_machines_own_directory_can_be_read_by_all_whatever_the_umask(machine: Places) -> None:
    os.umask(0o077)
    assert make_live_dir(machine) == machine.system
    assert mode(machine.system) == 0o755


def test_a_user_without_rights_to_the_machines_directory_gets_his_own(
    machine: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkdir(machine.system, 0o755)
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, how: path != machine.system and allowed(path, how))
    assert make_live_dir(machine._replace(uid=UID + 1)) == f"{machine.runtime}/gpumon"
    assert os.listdir(machine.system) == []


def a_link(path: Path, target: Path) -> None:
    target.mkdir()
    path.symlink_to(target)


def a_file(path: Path, target: Path) -> None:
    path.touch()


def writable_by_the_group(path: Path, target: Path) -> None:
    path.mkdir()
    path.chmod(0o770)


def writable_by_all(path: Path, target: Path) -> None:
    path.mkdir()
    path.chmod(0o707)


def somebody_elses(path: Path, target: Path) -> None:
    path.mkdir(mode=0o700)
    os.chown(path, 4321, 4321)


PLANTED = [
    pytest.param(a_link, "is not a directory", id="link"),
    pytest.param(a_file, "is not a directory", id="file"),
    pytest.param(writable_by_the_group, "is writable by others", id="group"),
    pytest.param(writable_by_all, "is writable by others", id="all"),
    pytest.param(somebody_elses, "belongs to another user", id="foreign", marks=needs_root),
]


@pytest.mark.parametrize(("plant", "why"), PLANTED)
def test_a_planted_directory_is_refused_and_left_as_it_is(
    plant: Callable[[Path, Path], None], why: str, tmp_path: Path
) -> None:
    path = tmp_path / "live"
    plant(path, tmp_path / "target")
    before = os.lstat(path)
    with pytest.raises(OSError, match=why):
        make_private_dir(str(path), UID)
    after = os.lstat(path)
    assert (after.st_mode, after.st_uid, after.st_ino) == (before.st_mode, before.st_uid, before.st_ino)


@pytest.mark.parametrize(("plant", "why"), PLANTED)
def test_after_a_planted_directory_the_next_one_is_tried(
    plant: Callable[[Path, Path], None], why: str, machine: Places, tmp_path: Path
) -> None:
    os.mkdir(machine.system)
    os.chmod(machine.system, 0o777)  # refused, whoever runs the test
    plant(Path(machine.runtime, "gpumon"), tmp_path / "target")
    assert make_live_dir(machine) == machine.private


def test_when_all_are_refused_each_is_named_with_its_reason(machine: Places) -> None:
    where = machine._replace(explicit=f"{machine.shared_memory}/file")
    Path(where.explicit).touch()
    with pytest.raises(GpumonError, match=r"shm/file: is not a directory.*--dir"):
        make_live_dir(where)


def test_a_missing_parent_is_made_for_the_state_directory(machine: Places) -> None:
    where = machine._replace(explicit=f"{machine.state}/live")
    assert make_live_dir(where) == f"{machine.state}/live"
    assert mode(machine.state) == 0o700


def test_boards_of_the_whole_machine_can_be_added_by_all_and_listed_by_none(machine: Places) -> None:
    os.umask(0o077)
    os.mkdir(machine.system)
    tags = make_tag_dir(machine.system, everyone=True)
    assert mode(tags) == 0o1733
    assert make_tag_dir(machine.system, everyone=True) == tags, "a restart finds it"


def test_boards_of_one_user_are_his_alone(machine: Places) -> None:
    assert mode(make_tag_dir(f"{machine.shared_memory}", everyone=False)) == 0o700


def test_a_training_uses_the_machines_boards_when_there_is_a_daemon(machine: Places) -> None:
    os.mkdir(machine.system)
    tags = make_tag_dir(machine.system, everyone=True)
    assert tag_dir_for_client(machine) == tags


def test_a_training_without_a_daemon_makes_a_directory_that_one_will_find(machine: Places) -> None:
    tags = tag_dir_for_client(machine)
    assert tags == f"{machine.runtime}/gpumon/tags"
    assert (mode(tags), mode(f"{machine.runtime}/gpumon")) == (0o700, 0o700)
    assert not os.path.exists(machine.system)
    assert list(tag_dirs(machine)) == [tags]
    assert tag_dir_for_client(machine) == tags, "the next training finds it"


def test_a_training_without_a_runtime_directory_uses_shared_memory(machine: Places) -> None:
    for runtime in ("", f"{machine.runtime}/gone"):
        assert tag_dir_for_client(machine._replace(runtime=runtime)) == f"{machine.private}/tags"


def test_a_named_directory_is_the_only_one_for_boards(machine: Places) -> None:
    make_tag_dir_here = f"{machine.shared_memory}/here"
    where = machine._replace(explicit=make_tag_dir_here)
    assert tag_dir_for_client(where) == f"{make_tag_dir_here}/tags"
    assert list(tag_dirs(where)) == [f"{make_tag_dir_here}/tags"]


@pytest.mark.parametrize(("plant", "why"), PLANTED)
@pytest.mark.parametrize("below", ["", "tags"])
def test_a_training_puts_no_board_into_a_planted_directory_and_takes_the_next(
    plant: Callable[[Path, Path], None], why: str, below: str, machine: Places, tmp_path: Path
) -> None:
    planted = Path(machine.runtime, "gpumon", below)
    planted.parent.mkdir(mode=0o700, exist_ok=True)
    plant(planted, tmp_path / "target")
    assert tag_dir_for_client(machine) == f"{machine.private}/tags"
    assert not list(tmp_path.glob("target/*"))
    if not below:
        with pytest.raises(OSError, match=why):
            tag_dir_for_client(machine._replace(explicit=str(planted)))


def test_a_training_that_finds_no_directory_for_its_board_is_told_of_each(machine: Places) -> None:
    for planted in (f"{machine.runtime}/gpumon", machine.private):
        Path(planted).touch()
    with pytest.raises(OSError, match=r"runtime/gpumon: is not a directory; .*shm/gpumon-\d+: is not a directory"):
        tag_dir_for_client(machine._replace(state=""))


def owned(directory: str, uid: int) -> str:
    """A private directory of somebody, with all above it."""
    os.makedirs(directory, mode=0o700)
    os.chown(directory, uid, uid)
    return directory


@needs_root
def test_a_daemon_finds_the_boards_of_all_users(machine: Places) -> None:
    for top, below, uid in (
        (f"{machine.user_runtime}/1001", "/gpumon", 1001),
        (f"{machine.shared_memory}/gpumon-1002", "", 1002),
        (f"{machine.user_runtime}/alice", "/gpumon", 1001),
        (f"{machine.shared_memory}/gpumon-x", "", 1001),
    ):
        owned(top, uid)
        if below:
            owned(f"{top}{below}", uid)
        owned(f"{top}{below}/tags", uid)
    found = list(tag_dirs(machine))
    assert found == sorted([f"{machine.user_runtime}/1001/gpumon/tags", f"{machine.shared_memory}/gpumon-1002/tags"])


@needs_root
def test_a_daemon_looks_behind_no_link_and_into_no_directory_under_the_name_of_another(
    machine: Places, tmp_path: Path
) -> None:
    """What a link names may be a file system that never answers."""
    target = owned(f"{tmp_path}/target", 1001)
    owned(f"{target}/tags", 1001)
    owned(f"{machine.user_runtime}/1001", 1001)
    os.symlink(target, f"{machine.user_runtime}/1001/gpumon")
    os.symlink(target, f"{machine.shared_memory}/gpumon-1001")
    owned(owned(f"{machine.shared_memory}/gpumon-1003", 1001) + "/tags", 1001)
    os.symlink(f"{target}/tags", owned(f"{machine.shared_memory}/gpumon-1004", 1004) + "/tags")
    assert list(tag_dirs(machine)) == []


@needs_root
def test_a_ring_in_a_directory_of_another_user_is_not_believed_unless_it_is_named(machine: Places) -> None:
    mine = machine._replace(uid=1000, system="/nowhere", runtime="")
    os.chmod(machine.shared_memory, 0o1777)
    theirs = owned(mine.private, 4321)
    Path(theirs, "ring").touch()
    assert (ring_paths(mine), untrusted_rings(mine)) == ([], [f"{theirs}/ring"])
    assert ring_paths(mine._replace(explicit=theirs)) == [f"{theirs}/ring"]
    os.chown(theirs, 1000, 1000)
    assert (ring_paths(mine), untrusted_rings(mine)) == ([f"{theirs}/ring"], [])
    os.chmod(theirs, 0o777)
    assert (ring_paths(mine), untrusted_rings(mine)) == ([], [f"{theirs}/ring"])


@needs_root
def test_a_ring_of_the_daemon_for_the_machine_is_believed_whoever_root_made_its_directory_for(machine: Places) -> None:
    Path(owned(machine.system, 977), "ring").touch()
    os.chmod(os.path.dirname(machine.system), 0o755)
    assert ring_paths(machine._replace(uid=1000)) == [f"{machine.system}/ring"]
    os.chmod(os.path.dirname(machine.system), 0o777)
    assert ring_paths(machine._replace(uid=1000)) == []


@needs_root
def test_a_planted_ring_does_not_hide_that_of_the_users_own_daemon(machine: Places) -> None:
    mine = machine._replace(uid=1000, runtime="", system="/nowhere")
    os.chmod(machine.shared_memory, 0o1777)
    Path(owned(mine.private, 4321), "ring").touch()
    Path(owned(f"{machine.state}/live", 1000), "ring").touch()
    assert ring_paths(mine) == [f"{machine.state}/live/ring"]


@pytest.mark.parametrize("error", [errno.EACCES, errno.ESTALE, errno.EIO])
def test_a_directory_that_cannot_be_looked_into_is_not_absent(
    machine: Places, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def fail(path: str, *given: object, **more: object) -> NoReturn:
        raise OSError(error, os.strerror(error), path)

    where = machine._replace(explicit=f"{machine.state}/live", system_state="/nowhere")
    for name in ("stat", "lstat", "open"):
        monkeypatch.setattr(os, name, fail)
    looked = live_dirs(where), unreadable_rings(where), is_missing(where), without_daemon(where)
    why, kept = why_unread(where), (ledger_paths(where), history_paths(where))
    file = HistoryFile(kept[1][0])
    file.subjects(0.0, 1.0)
    monkeypatch.undo()
    assert looked == ([where.explicit], [f"{where.explicit}/ring"], False, "no daemon that this user may read")
    assert ("no permission" if error == errno.EACCES else os.strerror(error)) in why
    assert kept == ([f"{machine.state}/ledger.sqlite"], [f"{machine.state}/history.sqlite"])
    assert file.problem


@pytest.mark.parametrize("kind", ["directory", "ring"])
def test_a_ring_that_may_not_be_read_is_not_said_to_be_absent(machine: Places, kind: str) -> None:
    with foreign_directory() as found:
        where = machine._replace(system=f"{found}/gpumon", runtime="", shared_memory="/nowhere", state="")
        os.mkdir(where.system, 0o755)
        assert (unreadable_rings(where), without_daemon(where)) == ([], "no daemon"), "there is none"
        ring = Path(where.system, "ring")
        ring.touch()
        with as_nobody():
            assert (why_unread(where), without_daemon(where)) == ("", "no daemon"), "everybody may read it"
        os.chmod(ring.parent if kind == "directory" else ring, 0)
        with as_nobody():
            assert unreadable_rings(where) == [str(ring)]
            assert without_daemon(where) == "no daemon that this user may read"
            assert why_unread(where).startswith(
                f"no permission to read {ring}, so it is unknown whether a daemon is running: "
            )
            assert follow(where).state().text == why_unread(where)
            with pytest.raises(GpumonError, match="it is unknown whether a daemon is running"):
                find_daemon(where)
            with pytest.raises(GpumonError, match="it is unknown whether a daemon is running"):
                restart(where, None, None)
        os.chmod(where.system, 0o755)


def test_a_state_directory_of_the_machine_that_may_not_be_entered_is_not_said_to_keep_nothing() -> None:
    with foreign_directory() as found:
        where = Places(
            explicit="", system="/nowhere", shared_memory="/nowhere", system_state=f"{found}/lib", state=f"{found}/own"
        )
        os.mkdir(where.system_state, 0o755)
        assert "no permission" not in why_no_runs(where) + why_no_history(where)
        os.chmod(where.system_state, 0)
        with as_nobody():
            assert why_no_runs(where).startswith(f"no permission to read {where.system_state}")
            assert why_no_history(where) == why_no_runs(where)
            assert "no permission" not in why_no_runs(where._replace(explicit=f"{found}/other")), "nobody looks there"
        os.chmod(where.system_state, 0o755)
