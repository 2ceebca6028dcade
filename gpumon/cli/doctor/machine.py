"""The files, processes, kernel log, environment variables and packages that `gpumon doctor` checks."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from shutil import which
from typing import NamedTuple

from gpumon.common.paths import read_regular
from gpumon.common.procfs import has_own_pids, read_stat

_MAX_TEXT = 1 << 20
_MAX_LOG = 16 << 20
"""Maximum bytes read of the kernel log."""
_RECORD = re.compile(r"\d+,\d+,(\d+),[^;]*;(.*)")
"""A record of /dev/kmsg: priority, sequence number, time (us since boot), flags, text.

Source: Documentation/ABI/testing/dev-kmsg.
"""


_MODES_QUERY = ("--query-gpu=index,compute_mode,persistence_mode", "--format=csv,noheader")
_TIMEOUT = 10.0
"""Maximum seconds for nvidia-smi."""


class KernelMessage(NamedTuple):
    """A message of the kernel log."""

    seconds: float
    """Time since boot."""
    text: str


class ProcessState(NamedTuple):
    """A process that this user can see."""

    pid: int
    name: str
    """At most 15 characters."""
    state: str
    """State as one letter, as in proc(5)."""
    parent: int


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """Facts about the GPUs that were read; all are empty if none could be read."""

    names: tuple[str, ...] = ()
    """Model of each GPU that CUDA can use."""
    uuids: tuple[str, ...] = ()
    cuda: str = ""
    """Newest CUDA version that the driver supports, such as `12.4`."""
    has_amd: bool = False
    """Whether there is an AMD GPU."""


class Packages:
    """The distributions in a Python environment."""

    def __init__(self, paths: Sequence[str] | None = None) -> None:
        """`paths`: directories that are searched, `sys.path` if None."""
        self._paths = sys.path if paths is None else list(paths)

    def version(self, name: str) -> str:
        """Return the version of a distribution; empty if it is not installed."""
        found = self._find(name)
        return (found.version or "") if found else ""

    def requires(self, name: str) -> list[str]:
        """Return the requirements of a distribution, as in its metadata."""
        found = self._find(name)
        return list(found.requires or ()) if found else []

    def read(self, name: str, path: str) -> str:
        """Return the text of a file that a distribution has installed; empty if it cannot be read."""
        found = self._find(name)
        return _read(str(found.locate_file(path))) if found else ""

    def _find(self, name: str) -> metadata.Distribution | None:
        return next(iter(metadata.Distribution.discover(name=name, path=self._paths)), None)


def _read(path: str) -> str:
    """Return the text of a file, at most 1 MiB; empty if it cannot be read."""
    try:
        return read_regular(path, _MAX_TEXT, follow=True).decode("utf-8", "replace")
    except OSError:
        return ""


def _open_error(path: str) -> int:
    """Return the error number of opening a file for reading and writing, 0 if it can be opened."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _filesystem_size(path: str) -> int:
    status = os.statvfs(path)
    return status.f_blocks * status.f_frsize


def query_modes() -> str:
    """Return a line for each GPU: index, compute mode and persistence mode. Empty if they cannot be read.

    They are read with nvidia-smi, because gpumon does not sample them.
    """
    program = which("nvidia-smi")
    if program is None:
        return ""
    process = subprocess.Popen(
        [program, *_MODES_QUERY], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, errors="replace", env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        with suppress(subprocess.TimeoutExpired):  # a process that waits for the driver cannot be killed
            process.communicate(timeout=1.0)
        return ""
    return output if process.returncode == 0 else ""


@dataclass(frozen=True)
class Machine:
    """A machine, or a directory tree with the files of one, for tests."""

    root: str = ""
    """Directory put before each path."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    packages: Packages = field(default_factory=Packages)
    gpus: GpuFacts = field(default_factory=GpuFacts)
    open_error: Callable[[str], int] = _open_error
    filesystem_size: Callable[[str], int] = _filesystem_size
    usable_cpus: Callable[[], int] = lambda: len(os.sched_getaffinity(0))
    driver_modes: Callable[[], str] = query_modes
    sleep: Callable[[float], None] = time.sleep
    uptime: Callable[[], float] = time.monotonic
    """Returns the seconds since boot, by the clock of the kernel log."""

    def path(self, path: str) -> str:
        """Return the place of an absolute path in this machine's tree."""
        return f"{self.root}{path}"

    def exists(self, path: str) -> bool:
        """Return whether a file exists."""
        return os.path.lexists(self.path(path))

    def line(self, path: str) -> str:
        """Return the content of a file of one line, without its end; empty if it cannot be read."""
        return self.text(path).strip()

    def text(self, path: str) -> str:
        """Return the content of a file, at most 1 MiB; empty if it cannot be read."""
        return _read(self.path(path))

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder; empty if it cannot be read."""
        try:
            return sorted(os.listdir(self.path(folder)))
        except OSError:
            return []

    @cached_property
    def is_container(self) -> bool:
        """Whether this is a container, by the files that container engines put into it."""
        return self.exists("/.dockerenv") or self.exists("/run/.containerenv") or bool(self.environ.get("container"))

    @cached_property
    def sees_all_processes(self) -> bool:
        """Whether processes outside the container are visible."""
        return not has_own_pids(self.path("/proc"))

    @cached_property
    def processes(self) -> tuple[ProcessState, ...]:
        """The processes that this user can see."""
        return tuple(self._read_processes())

    def _read_processes(self) -> Iterator[ProcessState]:
        for pid in self.names("/proc"):
            if pid.isdecimal() and (stat := read_stat(pid, self.path("/proc"))):
                yield ProcessState(int(pid), stat.name.decode(errors="replace"), stat.state, stat.parent)

    def runs(self, *names: str) -> bool:
        """Return whether a process with one of these names is running."""
        return any(process.name in names for process in self.processes)

    @cached_property
    def kernel_log(self) -> tuple[KernelMessage, ...] | None:
        """The kernel log since boot; None if this user may not read it."""
        try:
            descriptor = os.open(self.path("/dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            records = _read_records(descriptor).decode("utf-8", "replace").splitlines()
        except OSError:
            return None
        finally:
            os.close(descriptor)
        matches = filter(None, map(_RECORD.match, records))
        return tuple(KernelMessage(int(match[1]) / 1e6, match[2]) for match in matches)


def _read_records(descriptor: int) -> bytes:
    """Return the records of /dev/kmsg up to now. Each read returns one record. Raises OSError if it may not be read."""
    records: list[bytes] = []
    size = 0
    while size < _MAX_LOG:
        try:
            record = os.read(descriptor, 8192)
        except BlockingIOError:
            break
        except BrokenPipeError:  # the record was overwritten: the next read returns the oldest that is left
            continue
        if not record:
            break
        records.append(record)
        size += len(record)
    return b"".join(records)
