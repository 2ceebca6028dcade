"""Describes processes of this machine, from /proc, and detects which processes are hidden.

Reading `/proc/<pid>/stat` from a descriptor that stays open takes 4 µs. psutil takes 50 to 140 µs (see benchmarks).
After the process has ended, reading from the descriptor fails with ESRCH. So another process with the same pid cannot
be mistaken for it.
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
from gpumon.sources.base import ProcessInfo
from gpumon.sources.cgroup import LONGEST, CgroupInfo, PodNames, parse_cgroup

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_EVICT_EVERY = 10 * SECOND
"""ns between two evictions. Processes that were not described between two evictions have ended or have stopped using
GPUs."""
_MIN_WINDOW = SECOND // 10
"""Minimum ns over which a CPU share is computed, because the kernel counts in hundredths of a second. A process on
several GPUs is described once per GPU. Over the short time between two of these descriptions, its share would be 0, or
more than the number of CPUs."""
_READ_ANYWAY = 30 * SECOND
"""A process that has not run is read again after this many ns, because the kernel may have swapped its pages out."""
GPU_DEVICES = ("/dev/nvidia", "/dev/dxg", "/dev/kfd", "/dev/dri/")
"""Prefixes of the devices through which processes use GPUs."""


class _TrackedProcess:
    """State of a process that was described before."""

    def __init__(self, path: str, fd: int, name: str, uid: int, started: float, cgroup: CgroupInfo) -> None:
        self.path = path
        """Directory of the process in /proc."""
        self.fd = fd
        """Descriptor of the open `stat` file. This is the only descriptor that stays open for a process."""
        self.name = name
        self.uid = uid
        self.user = user_name(uid)
        self.started = started
        self.cgroup = cgroup
        """Read only once, because a runtime moves a process to its cgroup before the program starts."""
        self.share = NAN
        self.cpu = 0.0
        self.cpu_at = 0
        self.described_at = 0
        self.run_time = -1
        """CPU time in ns at `read_at`; negative if it could not be read."""
        self.read_at = 0
        self.raw = b""
        self.stat: Stat | None = None
        """Fields of `/proc/<pid>/stat`, parsed from `raw`."""
        self.info: ProcessInfo | None = None
        """Last description of the process, reused while nothing changes; None if it must be built again."""


class ProcessTable:
    """Describes processes by pid. May be used from any thread."""

    def __init__(
        self, clock: Clock, proc: str = "/proc", has_own_pids: bool = False, pods: PodNames | None = None,
        run_time: Callable[[int], int] | None = None,
    ) -> None:  # fmt: skip
        """`has_own_pids`: whether a pid from the driver may belong to a different process in this pid namespace. If so,
        only processes that have opened a GPU are described.

        `run_time`: function that returns the CPU time of a process in ns, like `cpu_time` for processes of this
        machine.
        """
        self._clock = clock
        self._has_own_pids = has_own_pids
        self._proc = proc
        self._pods = pods or PodNames(clock)
        self._run_time = run_time or (cpu_time if proc == "/proc" else _unknown_run_time)
        self._tracked: dict[int, _TrackedProcess] = {}
        self._evicted_at = 0
        """Time of the last eviction (ns, CLOCK_MONOTONIC)."""
        self._lock = Lock()
        """Protects `_tracked` and its descriptors. If another thread closed a descriptor, its number could be reused
        for another file."""
        self._boot = self._boot_time()

    def describe(self, pid: int) -> ProcessInfo:
        """Return the description of the process `pid`.

        The CPU share covers the time since the last call, or a longer time if this call was less than 0.1 s ago.
        """
        with self._lock:
            return self._describe(pid)

    def _describe(self, pid: int) -> ProcessInfo:
        now, process = self._clock.monotonic(), self._tracked.get(pid)
        if process is not None and not self._update(pid, process, now):
            self._drop(pid)
            process = None
        if process is None:
            process = self._open(pid)
            if process is None or not self._update(pid, process, now):
                return ProcessInfo()
        process.described_at = now
        if process.info is None:
            assert process.stat is not None
            resident = float(process.stat.resident_pages * _PAGE)
            process.info = ProcessInfo(
                process.name, process.user, process.started, process.share, resident, process.cgroup
            )
        return process.info

    def _update(self, pid: int, process: _TrackedProcess, now: int) -> bool:
        """Read what has changed, and return whether the process still exists.

        `stat` is not read if the process has not run since the last read. Checking this takes only a tenth of the time.
        """
        run_time = self._run_time(pid)
        if run_time < 0 or run_time != process.run_time or now - process.read_at >= _READ_ANYWAY:
            if not _read(process):
                return False
            process.run_time, process.read_at = run_time, now
        stat = process.stat
        if stat is None:
            return False
        cpu, passed = stat.cpu / _TICK, now - process.cpu_at
        if not process.cpu_at:
            process.cpu, process.cpu_at = cpu, now
        elif passed >= _MIN_WINDOW:
            share = (cpu - process.cpu) / (passed / SECOND)
            if share != process.share:
                process.share, process.info = share, None
            process.cpu, process.cpu_at = cpu, now
        return True

    def evict(self) -> None:
        """Close the descriptors of processes that were not described for a while. Call this once per tick."""
        with self._lock:
            now = self._clock.monotonic()
            if now - self._evicted_at < _EVICT_EVERY:
                return
            for pid in [pid for pid, process in self._tracked.items() if process.described_at < self._evicted_at]:
                self._drop(pid)
            self._evicted_at = now

    def close(self) -> None:
        """Close all descriptors."""
        with self._lock:
            for pid in list(self._tracked):
                self._drop(pid)

    def _open(self, pid: int) -> _TrackedProcess | None:
        path, fd = f"{self._proc}/{pid}", -1
        try:
            process_dir = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:  # no such process
            return None
        try:
            fd = os.open("stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process_dir)
            raw = os.pread(fd, 2048, 0)
            if self._has_own_pids and not _has_gpu_open(process_dir):
                raise ProcessLookupError
            cgroup = _read_cgroup(process_dir)
        except OSError:  # the process ended in the meantime, or the pid was reused
            if fd >= 0:
                os.close(fd)
            return None
        finally:
            os.close(process_dir)
        if cgroup.pod:
            cgroup = _with_pod_name(cgroup, self._pods)
        stat = parse_stat(raw)
        name = clean(stat.name.decode("utf-8", "replace"), 64) if stat else ""
        started = self._boot + stat.started / _TICK if stat else NAN
        process = self._tracked[pid] = _TrackedProcess(path, fd, name, _owner(path), started, cgroup)
        return process

    def _drop(self, pid: int) -> None:
        os.close(self._tracked.pop(pid).fd)

    def _boot_time(self) -> float:
        try:
            with open(f"{self._proc}/stat", "rb") as file:
                for line in file:
                    if line.startswith(b"btime"):
                        return float(line.split()[1])
        except OSError:
            return NAN
        return NAN


def _read(process: _TrackedProcess) -> bool:
    """Read owner and `stat`, and return whether the process exists. `stat` is parsed only if it has changed."""
    uid = _owner(process.path)  # read before `stat`, which shows whether the process still existed
    try:
        raw = os.pread(process.fd, 2048, 0)
    except OSError:  # ESRCH: the process has ended
        return False
    if uid != process.uid:  # the process changed its user, like a server that starts as root
        process.uid, process.user, process.info = uid, user_name(uid), None
    if raw != process.raw:
        process.raw, process.stat, process.info = raw, parse_stat(raw), None
    return True


def _unknown_run_time(_: int) -> int:
    return -1


def _owner(path: str) -> int:
    """Return the uid of a process, which owns its directory; -1 if hidden.

    Files in the directory may belong to root, see proc(5).
    """
    try:
        return os.stat(path).st_uid
    except OSError:
        return -1


def user_name(uid: int) -> str:
    """Return the name of a user; the uid as text if there is no such account; empty if `uid` is negative."""
    if uid < 0:
        return ""
    try:
        return clean(pwd.getpwuid(uid).pw_name, 64)
    except KeyError:
        return str(uid)


def _read_cgroup(process_dir: int) -> CgroupInfo:
    """Read the cgroup of a process from its directory; empty if it cannot be read."""
    try:
        fd = os.open("cgroup", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process_dir)
    except OSError:
        return CgroupInfo()
    try:
        return parse_cgroup(os.pread(fd, LONGEST, 0))
    except OSError:
        return CgroupInfo()
    finally:
        os.close(fd)


def _with_pod_name(cgroup: CgroupInfo, pods: PodNames) -> CgroupInfo:
    """Append the name of the pod if it can be found."""
    container = cgroup.container.partition(" in ")[0].rpartition(" ")[2]
    name = pods.name(cgroup.pod, container)
    return cgroup._replace(pod=f"{cgroup.pod} {name}") if name else cgroup


def _has_gpu_open(process_dir: int) -> bool:
    """Return whether a process has opened a GPU device. Raises OSError if its descriptors are not visible."""
    descriptors = os.open("fd", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=process_dir)
    try:
        for name in os.listdir(descriptors):
            with suppress(OSError):  # closed in the meantime
                if os.readlink(name, dir_fd=descriptors).startswith(GPU_DEVICES):
                    return True
        return False
    finally:
        os.close(descriptors)


class Sandbox(NamedTuple):
    """The processes that this process can see."""

    notice: str = ""
    """A message that says which processes are hidden; empty if all processes are visible."""
    has_own_pids: bool = False
    """Whether this process has its own pid namespace. In it, a pid from the driver may belong to a different
    process."""

    @property
    def lists_all(self) -> bool:
        """Whether the driver's list contains every process on the GPU, even if names of processes are hidden."""
        return self.notice in ("", HIDDEN) and not self.has_own_pids


WSL = "WSL: Windows does not report which processes use a GPU, nor the memory of each"
NO_PROC = "/proc cannot be read here: processes have no names"
CONTAINER = "container: without --pid=host, processes outside the container are not listed or have no names"
HIDDEN = "hidepid: /proc hides other users' processes, which have no names unless the daemon runs as root"


def detect_sandbox(proc: str = "/proc", dxg: str = "/dev/dxg") -> Sandbox:
    """Detect which processes are hidden from this process. `dxg`: device file through which WSL uses its GPUs."""
    own_pids = has_own_pids(proc)
    if os.path.exists(dxg):
        return Sandbox(WSL, own_pids)
    if not os.path.exists(f"{proc}/self"):
        return Sandbox(NO_PROC, own_pids)
    if own_pids:
        return Sandbox(CONTAINER, own_pids)
    # Process 1 belongs to root. If it cannot be read, only processes of our own user are visible.
    return Sandbox("" if os.access(f"{proc}/1/stat", os.R_OK) else HIDDEN)
