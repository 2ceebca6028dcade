"""Signals to processes of a frame: only to the very process that is meant, and only where its user may.

A pid is used again once its process has ended, and in a container it is another one. So the process must have begun
when the frame says so, and it is held from the question on by a descriptor (pidfd) that never names another one.
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
    """The effect, for people."""


TERMINATE = SignalChoice("t", "Terminate", signal.SIGTERM, "asks it to end")
INTERRUPT = SignalChoice("i", "Interrupt", signal.SIGINT, "as Ctrl-C in its terminal")
KILL = SignalChoice("k", "Kill", signal.SIGKILL, "nothing is saved")
CHOICES = (TERMINATE, INTERRUPT, KILL)


class SignalRefused(GpumonError):
    """No signal is sent, and the reason."""


class SignalTarget:
    """A process that is held, to be sent a signal. Raises SignalRefused where there is a reason against it.

    `proc` and `uid` are of tests.
    """

    def __init__(self, process: Process, proc: str = "/proc", uid: int | None = None) -> None:
        self.process = process
        self._pidfd = -1
        self._home = _opened(process, proc)
        try:
            stat = self._checked(proc, os.geteuid() if uid is None else uid)
            self._started = stat.started
            self._pidfd = _pidfd(process.pid)
            self._still_there()  # as long as its directory can be read, its pid is not another's: so the pidfd is of it
        except BaseException:
            self.close()
            raise

    def send(self, number: signal.Signals) -> None:
        """Send it, if the process is still there. Raises SignalRefused."""
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
        """Let go of the process."""
        for fd in (self._home, self._pidfd):
            if fd >= 0:
                os.close(fd)
        self._home = self._pidfd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _checked(self, proc: str, uid: int) -> Stat:
        """The process as the kernel has it, if nothing speaks against a signal."""
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
        """Whether it has a pid namespace of its own; where nobody tells, whether it is in a container."""
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
        except OSError:  # its directory is empty once it has ended, also when its pid is used again
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
    """A descriptor of a process, or -1 where the kernel has none of that kind."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise SignalRefused(f"process {pid} has ended already") from None
    except (OSError, AttributeError):
        return -1


def _namespaces(status: bytes) -> int:
    """Number of pid namespaces in which a process has a pid, as seen from here."""
    found = next((line for line in status.splitlines() if line.startswith(b"NSpid:")), b"")
    return len(found.split()) - 1
