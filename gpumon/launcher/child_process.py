"""Runs a command as a transparent wrapper: same terminal, signals and exit status. Also publishes the command as a run.

The command is a child in our process group and inherits our files, so the terminal treats both as one job. The kernel
sends Ctrl-C and Ctrl-Z directly to the command. Signals that are sent only to this process are forwarded. All signals
are blocked in this process. sigwaitinfo(2) receives them one at a time, with their sender. So no signal is lost, and no
handler runs between two lines of Python.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpumon.common.paths import Places, tag_dir_for_client
from gpumon.common.procfs import read_stat
from gpumon.tracking.board import Board
from gpumon.tracking.context import default_name, slug
from gpumon.tracking.cpu_time import CpuTime
from gpumon.tracking.description import Description
from gpumon.tracking.metadata import script_facts

NOT_FOUND = 127
NOT_EXECUTABLE = 126
"""Exit codes of a shell for a command that it cannot start."""

_JOB_CONTROL = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
# Signals that are never forwarded, because they cannot be caught, report an error of this process, or concern its
# pipes.
_NOT_FORWARDED = {
    signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP,
    signal.SIGSYS, signal.SIGPIPE,
}  # fmt: skip
_HANDLED = signal.valid_signals() - _NOT_FORWARDED
_SET_BY_PYTHON = [signal.SIGPIPE, signal.SIGXFSZ]
"""Signals that the Python interpreter ignores. For the command, their original handling is restored."""


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """Result of a command: exit code or signal, CPU time and memory."""

    code: int
    """Exit code of the command; 0 if a signal ended it."""
    signal: int = 0
    """Number of the signal that ended the command; 0 if it exited."""
    cpu: float = float("nan")
    """CPU time of the command and of the children that it waited for, in seconds."""
    memory: float = float("nan")
    """Peak resident memory of the largest process among the command and these children, in bytes."""

    @property
    def is_success(self) -> bool:
        return not self.code and not self.signal


class Child:
    """A running command. Must be created before any thread, because it blocks all signals in this process.

    Raises OSError if the command cannot be started. In this case, nothing has changed.
    """

    def __init__(self, words: Sequence[str], env: Mapping[str, str]) -> None:
        # If this process had inherited an ignored SIGCHLD, children would vanish without an exit code.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        try:
            self.pid = _start(words, env, previous_mask)
            self._own_maxrss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        except OSError:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
            raise

    def wait(self, is_member: Callable[[int], bool]) -> ExitStatus:
        """Forward signals until the command ends, and return how it ended.

        `is_member`: function that returns whether a pid is one of the command's processes.

        If only the command is stopped with SIGSTOP and the job has the terminal, this process also stops. Otherwise,
        the shell would not take the terminal back. If the job does not have the terminal, this process does not stop.
        """
        while True:
            if (status := self._reap()) is not None:
                return status
            info = signal.sigwaitinfo(_HANDLED)
            number = info.si_signo
            if number in (signal.SIGCHLD, signal.SIGTTIN, signal.SIGTTOU):
                continue
            if number == signal.SIGCONT:
                self._continue()
            # The kernel sends its signals (a key, a terminal change) to the command, too. If the command sends a signal
            # to its whole group, it has received this signal itself.
            elif info.si_code <= 0 and not is_member(info.si_pid):
                self._send(number)

    def _reap(self) -> ExitStatus | None:
        """Reap children that have ended. Return the exit status of the command if it has ended, else None."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return ExitStatus(1)  # other code has already waited for the command
            if pid == 0:
                return None
            if pid != self.pid:
                continue  # an adopted orphan of the command
            if os.WIFSTOPPED(status):
                self._stop(os.WSTOPSIG(status))
                continue
            # The peak of this process survives execve(2), so the peak of a smaller command cannot be read.
            memory = usage.ru_maxrss * 1024.0 if usage.ru_maxrss > self._own_maxrss else float("nan")
            cpu = usage.ru_utime + usage.ru_stime
            if os.WIFSIGNALED(status):
                return ExitStatus(0, os.WTERMSIG(status), cpu, memory)
            return ExitStatus(os.WEXITSTATUS(status), 0, cpu, memory)

    def _stop(self, number: int) -> None:
        """Stop this process with the signal `number` that stopped the command, so that the shell sees a stopped job.

        If the signal is SIGSTOP, do this only if the job has the terminal. The shell must then take the terminal back.
        """
        if number not in _JOB_CONTROL:
            if number != signal.SIGSTOP or not _has_terminal():
                return
            os.kill(os.getpid(), number)
        else:
            # The signal is sent while it is blocked, so that it merges with a pending signal of the same key press.
            os.kill(os.getpid(), number)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
            signal.pthread_sigmask(signal.SIG_BLOCK, {number})
        self._continue()

    def _continue(self) -> None:
        """Continue the command if it is still stopped. SIGCONT may have been sent only to this process."""
        process = read_stat(self.pid)
        if process and process.state == "T":
            self._send(signal.SIGCONT)

    def _send(self, number: int) -> None:
        try:
            os.kill(self.pid, number)
        except PermissionError:
            return  # the command runs as another user, as with sudo. ProcessLookupError is impossible before a wait


def exit_like(status: ExitStatus) -> int:
    """End this process with the signal that ended the command. If there was none, return the command's exit code."""
    if not status.signal:
        return status.code
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # no second core dump
    if status.signal not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(status.signal, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {status.signal})
    os.kill(os.getpid(), status.signal)
    return 128 + status.signal  # a signal does not end process 1 of a container


def start_error(error: OSError, word: str) -> tuple[str, int]:
    """Return the message and the exit code for a command that could not be started. `word`: the command as typed."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR) and not os.path.exists(word):
        return f"command not found: '{word}'. Give the command as you would type it, after --", NOT_FOUND
    return f"cannot run '{word}': {error.strerror or error}", NOT_EXECUTABLE


def _start(words: Sequence[str], env: Mapping[str, str], mask: set[int] | set[signal.Signals]) -> int:
    try:
        return _spawn(words, env, mask)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # The shell runs a script without an interpreter line, as execvp(3) does.
    path = next(filter(os.path.isfile, [words[0], *_on_path(words[0], env)]), words[0])
    return _spawn(["/bin/sh", path, *words[1:]], env, mask)


def _spawn(words: Sequence[str], env: Mapping[str, str], mask: set[int] | set[signal.Signals]) -> int:
    return os.posix_spawnp(words[0], list(words), dict(env), setsigmask=mask, setsigdef=_SET_BY_PYTHON)


def _on_path(word: str, env: Mapping[str, str]) -> list[str]:
    return [] if "/" in word else [f"{directory}/{word}" for directory in env.get("PATH", os.defpath).split(":")]


def _has_terminal() -> bool:
    """Return whether our process group is the foreground group of the terminal."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)


def command_name(words: Sequence[str]) -> str:
    """Return a short name for a command, such as `train` for `python -u train.py`, or `make` for `/bin/make all`."""
    script = command_script(words)
    if script:
        return default_name([script])
    if _is_starter(words) and "-m" in words[:-1]:
        return words[words.index("-m") + 1].rpartition(".")[2]
    return os.path.basename(words[0])


def command_script(words: Sequence[str]) -> str:
    """Return the script in a command line; empty if there is none."""
    scripts = (word for word in words[1:] if word.endswith((".py", ".sh")))
    return next(scripts, "") if _is_starter(words) else ""


def _is_starter(words: Sequence[str]) -> bool:
    return os.path.basename(words[0]).startswith(("python", "torchrun", "accelerate", "bash", "sh", "uv"))


class CommandRun:
    """Publishes a command as a run, until a training in the command publishes its own run.

    `script`: script that the command runs. `began`: time at which the command started (ns, CLOCK_MONOTONIC); 0 means
    now.
    """

    def __init__(self, name: str, places: Places, script: str = "", began: int = 0) -> None:
        description = Description(name=name, id=f"{slug(name)}-{os.urandom(4).hex()}")
        self._at = began
        """Time that is written to the board in place of the current time (ns, CLOCK_MONOTONIC); 0 means the current
        time."""
        self._board = Board(lambda: tag_dir_for_client(places), description, self._monotonic, self._now)
        self._at, self._began = 0, self._monotonic()
        self._board.cpu_time = CpuTime(own=False, since_start=bool(began)).seconds
        if script:
            facts = script_facts(script)
            self._board.update_about(lambda about: about._replace(program=facts))

    @property
    def id(self) -> str:
        return self._board.description.id

    @property
    def key(self) -> str:
        """Name of the run's board; empty if there is none."""
        return os.path.basename(self._board.path)

    def add_devices(self, uuids: tuple[str, ...]) -> None:
        """Publish devices that the command currently uses. Devices that were published earlier stay published."""
        known = self._board.description.devices
        new = tuple(uuid for uuid in uuids if uuid not in known)
        if new:
            self._board.describe(devices=known + new)

    def withdraw(self) -> None:
        """Withdraw this run, because a training in the command publishes a run with more details."""
        self._board.close(withdrawn=True)

    def end(self, status: ExitStatus, at: int = 0) -> None:
        """End the run. `at`: time at which the command ended (ns, CLOCK_MONOTONIC); 0 means now.

        After Ctrl-C, the run counts as interrupted, even if the command handled the signal and returned an exit code.
        """
        interrupted = status.signal == signal.SIGINT or status.code == 128 + signal.SIGINT
        self._at = at if at > self._began else 0
        facts = self._board.description.facts._replace(exit_code=status.code, exit_signal=status.signal)
        self._board.describe(facts=facts)
        self._board.close(failed=not status.is_success, interrupted=interrupted)

    def _monotonic(self) -> int:
        return self._at or time.monotonic_ns()

    def _now(self) -> int:
        return time.time_ns() - (time.monotonic_ns() - self._monotonic())
