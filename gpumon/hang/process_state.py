"""Reads from /proc what a process waits for: its state, system call, wait channel and use of the CPU.

Some files are readable only by root, or only with the permission to trace the process (ptrace(2), `ptrace_scope` of
Yama). Fields whose file cannot be read are empty. Texts come from another program, so control characters are escaped.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from gpumon.common.numbers import NAN
from gpumon.common.procfs import Stat, parse_stat
from gpumon.common.text import clean

MAX_CHILDREN = 64
"""Maximum number of child processes of one rank that are read."""
_MAX_THREADS = 512
_MAX_FILE = 1 << 16
_MAX_TEXT = 200
_STATES: Mapping[str, str] = {
    "R": "running", "S": "sleeping", "D": "uninterruptible wait", "T": "stopped by a signal",
    "t": "stopped by a debugger", "Z": "ended, not yet reaped", "X": "ended", "I": "idle",
}  # fmt: skip
"""Names of the states in proc(5)."""

_SYSCALLS: Mapping[str, Mapping[int, str]] = {
    "x86_64": {
        0: "read", 1: "write", 7: "poll", 17: "pread64", 18: "pwrite64", 19: "readv", 23: "select", 35: "nanosleep",
        45: "recvfrom", 47: "recvmsg", 61: "wait4", 73: "flock", 74: "fsync", 75: "fdatasync", 43: "accept",
        42: "connect", 72: "fcntl", 202: "futex", 230: "clock_nanosleep", 232: "epoll_wait", 257: "openat",
        262: "newfstatat", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 332: "statx", 4: "stat", 5: "fstat",
        16: "ioctl", 217: "getdents64",
    },
    "aarch64": {
        63: "read", 64: "write", 73: "ppoll", 67: "pread64", 68: "pwrite64", 65: "readv", 72: "pselect6",
        101: "nanosleep", 207: "recvfrom", 212: "recvmsg", 260: "wait4", 32: "flock", 82: "fsync", 83: "fdatasync",
        202: "accept", 203: "connect", 25: "fcntl", 98: "futex", 115: "clock_nanosleep", 22: "epoll_pwait",
        56: "openat", 79: "newfstatat", 291: "statx", 80: "fstat", 29: "ioctl", 61: "getdents64",
    },
}  # fmt: skip
"""Names of the system calls in which programs wait, by architecture (asm/unistd.h)."""
_ON_FILES = frozenset((
    "read", "write", "pread64", "pwrite64", "readv", "recvfrom", "recvmsg", "flock", "fsync", "fdatasync", "fcntl",
    "fstat", "ioctl", "getdents64",
))  # fmt: skip
"""System calls whose first argument is a file descriptor."""


class ProcessState(NamedTuple):
    """The state of a process and of its main thread."""

    pid: int
    name: str = ""
    parent: int = 0
    state: str = ""
    """State of the main thread as one letter, as in `ps`: D is an uninterruptible wait, T is stopped."""
    wait_channel: str = ""
    """Function of the kernel in which the main thread waits; empty if it runs or if the file cannot be read."""
    syscall: str = ""
    """Name of the system call in which the main thread waits; empty if unknown."""
    path: str = ""
    """The file that this system call uses; empty if it uses none or it is unknown."""
    cpu: float = NAN
    """Mean number of CPUs that all threads together used while the state was read."""
    threads: int = 0
    threads_in_d: int = 0
    """Number of threads in an uninterruptible wait."""

    @property
    def state_text(self) -> str:
        """The state in words."""
        return _STATES.get(self.state, "unknown state")


def owner(pid: int, proc: str = "/proc") -> int:
    """Return the user id of a process; -1 if it does not exist."""
    try:
        return os.stat(f"{proc}/{pid}").st_uid
    except OSError:
        return -1


def children_of(pid: int, excluded: Collection[int] = (), proc: str = "/proc") -> list[int]:
    """Return the pids of all descendants of the process `pid`, without `excluded` and their descendants."""
    descendants: list[int] = []
    unvisited = [pid]
    while unvisited and len(descendants) < MAX_CHILDREN:
        for child in _direct_children(unvisited.pop(), proc):
            if child not in excluded and child not in descendants:
                descendants.append(child)
                unvisited.append(child)
    return sorted(descendants)[:MAX_CHILDREN]


def _direct_children(pid: int, proc: str) -> list[int]:
    words = [word for tid in _thread_ids(pid, proc) for word in _read(f"{proc}/{pid}/task/{tid}/children").split()]
    return [int(word) for word in words if word.isdigit()]


def read_states(pids: Iterable[int], over: float = 0.5, proc: str = "/proc") -> dict[int, ProcessState]:
    """Return the states of these processes by pid. Processes that do not exist are left out.

    Takes `over` seconds, in which the use of the CPU is measured.
    """
    listed = list(pids)
    begin, before = time.monotonic(), {pid: _stat(pid, proc) for pid in listed}
    time.sleep(over)
    seconds, ticks = time.monotonic() - begin, os.sysconf("SC_CLK_TCK")
    states = {}
    for pid in listed:
        first, last = before[pid], _stat(pid, proc)
        if first is None or last is None or first.started != last.started:
            continue
        states[pid] = _state(pid, last, proc)._replace(cpu=(last.cpu - first.cpu) / ticks / seconds)
    return states


def _state(pid: int, stat: Stat, proc: str) -> ProcessState:
    threads = [_stat(pid, proc, tid) for tid in _thread_ids(pid, proc)]
    letters = [thread.state for thread in threads if thread is not None]
    main = _stat(pid, proc, pid) or stat
    call, path = _system_call(pid, proc) if main.state in "SD" else ("", "")
    channel = clean(_read(f"{proc}/{pid}/wchan"), 60) if main.state in "SD" else ""
    return ProcessState(
        pid=pid,
        name=clean(stat.name.decode("utf-8", "replace"), 40),
        parent=stat.parent,
        state=clean(main.state, 1),
        wait_channel="" if channel == "0" else channel,
        syscall=call,
        path=path,
        threads=len(letters),
        threads_in_d=letters.count("D"),
    )


def _system_call(pid: int, proc: str) -> tuple[str, str]:
    """Return the name of the system call in which a process waits, and the path of the file that the call uses."""
    words = _read(f"{proc}/{pid}/syscall").split()
    if len(words) < 2 or not words[0].isdigit():
        return "", ""  # not permitted, or the process runs
    name = _SYSCALLS.get(platform.machine(), {}).get(int(words[0]), f"system call {int(words[0])}")
    path = ""
    if name in _ON_FILES:
        with suppress(OSError, ValueError):
            path = clean(os.readlink(f"{proc}/{pid}/fd/{int(words[1], 16)}"), _MAX_TEXT)
    return name, path


def _thread_ids(pid: int, proc: str) -> list[int]:
    try:
        names = os.listdir(f"{proc}/{pid}/task")
    except OSError:
        return []
    return [int(name) for name in names[:_MAX_THREADS] if name.isdigit()]


def _stat(pid: int, proc: str, tid: int = 0) -> Stat | None:
    proc_path = f"{proc}/{pid}/task/{tid}/stat" if tid else f"{proc}/{pid}/stat"
    try:
        with open(proc_path, "rb") as file:
            return parse_stat(file.read(_MAX_FILE))
    except OSError:
        return None


def _read(proc_path: str) -> str:
    try:
        with open(proc_path, "rb") as file:
            return file.read(_MAX_FILE).decode("utf-8", "replace").strip()
    except OSError:
        return ""
