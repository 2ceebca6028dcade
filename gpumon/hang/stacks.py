"""Reads the Python stacks of a process: with py-spy if possible, or else from the process itself.

py-spy (https://github.com/benfred/py-spy) reads the memory of the process without stopping it (`--nonblocking`). It
needs the permission to trace the process. Without py-spy, a training that reports to gpumon is asked by a signal to
write its stacks to a file (`gpumon.tracking.stack_dump`). Its forked DataLoader workers can do the same.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from gpumon.common.text import clean
from gpumon.tracking.stack_dump import NAME, SIGNAL, has_handler

TIMEOUT = 3.0
"""Maximum seconds to wait for the stacks of one process."""
_PY_SPY_TIMEOUT = 20.0
_POLL = 0.02
_MAX_DUMP = 4 << 20
_MAX_THREADS = 256
_MAX_FRAMES = 100
_MAX_TEXT = 300
_LINK = re.compile(rf"/memfd:{NAME}( \(deleted\))?")
_THREAD = re.compile(r"(?:Current thread|Thread) (0x[0-9a-f]+)(?: \[(.*)\])? \(most recent call first\):")
_FRAME = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.*)')


class Frame(NamedTuple):
    """A call in a stack."""

    function: str
    file: str
    line: int
    """0 if unknown."""


class ThreadStack(NamedTuple):
    """The Python stack of a thread."""

    frames: tuple[Frame, ...]
    """Innermost call first."""
    is_main: bool = False
    name: str = ""


class Stacks(NamedTuple):
    """The Python stacks of a process, or the reason why there are none."""

    threads: tuple[ThreadStack, ...] = ()
    problem: str = ""

    @property
    def main(self) -> tuple[Frame, ...]:
        """The frames of the main thread, innermost first; empty if unknown."""
        return next((thread.frames for thread in self.threads if thread.is_main), ())


def read_stacks(pid: int, state: str = "", timeout: float = TIMEOUT) -> Stacks:
    """Return the stacks of a process of this user.

    `state`: state of the process as one letter; a stopped process cannot write its stacks. `timeout`: maximum seconds
    to wait for the process.
    """
    if state in ("Z", "X"):
        return Stacks(problem="the process has ended")
    if (program := shutil.which("py-spy")) is not None:
        stacks = _from_py_spy(program, pid)
        if stacks.threads:
            return stacks
    if state in ("T", "t"):
        return Stacks(problem="the process is stopped")
    return _from_signal(pid, timeout)


def _from_py_spy(program: str, pid: int) -> Stacks:
    try:
        result = subprocess.run(
            [program, "dump", "--nonblocking", "--json", "--pid", str(pid)], stdin=subprocess.DEVNULL,
            capture_output=True, timeout=_PY_SPY_TIMEOUT, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return Stacks(problem=f"py-spy: {type(error).__name__}")
    if result.returncode:
        lines = result.stderr.decode("utf-8", "replace").strip().splitlines()
        return Stacks(problem=f"py-spy: {clean(lines[-1], _MAX_TEXT) if lines else 'failed'}")
    return parse_py_spy(result.stdout[:_MAX_DUMP], pid)


def parse_py_spy(output: bytes, pid: int) -> Stacks:
    """Parse the output of `py-spy dump --json` for the process `pid`."""
    try:
        threads = json.loads(output)
        stacks = tuple(_py_spy_thread(thread, pid) for thread in threads[:_MAX_THREADS])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return Stacks(problem="py-spy: unknown output")
    return Stacks(stacks, "" if stacks else "no Python thread")


def _py_spy_thread(thread: dict[str, Any], pid: int) -> ThreadStack:
    frames = tuple(
        Frame(clean(str(frame["name"]), _MAX_TEXT), clean(str(frame["filename"]), _MAX_TEXT), int(frame["line"]))
        for frame in thread["frames"][:_MAX_FRAMES]
    )
    name = thread.get("thread_name")
    is_main = thread.get("os_thread_id") == pid or name == "MainThread"
    return ThreadStack(frames, is_main, clean(name, 60) if isinstance(name, str) else "")


def _from_signal(pid: int, timeout: float) -> Stacks:
    """Send the signal on which a prepared process writes its stacks, and return these stacks."""
    fd = _dump_file(pid)
    if fd is None:
        return Stacks(
            problem="no stacks: the process does not report to gpumon, and py-spy is not installed or not permitted"
        )
    try:
        with _locked(fd, timeout) as is_locked:
            if not is_locked:
                return Stacks(problem="no stacks: another program is reading stacks of this run")
            os.ftruncate(fd, 0)
            if not has_handler(pid, SIGNAL):  # checked last, so that almost no time passes before the signal
                return Stacks(problem="no stacks: the process does not handle the signal any more")
            os.kill(pid, SIGNAL)
            dump = _wait_for_dump(fd, timeout)
            os.ftruncate(fd, 0)
    except OSError as error:
        return Stacks(problem=f"no stacks: {error.strerror or error}")
    finally:
        os.close(fd)
    if not dump:
        return Stacks(problem=f"no stacks within {timeout:g} s")
    return parse_faulthandler(dump.decode("utf-8", "replace"))


def _dump_file(pid: int) -> int | None:
    """Open the file to which a prepared process writes its stacks, and return its descriptor; None if there is none."""
    directory = f"/proc/{pid}/fd"
    with suppress(OSError):
        for name in os.listdir(directory):
            with suppress(OSError):
                if _LINK.fullmatch(os.readlink(f"{directory}/{name}")):
                    return os.open(f"{directory}/{name}", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    return None


@contextmanager
def _locked(fd: int, timeout: float) -> Iterator[bool]:
    """Lock the file, which a process shares with its forked children. Yield whether the lock was acquired."""
    until, is_locked = time.monotonic() + timeout, False
    while not is_locked:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_locked = True
        except BlockingIOError:
            if time.monotonic() > until:
                break
            time.sleep(_POLL)
    yield is_locked  # closing the descriptor releases the lock


def _wait_for_dump(fd: int, timeout: float) -> bytes:
    """Wait until the file has content and no longer grows, and return the content."""
    until, size = time.monotonic() + timeout, 0
    while time.monotonic() < until:
        time.sleep(_POLL)
        previous, size = size, os.fstat(fd).st_size
        if size and size == previous:
            break
    return os.pread(fd, _MAX_DUMP, 0)


def parse_faulthandler(dump: str) -> Stacks:
    """Parse the stacks written by faulthandler. It writes the oldest thread last, which is the main thread."""
    threads: list[tuple[str, list[Frame]]] = []
    for line in dump.splitlines():
        if match := _THREAD.fullmatch(line):
            if len(threads) < _MAX_THREADS:
                threads.append((clean(match[2] or "", 60), []))
        elif threads and len(threads[-1][1]) < _MAX_FRAMES and (match := _FRAME.fullmatch(line)):
            number = int(match[2]) if match[2].isdigit() else 0
            threads[-1][1].append(Frame(clean(match[3], _MAX_TEXT), clean(match[1], _MAX_TEXT), number))
    last = len(threads) - 1
    stacks = tuple(ThreadStack(tuple(frames), index == last, name) for index, (name, frames) in enumerate(threads))
    return Stacks(stacks, "" if stacks else "no stacks: the process wrote none")
