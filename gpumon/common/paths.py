"""Where gpumon keeps its files, decided from the environment that is passed in.

Live directory, in this order: `--dir` or GPUMON_DIR; `/run/gpumon` (a daemon for the whole
machine); `$XDG_RUNTIME_DIR/gpumon`; `/dev/shm/gpumon-<uid>`. It holds the ring, the lock of its
writer and, in `tags/`, the boards of training processes.

State directory: `--state-dir` or GPUMON_STATE_DIR; `/var/lib/gpumon` (a daemon for the whole machine);
`$XDG_STATE_HOME/gpumon`. It holds the ledger and the history.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

from gpumon.common.errors import GpumonError, quoted

NOT_REGULAR = "not a regular file"


def open_regular(path: str, *, follow: bool = False, dir_fd: int | None = None) -> int:
    """Return a descriptor to read the file at `path`; a symbolic link is refused unless `follow` is set.

    Raises OSError, also for what is no regular file.
    """
    # Here, not at import: Windows lacks these, and trainings there import this module.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    try:
        fd = os.open(path, flags, dir_fd=dir_fd)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise _not_regular(path) from None
        if error.errno == errno.ELOOP and not follow:
            raise OSError(errno.ELOOP, "a symbolic link, which gpumon does not follow here", path) from None
        raise
    try:
        require_regular(fd, path)
    except OSError:
        os.close(fd)
        raise
    return fd


def may_exist(path: str) -> bool:
    """Whether there is something at `path`, or that cannot be told: no permission, a disk or a network that fails."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return True


def read_regular(path: str, most: int, *, follow: bool = False) -> bytes:
    """Return the first `most` bytes of the file at `path`. Raises OSError as `open_regular` does."""
    fd = open_regular(path, follow=follow)
    with os.fdopen(fd, "rb") as file:
        return file.read(most)


def require_readable(path: str) -> None:
    """Raise OSError as `open_regular` does, links followed: for files that a library opens by their names."""
    os.close(open_regular(path, follow=True))


def require_regular(fd: int, path: str) -> None:
    """Raise OSError where an open descriptor is no regular file."""
    _require(os.fstat(fd).st_mode, path)


def require_regular_or_absent(path: str) -> None:
    """Raise OSError where anything but a regular file lies at `path`, such as a symbolic link.

    For files that SQLite opens: closing a descriptor of ours would drop its locks.
    """
    with suppress(FileNotFoundError):
        _require(os.lstat(path).st_mode, path)


def _require(mode: int, path: str) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "a directory, not a file", path)
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, "a symbolic link, which gpumon does not follow here", path)
    if not stat.S_ISREG(mode):
        raise _not_regular(path)


def _not_regular(path: str) -> OSError:
    return OSError(errno.EINVAL, NOT_REGULAR, path)


ROOT = 0
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def is_directory_of(path: str, owners: Collection[int]) -> bool:
    """Whether `path` itself, no link, is a directory of one of `owners`."""
    found = _directory(path)
    return found is not None and found.st_uid in owners


def is_trusted(path: str, uid: int) -> bool:
    """Whether `uid` believes what lies in the directory `path`.

    True when nobody but its owner can write it, and that is `uid`, root, or whom root gave it to: a service
    manager makes `/run/gpumon` for the daemon's user, and nobody else could have made it there.
    """
    found = _directory(path)
    if found is None or found.st_mode & _OTHERS_WRITE:
        return False
    if found.st_uid in (ROOT, uid):
        return True
    parent = _directory(os.path.dirname(path.rstrip("/")))
    return parent is not None and parent.st_uid == ROOT and not parent.st_mode & _OTHERS_WRITE


def _directory(path: str) -> os.stat_result | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found if stat.S_ISDIR(found.st_mode) else None


RING = "ring"
LOCK = "lock"
TAGS = "tags"
LOG = "daemon.log"
LEDGER = "ledger.sqlite"
HISTORY = "history.sqlite"
PLAYED = "played.sqlite"
"""Runs of a simulation or a recording, beside the ring of the daemon that plays it."""

SYSTEM_DIR = "/run/gpumon"
SYSTEM_STATE = "/var/lib/gpumon"
USER_RUNTIME = "/run/user"
SHARED_MEMORY = "/dev/shm"


class MakeDir(Protocol):
    """Makes a directory for one user, as `make_private_dir`."""

    def __call__(self, directory: str, uid: int, *, shared: bool = False) -> None: ...


class Places(NamedTuple):
    """The directories that are looked at; tests pass their own."""

    explicit: str = ""
    """From `--dir` or GPUMON_DIR: the only one looked at when set."""
    system: str = SYSTEM_DIR
    runtime: str = ""
    """$XDG_RUNTIME_DIR, when set."""
    shared_memory: str = SHARED_MEMORY
    state: str = ""
    """Survives a reboot; the ring goes here only when no memory is left for it."""
    user_runtime: str = USER_RUNTIME
    uid: int = 0
    system_state: str = SYSTEM_STATE
    """State of a daemon for the whole machine, which all may read."""
    usual_state: bool = False
    """Whether nobody named `state`: then a daemon for the whole machine keeps its ledger in `system_state`."""

    @property
    def machine_state(self) -> str:
        """`system_state` where readers look into it, too; empty where a directory was named instead."""
        return "" if self.explicit else self.system_state

    @property
    def private(self) -> str:
        """The user's own directory in shared memory."""
        return f"{self.shared_memory}/gpumon-{self.uid}"

    def candidates(self) -> list[str]:
        """Live directories from the first to try to the last."""
        if self.explicit:
            return [self.explicit]
        runtime = [f"{self.runtime}/gpumon"] if self.runtime else []
        return [self.system, *runtime, self.private, *([f"{self.state}/live"] if self.state else [])]


def places(directory: str | None = None, state: str | None = None, env: Mapping[str, str] | None = None) -> Places:
    """The directories for this user, from flags and environment; flags win."""
    env = os.environ if env is None else env
    home_state = env.get("XDG_STATE_HOME") or (f"{env['HOME']}/.local/state" if env.get("HOME") else "")
    named_state = state or env.get("GPUMON_STATE_DIR", "")
    return Places(
        explicit=_absolute(directory or env.get("GPUMON_DIR", "")),
        runtime=env.get("XDG_RUNTIME_DIR", ""),
        state=_absolute(named_state or (f"{home_state}/gpumon" if home_state else "")),
        uid=os.getuid(),
        usual_state=not named_state,
    )


def _absolute(path: str) -> str:
    """`path` from the root on: a daemon that detaches, and a training, change their working directory."""
    if not path or os.path.isabs(path):
        return path
    try:
        return os.path.abspath(path)
    except OSError:  # the working directory is gone, and with it what the path means
        return path


def live_dirs(where: Places) -> list[str]:
    """The live directories that exist and are believed, the first to look at first; or that may exist."""
    return [
        directory for directory in where.candidates()
        if (where.explicit or is_trusted(directory, where.uid)) and may_exist(f"{directory}/")
    ]  # fmt: skip


def ring_paths(where: Places) -> list[str]:
    """The rings that exist and are believed, the first to look at first."""
    return [path for path, believed in _rings(where) if believed]


def refused_rings(where: Places) -> list[str]:
    """The rings that are there and not believed, because their directories are another user's or open to others."""
    return [path for path, believed in _rings(where) if not believed]


def closed_rings(where: Places) -> list[str]:
    """The rings that this user cannot read, or not even look for: a daemon for a group of users may write them."""
    rings = [f"{directory}/{RING}" for directory in live_dirs(where)]
    return [path for path in rings if _failure(path) is not None]


def why_closed(path: str) -> str:
    """Return what is to be said of a ring that this user cannot read."""
    error = _failure(path)
    if error is None or isinstance(error, PermissionError):
        why = f"no permission to read {path}"
        return f"{why}, so whether a daemon runs is not known: ask the administrator for its group"
    return f"{path} cannot be read ({error.strerror or error}), so whether a daemon runs is not known"


def _failure(path: str) -> OSError | None:
    """What keeps this user from reading the file at `path`; None where it can be read, is none, or does not exist."""
    try:
        os.close(open_regular(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return None if error.errno in (errno.EINVAL, errno.ELOOP) else error
    return None


def why_unread(where: Places) -> str:
    """Return why a ring that may be there is not read, and what to do; empty where there is none."""
    for path in refused_rings(where):
        directory = os.path.dirname(path)
        return (
            f"{directory} belongs to another user or is writable by others: '--dir {quoted(directory)}' shows it anyway"
        )
    return next(map(why_closed, closed_rings(where)), "")


def dir_option(where: Places) -> str:
    """Return the option by which another command looks where this one does; empty where that is the default."""
    return f" --dir {quoted(where.explicit)}" if where.explicit else ""


def is_missing(where: Places) -> bool:
    """Whether a directory was named that does not exist."""
    return bool(where.explicit) and not os.path.lexists(where.explicit) and not may_exist(where.explicit)


def without_daemon(where: Places) -> str:
    """Return why a view reads no daemon, in a few words."""
    if is_missing(where):
        return f"no daemon: {where.explicit} does not exist"
    return "no daemon that may be read" if closed_rings(where) else "no daemon"


def _rings(where: Places) -> Iterator[tuple[str, bool]]:
    for directory in where.candidates():
        believed = bool(where.explicit) or is_trusted(directory, where.uid)
        # Below a link nothing is looked at: it may name a file system that never answers.
        if (believed or not os.path.islink(directory)) and os.path.lexists(f"{directory}/{RING}"):
            yield f"{directory}/{RING}", believed


def ledger_path(where: Places) -> str:
    """Where a daemon of this user keeps its ledger; empty when there is no place that survives a reboot."""
    if where.uid == 0 and where.usual_state and not where.explicit:
        return f"{where.system_state}/{LEDGER}"
    return f"{where.state}/{LEDGER}" if where.state else ""


def ledger_paths(where: Places) -> list[str]:
    """The ledgers that exist and that a reader may look at: the user's own, then that of the whole machine.

    The user's own is also given where its directory cannot be looked into.
    """
    own, machine = ledger_path(where), f"{where.machine_state}/{LEDGER}" if where.machine_state else ""
    there = [own] if own and may_exist(own) else []
    return there + ([machine] if machine not in ("", own) and os.path.exists(machine) else [])


def history_path(where: Places) -> str:
    """Where a daemon of this user keeps history; empty when there is no place that survives a reboot."""
    return history_beside(ledger_path(where))


def history_paths(where: Places) -> list[str]:
    """The histories that exist and that a reader may look at, the one that was written last first."""
    own, machine = history_path(where), f"{where.machine_state}/{HISTORY}" if where.machine_state else ""
    there = [own] if own and may_exist(own) else []
    there += [machine] if machine not in ("", own) and os.path.exists(machine) else []
    return sorted(there, key=_written_at, reverse=True)


def history_beside(ledger: str) -> str:
    """The history that the daemon of a ledger keeps; empty where there is no ledger."""
    return f"{os.path.dirname(ledger)}/{HISTORY}" if ledger else ""


def _written_at(path: str) -> float:
    """When a SQLite file was written last, in seconds since 1970."""
    found = 0.0
    for name in (path, f"{path}-wal"):
        with suppress(OSError):
            found = max(found, os.stat(name).st_mtime)
    return found


def make_live_dir(where: Places, make: MakeDir | None = None, full: Collection[str] = ()) -> str:
    """The directory for a daemon of this user, made when it is missing; `make` makes it, or only looks.

    `full`: directories without room for live data. Raises GpumonError when none can be used, naming each and why.
    """
    refusals = []
    for directory in where.candidates():
        if directory in full:
            refusals.append(f"{directory}: no room")
            continue
        # Only root, or the service manager that made it for us, owns the machine-wide directory.
        if directory == where.system and not where.explicit and where.uid != 0 and not os.access(directory, os.W_OK):
            continue
        try:
            (make or make_private_dir)(directory, where.uid, shared=directory == where.system)
        except OSError as error:
            refusals.append(f"{directory}: {error.strerror or error}")
        else:
            return directory
    other = "another --dir" if where.explicit else "--dir"
    raise GpumonError("no directory for live data (" + "; ".join(refusals) + f"): pass {other}")


def make_private_dir(directory: str, uid: int, *, shared: bool = False) -> None:
    """Make `directory` if it is missing, and refuse one that others could have planted.

    Others may read a daemon's ring, so the mode of a machine-wide one (`shared`) is 0755; else 0700.
    """
    parent = os.path.dirname(directory.rstrip("/"))
    if shared or not os.path.isdir(parent):
        os.makedirs(parent, mode=0o700, exist_ok=True)
    try:
        os.mkdir(directory, 0o755 if shared else 0o700)
        os.chmod(directory, 0o755 if shared else 0o700)
    except FileExistsError:
        _refuse_planted(directory, uid)


def see_private_dir(directory: str, uid: int, *, shared: bool = False) -> None:
    """Raise the error with which `make_private_dir` would end, as far as it can be foreseen; make nothing."""
    if os.path.lexists(directory):
        _refuse_planted(directory, uid)
        return
    parent = nearest(directory)
    if not os.path.isdir(parent):
        raise NotADirectoryError(20, "is not a directory", parent)
    if not os.access(parent, os.W_OK | os.X_OK):
        raise PermissionError(13, "Permission denied", directory)


def nearest(path: str) -> str:
    """The path itself, or the nearest above it that exists."""
    while path and not os.path.lexists(path):
        path = os.path.dirname(path)
    return path or "/"


def _refuse_planted(directory: str, uid: int) -> None:
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(20, "is not a directory", directory)
    if found.st_uid != uid:
        raise PermissionError(1, "belongs to another user", directory)
    if found.st_mode & 0o022:
        raise PermissionError(1, "is writable by others", directory)


def tag_dir_for_client(where: Places, make: MakeDir | None = None) -> str:
    """Where a training of this user puts its board; made when it is missing. `make` makes it, or only looks.

    Raises OSError when none can be used, naming each and why.
    """
    refusals: list[OSError] = []
    for directory in where.candidates():
        tags = f"{directory}/{TAGS}"
        machine_wide = directory == where.system and not where.explicit
        # The machine's, and one that the user named, may be another user's, for a group of them.
        if (machine_wide or where.explicit) and os.access(tags, os.W_OK | os.X_OK):
            return tags
        if machine_wide or (directory == f"{where.runtime}/gpumon" and not os.access(where.runtime, os.W_OK)):
            continue
        try:
            (make or make_private_dir)(directory, where.uid)
            (make or make_private_dir)(tags, where.uid)
        except OSError as error:
            refusals.append(error)
        else:
            return tags
    if len(refusals) == 1:
        raise refusals[0]
    said = "; ".join(f"{error.filename}: {error.strerror}" for error in refusals)
    raise FileNotFoundError(2, f"no directory for tag boards ({said})" if said else "no directory for tag boards")


def make_tag_dir(live_dir: str, *, everyone: bool) -> str:
    """The board directory beside a daemon's ring.

    `everyone`: a daemon for the whole machine lets every user add boards (mode 1733: nobody can
    list or touch those of others).
    """
    tags = f"{live_dir}/{TAGS}"
    os.makedirs(tags, mode=0o700, exist_ok=True)
    if everyone and os.lstat(tags).st_uid == os.getuid():
        os.chmod(tags, 0o1733)
    return tags


def tag_dirs(where: Places) -> Iterator[str]:
    """Every directory in which boards may lie that this user can see; none that a link leads to."""
    if where.explicit:
        if os.path.isdir(f"{where.explicit}/{TAGS}"):
            yield f"{where.explicit}/{TAGS}"
        return
    owners = {directory: where.uid for directory in where.candidates() if directory != where.system}
    for name in _names(where.user_runtime):
        if name.isdigit() and is_directory_of(f"{where.user_runtime}/{name}", (int(name), ROOT)):
            owners[f"{where.user_runtime}/{name}/gpumon"] = int(name)
    for name in _names(where.shared_memory):
        if name.startswith("gpumon-") and name[7:].isdigit():
            owners[f"{where.shared_memory}/{name}"] = int(name[7:])
    usable = [directory for directory, uid in owners.items() if is_directory_of(directory, (uid, ROOT))]
    if is_trusted(where.system, where.uid):
        usable.append(where.system)
    for directory in sorted(usable):
        if not os.path.islink(f"{directory}/{TAGS}") and os.path.isdir(f"{directory}/{TAGS}"):
            yield f"{directory}/{TAGS}"


def _names(directory: str) -> list[str]:
    try:
        return [name for name in os.listdir(directory) if name.isascii()]
    except OSError:
        return []
