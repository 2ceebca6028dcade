"""The machine itself, and the processes on it, from /proc.

A kept descriptor of `/proc/<pid>/stat` costs 4 µs a read where psutil costs 50 to 140
(measured, see benchmarks); it answers ESRCH once the process is gone, so a pid that is used again
cannot fool it.
"""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Callable
from threading import Lock

from gpumon.clock import SECOND, Clock
from gpumon.frame import NAN
from gpumon.metrics import HOST_METRICS
from gpumon.procfs import Stat, parse_stat
from gpumon.text import clean

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_SECTOR = 512
"""Bytes of a sector in /proc/diskstats, whatever the disk: Documentation/admin-guide/iostats.rst."""
_NAMES = tuple(metric.name for metric in HOST_METRICS)
_FORGET_AFTER = 30.0
_MOST = 1 << 16
"""Bytes asked for at once; more than any of these files has on most machines."""


class HostSource:
    """CPU, memory, swap, load, disks and network of this machine.

    Counters are since boot. CPU utilization is between two reads, so the first one has none until
    some time has gone by since the source was made.
    """

    def __init__(self, clock: Clock, proc: str = "/proc", hostname: Callable[[], str] = socket.gethostname) -> None:
        self.hostname = clean(hostname(), 64)
        self.processes = ProcessTable(clock, proc)
        self._proc = proc
        self._files: dict[str, int] = {}
        self._whole_disks = _whole_disks("/sys/block" if proc == "/proc" else f"{proc}/sys_block")
        self._cpu = self._cpu_times()
        self._utilization = NAN

    def read(self) -> list[float]:
        """Values in the order of `HOST_METRICS`."""
        found: dict[str, float] = {}
        found["host.cpu_utilization"] = self._cpu_share()
        found.update(self._memory())
        found.update(self._disks())
        found.update(self._network())
        load = self._text("loadavg").split()
        if load:
            found["host.load"] = float(load[0])
        return [found.get(name, NAN) for name in _NAMES]

    def _cpu_share(self) -> float:
        busy, total = self._cpu_times()
        before_busy, before_total = self._cpu
        # Below 10 clock ticks the share would be a guess; the last one holds.
        if total - before_total >= 10:
            self._utilization = min(1.0, max(0.0, (busy - before_busy) / (total - before_total)))
            self._cpu = busy, total
        return self._utilization

    def _cpu_times(self) -> tuple[int, int]:
        # user nice system idle iowait irq softirq steal; guest time is inside user: proc(5).
        fields = [int(field) for field in self._text("stat").partition("\n")[0].split()[1:9]]
        if len(fields) < 5:
            return 0, 0
        return sum(fields) - fields[3] - fields[4], sum(fields)

    def _memory(self) -> dict[str, float]:
        text = self._text("meminfo")
        total, swap = _kib(text, "MemTotal:"), _kib(text, "SwapTotal:")
        return {
            "host.memory_total": total,
            "host.memory_used": total - _kib(text, "MemAvailable:"),
            "host.swap_total": swap,
            "host.swap_used": swap - _kib(text, "SwapFree:"),
        }

    def _disks(self) -> dict[str, float]:
        read = written = 0
        lines = [line.split() for line in self._text("diskstats").splitlines()]
        whole = [fields for fields in lines if len(fields) > 9 and fields[2] in self._whole_disks]
        if not whole:
            return {}
        for fields in whole:
            read += int(fields[5])
            written += int(fields[9])
        return {"host.disk_read": float(read * _SECTOR), "host.disk_written": float(written * _SECTOR)}

    def _network(self) -> dict[str, float]:
        received = sent = 0
        lines = self._text("net/dev").splitlines()[2:]
        for line in lines:
            name, _, rest = line.partition(":")
            fields = rest.split()
            if name.strip() != "lo" and len(fields) > 8:
                received += int(fields[0])
                sent += int(fields[8])
        return {"host.network_received": float(received), "host.network_sent": float(sent)} if lines else {}

    def close(self) -> None:
        """Close all descriptors."""
        self.processes.close()
        while self._files:
            os.close(self._files.popitem()[1])

    def _text(self, name: str) -> str:
        """A file of procfs, through a descriptor that is kept: opening one costs as much as reading it."""
        try:
            if name not in self._files:
                self._files[name] = os.open(f"{self._proc}/{name}", os.O_RDONLY | os.O_CLOEXEC)
            fd = self._files[name]
            text = os.pread(fd, _MOST, 0)
            while len(text) % _MOST == 0 and (more := os.pread(fd, _MOST, len(text))):
                text += more
        except OSError:
            return ""
        return text.decode("ascii", "replace")


class _Known:
    """A process that was asked for before."""

    __slots__ = ("asked", "cpu", "cpu_at", "fd", "home", "name", "raw", "share", "started", "stat", "uid", "user")

    def __init__(self, home: int, fd: int, name: str, uid: int, started: float) -> None:
        self.home = home
        """Its directory: to ask for the owner of an open one costs half of what it does by its path."""
        self.fd = fd
        self.name = name
        self.uid = uid
        self.user = _user(uid)
        self.started = started
        self.share = NAN
        self.cpu = 0.0
        self.cpu_at = 0
        self.asked = 0
        self.raw = b""
        self.stat: Stat | None = None
        """Parsed from `raw`: most processes sleep, and nothing of it changes."""


class ProcessTable:
    """Name, user and use of processes, by pid; sources in several threads may ask it."""

    def __init__(self, clock: Clock, proc: str = "/proc") -> None:
        self._clock = clock
        self._proc = proc
        self._known: dict[int, _Known] = {}
        self._lock = Lock()
        """Of `_known` and the descriptors in it: one that another thread closes may be another file's at once."""
        self._boot = self._boot_time()

    def describe(self, pid: int) -> tuple[str, str, float, float, float]:
        """Name, user, start (s since 1970), CPU share since the last call (NaN the first time),
        resident bytes. Empty and NaN for a process that cannot be seen, as from inside a container.
        """
        with self._lock:
            return self._describe(pid)

    def _describe(self, pid: int) -> tuple[str, str, float, float, float]:
        now = self._clock.monotonic()
        known = self._known.get(pid)
        uid = _owner(known.home) if known else -1  # before its `stat`, which tells whether it lives
        stat = self._stat(known) if known else None
        if known is None or stat is None:
            if known is not None:
                self._drop(pid)
            known = self._open(pid)
            stat = self._stat(known) if known else None
            if known is None or stat is None:
                return "", "", NAN, NAN, NAN
        elif known.uid != uid:  # it changed its user, as a server does that begins as root
            known.uid, known.user = uid, _user(uid)
        cpu = stat.cpu / _TICK
        if known.cpu_at and now > known.cpu_at:
            known.share = (cpu - known.cpu) / ((now - known.cpu_at) / SECOND)
        known.cpu, known.cpu_at, known.asked = cpu, now, now
        self._forget(now)
        return known.name, known.user, known.started, known.share, float(stat.resident_pages * _PAGE)

    def close(self) -> None:
        """Close all descriptors."""
        with self._lock:
            for pid in list(self._known):
                self._drop(pid)

    def _open(self, pid: int) -> _Known | None:
        opened: list[int] = []
        try:
            opened.append(os.open(f"{self._proc}/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
            opened.append(os.open("stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=opened[0]))
            uid = _owner(opened[0])
            raw = os.pread(opened[1], 2048, 0)
        except OSError:  # there is none, or it ended between two of these
            for fd in opened:
                os.close(fd)
            return None
        stat = parse_stat(raw)
        name = clean(stat.name.decode("utf-8", "replace"), 64) if stat else ""
        started = self._boot + stat.started / _TICK if stat else NAN
        known = self._known[pid] = _Known(opened[0], opened[1], name, uid, started)
        return known

    def _stat(self, known: _Known) -> Stat | None:
        try:
            raw = os.pread(known.fd, 2048, 0)
        except OSError:  # ESRCH: it has ended
            return None
        if raw != known.raw:
            known.raw, known.stat = raw, parse_stat(raw)
        return known.stat

    def _forget(self, now: int) -> None:
        if len(self._known) > 64:
            for pid in [pid for pid, known in self._known.items() if now - known.asked > _FORGET_AFTER * SECOND]:
                self._drop(pid)

    def _drop(self, pid: int) -> None:
        known = self._known.pop(pid)
        os.close(known.fd)
        os.close(known.home)

    def _boot_time(self) -> float:
        try:
            with open(f"{self._proc}/stat", "rb") as file:
                for line in file:
                    if line.startswith(b"btime"):
                        return float(line.split()[1])
        except OSError:
            return NAN
        return NAN


def _kib(text: str, key: str) -> float:
    """Bytes of a line of /proc/meminfo, which counts in KiB."""
    _, found, rest = text.partition(key)
    return float(rest.split(None, 1)[0]) * 1024 if found else NAN


def _owner(home: int) -> int:
    """The user of a process, by its directory; -1 where it is hidden. Files in it may be root's instead: proc(5)."""
    try:
        return os.fstat(home).st_uid
    except OSError:
        return -1


def _user(uid: int) -> str:
    if uid < 0:
        return ""
    try:
        return clean(pwd.getpwuid(uid).pw_name, 64)
    except KeyError:
        return str(uid)


def _whole_disks(block: str) -> frozenset[str]:
    """Disks, not their partitions, nor loops, RAM disks and mapped devices that lie on them."""
    try:
        names = os.listdir(block)
    except OSError:
        return frozenset()
    return frozenset(name for name in names if not name.startswith(("loop", "ram", "zram", "dm-", "md", "sr", "fd")))
