"""Sends signals to processes of a frame, but only to the intended process and only if its user is permitted.

A PID is reused after its process has ended, and means another process inside a container. So the start time must match
that of the frame, and from the question on the process is referenced by a file descriptor (pidfd) that never refers to
another one.
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
from gpumon_tui.data.programs import began_together, boot_time, read_in

ROOT = 0
_INIT = 1
_ZOMBIE = "Z"
_OVER = (_ZOMBIE, "X")


class SignalChoice(NamedTuple):
    """A way to end a process."""

    key: str
    name: str
    number: signal.Signals
    says: str
    """Description of the effect."""


TERMINATE = SignalChoice("t", "Terminate", signal.SIGTERM, "asks it to end")
INTERRUPT = SignalChoice("i", "Interrupt", signal.SIGINT, "as Ctrl-C in its terminal")
KILL = SignalChoice("k", "Kill", signal.SIGKILL, "nothing is saved")
CHOICES = (TERMINATE, INTERRUPT, KILL)


class SignalRefused(GpumonError):
    """Raised with the reason if no signal may be sent."""


class SignalTarget:
    """A process that is held open to be sent a signal. Raises SignalRefused if there is a reason against it.

    `proc` and `uid` are for tests.
    """

    def __init__(self, process: Process, proc: str = "/proc", uid: int | None = None) -> None:
        self.process = process
        self._pidfd = -1
        self._home = _opened(process, proc)
        try:
            stat = self._checked(proc, os.geteuid() if uid is None else uid)
            self._started = stat.started
            self._pidfd = _pidfd(process.pid)
            self._still_there()  # while its directory is readable, the PID was not reused: so the pidfd is correct
        except BaseException:
            self.close()
            raise

    def send(self, number: signal.Signals) -> None:
        """Send the signal, if the process still exists. Raises SignalRefused."""
        self._still_there()
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
        return stat is None or stat.state in _OVER or stat.started != self._started

    def close(self) -> None:
        """Close the descriptors."""
        for fd in (self._home, self._pidfd):
            if fd >= 0:
                os.close(fd)
        self._home = self._pidfd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _checked(self, proc: str, uid: int) -> Stat:
        """Return the kernel's data of the process, if a signal is permitted."""
        process, stat = self.process, self._stat()
        if stat is not None and stat.state == _ZOMBIE:
            raise SignalRefused(f"process {process.pid} has ended: a zombie until its parent {stat.parent} collects it")
        if stat is None or stat.state in _OVER:
            raise SignalRefused(f"process {process.pid} has ended")
        if not is_known(process.started) or not began_together(process, stat, boot_time(proc)):
            raise SignalRefused(
                f"pid {process.pid} is another process here: that one has ended, or runs in a container"
            )
        if uid not in (ROOT, os.fstat(self._home).st_uid):
            raise SignalRefused(
                f"process {process.pid} belongs to {process.user or 'another user'}: ask them, or root, to end it"
            )
        if self._is_confined(proc):
            where = process.container or "a container"
            raise SignalRefused(f"process {process.pid} runs in {where}: end it there, where its pid is another one")
        return stat

    def _is_confined(self, proc: str) -> bool:
        """Whether it is in a PID namespace of its own; if that is unknown, whether it is in a container."""
        with suppress(OSError):
            return os.readlink("ns/pid", dir_fd=self._home) != os.readlink(f"{proc}/self/ns/pid")
        with suppress(OSError):
            return _namespaces(read_in(self._home, "status", 8192)) > 1
        return bool(self.process.container)

    def _still_there(self) -> None:
        stat = self._stat()
        if stat is None or stat.state in _OVER or stat.started != self._started:
            raise SignalRefused(f"process {self.process.pid} has ended already")

    def _stat(self) -> Stat | None:
        try:
            return parse_stat(read_in(self._home, "stat", 2048))
        except OSError:  # the open directory is empty once the process has ended, even if the PID is reused
            return None


def _opened(process: Process, proc: str) -> int:
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


def _namespaces(status: bytes) -> int:
    """Return the number of PID namespaces of a process, as seen from here."""
    found = next((line for line in status.splitlines() if line.startswith(b"NSpid:")), b"")
    return len(found.split()) - 1
