"""Sends signals to processes of a frame, but only to the intended process and only if this user is permitted.

A PID is reused after its process has ended, and means another process inside a container. So the start time must match
the frame. While the user confirms the signal, a file descriptor (pidfd) identifies the process: it never refers to
another process.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from typing import NamedTuple, Self

from gpumon.common.errors import GpumonError
from gpumon.common.numbers import is_known
from gpumon.common.procfs import Stat, parse_stat
from gpumon.model.process import Process
from gpumon_tui.data.programs import boot_time, has_same_start, read_file

ROOT = 0
_INIT = 1
_ZOMBIE = "Z"
_ENDED_STATES = (_ZOMBIE, "X")


class SignalChoice(NamedTuple):
    """A way to end a process."""

    key: str
    name: str
    number: signal.Signals
    effect: str
    """Description of the effect."""


TERMINATE = SignalChoice("t", "Terminate", signal.SIGTERM, "asks it to end")
INTERRUPT = SignalChoice("i", "Interrupt", signal.SIGINT, "as Ctrl-C in its terminal")
KILL = SignalChoice("k", "Kill", signal.SIGKILL, "nothing is saved")
CHOICES = (TERMINATE, INTERRUPT, KILL)


class SignalRefused(GpumonError):
    """Raised with the reason if no signal may be sent."""


class SignalTarget:
    """A process to which a signal can be sent, identified by open file descriptors.

    Raises SignalRefused if no signal may be sent. `proc` and `uid` are for tests.
    """

    def __init__(self, process: Process, proc: str = "/proc", uid: int | None = None) -> None:
        self.process = process
        self._pidfd = -1
        self._proc_dir = _open_proc_dir(process, proc)
        try:
            stat = self._check_permitted(proc, os.geteuid() if uid is None else uid)
            self._started = stat.started
            self._pidfd = _pidfd(process.pid)
            self._check_alive()  # its directory is still readable, so the PID was not reused and the pidfd is correct
        except BaseException:
            self.close()
            raise

    def send(self, number: signal.Signals) -> None:
        """Send the signal, if the process still exists. Raises SignalRefused."""
        self._check_alive()
        try:
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, number)
            else:
                os.kill(self.process.pid, number)
        except ProcessLookupError:
            raise SignalRefused(f"process {self.process.pid} has ended already") from None
        except OSError as error:
            raise SignalRefused(f"process {self.process.pid}: {error.strerror or error}") from None

    @property
    def is_over(self) -> bool:
        """Whether the process has ended."""
        if self._pidfd >= 0:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            return bool(poll.poll(0))
        stat = self._stat()
        return stat is None or stat.state in _ENDED_STATES or stat.started != self._started

    def close(self) -> None:
        """Close the descriptors."""
        for fd in (self._proc_dir, self._pidfd):
            if fd >= 0:
                os.close(fd)
        self._proc_dir = self._pidfd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_permitted(self, proc: str, uid: int) -> Stat:
        """Return the kernel's data about the process. Raises SignalRefused if a signal is not permitted."""
        process, stat = self.process, self._stat()
        if stat is not None and stat.state == _ZOMBIE:
            raise SignalRefused(f"process {process.pid} has ended: a zombie until its parent {stat.parent} collects it")
        if stat is None or stat.state in _ENDED_STATES:
            raise SignalRefused(f"process {process.pid} has ended")
        if not is_known(process.started) or not has_same_start(process, stat, boot_time(proc)):
            raise SignalRefused(
                f"pid {process.pid} is another process here: that one has ended, or runs in a container"
            )
        if uid not in (ROOT, os.fstat(self._proc_dir).st_uid):
            raise SignalRefused(
                f"process {process.pid} belongs to {process.user or 'another user'}: ask them, or root, to end it"
            )
        if self._is_confined(proc):
            location = process.container or "a container"
            raise SignalRefused(f"process {process.pid} runs in {location}: end it there, where its pid is another one")
        return stat

    def _is_confined(self, proc: str) -> bool:
        """Whether the process is in another PID namespace; if unknown, whether it is in a container."""
        with suppress(OSError):
            return os.readlink("ns/pid", dir_fd=self._proc_dir) != os.readlink(f"{proc}/self/ns/pid")
        with suppress(OSError):
            return _namespace_count(read_file(self._proc_dir, "status", 8192)) > 1
        return bool(self.process.container)

    def _check_alive(self) -> None:
        stat = self._stat()
        if stat is None or stat.state in _ENDED_STATES or stat.started != self._started:
            raise SignalRefused(f"process {self.process.pid} has ended already")

    def _stat(self) -> Stat | None:
        try:
            return parse_stat(read_file(self._proc_dir, "stat", 2048))
        except OSError:  # the open directory becomes empty when the process ends, even if the PID is reused
            return None


def _open_proc_dir(process: Process, proc: str) -> int:
    if process.pid <= _INIT or process.pid == os.getpid():
        raise SignalRefused(f"process {process.pid} is not one to be ended from here")
    try:
        return os.open(f"{proc}/{process.pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        raise SignalRefused(
            f"process {process.pid} cannot be seen from here: it has ended, or runs in a container"
        ) from None


def _pidfd(pid: int) -> int:
    """Return a pidfd, or -1 if the kernel does not support it."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise SignalRefused(f"process {pid} has ended already") from None
    except (OSError, AttributeError):
        return -1


def _namespace_count(status: bytes) -> int:
    """Return the depth of a process in PID namespaces, relative to this one, from its /proc status."""
    line = next((line for line in status.splitlines() if line.startswith(b"NSpid:")), b"")
    return len(line.split()) - 1
