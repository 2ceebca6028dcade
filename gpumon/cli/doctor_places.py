"""The daemon, as `gpumon doctor` finds it, and files: live data, tags, ledger and history."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator

from gpumon import __version__
from gpumon.checkup import Check, Condition
from gpumon.cli.daemon_found import FoundDaemon, find_daemon
from gpumon.database.read import open_to_read, words_of
from gpumon.errors import GpumonError
from gpumon.ledger.change import user_name
from gpumon.live import NO_DAEMON
from gpumon.paths import TAGS, Places, history_paths, ledger_path, ledger_paths, tag_dirs
from gpumon.units import bytes_binary

_LEAST_ROOM = 64 << 20
"""Bytes for a ring of a machine of eight GPUs, and for its boards."""
_PATIENCE = 1.0
"""Seconds to wait for a file that another program has locked."""


def daemon_checks(where: Places) -> Iterator[Check]:
    """Check the daemon that commands of this user read."""
    name = "daemon"
    try:
        found = find_daemon(where)
    except GpumonError as error:
        text, _, remedy = str(error).partition(": ")
        none = str(error).startswith(NO_DAEMON)
        yield Check(name, Condition.NOTE if none else Condition.WARNING, text, remedy)
        return
    yield _daemon_check(name, found)
    version = found.live.version()
    if found.has_sampled() and version != __version__:
        text = f"runs version {version or 'of an earlier time'}, this command is {__version__}"
        yield Check("its version", Condition.WARNING, text, "'gpumon daemon restart'")
    if problem := found.live.ledger_problem():
        yield Check("its ledger", Condition.FAULT, problem)


def file_checks(where: Places, history_size: int) -> Iterator[Check]:
    """Check live data, tags and what is kept; `history_size`: bytes that history may take."""
    live = next((directory for directory in where.candidates() if os.path.isdir(directory)), "")
    yield from _room("live data", live or where.candidates()[-1], _LEAST_ROOM)
    yield _tags_check(where)
    kept_files = (
        ("ledger", ledger_paths(where), "none yet: it begins with the first run that a daemon sees"),
        ("history", history_paths(where), "none yet: it begins with the first daemon"),
    )
    for name, paths, none in kept_files:
        yield from [_file_check(name, path) for path in paths] or [Check(name, Condition.NOTE, none)]
    if kept := ledger_path(where):
        yield from _room("kept data", os.path.dirname(kept), history_size)
    else:
        text = "there is no place that survives a restart, as neither HOME nor XDG_STATE_HOME is set"
        yield Check("kept data", Condition.WARNING, text, "set HOME, or pass --state-dir")


def _daemon_check(name: str, found: FoundDaemon) -> Check:
    who = f"pid {found.pid or '?'} of {user_name(found.holder.uid)}, in {found.directory}"
    if not found.has_sampled():
        return Check(name, Condition.NOTE, f"{who}, is starting")
    state = found.live.state()
    if state.live:
        return Check(name, Condition.OK, who)
    log = f"look into {found.directory}/daemon.log; 'gpumon daemon restart' starts it again"
    return Check(name, Condition.FAULT, f"{who}: {state.text}", log)


def _tags_check(where: Places) -> Check:
    found = [directory for directory in tag_dirs(where) if os.access(directory, os.W_OK | os.X_OK)]
    name = "tags"
    if found:
        return Check(name, Condition.OK, f"trainings of this user write to {found[0]}")
    for directory in where.candidates():
        parent = _existing(f"{directory}/{TAGS}")
        if os.access(parent, os.W_OK | os.X_OK):
            return Check(name, Condition.OK, f"the first training of this user makes {directory}/{TAGS}")
    return Check(
        name, Condition.FAULT, "this user's trainings find no directory that they may write to", "set GPUMON_DIR"
    )


def _file_check(name: str, path: str) -> Check:
    try:
        connection, _ = open_to_read(path, patience=_PATIENCE)
        connection.close()
        size = os.stat(path).st_size
    except (sqlite3.Error, OSError) as error:
        return Check(name, Condition.WARNING, f"{path} cannot be read: {words_of(error)}")
    return Check(name, Condition.OK, f"{path}, {bytes_binary(size)}")


def _room(name: str, directory: str, least: int) -> Iterator[Check]:
    """Whether a daemon of this user may write there, and has room."""
    existing = _existing(directory)
    try:
        found = os.statvfs(existing)
    except OSError as error:
        yield Check(name, Condition.WARNING, f"{directory}: {error.strerror}")
        return
    free = found.f_bavail * found.f_frsize
    text = f"{bytes_binary(free)} free for {directory}"
    if free < least:
        yield Check(name, Condition.WARNING, f"{text}, less than {bytes_binary(least)}", "make room there")
    elif not os.access(existing, os.W_OK | os.X_OK):
        yield Check(name, Condition.NOTE, f"{text}, where this user may not write")
    else:
        yield Check(name, Condition.OK, text)


def _existing(path: str) -> str:
    """The path itself, or the nearest directory above it that exists."""
    while path and not os.path.exists(path):
        path = os.path.dirname(path)
    return path or "/"
