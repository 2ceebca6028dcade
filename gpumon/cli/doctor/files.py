"""Checks of the daemon, and of the files that gpumon writes."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator

from gpumon import __version__
from gpumon.cli.daemon_lookup import RunningDaemon, find_daemon
from gpumon.cli.daemon_stop import unit_of
from gpumon.common.check_result import Check, Condition
from gpumon.common.errors import GpumonError, quoted
from gpumon.common.paths import (
    LEDGER,
    LOG,
    RING,
    Places,
    check_private_dir,
    history_beside,
    ledger_path,
    make_live_dir,
    nearest_existing,
    tag_dir_for_client,
)
from gpumon.common.procfs import read_stat
from gpumon.live import NO_DAEMON
from gpumon.model.origin import Capability
from gpumon.model.units import bytes_binary
from gpumon.storage.history.schema import HISTORY_FILE
from gpumon.storage.ledger.change import user_name
from gpumon.storage.ledger.schema import LEDGER_FILE
from gpumon.storage.sqlite.read import describe_error, open_to_read

_RING_SIZE = 16 << 20
"""Bytes of the ring on a machine with eight GPUs."""
_FILE_TIMEOUT = 1.0
"""Seconds to wait for a file that another program has locked, and maximum seconds for checking a file."""
_INSTRUCTIONS_PER_CHECK = 10_000
"""SQLite virtual machine instructions between two checks of the time."""
_STOPPED = "T"
_MOVED_ASIDE = "restart the daemon, which moves it aside and creates a new one"


def running_daemon(places: Places) -> tuple[RunningDaemon | None, str]:
    """Return a pair: the daemon whose data the commands of this user read, and an empty string;
    or None, and the reason why there is none.
    """
    try:
        return find_daemon(places), ""
    except GpumonError as error:
        return None, str(error)


def daemon_checks(places: Places, daemon: RunningDaemon | None, no_daemon_reason: str) -> Iterator[Check]:
    """Check the daemon that commands of this user read."""
    name = "daemon"
    if daemon is None:
        text, _, remedy = no_daemon_reason.partition(": ")
        is_absent = no_daemon_reason.startswith(NO_DAEMON)
        yield Check(name, Condition.NOTE if is_absent else Condition.WARNING, text, remedy)
        return
    yield _daemon_check(name, daemon, places.uid)
    version, origin = daemon.live.version(), daemon.live.origin()
    if daemon.has_sampled() and version != __version__:
        text = f"the daemon is version {version or 'unknown'}, but this command is version {__version__}"
        yield Check("its version", Condition.WARNING, text, _restart_remedy(daemon, places.uid))
    if daemon.has_sampled() and Capability.LIVE not in origin.capabilities:
        text = f"the daemon plays {origin.label or origin.source}: this machine is not sampled"
        yield Check("its source", Condition.WARNING, text)
    for part, problem in zip(("its ledger", "its history"), daemon.live.not_kept(), strict=True):
        if problem:
            yield Check(part, Condition.FAULT, problem)


def file_checks(places: Places, history_size: int, daemon: RunningDaemon | None) -> Iterator[Check]:
    """Check live data, tags and persistent data; `history_size`: maximum bytes of history."""
    if daemon is not None:
        yield from _space("live data", daemon.directory, 0, is_ours=False)
    else:
        try:
            directory = make_live_dir(places, check_private_dir)
            needed = 0 if os.path.exists(f"{directory}/{RING}") else _RING_SIZE
            yield from _space("live data", directory, needed, is_ours=True)
        except GpumonError as error:
            text, _, remedy = str(error).rpartition(": ")
            yield Check("live data", Condition.FAULT, text, remedy)
    yield _tags_check(places)
    ledger = ledger_path(places)
    machine = f"{places.machine_state}/{LEDGER}" if places.machine_state else ""
    for path in filter(None, dict.fromkeys((ledger, machine))):
        for name, file in (("ledger", path), ("history", history_beside(path))):
            if os.path.lexists(file) or path == ledger:
                yield _file_check(name, file)
    is_ours = daemon is None or daemon.holder.uid == places.uid
    if ledger:
        needed = history_size - _size(history_beside(ledger))
        yield from _space("kept data", os.path.dirname(ledger), needed, is_ours)
    elif is_ours:
        text = "no directory persists across restarts, because neither HOME nor XDG_STATE_HOME is set"
        yield Check("kept data", Condition.WARNING, text, "set HOME, or pass --state-dir")


def _daemon_check(name: str, daemon: RunningDaemon, uid: int) -> Check:
    who = f"pid {daemon.pid or '?'} of {user_name(daemon.holder.uid)}, in {daemon.directory}"
    if not daemon.has_sampled():
        return Check(name, Condition.NOTE, f"{who}, is starting")
    state = daemon.live.state()
    if state.live or daemon.live.origin().ended:
        return Check(name, Condition.OK, who)
    stat = read_stat(daemon.pid) if daemon.is_visible() else None
    if stat is not None and stat.state == _STOPPED:
        return Check(name, Condition.FAULT, f"the daemon ({who}) was suspended", f"'kill -CONT {daemon.pid}'")
    text = f"the daemon ({who}) does not sample: {state.text}"
    remedy = f"{daemon.directory}/{LOG} may say why; {_restart_remedy(daemon, uid)}"
    return Check(name, Condition.FAULT, text, remedy)


def _restart_remedy(daemon: RunningDaemon, uid: int) -> str:
    """Return the command that restarts a daemon, or the user who may restart it."""
    if daemon.holder.uid != uid:
        return f"ask {user_name(daemon.holder.uid)} to restart it"
    unit, manager = unit_of(daemon.pid)
    if unit:
        return f"'{manager} restart {unit}'" if manager else f"restart {unit}, which runs it"
    return f"'gpumon daemon restart --dir {quoted(daemon.directory)}'"


def _tags_check(places: Places) -> Check:
    try:
        directory = tag_dir_for_client(places, check_private_dir)
        return Check("tags", Condition.OK, f"trainings of this user write to {directory}")
    except OSError as error:
        text = f"there is no directory for the tags of this user's trainings ({error.filename}: {error.strerror})"
        return Check("tags", Condition.FAULT, text, "choose another GPUMON_DIR or XDG_RUNTIME_DIR")


def _file_check(name: str, path: str) -> Check:
    try:
        mode = os.lstat(path)
        if not stat.S_ISREG(mode.st_mode):
            return Check(name, Condition.FAULT, f"{path} is not a regular file", "move it away")
        if not mode.st_size:
            return Check(name, Condition.NOTE, f"{path} is empty")
        damage = _damage(path)
    except FileNotFoundError:
        first = "run that a daemon sees" if os.path.basename(path) == LEDGER else "daemon"
        text = f"none yet in {os.path.dirname(path)}: it is created by the first {first}"
        return Check(name, Condition.NOTE, text)
    except (sqlite3.Error, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else describe_error(error, path)
        is_database = not isinstance(error, sqlite3.DatabaseError) or isinstance(error, sqlite3.OperationalError)
        remedy = "" if is_database else _MOVED_ASIDE
        return Check(name, Condition.WARNING, f"{path} cannot be read: {why}", remedy)
    if damage:
        text = f"{path} is damaged: {damage}"
        return Check(name, Condition.WARNING, text, _MOVED_ASIDE)
    return Check(name, Condition.OK, f"{path}, {bytes_binary(mode.st_size)}")


def _damage(path: str) -> str:
    """Return the first damage that is found in a file within a second; empty if none is found.

    Raises sqlite3.Error if the file cannot be read.
    """
    kind = LEDGER_FILE if os.path.basename(path) == LEDGER else HISTORY_FILE
    connection, _ = open_to_read(path, kind, timeout=_FILE_TIMEOUT)
    deadline = time.monotonic() + _FILE_TIMEOUT
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _INSTRUCTIONS_PER_CHECK)
    try:
        (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        return "" if result == "ok" else str(result)
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:  # too large to check in this time
            return ""
        raise
    finally:
        connection.close()


def _space(name: str, directory: str, needed: int, is_ours: bool) -> Iterator[Check]:
    """Check that a directory has `needed` free bytes and, if `is_ours`, that this user may write to it."""
    existing = nearest_existing(directory)
    try:
        status = os.statvfs(existing)
    except OSError as error:
        yield Check(name, Condition.WARNING, f"{directory}: {error.strerror}")
        return
    free = status.f_bavail * status.f_frsize
    text = f"{bytes_binary(free)} free for {directory}"
    if is_ours and not (os.path.isdir(existing) and os.access(existing, os.W_OK | os.X_OK)):
        remedy = f"make it writable, or pass {'--dir' if name == 'live data' else '--state-dir'}"
        yield Check(
            name, Condition.FAULT, f"this user may not write to {directory}, so nothing is recorded there", remedy
        )
    elif free < needed:
        yield Check(
            name, Condition.WARNING, f"{text}, which may grow by {bytes_binary(needed)}", "free some space there"
        )
    else:
        yield Check(name, Condition.OK, text)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
