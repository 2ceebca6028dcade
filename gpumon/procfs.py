"""Facts of this boot and of processes, from /proc: who wrote a file, and whether it still lives."""

from __future__ import annotations

import os
from functools import cache


@cache
def boot_id() -> bytes:
    """16 bytes that are new with every boot; zeros where the kernel does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return bytes.fromhex(file.read().strip().replace(b"-", b"").decode())
    except (OSError, ValueError):
        return bytes(16)


def process_state(pid: int) -> tuple[str, int]:
    """State letter and start time (clock ticks after boot) of a process; ("", 0) when there is none.

    Source: proc(5), /proc/<pid>/stat fields 3 and 22. The name in parentheses may hold anything,
    parentheses too, so fields count from the last ')'.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return fields[0].decode(), int(fields[19])
    except (OSError, ValueError, IndexError):
        return "", 0


def own_start() -> int:
    """Start time of this process, in clock ticks after boot."""
    return process_state(os.getpid())[1]


def is_alive(pid: int, started: int) -> bool:
    """Whether the process that had this pid and start time still runs (a zombie does not)."""
    state, found = process_state(pid)
    return state not in ("", "Z", "X") and found == started
