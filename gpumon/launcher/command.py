"""A command in our place: same terminal, same signals, same end.

The command is a child in our own process group, with our own files, so that the terminal treats both
as one job: Ctrl-C and Ctrl-Z come to it from the kernel, exactly once. What is sent to us alone is
passed on. All signals are blocked here and taken one after the other with their sender
(sigwaitinfo(2)), so none is lost and no handler runs between two lines of Python.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gpumon.common.paths import Places, tag_dir_for_client
from gpumon.common.procfs import read_stat
from gpumon.tracking.board import Board
from gpumon.tracking.context import default_name, slug
from gpumon.tracking.description import Description
from gpumon.tracking.loader import CpuTime
from gpumon.tracking.metadata import script_facts

NOT_FOUND = 127
NOT_EXECUTABLE = 126
"""Exit codes that a shell gives for a command that it cannot start."""

_JOB_CONTROL = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
# Never passed on: not ours to catch, the answer to our own mistake, or about our own children and pipes.
_OURS = {
    signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP,
    signal.SIGSYS, signal.SIGPIPE,
}  # fmt: skip
_TAKEN = signal.valid_signals() - _OURS
_SET_BY_PYTHON = [signal.SIGPIPE, signal.SIGXFSZ]
"""Signals that the interpreter ignores since its start; a command gets them as they were."""


class Ended(NamedTuple):
    """End of a command."""

    code: int
    """Its exit code; 0 when a signal ended it."""
    signal: int = 0
    """The signal that ended it; 0 when it exited."""
    cpu: float = float("nan")
    """Seconds of CPU time of it and of the children that it waited for."""
    memory: float = float("nan")
    """Bytes that the largest of them held in the machine's memory."""

    @property
    def fine(self) -> bool:
        return not self.code and not self.signal


class Child:
    """A command that runs. Make it before any thread: from here on all signals are blocked in this process.

    Raises OSError when the command cannot be started; then nothing has changed.
    """

    def __init__(self, words: Sequence[str], env: Mapping[str, str]) -> None:
        # Inherited as ignored, children would vanish without an exit code.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _TAKEN)
        try:
            self.pid = _start(words, env, before)
            self._before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        except OSError:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            raise

    def wait(self, is_its: Callable[[int], bool]) -> Ended:
        """Pass signals on until the command ends. `is_its` tells whether a pid is one of its processes."""
        while True:
            if (ended := self._reap()) is not None:
                return ended
            taken = signal.sigwaitinfo(_TAKEN)
            number = taken.si_signo
            if number in (signal.SIGCHLD, signal.SIGTTIN, signal.SIGTTOU):
                continue
            if number == signal.SIGCONT:
                self._continue()
            # From the kernel (a key, a terminal that changed or went): it went to the command just the same.
            # From the command itself: it was meant for its whole group, and has come to it.
            elif taken.si_code <= 0 and not is_its(taken.si_pid):
                self._send(number)

    def _reap(self) -> Ended | None:
        """Collect children that ended; return the command's end when it is among them."""
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return Ended(1)  # somebody else took its exit code
            if pid == 0:
                return None
            if pid != self.pid:
                continue  # an orphan of the command that came to us
            if os.WIFSTOPPED(status):
                self._stop_too(os.WSTOPSIG(status))
                continue
            # A command that is smaller than we were counts as large as we were (execve(2) keeps the highest mark).
            memory = used.ru_maxrss * 1024.0 if used.ru_maxrss > self._before else float("nan")
            cpu = used.ru_utime + used.ru_stime
            if os.WIFSIGNALED(status):
                return Ended(0, os.WTERMSIG(status), cpu, memory)
            return Ended(os.WEXITSTATUS(status), 0, cpu, memory)

    def _stop_too(self, number: int) -> None:
        """The command was stopped: so are we, by the same signal, and the shell sees its job stopped.

        A SIGSTOP that somebody sent to the command alone is none of our business, but where it
        holds the terminal nobody could go on without a shell that knows.
        """
        if number not in _JOB_CONTROL:
            if number != signal.SIGSTOP or not _has_terminal():
                return
            os.kill(os.getpid(), number)
        else:
            # Blocked, so that it becomes one with that of the same key press, which may wait for us already.
            os.kill(os.getpid(), number)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
            signal.pthread_sigmask(signal.SIG_BLOCK, {number})
        self._continue()

    def _continue(self) -> None:
        """We go on; so does the command, where the signal came to us alone."""
        found = read_stat(self.pid)
        if found and found.state == "T":
            self._send(signal.SIGCONT)

    def _send(self, number: int) -> None:
        try:
            os.kill(self.pid, number)
        except PermissionError:
            return  # it has become another user, as sudo does; ProcessLookupError cannot be: we have not waited


def end_like(ended: Ended) -> int:
    """End this process by the signal that ended the command; else, or where that does not work, the exit code."""
    if not ended.signal:
        return ended.code
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # one core is enough
    if ended.signal not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(ended.signal, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {ended.signal})
    os.kill(os.getpid(), ended.signal)
    return 128 + ended.signal  # as process 1 of a container, whom signals do not end


def refusal(error: OSError, word: str) -> tuple[str, int]:
    """A line for a person and the exit code, for a command that could not be started."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR) and not os.path.exists(word):
        return f"command not found: '{word}'. Give the command as you would type it, after --", NOT_FOUND
    return f"cannot run '{word}': {error.strerror or error}", NOT_EXECUTABLE


def _start(words: Sequence[str], env: Mapping[str, str], mask: set[int] | set[signal.Signals]) -> int:
    try:
        return _spawn(words, env, mask)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    # A script that does not say what runs it: the shell does, as execvp(3) has it.
    path = next(filter(os.path.isfile, [words[0], *_on_path(words[0], env)]), words[0])
    return _spawn(["/bin/sh", path, *words[1:]], env, mask)


def _spawn(words: Sequence[str], env: Mapping[str, str], mask: set[int] | set[signal.Signals]) -> int:
    return os.posix_spawnp(words[0], list(words), dict(env), setsigmask=mask, setsigdef=_SET_BY_PYTHON)


def _on_path(word: str, env: Mapping[str, str]) -> list[str]:
    return [] if "/" in word else [f"{directory}/{word}" for directory in env.get("PATH", os.defpath).split(":")]


def _has_terminal() -> bool:
    """Whether our process group is the one that a terminal talks to."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)


def name_of(words: Sequence[str]) -> str:
    """Return the short name of a command: `train` for `python -u train.py`, `make` for `/usr/bin/make all`."""
    script = script_of(words)
    if script:
        return default_name([script])
    if _is_starter(words) and "-m" in words[:-1]:
        return words[words.index("-m") + 1].rpartition(".")[2]
    return os.path.basename(words[0])


def script_of(words: Sequence[str]) -> str:
    """Return the script that a command runs, as it stands there; empty where it runs none."""
    scripts = (word for word in words[1:] if word.endswith((".py", ".sh")))
    return next(scripts, "") if _is_starter(words) else ""


def _is_starter(words: Sequence[str]) -> bool:
    return os.path.basename(words[0]).startswith(("python", "torchrun", "accelerate", "bash", "sh", "uv"))


class CommandRun:
    """The board of a command: gives way to a training inside it. `script`: the one that it runs.

    `began`: when the command began, ns of CLOCK_MONOTONIC; 0: now.
    """

    def __init__(self, name: str, where: Places, script: str = "", began: int = 0) -> None:
        described = Description(name=name, id=f"{slug(name)}-{os.urandom(4).hex()}")
        self._at = began
        """Time that the board takes for now, ns of CLOCK_MONOTONIC; 0: that of the clock."""
        self._board = Board(lambda: tag_dir_for_client(where), described, self._monotonic, self._now)
        self._at, self._begun = 0, self._monotonic()
        self._board.cpu_time = CpuTime(own=False, since_start=bool(began)).seconds
        if script:
            facts = script_facts(script)
            self._board.update_about(lambda about: about._replace(program=facts))

    @property
    def id(self) -> str:
        return self._board.description.id

    @property
    def key(self) -> str:
        """The name of the board; empty when there is none."""
        return os.path.basename(self._board.path)

    def tell_devices(self, uuids: tuple[str, ...]) -> None:
        """The command holds these now. Those that it let go of stay: it ran on them."""
        known = self._board.description.devices
        fresh = tuple(uuid for uuid in uuids if uuid not in known)
        if fresh:
            self._board.describe(devices=known + fresh)

    def withdraw(self) -> None:
        """A training inside the command tells more of it: this one never was."""
        self._board.close(withdrawn=True)

    def end(self, ended: Ended, at: int = 0) -> None:
        """The command was over `at` that moment (ns, CLOCK_MONOTONIC; 0: now).

        Ctrl-C is an end that its user chose, also where it became an exit code.
        """
        interrupted = ended.signal == signal.SIGINT or ended.code == 128 + signal.SIGINT
        self._at = at if at > self._begun else 0
        self._board.close(failed=not ended.fine, interrupted=interrupted)

    def _monotonic(self) -> int:
        return self._at or time.monotonic_ns()

    def _now(self) -> int:
        return time.time_ns() - (time.monotonic_ns() - self._monotonic())
