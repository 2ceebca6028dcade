"""Script names of this user's own processes: `train.py`, where the driver reports `python`.

Command lines may contain passwords and tokens, and other users' command lines are private. So only processes of the
same user are read (even for root), and only the name of the script or module is kept. The full command line is read
when the user opens one of their own processes, with option values that look like secrets replaced by `***`. A PID in a
frame may belong to another process here, in a container or after reuse, so the start time must match that of the frame.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Sequence
from shlex import quote

from gpumon.common.numbers import is_known
from gpumon.common.procfs import Stat, parse_stat
from gpumon.common.text import clean
from gpumon.model.process import Process

LONGEST = 4096
"""Maximum bytes read of a command line; the script is near its beginning."""
SAME_START = 2.0
"""Maximum difference in seconds between start times.

The kernel reports the boot time in whole seconds and adjusts it with the clock.
"""
_MOST = 8192
"""Maximum number of cached names."""
_NAME = 64
_PYTHON = re.compile(rb"(?:python|pypy)[0-9.]*[td]?(?:\.exe)?")
_SHELL = re.compile(rb"(?:ba|da|z|k)?sh")
_SECRET = re.compile(r"(?i)token(?!iz|s)|secret|passw|passphrase|api[-_]?key|access[-_]?key|credential|\bauth")
_LOGIN = re.compile(r"//[^/@\s]*:[^/@\s]*@")
"""User and password in a URL."""
HIDDEN = "***"
MOST_SHOWN = 600
"""Maximum length of a displayed command line."""
_MODULE = re.compile(rb"\w+(?:\.\w+)*")
_TAKES_ARGUMENT = b"WX"
"""Python's options that take an argument."""
_TICK = os.sysconf("SC_CLK_TCK")


class OwnPrograms:
    """Script names of this user's processes; each is read once."""

    def __init__(self, proc: str = "/proc", uid: int | None = None) -> None:
        self._proc = proc
        self._uid = os.geteuid() if uid is None else uid
        self.user = _user(self._uid)
        """Name of this user, as used in frames."""
        self._boot = boot_time(proc)
        self._known: dict[tuple[int, float], str] = {}

    def name(self, process: Process) -> str:
        """Return the script or module that a process runs; empty for other users' processes, or if it runs none."""
        if not is_known(process.started):
            return ""
        key = process.pid, process.started
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            found = self._known[key] = script_of(self._words(process))
        return found

    def command(self, process: Process) -> str:
        """Return the command line of a process without its secrets; empty for other users' processes, or if unknown."""
        return command_of(self._words(process)) if is_known(process.started) else ""

    def _words(self, process: Process) -> Sequence[bytes]:
        try:
            home = os.open(f"{self._proc}/{process.pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return ()
        try:
            if os.fstat(home).st_uid != self._uid or not self._is_same(process, read_in(home, "stat", 2048)):
                return ()
            return read_in(home, "cmdline", LONGEST).split(b"\0")
        except OSError:
            return ()
        finally:
            os.close(home)

    def _is_same(self, process: Process, raw: bytes) -> bool:
        stat = parse_stat(raw)
        return stat is not None and began_together(process, stat, self._boot)


def began_together(process: Process, stat: Stat, boot: float) -> bool:
    """Whether the start time of a process here matches that of a process in a frame. `boot`: s since 1970."""
    return abs(boot + stat.started / _TICK - process.started) <= SAME_START


def boot_time(proc: str = "/proc") -> float:
    """Return the boot time of the machine in s since 1970; NaN if unknown."""
    try:
        with open(f"{proc}/stat", "rb") as file:
            found = next((line for line in file if line.startswith(b"btime")), b"")
        return float(found.split()[1])
    except (OSError, ValueError, IndexError):
        return float("nan")


def script_of(words: Sequence[bytes]) -> str:
    """Return the script or module of a command line: never an argument, and empty where it runs none.

    >>> script_of([b"/usr/bin/python3", b"-u", b"src/train.py", b"--token=secret"])
    'train.py'
    >>> script_of([b"python", b"-m", b"pkg.train", b"--lr", b"1"])
    'pkg.train'
    """
    program = words[0].rpartition(b"/")[2] if words else b""
    if _SHELL.fullmatch(program):
        return _file(words[1]) if len(words) > 1 and words[1][:1] not in (b"-", b"+") else ""
    return _of_python(words[1:]) if _PYTHON.fullmatch(program) else ""


def command_of(words: Sequence[bytes]) -> str:
    """Return a command line in shell syntax, with `***` for option values that look like secrets.

    >>> command_of([b"python", b"train.py", b"--token=abc", b"--api-key", b"abc", b"--lr", b"0.1", b""])
    'python train.py --token=*** --api-key *** --lr 0.1'
    """
    shown: list[str] = []
    hides = False
    for word in words:
        text = word.decode("utf-8", "replace")
        name, is_pair, value = text.partition("=")
        if hides and not text.startswith("-"):
            text = HIDDEN
        elif is_pair and value and _SECRET.search(name):
            text = f"{name}={HIDDEN}"
        hides = not is_pair and text.startswith("-") and bool(_SECRET.search(name))
        text = _LOGIN.sub(f"//{HIDDEN}@", text)
        shown.append(text if HIDDEN in text else quote(text))
    while shown and shown[-1] == "''":
        shown.pop()
    return clean(" ".join(shown), MOST_SHOWN)


def _user(uid: int) -> str:
    try:
        return clean(pwd.getpwuid(uid).pw_name, _NAME)
    except KeyError:
        return str(uid)


def _of_python(words: Sequence[bytes]) -> str:
    skips = False
    for place, word in enumerate(words):
        if skips:
            skips = False
        elif not word.startswith(b"-") or word == b"-":
            return _file(word)
        elif word.startswith(b"--"):
            skips = word == b"--check-hash-based-pycs"
        else:
            for at, letter in enumerate(word[1:], 2):
                if letter in b"cm":
                    if letter == ord("c"):
                        return ""  # the program itself comes first
                    named = word[at:] or (words[place + 1] if place + 1 < len(words) else b"")
                    return _text(named) if _MODULE.fullmatch(named) else ""
                if letter in _TAKES_ARGUMENT:
                    skips = at == len(word)
                    break
    return ""


def _file(path: bytes) -> str:
    """Return the name of a script; for `pkg/__main__.py`, the name of the package."""
    folder, _, name = path.rstrip(b"/").rpartition(b"/")
    return _text(folder.rpartition(b"/")[2] if name == b"__main__.py" and folder else name)


def _text(name: bytes) -> str:
    text = clean(name.decode("utf-8", "replace"), _NAME)
    return "" if text == "-" else text


def read_in(home: int, name: str, most: int) -> bytes:
    """Return the beginning of a file of a process, relative to its open /proc directory.

    Raises OSError once it has ended.
    """
    file = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=home)
    try:
        return os.pread(file, most, 0)
    finally:
        os.close(file)
