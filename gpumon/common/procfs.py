"""Facts of this boot and of processes, from /proc: who wrote a file, and whether it still lives."""

import os
import time
from functools import cache
from typing import NamedTuple

_SCHEDULED = 2
"""CPUCLOCK_SCHED, linux/posix-timers.h: what the scheduler has counted."""
_FIRST_NAMESPACE = "pid:[4026531836]"
"""The machine's own pid namespace: PROC_PID_INIT_INO, linux/proc_ns.h."""


class Stat(NamedTuple):
    """The public facts of a process: proc(5), fields of `/proc/<pid>/stat`."""

    name: bytes
    """As the process chose it: any bytes, at most 15 of a program's."""
    state: str
    """One letter; "Z" is a zombie, "X" dead, "T" stopped."""
    parent: int
    cpu: int
    """User and system time so far, in clock ticks."""
    started: int
    """Clock ticks after boot; with the pid it names a process for ever."""
    resident_pages: int


@cache
def boot_id() -> bytes:
    """16 bytes that are new with every boot; zeros where the kernel does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return bytes.fromhex(file.read().strip().replace(b"-", b"").decode())
    except (OSError, ValueError):
        return bytes(16)


def cpu_with_children(raw: bytes) -> int:
    """User and system time of a `/proc/<pid>/stat`, with that of its children that have ended, in clock ticks.

    0 where it is none. Fields 14 to 17 of proc(5).
    """
    try:
        return sum(map(int, _fields_behind_the_name(raw, 16)[1][11:15]))
    except ValueError:
        return 0


def _fields_behind_the_name(raw: bytes, most: int) -> tuple[bytes, list[bytes]]:
    """Text up to the end of the name, and fields from the third on; the last has the rest behind `most`.

    The name in parentheses may hold anything, parentheses too, so fields count from the last ')'.
    """
    head, _, rest = raw.rpartition(b")")
    return head, rest.split(None, most)


def parse_stat(raw: bytes) -> Stat | None:
    """The content of a `/proc/<pid>/stat`, or None where it is none, as of a process that has just ended."""
    head, fields = _fields_behind_the_name(raw, 22)
    try:
        # Fields 2, 3, 4, 14, 15, 22 and 24 of proc(5), which counts from 1 and the pid. Positional: it is read for each
        # process on a GPU, each second.
        return Stat(
            head[head.find(b"(") + 1 :], fields[0].decode(), int(fields[1]), int(fields[11]) + int(fields[12]),
            int(fields[19]), int(fields[21]),
        )  # fmt: skip
    except (ValueError, IndexError):
        return None


def read_stat(pid: int | str = "self", proc: str = "/proc") -> Stat | None:
    """The process `pid`; None where there is no such process, or none that we may see."""
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:
            return parse_stat(file.read())
    except OSError:
        return None


def start_time(pid: int | str = "self", proc: str = "/proc") -> int:
    """Clock ticks after boot at which `pid` began; 0 where nobody tells."""
    found = read_stat(pid, proc)
    return found.started if found else 0


def began(started: int) -> float:
    """Return seconds since 1970 of a start in clock ticks after boot, by the clock as it is set now."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + started / os.sysconf("SC_CLK_TCK")


def cpu_time(pid: int) -> int:
    """Return the ns for which all threads of a process have run; -1 where there is none, or the kernel does not tell.

    This is the clock that clock_getcpuclockid(3) names.
    """
    try:
        return time.clock_gettime_ns((~pid << 3) | _SCHEDULED)
    except (OSError, OverflowError, TypeError):  # the last is what Python 3.13 calls a number that is too large
        return -1


def is_alive(pid: int, started: int) -> bool:
    """Whether the process that had this pid and start time still runs (a zombie does not)."""
    found = read_stat(pid)
    return found is not None and found.state not in ("Z", "X") and found.started == started


def has_own_pids(proc: str = "/proc") -> bool:
    """Whether pids here are not those of the machine, as in a container; False where the kernel does not tell."""
    try:
        return os.readlink(f"{proc}/self/ns/pid") != _FIRST_NAMESPACE
    except OSError:
        return False
