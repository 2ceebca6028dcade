"""The standard streams as commands find them: closed, full, or of an encoding that lacks our characters.

What an encoding lacks becomes a plainer character. A stream that cannot be written is an error of one line for a
command whose output is its purpose, and no matter for one that goes on for hours.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TextIO

from gpumon.common.errors import GpumonError
from gpumon.common.paths import make_private_dir, places
from gpumon.common.program import callable_commands

CRASH = "crash.txt"


def report(error: BaseException, env: Mapping[str, str] | None = None) -> str:
    """The line; the details, without the values of variables, which may be other people's, go into the state directory.

    The file holds the newest crash only.
    """
    kind = type(error).__name__
    try:
        path = _keep(_details(error), env)
    except OSError as problem:
        where = problem.strerror or str(problem)
        return f"internal error ({kind}{_place(error)}); its details could not be saved: {where}"
    return f"internal error ({kind}); please report it with the details in {path}"


def _details(error: BaseException) -> str:
    from time import strftime
    from traceback import format_exception

    from gpumon import __version__

    head = f"gpumon {__version__}, Python {sys.version.split()[0]}, {strftime('%Y-%m-%d %H:%M:%S')}\n"
    return head + "".join(format_exception(error))


def _keep(details: str, env: Mapping[str, str] | None) -> str:
    where = places(env=env)
    if not where.state:
        raise FileNotFoundError(2, "no HOME")
    os.makedirs(os.path.dirname(where.state) or "/", mode=0o700, exist_ok=True)
    make_private_dir(where.state, where.uid)
    path = f"{where.state}/{CRASH}"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
        os.fchmod(fd, 0o600)
        file.write(details)
    return path


def _place(error: BaseException) -> str:
    """The line of code that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f" at {os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace else ""


_NAME = "gpumon-plain"
_PLAIN = {
    "·": "-", "–": "-", "−": "-", "…": "..", "°": "", "×": "x", "µ": "u", "∞": "inf", "±": "+-", "→": "->", "▸": ">",
    **dict.fromkeys("█▉▊▋▌", "#"), **dict.fromkeys("▍▎▏", "-"), **dict.fromkeys("─━", "-"), "│": "|",
}  # fmt: skip
_USUAL_COLUMNS, _USUAL_LINES = 80, 24
_LONGEST_WORD, _KEPT_OF_WORD, _LONGEST_MESSAGE = 256, 60, 1024
"""Letters of a word of an error, those that are shown of a longer one, and letters of a whole error."""
_NO_OUTPUT = (errno.EBADF, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


def prepare(*, forgiving: bool) -> None:
    """Make stdout and stderr such that writing raises OSError at most; `forgiving`: stdout not even that."""
    codecs.register_error(_NAME, _plainer)
    _fill(0, os.O_RDWR)
    # Closed is not nowhere: a write to it fails, as it would have.
    _fill(1, os.O_RDWR if forgiving else os.O_RDONLY)
    _fill(2, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_NAME)
    if forgiving:
        sys.stdout = _Forgiving(sys.stdout)


def is_output(error: OSError) -> bool:
    """Whether `error` came from writing to a standard stream: an error about a file names it."""
    return error.errno in _NO_OUTPUT and error.filename is None


def say(text: str) -> None:
    """Write a line to stderr, where anybody reads it; to a terminal, in lines of whole words."""
    try:
        text = callable_commands(text)
        cells = terminal_size(sys.stderr.fileno())[0] if sys.stderr.isatty() else 0
        print(of_words(text, cells) if cells else text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        silence(sys.stderr)


def of_words(text: str, cells: int) -> str:
    """Return a text in lines of whole words, as a terminal breaks one anywhere; a longer word stays whole."""
    found = []
    for line in text.split("\n"):
        begun, *words = line.split(" ")
        for word in words:
            longer = f"{begun} {word}"
            if begun.strip() and len(longer) > cells:
                found.append(begun)
                longer = word
            begun = longer
        found.append(begun)
    return "\n".join(found)


def terminal_size(fd: int) -> tuple[int, int]:
    """Return columns and lines of a terminal; where it says 0, as serial consoles do, those of most.

    Raises OSError where there is no terminal.
    """
    size = os.get_terminal_size(fd)
    return size.columns or _USUAL_COLUMNS, size.lines or _USUAL_LINES


def write_output(path: str, content: bytes) -> None:
    """Write the output file of a command, as a whole: where that fails, a file of that name stays as it was.

    A device, a pipe, and a file in a directory that cannot be written, are written in place. Raises GpumonError.
    """
    target = os.path.realpath(path)
    beside = f"{target}.{os.getpid()}"
    try:
        is_replaced = not os.path.lexists(target) or os.path.isfile(target)
        if not is_replaced or not os.access(os.path.dirname(target), os.W_OK | os.X_OK):
            with open(path, "wb") as file:
                file.write(content)
            return
        mode = stat.S_IMODE(os.stat(target).st_mode) if os.path.exists(target) else None
        try:
            with open(beside, "xb") as file:
                if mode is not None:
                    os.fchmod(file.fileno(), mode)
                file.write(content)
            os.replace(beside, target)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(beside)
            raise
    except OSError as error:
        raise GpumonError(f"cannot write {path}: {error.strerror or error}") from error


def output_width() -> int:
    """Return the width of the terminal in cells; 0, for as wide as it gets, where the output goes elsewhere."""
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isascii() and wanted.isdigit() and int(wanted):
        return int(wanted)
    try:
        return terminal_size(sys.stdout.fileno())[0]
    except (OSError, ValueError):
        return 0


def terminal_width() -> int:
    """Return the width of the terminal in cells; 0 where the output is none, whatever the environment says."""
    return output_width() if sys.stdout.isatty() else 0


def shortened(message: str) -> str:
    """Return the message of an error with its longest words cut: what somebody typed may be thousands of letters."""
    words = [word if len(word) <= _LONGEST_WORD else f"{word[:_KEPT_OF_WORD]}…" for word in message.split(" ")]
    text = " ".join(words)
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[: _LONGEST_MESSAGE // 2]} … {text[-_KEPT_OF_WORD:]}"


def let_go(stream: TextIO | None) -> None:
    """Write what `stream` still holds, where anybody reads it: an error at exit would replace the exit code."""
    if stream is not None:
        try:
            stream.flush()
        except (OSError, ValueError):
            silence(stream)


def silence(stream: TextIO) -> None:
    """From now on what is written to `stream`, and what it still holds, goes nowhere: the end must not fail for it."""
    with suppress(OSError, ValueError):
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)


class _Forgiving(io.TextIOBase):
    """Writes to another stream, and goes on when nothing can be written there any more."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError:
            silence(self._stream)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            silence(self._stream)

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()


def _fill(fd: int, how: int) -> None:
    """Put the null device where `fd` is closed, so that no file of ours comes to be there."""
    try:
        os.fstat(fd)
    except OSError:
        os.open(os.devnull, how)  # the lowest that is free: all below are open by now


def _plainer(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_plain, error.object[error.start : error.end])), error.end


def _plain(character: str) -> str:
    if character in _PLAIN:
        return _PLAIN[character]
    from unicodedata import normalize

    letters = "".join(letter for letter in normalize("NFKD", character) if letter.isascii())
    return letters or "?"
