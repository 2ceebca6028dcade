"""The daemon, as `gpumon doctor` finds it, and files: live data, tags, ledger and history."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator

from gpumon import __version__
from gpumon.cli.daemon_found import FoundDaemon, find_daemon
from gpumon.cli.daemon_stop import unit_of
from gpumon.common.checkup import Check, Condition
from gpumon.common.errors import GpumonError, quoted
from gpumon.common.paths import (
    LEDGER,
    LOG,
    RING,
    Places,
    history_beside,
    ledger_path,
    make_live_dir,
    nearest,
    see_private_dir,
    tag_dir_for_client,
)
from gpumon.common.procfs import read_stat
from gpumon.live import NO_DAEMON
from gpumon.model.origin import Capability
from gpumon.model.units import bytes_binary
from gpumon.storage.ledger.change import user_name
from gpumon.storage.sqlite.read import open_to_read, words_of

_RING_ROOM = 16 << 20
"""Bytes of the ring of a machine of eight GPUs."""
_PATIENCE = 1.0
"""Seconds to wait for a file that another program has locked, and to look through one."""
_LOOK_EVERY = 10_000
"""Steps of SQLite's machine between two looks at the clock."""
_STOPPED = "T"


def found_daemon(where: Places) -> tuple[FoundDaemon | None, str]:
    """The daemon that commands of this user read; else None, and why there is none."""
    try:
        return find_daemon(where), ""
    except GpumonError as error:
        return None, str(error)


def daemon_checks(where: Places, found: FoundDaemon | None, why_none: str) -> Iterator[Check]:
    """Check the daemon that commands of this user read."""
    name = "daemon"
    if found is None:
        text, _, remedy = why_none.partition(": ")
        none = why_none.startswith(NO_DAEMON)
        yield Check(name, Condition.NOTE if none else Condition.WARNING, text, remedy)
        return
    yield _daemon_check(name, found, where.uid)
    version = found.live.version()
    if found.has_sampled() and version != __version__:
        text = f"the daemon is of version {version or 'unknown'}, this command of {__version__}"
        yield Check("its version", Condition.WARNING, text, _again(found, where.uid))
    if found.has_sampled() and Capability.LIVE not in found.live.origin().capabilities:
        text = (
            f"the daemon plays {found.live.origin().label or found.live.origin().source}: nobody samples this machine"
        )
        yield Check("its source", Condition.WARNING, text)
    for kept, problem in zip(("its ledger", "its history"), found.live.not_kept(), strict=True):
        if problem:
            yield Check(kept, Condition.FAULT, problem)


def file_checks(where: Places, history_size: int, daemon: FoundDaemon | None) -> Iterator[Check]:
    """Check live data, tags and what is kept; `history_size`: bytes that history may take."""
    if daemon is not None:
        yield from _room("live data", daemon.directory, 0, is_ours=False)
    else:
        try:
            directory = make_live_dir(where, see_private_dir)
            least = 0 if os.path.exists(f"{directory}/{RING}") else _RING_ROOM
            yield from _room("live data", directory, least, is_ours=True)
        except GpumonError as error:
            text, _, remedy = str(error).rpartition(": ")
            yield Check("live data", Condition.FAULT, text, remedy)
    yield _tags_check(where)
    ledger = ledger_path(where)
    machine = f"{where.machine_state}/{LEDGER}" if where.machine_state else ""
    kept = [path for path in dict.fromkeys((ledger, machine)) if path]
    for path in kept:
        for name, file in (("ledger", path), ("history", history_beside(path))):
            if os.path.lexists(file) or path == ledger:
                yield _file_check(name, file)
    is_ours = daemon is None or daemon.holder.uid == where.uid
    if ledger:
        yield from _room("kept data", os.path.dirname(ledger), history_size - _size(history_beside(ledger)), is_ours)
    elif is_ours:
        text = "there is no place that survives a restart, as neither HOME nor XDG_STATE_HOME is set"
        yield Check("kept data", Condition.WARNING, text, "set HOME, or pass --state-dir")


def _daemon_check(name: str, found: FoundDaemon, uid: int) -> Check:
    who = f"pid {found.pid or '?'} of {user_name(found.holder.uid)}, in {found.directory}"
    if not found.has_sampled():
        return Check(name, Condition.NOTE, f"{who}, is starting")
    state = found.live.state()
    if state.live or found.live.origin().ended:
        return Check(name, Condition.OK, who)
    facts = read_stat(found.pid) if found.is_seen() else None
    if facts is not None and facts.state == _STOPPED:
        return Check(name, Condition.FAULT, f"the daemon ({who}) was suspended", f"'kill -CONT {found.pid}'")
    text = f"the daemon ({who}) does not sample: {state.text}"
    return Check(name, Condition.FAULT, text, f"{found.directory}/{LOG} may say why; {_again(found, uid)}")


def _again(found: FoundDaemon, uid: int) -> str:
    """Words on starting a daemon again, by this user or another."""
    if found.holder.uid != uid:
        return f"{user_name(found.holder.uid)} may restart it"
    unit, manager = unit_of(found.pid)
    if unit:
        return f"'{manager} restart {unit}'" if manager else f"restart {unit}, which runs it"
    return f"'gpumon daemon restart --dir {quoted(found.directory)}'"


def _tags_check(where: Places) -> Check:
    try:
        directory = tag_dir_for_client(where, see_private_dir)
        return Check("tags", Condition.OK, f"trainings of this user write to {directory}")
    except OSError as error:
        text = f"trainings of this user find no directory for their tags ({error.filename}: {error.strerror})"
        return Check("tags", Condition.FAULT, text, "choose another GPUMON_DIR or XDG_RUNTIME_DIR")


def _file_check(name: str, path: str) -> Check:
    try:
        mode = os.lstat(path)
        if not stat.S_ISREG(mode.st_mode):
            return Check(name, Condition.FAULT, f"{path} is no regular file", "move it away")
        if not mode.st_size:
            return Check(name, Condition.NOTE, f"{path} is empty")
        damage = _damage(path)
    except FileNotFoundError:
        first = "run that a daemon sees" if os.path.basename(path) == LEDGER else "daemon"
        text = f"none yet in {os.path.dirname(path)}: it begins with the first {first}"
        return Check(name, Condition.NOTE, text)
    except (sqlite3.Error, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else words_of(error, path)
        return Check(name, Condition.WARNING, f"{path} cannot be read: {why}")
    if damage:
        text = f"{path} is damaged: {damage}"
        return Check(name, Condition.WARNING, text, "the next daemon puts it aside, and begins another")
    return Check(name, Condition.OK, f"{path}, {bytes_binary(mode.st_size)}")


def _damage(path: str) -> str:
    """The first damage that is found in a second; empty for none. Raises sqlite3.Error where it cannot be read."""
    connection, _ = open_to_read(path, patience=_PATIENCE)
    until = time.monotonic() + _PATIENCE
    connection.set_progress_handler(lambda: time.monotonic() > until, _LOOK_EVERY)
    try:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        return "" if found == "ok" else str(found)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:  # too large to be looked through
            return ""
        raise
    finally:
        connection.close()


def _room(name: str, directory: str, least: int, is_ours: bool) -> Iterator[Check]:
    """Whether a daemon of this user may write there and has room; only the room where it `is_ours` not to write."""
    existing = nearest(directory)
    try:
        found = os.statvfs(existing)
    except OSError as error:
        yield Check(name, Condition.WARNING, f"{directory}: {error.strerror}")
        return
    free = found.f_bavail * found.f_frsize
    text = f"{bytes_binary(free)} free for {directory}"
    if is_ours and not (os.path.isdir(existing) and os.access(existing, os.W_OK | os.X_OK)):
        remedy = f"make it writable, or pass {'--dir' if name == 'live data' else '--state-dir'}"
        yield Check(name, Condition.FAULT, f"this user may not write to {directory}, so nothing is kept", remedy)
    elif free < least:
        yield Check(name, Condition.WARNING, f"{text}, which may take {bytes_binary(least)} more", "make room there")
    else:
        yield Check(name, Condition.OK, text)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
