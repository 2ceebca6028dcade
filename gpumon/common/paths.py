"""Opening files safely, and the directories in which gpumon keeps its files.

Live directory, in this order: `--dir` or GPUMON_DIR; `/run/gpumon` (a daemon for the whole machine);
`$XDG_RUNTIME_DIR/gpumon`; `/dev/shm/gpumon-<uid>`. It contains the ring, the writer's lock and, in `tags/`, the boards
of training processes.

State directory: `--state-dir` or GPUMON_STATE_DIR; `/var/lib/gpumon` (a daemon for the whole machine);
`$XDG_STATE_HOME/gpumon`. It contains the ledger and the history.
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


def open_regular(path: str, *, follow: bool = False) -> int:
    """Open the file at `path` for reading, and return its descriptor.

    `follow`: follow symbolic links instead of rejecting them. Raises OSError if the file cannot be opened or is not a
    regular file.
    """
    # Not evaluated at import time: Windows lacks these flags, but trainings on Windows import this module.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    try:
        fd = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise _not_regular(path) from None
        if error.errno == errno.ELOOP and not follow:
            raise OSError(errno.ELOOP, "a symbolic link, which gpumon does not follow here", path) from None
        if error.errno == errno.ENOENT and os.path.islink(path):
            raise FileNotFoundError(errno.ENOENT, "a symbolic link to a file that does not exist", path) from None
        raise
    try:
        require_regular(fd, path)
    except OSError:
        os.close(fd)
        raise
    return fd


def open_lock_file(path: str, create: int = os.O_CREAT) -> int:
    """Open a file that is only locked, and return its descriptor. `create`: 0 to raise an error if it does not exist.

    Raises OSError.
    """
    fd = os.open(path, os.O_RDWR | create | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        require_regular(fd, path)
    except OSError:
        os.close(fd)
        raise
    return fd


def may_exist(path: str) -> bool:
    """Return False only if there is certainly nothing at `path`. Return True if this cannot be checked."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return True


def read_regular(path: str, limit: int, *, follow: bool = False) -> bytes:
    """Return the first `limit` bytes of the file at `path`. Raises OSError like `open_regular`."""
    fd = open_regular(path, follow=follow)
    with os.fdopen(fd, "rb") as file:
        try:
            return file.read(limit)
        except OSError as error:
            error.filename = path  # without a name, it would look like an error of the output
            raise


def require_readable(path: str) -> None:
    """Raise OSError if the file at `path` is not regular or cannot be read. Links are followed.

    Used for files that a library opens by name.
    """
    os.close(open_regular(path, follow=True))


def require_regular(fd: int, path: str) -> None:
    """Raise OSError if the open file `fd` is not a regular file."""
    _require(os.fstat(fd).st_mode, path)


def require_regular_or_absent(path: str) -> None:
    """Raise OSError if `path` exists but is not a regular file. A symbolic link is not a regular file.

    Used for files that SQLite opens. They must not be opened here, because closing them would release SQLite's locks.
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
    """Return whether `path` is a directory (not a link) that belongs to one of `owners`."""
    status = _stat_directory(path)
    return status is not None and status.st_uid in owners


def is_trusted(path: str, uid: int) -> bool:
    """Return whether user `uid` can trust the files in the directory `path`.

    True if only the owner can write to the directory, and the owner is `uid`, root, or a user to whom root gave the
    directory. For example, a service manager creates `/run/gpumon` for the daemon's user. No other user can create a
    directory in `/run`.
    """
    status = _stat_directory(path)
    if status is None or status.st_mode & _OTHERS_WRITE:
        return False
    if status.st_uid in (ROOT, uid):
        return True
    parent = _stat_directory(os.path.dirname(path.rstrip("/")))
    return parent is not None and parent.st_uid == ROOT and not parent.st_mode & _OTHERS_WRITE


def _stat_directory(path: str) -> os.stat_result | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status if stat.S_ISDIR(status.st_mode) else None


RING = "ring"
LOCK = "lock"
TAGS = "tags"
LOG = "daemon.log"
LEDGER = "ledger.sqlite"
HISTORY = "history.sqlite"
PLAYED = "played.sqlite"
"""File name of the ledger for the runs of a simulation or a recording. It is next to the ring of the daemon that plays
them."""

SYSTEM_DIR = "/run/gpumon"
SYSTEM_STATE = "/var/lib/gpumon"
USER_RUNTIME = "/run/user"
SHARED_MEMORY = "/dev/shm"


class MakeDir(Protocol):
    """Function that creates a directory for one user, like `make_private_dir`."""

    def __call__(self, directory: str, uid: int, *, shared: bool = False) -> None: ...


class Places(NamedTuple):
    """The directories to use. Tests pass their own directories."""

    explicit: str = ""
    """Live directory from `--dir` or GPUMON_DIR. If it is set, no other live directory is used."""
    system: str = SYSTEM_DIR
    runtime: str = ""
    """Value of $XDG_RUNTIME_DIR; empty if not set."""
    shared_memory: str = SHARED_MEMORY
    state: str = ""
    """The user's state directory, which survives a reboot. It contains the ring only if shared memory has no room for
    it."""
    user_runtime: str = USER_RUNTIME
    uid: int = 0
    system_state: str = SYSTEM_STATE
    """State directory of a daemon for the whole machine. All users may read it."""
    usual_state: bool = False
    """Whether `state` is the default directory. If so, a daemon for the whole machine stores its ledger in
    `system_state`."""

    @property
    def machine_state(self) -> str:
        """The state directory of a machine-wide daemon.

        Empty if `--dir` or GPUMON_DIR is set, because it is then not read.
        """
        return "" if self.explicit else self.system_state

    @property
    def private(self) -> str:
        """The user's directory in shared memory."""
        return f"{self.shared_memory}/gpumon-{self.uid}"

    def candidates(self) -> list[str]:
        """Return the live directories in the order in which they are tried."""
        if self.explicit:
            return [self.explicit]
        runtime = [f"{self.runtime}/gpumon"] if self.runtime else []
        return [self.system, *runtime, self.private, *([f"{self.state}/live"] if self.state else [])]


def places(directory: str | None = None, state: str | None = None, env: Mapping[str, str] | None = None) -> Places:
    """Return the directories for this user.

    `directory`, `state`: values of `--dir` and `--state-dir`. They take precedence over the environment variables in
    `env`.
    """
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
    """Return the absolute path, because daemons and training scripts may change their working directory later."""
    if not path or os.path.isabs(path):
        return path
    try:
        return os.path.abspath(path)
    except OSError:  # the working directory was removed
        return path


def live_dirs(places: Places) -> list[str]:
    """Return the trusted live directories that exist, or may exist, in the order in which they are tried."""
    return [
        directory for directory in places.candidates()
        if (places.explicit or is_trusted(directory, places.uid)) and may_exist(f"{directory}/")
    ]  # fmt: skip


def ring_paths(places: Places) -> list[str]:
    """Return the trusted rings that exist, in the order in which they are tried."""
    return [path for path, trusted in _rings(places) if trusted]


def untrusted_rings(places: Places) -> list[str]:
    """Return the rings whose directories belong to another user or are writable by others."""
    return [path for path, trusted in _rings(places) if not trusted]


def unreadable_rings(places: Places) -> list[str]:
    """Return the rings that this user cannot read. They may belong to a daemon for a group of users."""
    rings = [f"{directory}/{RING}" for directory in live_dirs(places)]
    return [path for path in rings if _failure(path) is not None]


def unreadable_reason(path: str) -> str:
    """Return a message about a ring that this user cannot read."""
    error = _failure(path)
    if error is None or isinstance(error, PermissionError):
        why = f"no permission to read {path}"
        return f"{why}, so it is unknown whether a daemon is running: ask the administrator to add you to its group"
    return f"{path} cannot be read ({error.strerror or error}), so it is unknown whether a daemon is running"


def _failure(path: str) -> OSError | None:
    """Return the error if this user cannot read the file at `path`.

    None if the file can be read, does not exist, or is not a regular file.
    """
    try:
        os.close(open_regular(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return None if error.errno in (errno.EINVAL, errno.ELOOP) else error
    return None


def why_unread(places: Places) -> str:
    """Return why a ring is not read although it may exist, and what to do. Empty if there is no such ring."""
    for path in untrusted_rings(places):
        directory = os.path.dirname(path)
        return (
            f"{directory} belongs to another user or is writable by others: '--dir {quoted(directory)}' shows it anyway"
        )
    return next(map(unreadable_reason, unreadable_rings(places)), "")


def dir_option(places: Places) -> str:
    """Return the option with which another command uses the same directory; empty for the default directory."""
    return f" --dir {quoted(places.explicit)}" if places.explicit else ""


def is_missing(places: Places) -> bool:
    """Return whether the user chose a live directory that does not exist."""
    return bool(places.explicit) and not os.path.lexists(places.explicit) and not may_exist(places.explicit)


def without_daemon(places: Places) -> str:
    """Return a short message that says why a view does not use a daemon."""
    if is_missing(places):
        return f"no daemon: {places.explicit} does not exist"
    return "no daemon that this user may read" if unreadable_rings(places) else "no daemon"


def _rings(places: Places) -> Iterator[tuple[str, bool]]:
    for directory in places.candidates():
        trusted = bool(places.explicit) or is_trusted(directory, places.uid)
        # An untrusted link is not followed, because its file system may never respond.
        if (trusted or not os.path.islink(directory)) and os.path.lexists(f"{directory}/{RING}"):
            yield f"{directory}/{RING}", trusted


def ledger_path(places: Places) -> str:
    """Return the path of this user's own ledger; empty if there is no state directory."""
    if places.uid == 0 and places.usual_state and not places.explicit:
        return f"{places.system_state}/{LEDGER}"
    return f"{places.state}/{LEDGER}" if places.state else ""


def ledger_paths(places: Places) -> list[str]:
    """Return the existing ledgers to read: the user's own ledger first, then the ledger of a machine-wide daemon.

    The user's own ledger is included even if this user may not search its directory.
    """
    own, machine = ledger_path(places), f"{places.machine_state}/{LEDGER}" if places.machine_state else ""
    existing = [own] if own and may_exist(own) else []
    return existing + ([machine] if machine not in ("", own) and os.path.exists(machine) else [])


def history_path(places: Places) -> str:
    """Return the path of this user's own history file; empty if there is no state directory."""
    return history_beside(ledger_path(places))


def history_paths(places: Places) -> list[str]:
    """Return the existing history files to read, most recently modified first."""
    own, machine = history_path(places), f"{places.machine_state}/{HISTORY}" if places.machine_state else ""
    existing = [own] if own and may_exist(own) else []
    existing += [machine] if machine not in ("", own) and os.path.exists(machine) else []
    return sorted(existing, key=_modified_at, reverse=True)


def history_beside(ledger: str) -> str:
    """Return the path of the history file in the directory of a ledger; empty if `ledger` is empty."""
    return f"{os.path.dirname(ledger)}/{HISTORY}" if ledger else ""


def _modified_at(path: str) -> float:
    """Return the time at which a SQLite file was last modified, in seconds since 1970."""
    latest = 0.0
    for name in (path, f"{path}-wal"):
        with suppress(OSError):
            latest = max(latest, os.stat(name).st_mtime)
    return latest


def make_live_dir(places: Places, make: MakeDir | None = None, full: Collection[str] = ()) -> str:
    """Return the live directory for a daemon of this user, and create it if it does not exist.

    `make`: function that creates a directory; a dry run passes one that only checks it. `full`: directories that are
    not used because their disk is full. Raises GpumonError with the reason for each directory if none can be used.
    """
    problems = []
    for directory in places.candidates():
        if directory in full:
            problems.append(f"{directory}: not enough space")
            continue
        # The machine-wide directory belongs to root, or to the user for whom the service manager created it.
        if directory == places.system and not places.explicit and places.uid != 0 and not os.access(directory, os.W_OK):
            continue
        try:
            (make or make_private_dir)(directory, places.uid, shared=directory == places.system)
        except OSError as error:
            problems.append(f"{directory}: {error.strerror or error}")
        else:
            return directory
    other = "another --dir" if places.explicit else "--dir"
    raise GpumonError("no directory for live data (" + "; ".join(problems) + f"): pass {other}")


def make_private_dir(directory: str, uid: int, *, shared: bool = False) -> None:
    """Create `directory` if it does not exist. Raise an error if another user may have created it.

    The directory of a machine-wide daemon (`shared`) gets mode 0755, because other users may read the ring in it. Any
    other directory gets mode 0700.
    """
    parent = os.path.dirname(directory.rstrip("/"))
    if shared or not os.path.isdir(parent):
        os.makedirs(parent, mode=0o700, exist_ok=True)
    try:
        os.mkdir(directory, 0o755 if shared else 0o700)
        os.chmod(directory, 0o755 if shared else 0o700)
    except FileExistsError:
        _require_own(directory, uid)


def check_private_dir(directory: str, uid: int, *, shared: bool = False) -> None:
    """Raise the error that `make_private_dir` would raise, without creating anything.

    Not every error can be predicted.
    """
    if os.path.lexists(directory):
        _require_own(directory, uid)
        return
    parent = nearest_existing(directory)
    if not os.path.isdir(parent):
        raise NotADirectoryError(20, "is not a directory", parent)
    if not os.access(parent, os.W_OK | os.X_OK):
        raise PermissionError(13, "Permission denied", directory)


def nearest_existing(path: str) -> str:
    """Return `path` if it exists, else its nearest parent that exists."""
    while path and not os.path.lexists(path):
        path = os.path.dirname(path)
    return path or "/"


def _require_own(directory: str, uid: int) -> None:
    status = os.lstat(directory)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(20, "is not a directory", directory)
    if status.st_uid != uid:
        raise PermissionError(1, "belongs to another user", directory)
    if status.st_mode & 0o022:
        raise PermissionError(1, "is writable by others", directory)


def tag_dir_for_client(places: Places, make: MakeDir | None = None) -> str:
    """Return the directory for boards of this user's trainings, and create it if it does not exist.

    `make`: function that creates a directory; a dry run passes one that only checks it. Raises OSError with the reason
    for each directory if none can be used.
    """
    problems: list[OSError] = []
    for directory in places.candidates():
        tags = f"{directory}/{TAGS}"
        machine_wide = directory == places.system and not places.explicit
        # The machine-wide directory, or a directory that the user chose, may belong to another user who shares it with
        # a group.
        if (machine_wide or places.explicit) and os.access(tags, os.W_OK | os.X_OK):
            return tags
        if machine_wide or (directory == f"{places.runtime}/gpumon" and not os.access(places.runtime, os.W_OK)):
            continue
        try:
            (make or make_private_dir)(directory, places.uid)
            (make or make_private_dir)(tags, places.uid)
        except OSError as error:
            problems.append(error)
        else:
            return tags
    if len(problems) == 1:
        raise problems[0]
    reasons = "; ".join(f"{error.filename}: {error.strerror}" for error in problems)
    raise FileNotFoundError(2, f"no directory for tag boards ({reasons})" if reasons else "no directory for tag boards")


def make_tag_dir(live_dir: str, *, everyone: bool) -> str:
    """Create the directory for boards next to a daemon's ring, and return its path.

    `everyone`: whether all users may add boards, as they may for a machine-wide daemon. Mode 1733 then prevents users
    from listing the directory and from changing the boards of other users.
    """
    tags = f"{live_dir}/{TAGS}"
    os.makedirs(tags, mode=0o700, exist_ok=True)
    if everyone and os.lstat(tags).st_uid == os.getuid():
        os.chmod(tags, 0o1733)
    return tags


def tag_dirs(places: Places) -> Iterator[str]:
    """Yield the directories for boards that this user can see. Links are not followed."""
    if places.explicit:
        if os.path.isdir(f"{places.explicit}/{TAGS}"):
            yield f"{places.explicit}/{TAGS}"
        return
    owners = {directory: places.uid for directory in places.candidates() if directory != places.system}
    for name in _names(places.user_runtime):
        if name.isdigit() and is_directory_of(f"{places.user_runtime}/{name}", (int(name), ROOT)):
            owners[f"{places.user_runtime}/{name}/gpumon"] = int(name)
    for name in _names(places.shared_memory):
        if name.startswith("gpumon-") and name[7:].isdigit():
            owners[f"{places.shared_memory}/{name}"] = int(name[7:])
    usable = [directory for directory, uid in owners.items() if is_directory_of(directory, (uid, ROOT))]
    if is_trusted(places.system, places.uid):
        usable.append(places.system)
    for directory in sorted(usable):
        if not os.path.islink(f"{directory}/{TAGS}") and os.path.isdir(f"{directory}/{TAGS}"):
            yield f"{directory}/{TAGS}"


def _names(directory: str) -> list[str]:
    try:
        return [name for name in os.listdir(directory) if name.isascii()]
    except OSError:
        return []
