"""Script names of this user's own processes: `train.py`, where the driver reports `python`.

Command lines may contain passwords and tokens, and other users' command lines are private. So only processes of the
same user are read (even for root), and only the name of the script or module is kept. The full command line is read
when the user opens one of their own processes; option values that look like secrets are replaced by `***`.

The PID in a frame may belong to another process here, because PIDs are reused and containers have their own PIDs. So
the start times must match.
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

MAX_READ = 4096
"""Maximum number of bytes read of a command line; the script is near its beginning."""
SAME_START = 2.0
"""Maximum difference in seconds between start times.

The kernel reports the boot time in whole seconds and adjusts it with the clock.
"""
_MAX_CACHED = 8192
"""Maximum number of cached names."""
_MAX_NAME = 64
_PYTHON = re.compile(rb"(?:python|pypy)[0-9.]*[td]?(?:\.exe)?")
_SHELL = re.compile(rb"(?:ba|da|z|k)?sh")
_SECRET = re.compile(r"(?i)token(?!iz|s)|secret|passw|passphrase|api[-_]?key|access[-_]?key|credential|\bauth")
_LOGIN = re.compile(r"//[^/@\s]*:[^/@\s]*@")
"""User and password in a URL."""
HIDDEN = "***"
MAX_SHOWN = 600
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
        self._names: dict[tuple[int, float], str] = {}

    def name(self, process: Process) -> str:
        """Return the script or module that a process runs; empty if it runs none or belongs to another user."""
        if not is_known(process.started):
            return ""
        key = process.pid, process.started
        name = self._names.get(key)
        if name is None:
            if len(self._names) >= _MAX_CACHED:
                self._names.clear()
            name = self._names[key] = script_name(self._words(process))
        return name

    def command(self, process: Process) -> str:
        """Return the command line of a process without secrets; empty if unknown or if it belongs to another user."""
        return command_line(self._words(process)) if is_known(process.started) else ""

    def _words(self, process: Process) -> Sequence[bytes]:
        try:
            proc_dir = os.open(f"{self._proc}/{process.pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return ()
        try:
            if os.fstat(proc_dir).st_uid != self._uid or not self._is_same(process, read_file(proc_dir, "stat", 2048)):
                return ()
            return read_file(proc_dir, "cmdline", MAX_READ).split(b"\0")
        except OSError:
            return ()
        finally:
            os.close(proc_dir)

    def _is_same(self, process: Process, raw: bytes) -> bool:
        stat = parse_stat(raw)
        return stat is not None and has_same_start(process, stat, self._boot)


def has_same_start(process: Process, stat: Stat, boot: float) -> bool:
    """Whether the start time of a process here (`stat`) matches the start time of a process in a frame.

    `boot` is the boot time of the machine (s since 1970).
    """
    return abs(boot + stat.started / _TICK - process.started) <= SAME_START


def boot_time(proc: str = "/proc") -> float:
    """Return the boot time of the machine in s since 1970; NaN if unknown."""
    try:
        with open(f"{proc}/stat", "rb") as file:
            line = next((line for line in file if line.startswith(b"btime")), b"")
        return float(line.split()[1])
    except (OSError, ValueError, IndexError):
        return float("nan")


def script_name(words: Sequence[bytes]) -> str:
    """Return the script or module that a command line runs, or an empty string. Arguments are never returned.

    >>> script_name([b"/usr/bin/python3", b"-u", b"src/train.py", b"--token=secret"])
    'train.py'
    >>> script_name([b"python", b"-m", b"pkg.train", b"--lr", b"1"])
    'pkg.train'
    """
    program = words[0].rpartition(b"/")[2] if words else b""
    if _SHELL.fullmatch(program):
        return _file(words[1]) if len(words) > 1 and words[1][:1] not in (b"-", b"+") else ""
    return _python_script(words[1:]) if _PYTHON.fullmatch(program) else ""


def command_line(words: Sequence[bytes]) -> str:
    """Return a command line in shell syntax, with `***` for option values that look like secrets.

    >>> command_line([b"python", b"train.py", b"--token=abc", b"--api-key", b"abc", b"--lr", b"0.1", b""])
    'python train.py --token=*** --api-key *** --lr 0.1'
    """
    parts: list[str] = []
    is_secret = False
    for word in words:
        text = word.decode("utf-8", "replace")
        name, is_pair, value = text.partition("=")
        if is_secret and not text.startswith("-"):
            text = HIDDEN
        elif is_pair and value and _SECRET.search(name):
            text = f"{name}={HIDDEN}"
        is_secret = not is_pair and text.startswith("-") and bool(_SECRET.search(name))
        text = _LOGIN.sub(f"//{HIDDEN}@", text)
        parts.append(text if HIDDEN in text else quote(text))
    while parts and parts[-1] == "''":
        parts.pop()
    return clean(" ".join(parts), MAX_SHOWN)


def _user(uid: int) -> str:
    try:
        return clean(pwd.getpwuid(uid).pw_name, _MAX_NAME)
    except KeyError:
        return str(uid)


def _python_script(words: Sequence[bytes]) -> str:
    skips = False
    for index, word in enumerate(words):
        if skips:
            skips = False
        elif not word.startswith(b"-") or word == b"-":
            return _file(word)
        elif word.startswith(b"--"):
            skips = word == b"--check-hash-based-pycs"
        else:
            for end, letter in enumerate(word[1:], 2):
                if letter in b"cm":
                    if letter == ord("c"):
                        return ""  # the program itself comes first
                    module = word[end:] or (words[index + 1] if index + 1 < len(words) else b"")
                    return _text(module) if _MODULE.fullmatch(module) else ""
                if letter in _TAKES_ARGUMENT:
                    skips = end == len(word)
                    break
    return ""


def _file(path: bytes) -> str:
    """Return the name of a script; for `pkg/__main__.py`, the name of the package."""
    folder, _, name = path.rstrip(b"/").rpartition(b"/")
    return _text(folder.rpartition(b"/")[2] if name == b"__main__.py" and folder else name)


def _text(name: bytes) -> str:
    text = clean(name.decode("utf-8", "replace"), _MAX_NAME)
    return "" if text == "-" else text


def read_file(proc_dir: int, name: str, limit: int) -> bytes:
    """Return the first `limit` bytes of a file in the open /proc directory of a process.

    Raises OSError if the process has ended.
    """
    file = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc_dir)
    try:
        return os.pread(file, limit, 0)
    finally:
        os.close(file)
