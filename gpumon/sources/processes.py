"""Processes of the machine, from /proc.

A kept descriptor of `/proc/<pid>/stat` costs 4 µs a read where psutil costs 50 to 140
(measured, see benchmarks); it answers ESRCH once the process is gone, so a pid that is used again
cannot fool it.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import NamedTuple

from gpumon.common.clock import SECOND, Clock
from gpumon.common.numbers import NAN
from gpumon.common.procfs import Stat, cpu_time, has_own_pids, parse_stat
from gpumon.common.text import clean
from gpumon.sources.base import Described
from gpumon.sources.containers import LONGEST, Confinement, PodNames, confinement

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_FORGET_EVERY = 10 * SECOND
"""ns between two looks for processes that were not asked for since the last one: they ended, or have left their GPUs.
"""
_SHORTEST = SECOND // 10
"""ns over which a CPU share is told at least: the kernel counts in hundredths of a second. A process on several GPUs is
asked for once for each, and from one to the next it has done nothing, or more than there are CPUs."""
_READ_ANYWAY = 30 * SECOND
"""ns after which a process is read though it has not run meanwhile: the kernel may have moved its pages to swap."""
GPU_DEVICES = ("/dev/nvidia", "/dev/dxg", "/dev/kfd", "/dev/dri/")
"""Beginnings of the devices through which processes use GPUs."""


class _Known:
    """A process that was asked for before."""

    __slots__ = (
        "asked", "confinement", "cpu", "cpu_at", "described", "fd", "is_still", "name", "path", "ran_ns", "raw",
        "read_at", "share", "started", "stat", "uid", "user",
    )  # fmt: skip

    def __init__(self, path: str, fd: int, name: str, uid: int, started: float, confinement: Confinement) -> None:
        self.path = path
        """Its directory."""
        self.fd = fd
        """Its open `stat`: the one descriptor that a process costs."""
        self.name = name
        self.uid = uid
        self.user = user_name(uid)
        self.started = started
        self.confinement = confinement
        """Read once: runtimes put a process where it belongs before its program begins."""
        self.share = NAN
        self.cpu = 0.0
        self.cpu_at = 0
        self.asked = 0
        self.ran_ns = -1
        """Time for which it had run when it was read last, at `read_at`; below 0 where that is not known."""
        self.read_at = 0
        self.raw = b""
        self.is_still = False
        """Whether all its CPU time was told, and none was new: as long as it does not run, it stays as described."""
        self.stat: Stat | None = None
        """Parsed from `raw`: most processes sleep, and nothing of it changes."""
        self.described: Described | None = None
        """The same object as long as nothing of it changes; None where it is to be made anew."""


class ProcessTable:
    """Name, user and use of processes, by pid; sources in several threads may ask it."""

    def __init__(
        self, clock: Clock, proc: str = "/proc", has_own_pids: bool = False, pods: PodNames | None = None,
        ran: Callable[[int], int] | None = None,
    ) -> None:  # fmt: skip
        """`has_own_pids`: a driver may mean another process, so one counts only while it has a GPU open.

        `ran` tells for how long a process has run, as `cpu_time` does for those of this machine.
        """
        self._clock = clock
        self._has_own_pids = has_own_pids
        self._proc = proc
        self._pods = pods or PodNames(clock)
        self._ran = ran or (cpu_time if proc == "/proc" else _unknown)
        self._known: dict[int, _Known] = {}
        self._forgot = 0
        """When processes were forgotten last, ns."""
        self._lock = Lock()
        """Of `_known` and the descriptors in it: one that another thread closes may be another file's at once."""
        self._boot = self._boot_time()

    def describe(self, pid: int) -> Described:
        """Describe a process; its CPU share is that since the last call, or before, if that was just now."""
        with self._lock:
            now, known = self._clock.monotonic(), self._known.get(pid)
            is_still = known is not None and known.is_still and now - known.read_at < _READ_ANYWAY
            if known is None or not is_still or self._ran(pid) != known.ran_ns:
                return self._describe(pid, known, now)
            assert known.described is not None
            known.asked = now
            if now - known.cpu_at >= _SHORTEST:
                known.cpu_at = now
            return known.described

    def _describe(self, pid: int, known: _Known | None, now: int) -> Described:
        if known is not None and not self._renew(pid, known, now):
            self._drop(pid)
            known = None
        if known is None:
            known = self._open(pid)
            if known is None or not self._renew(pid, known, now):
                return Described()
        known.asked = now
        if known.described is None:
            assert known.stat is not None
            resident = float(known.stat.resident_pages * _PAGE)
            known.described = Described(known.name, known.user, known.started, known.share, resident, known.confinement)
        known.is_still = known.share == 0.0 and known.ran_ns >= 0 and known.cpu_at == now
        return known.described

    def _renew(self, pid: int, known: _Known, now: int) -> bool:
        """Read what is new of a process; return whether there is one.

        Of one that has not run since, nothing is: to ask for that takes a tenth of the time of reading it.
        """
        ran_ns = self._ran(pid)
        if ran_ns < 0 or ran_ns != known.ran_ns or now - known.read_at >= _READ_ANYWAY:
            if not _read(known):
                return False
            known.ran_ns, known.read_at = ran_ns, now
        stat = known.stat
        if stat is None:
            return False
        cpu, passed = stat.cpu / _TICK, now - known.cpu_at
        if not known.cpu_at:
            known.cpu, known.cpu_at = cpu, now
        elif passed >= _SHORTEST:
            share = (cpu - known.cpu) / (passed / SECOND)
            if share != known.share:
                known.share, known.described = share, None
            known.cpu, known.cpu_at = cpu, now
        return True

    def forget(self) -> None:
        """Close the descriptors of processes that have not been asked for since the last time but one; once a tick."""
        with self._lock:
            now = self._clock.monotonic()
            if now - self._forgot < _FORGET_EVERY:
                return
            for pid in [pid for pid, known in self._known.items() if known.asked < self._forgot]:
                self._drop(pid)
            self._forgot = now

    def close(self) -> None:
        """Close all descriptors."""
        with self._lock:
            for pid in list(self._known):
                self._drop(pid)

    def _open(self, pid: int) -> _Known | None:
        path, opened = f"{self._proc}/{pid}", -1
        try:
            home = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:  # there is none
            return None
        try:
            opened = os.open("stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=home)
            raw = os.pread(opened, 2048, 0)
            if self._has_own_pids and not _has_gpu_open(home):
                raise ProcessLookupError
            around = _confinement(home)
        except OSError:  # it ended between two of these, or it is another one
            if opened >= 0:
                os.close(opened)
            return None
        finally:
            os.close(home)
        if around.pod:
            around = _with_name(around, self._pods)
        stat = parse_stat(raw)
        name = clean(stat.name.decode("utf-8", "replace"), 64) if stat else ""
        started = self._boot + stat.started / _TICK if stat else NAN
        known = self._known[pid] = _Known(path, opened, name, _owner(path), started, around)
        return known

    def _drop(self, pid: int) -> None:
        os.close(self._known.pop(pid).fd)

    def _boot_time(self) -> float:
        try:
            with open(f"{self._proc}/stat", "rb") as file:
                for line in file:
                    if line.startswith(b"btime"):
                        return float(line.split()[1])
        except OSError:
            return NAN
        return NAN


def _read(known: _Known) -> bool:
    """Read what the machine tells of a process; return whether there is one. Nothing is parsed that is as it was."""
    uid = _owner(known.path)  # before its `stat`, which tells whether it lived then
    try:
        raw = os.pread(known.fd, 2048, 0)
    except OSError:  # ESRCH: it has ended
        return False
    if uid != known.uid:  # it changed its user, as a server does that begins as root
        known.uid, known.user, known.described = uid, user_name(uid), None
    if raw != known.raw:
        known.raw, known.stat, known.described = raw, parse_stat(raw), None
    return True


def _unknown(_: int) -> int:
    return -1


def _owner(path: str) -> int:
    """The user of a process, by its directory; -1 where it is hidden. Files in it may be root's instead: proc(5)."""
    try:
        return os.stat(path).st_uid
    except OSError:
        return -1


def user_name(uid: int) -> str:
    """Return the name of a user, or the number of one without an account here; empty where it is not known."""
    if uid < 0:
        return ""
    try:
        return clean(pwd.getpwuid(uid).pw_name, 64)
    except KeyError:
        return str(uid)


def _confinement(home: int) -> Confinement:
    """Return where a process, by its directory, is confined; nothing where that cannot be read."""
    try:
        file = os.open("cgroup", os.O_RDONLY | os.O_CLOEXEC, dir_fd=home)
    except OSError:
        return Confinement()
    try:
        return confinement(os.pread(file, LONGEST, 0))
    except OSError:
        return Confinement()
    finally:
        os.close(file)


def _with_name(found: Confinement, pods: PodNames) -> Confinement:
    """Return it with the name of its pod, where that is known."""
    container = found.container.partition(" in ")[0].rpartition(" ")[2]
    name = pods.name(found.pod, container)
    return found._replace(pod=f"{found.pod} {name}") if name else found


def _has_gpu_open(home: int) -> bool:
    """Whether a process, by its directory, has the device of a GPU open. Raises OSError where that cannot be seen."""
    descriptors = os.open("fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=home)
    try:
        for name in os.listdir(descriptors):
            with suppress(OSError):  # closed meanwhile
                if os.readlink(name, dir_fd=descriptors).startswith(GPU_DEVICES):
                    return True
        return False
    finally:
        os.close(descriptors)


class Surroundings(NamedTuple):
    """Limits of this place."""

    notice: str = ""
    """A sentence for people; empty where every process can be seen."""
    has_own_pids: bool = False
    """Whether pids here are not those of the machine, so that one from the driver may be another process's."""

    @property
    def lists_all(self) -> bool:
        """Whether a process that a driver does not list is not on the GPU. A name that is hidden is not a gap."""
        return self.notice in ("", HIDDEN) and not self.has_own_pids


WSL = "WSL: Windows does not report which processes use a GPU, nor the memory of each"
NO_PROC = "/proc cannot be read here: processes have no names"
CONTAINER = "container: without --pid=host, processes outside of it are not listed or have no names"
HIDDEN = "hidepid: /proc hides other users' processes, which have no names unless the daemon runs as root"


def surroundings(proc: str = "/proc", dxg: str = "/dev/dxg") -> Surroundings:
    """Look where this process runs. `dxg` is the device through which a WSL machine reaches its GPUs."""
    own_pids = has_own_pids(proc)
    if os.path.exists(dxg):
        return Surroundings(WSL, own_pids)
    if not os.path.exists(f"{proc}/self"):
        return Surroundings(NO_PROC, own_pids)
    if own_pids:
        return Surroundings(CONTAINER, own_pids)
    # The first process belongs to root: whoever cannot read it sees only processes of its own user.
    return Surroundings("" if os.access(f"{proc}/1/stat", os.R_OK) else HIDDEN)
