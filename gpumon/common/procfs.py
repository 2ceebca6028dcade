"""The boot id and processes, from /proc: start times, CPU times, and whether a process is alive."""

import os
import time
from functools import cache
from typing import NamedTuple

_CPUCLOCK_SCHED = 2
"""Clock type for the CPU time that the scheduler counts: linux/posix-timers.h."""
_INIT_NAMESPACE = "pid:[4026531836]"
"""The machine's own pid namespace: PROC_PID_INIT_INO, linux/proc_ns.h."""


class Stat(NamedTuple):
    """Fields of `/proc/<pid>/stat`, as described in proc(5)."""

    name: bytes
    """Name of the process, which it chooses itself. May be any bytes, usually at most 15."""
    state: str
    """State of the process as one letter: "Z" is a zombie, "X" dead, "T" stopped."""
    parent: int
    cpu: int
    """User and system time of the process in clock ticks."""
    started: int
    """Start time of the process in clock ticks after boot. With the pid, it identifies a process."""
    resident_pages: int


@cache
def boot_id() -> bytes:
    """Return the 16 bytes of the kernel's boot id, which change with each boot; zeros if unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return bytes.fromhex(file.read().strip().replace(b"-", b"").decode())
    except (OSError, ValueError):
        return bytes(16)


def cpu_with_children(raw: bytes) -> int:
    """Return a process's user and system time in clock ticks, including its ended children.

    `raw`: content of `/proc/<pid>/stat`, of which fields 14 to 17 are used: proc(5). Returns 0 if it cannot be parsed.
    """
    try:
        return sum(map(int, _split_stat(raw, 16)[1][11:15]))
    except ValueError:
        return 0


def _split_stat(raw: bytes, limit: int) -> tuple[bytes, list[bytes]]:
    """Return the bytes up to the end of the name, and the fields from the third on. The last has all beyond `limit`.

    The name is in parentheses, but may itself contain parentheses. So the fields are counted from the last ')'.
    """
    head, _, rest = raw.rpartition(b")")
    return head, rest.split(None, limit)


def parse_stat(raw: bytes) -> Stat | None:
    """Parse the content of a `/proc/<pid>/stat`; None if it is invalid, as it is for a process that has just ended."""
    head, fields = _split_stat(raw, 22)
    try:
        # Fields 2, 3, 4, 14, 15, 22 and 24 of proc(5), which counts from 1 with the pid. Positional arguments, because
        # this runs for each process on a GPU every second.
        return Stat(
            head[head.find(b"(") + 1 :], fields[0].decode(), int(fields[1]), int(fields[11]) + int(fields[12]),
            int(fields[19]), int(fields[21]),
        )  # fmt: skip
    except (ValueError, IndexError):
        return None


def read_stat(pid: int | str = "self", proc: str = "/proc") -> Stat | None:
    """Return the `stat` of a process; None if it does not exist or is not visible."""
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:
            return parse_stat(file.read())
    except OSError:
        return None


def start_time(pid: int | str = "self", proc: str = "/proc") -> int:
    """Return the start time of a process in clock ticks after boot; 0 if unknown."""
    stat = read_stat(pid, proc)
    return stat.started if stat else 0


def start_timestamp(started: int) -> float:
    """Convert a start time in clock ticks after boot to seconds since 1970, using the current wall clock."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + started / os.sysconf("SC_CLK_TCK")


def cpu_time(pid: int) -> int:
    """Return the CPU time of all threads of a process in ns; -1 if the process does not exist or the time is unknown.

    Read from the process's CPU-time clock: clock_getcpuclockid(3).
    """
    try:
        return time.clock_gettime_ns((~pid << 3) | _CPUCLOCK_SCHED)
    except (OSError, OverflowError, TypeError):  # Python 3.13 raises TypeError for a number that is too large
        return -1


def is_alive(pid: int, started: int) -> bool:
    """Return whether the process with this pid and start time is still running; False for a zombie."""
    stat = read_stat(pid)
    return stat is not None and stat.state not in ("Z", "X") and stat.started == started


def has_own_pids(proc: str = "/proc") -> bool:
    """Return whether this process is in its own pid namespace, as in a container; False if unknown."""
    try:
        return os.readlink(f"{proc}/self/ns/pid") != _INIT_NAMESPACE
    except OSError:
        return False
