"""Reads from /proc: the boot id, start and CPU times of processes, and whether a process is alive."""

import os
import time
from functools import cache
from typing import NamedTuple

_CPUCLOCK_SCHED = 2
"""Clock type of the CPU time that the scheduler counts; see linux/posix-timers.h."""
_INIT_NAMESPACE = "pid:[4026531836]"
"""The machine's own pid namespace: PROC_PID_INIT_INO in linux/proc_ns.h."""


class Stat(NamedTuple):
    """Fields of `/proc/<pid>/stat`, as described in proc(5)."""

    name: bytes
    """Name of the process. The process chooses it, so it may contain any bytes. It usually has at most 15."""
    state: str
    """State of the process as one letter: "Z" is a zombie, "X" dead, "T" stopped."""
    parent: int
    cpu: int
    """User and system time of the process in clock ticks."""
    started: int
    """Start time of the process in clock ticks after boot. Pid and start time together identify a process."""
    resident_pages: int


@cache
def boot_id() -> bytes:
    """Return the 16 bytes of the kernel's boot id, which change with each boot. Zeros if the id cannot be read."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return bytes.fromhex(file.read().strip().replace(b"-", b"").decode())
    except (OSError, ValueError):
        return bytes(16)


def cpu_with_children(raw: bytes) -> int:
    """Return the user and system time of a process and its ended children, in clock ticks.

    `raw`: content of `/proc/<pid>/stat`. The times are its fields 14 to 17, see proc(5). Returns 0 if `raw` cannot be
    parsed.
    """
    try:
        return sum(map(int, _split_stat(raw, 16)[1][11:15]))
    except ValueError:
        return 0


def _split_stat(raw: bytes, limit: int) -> tuple[bytes, list[bytes]]:
    """Return the bytes up to the end of the name, and the fields from the third on.

    The name is in parentheses but may itself contain parentheses, so the fields are counted from the last ')'. After
    `limit` fields, the rest is returned as one field.
    """
    head, _, rest = raw.rpartition(b")")
    return head, rest.split(None, limit)


def parse_stat(raw: bytes) -> Stat | None:
    """Parse the content of `/proc/<pid>/stat`. None if it is invalid, for example if the process has just ended."""
    head, fields = _split_stat(raw, 22)
    try:
        # These are the fields 2, 3, 4, 14, 15, 22 and 24 in proc(5), where field 1 is the pid. The arguments are
        # positional because this runs for each process on a GPU every second.
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
    """Return the start time of a process in clock ticks after boot; 0 if the process cannot be read."""
    stat = read_stat(pid, proc)
    return stat.started if stat else 0


def start_timestamp(started: int) -> float:
    """Convert a start time in clock ticks after boot to seconds since 1970, using the current wall clock."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + started / os.sysconf("SC_CLK_TCK")


def cpu_time(pid: int) -> int:
    """Return the CPU time of all threads of a process in ns; -1 if the process does not exist or cannot be read.

    The time is read from the CPU-time clock of the process, see clock_getcpuclockid(3).
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
    """Return whether this process has its own pid namespace, as in a container. False if this cannot be read."""
    try:
        return os.readlink(f"{proc}/self/ns/pid") != _INIT_NAMESPACE
    except OSError:
        return False
