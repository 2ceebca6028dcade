"""Output of commands: standard streams, output files and crash reports.

A standard stream may be closed, may be a full disk, or may have a limited encoding. Characters that the encoding lacks
are replaced by plain characters. If a write to stdout fails, commands that exist to print something end with an error
of one line, and long-running commands continue.
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import stat
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TextIO

from gpumon.common.errors import GpumonError
from gpumon.common.paths import make_private_dir
from gpumon.common.paths import places as default_places
from gpumon.common.program import callable_commands
from gpumon.common.text import wrap_words

CRASH = "crash.txt"


def report(error: BaseException, env: Mapping[str, str] | None = None) -> str:
    """Write the details of a crash to a file in the state directory, and return the line to print.

    The file contains only the newest crash. It does not contain values of variables, because they may be private data
    of other users.
    """
    kind = type(error).__name__
    try:
        path = _save(_details(error), env)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        return f"internal error ({kind}{_location(error)}); its details could not be saved: {reason}"
    return f"internal error ({kind}); please report it with the details in {path}"


def _details(error: BaseException) -> str:
    from time import strftime
    from traceback import format_exception

    from gpumon import __version__

    head = f"gpumon {__version__}, Python {sys.version.split()[0]}, {strftime('%Y-%m-%d %H:%M:%S')}\n"
    return head + "".join(format_exception(error))


def _save(details: str, env: Mapping[str, str] | None) -> str:
    places = default_places(env=env)
    if not places.state:
        raise FileNotFoundError(2, "no HOME")
    os.makedirs(os.path.dirname(places.state) or "/", mode=0o700, exist_ok=True)
    make_private_dir(places.state, places.uid)
    path = f"{places.state}/{CRASH}"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8", errors="backslashreplace") as file:
        os.fchmod(fd, 0o600)
        file.write(details)
    return path


def _location(error: BaseException) -> str:
    """Return the file and line that raised the error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f" at {os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace else ""


_ERROR_HANDLER = "gpumon-plain"
_PLAIN = {
    "·": "-", "–": "-", "−": "-", "…": "..", "°": "", "×": "x", "µ": "u", "∞": "inf", "±": "+-", "→": "->", "▸": ">",
    **dict.fromkeys("█▉▊▋▌", "#"), **dict.fromkeys("▍▎▏", "-"), **dict.fromkeys("─━", "-"), "│": "|",
}  # fmt: skip
_DEFAULT_COLUMNS, _DEFAULT_LINES = 80, 24
_MAX_WORD, _SHORTENED_WORD, _MAX_MESSAGE = 256, 60, 1024
"""Maximum characters of a word in an error message, of a word that was shortened, and of the whole message."""
_NO_OUTPUT = (errno.EBADF, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


def prepare(*, forgiving: bool) -> None:
    """Set up the standard streams so that a write can raise only OSError.

    `forgiving`: a write to stdout never raises.
    """
    codecs.register_error(_ERROR_HANDLER, _replace_unencodable)
    _open_if_closed(0, os.O_RDWR)
    # A write to a closed stdout must fail, so /dev/null is opened for reading.
    _open_if_closed(1, os.O_RDWR if forgiving else os.O_RDONLY)
    _open_if_closed(2, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERROR_HANDLER)
    if forgiving:
        sys.stdout = _ForgivingStream(sys.stdout)


def is_output(error: OSError) -> bool:
    """Whether an error came from a standard stream. Errors from other files contain a file name."""
    return error.errno in _NO_OUTPUT and error.filename is None


def print_message(text: str) -> None:
    """Print a line on stderr. On a terminal, it is wrapped between words. Errors of stderr are ignored."""
    try:
        text = callable_commands(text)
        cells = terminal_size(sys.stderr.fileno())[0] if sys.stderr.isatty() else 0
        print("\n".join(wrap_words(text, cells)), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        silence(sys.stderr)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines on stdout."""
    sys.stdout.writelines(f"{line}\n" for line in lines)


def print_json(document: object) -> None:
    """Print a JSON document on stdout, on one line. Raises ValueError if it contains NaN."""
    json.dump(document, sys.stdout, allow_nan=False)
    print()


def terminal_size(fd: int) -> tuple[int, int]:
    """Return the columns and lines of a terminal. If it reports 0, as serial consoles do, return 80 and 24.

    Raises OSError if there is no terminal.
    """
    size = os.get_terminal_size(fd)
    return size.columns or _DEFAULT_COLUMNS, size.lines or _DEFAULT_LINES


def write_output(path: str, content: bytes) -> None:
    """Write the output file of a command atomically, so that an existing file stays unchanged on failure.

    Devices, pipes and files in directories without write permission are written in place. Raises GpumonError.
    """
    target = os.path.realpath(path)
    temporary = f"{target}.{os.getpid()}"
    try:
        is_replaced = not os.path.lexists(target) or os.path.isfile(target)
        if not is_replaced or not os.access(os.path.dirname(target), os.W_OK | os.X_OK):
            with open(path, "wb") as file:
                file.write(content)
            return
        mode = stat.S_IMODE(os.stat(target).st_mode) if os.path.exists(target) else None
        try:
            with open(temporary, "xb") as file:
                if mode is not None:
                    os.fchmod(file.fileno(), mode)
                file.write(content)
            os.replace(temporary, target)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise GpumonError(f"cannot write {path}: {error.strerror or error}") from error


def output_width() -> int:
    """Return the width for output in cells: COLUMNS, or else the width of the terminal.

    0 (no limit) if there is neither.
    """
    columns = os.environ.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and int(columns):
        return int(columns)
    try:
        return terminal_size(sys.stdout.fileno())[0]
    except (OSError, ValueError):
        return 0


def terminal_width() -> int:
    """Return the width of the terminal in cells; 0 if stdout is not a terminal, even if COLUMNS is set."""
    return output_width() if sys.stdout.isatty() else 0


def shortened(message: str) -> str:
    """Return an error message with its longest words cut. The message may quote input of thousands of characters."""
    words = [word if len(word) <= _MAX_WORD else f"{word[:_SHORTENED_WORD]}…" for word in message.split(" ")]
    text = " ".join(words)
    return text if len(text) <= _MAX_MESSAGE else f"{text[: _MAX_MESSAGE // 2]} … {text[-_SHORTENED_WORD:]}"


def flush(stream: TextIO | None) -> None:
    """Flush a stream and ignore errors, because an error in the flush at exit would change the exit code."""
    if stream is not None:
        try:
            stream.flush()
        except (OSError, ValueError):
            silence(stream)


def silence(stream: TextIO) -> None:
    """Redirect a stream with its buffered content to /dev/null, so that the flush at exit cannot fail."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


class _ForgivingStream(io.TextIOBase):
    """Writes to another stream, and ignores errors."""

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


def _open_if_closed(fd: int, flags: int) -> None:
    """If the descriptor `fd` is closed, open /dev/null as `fd`, so that no other file gets this number."""
    try:
        os.fstat(fd)
    except OSError:
        os.open(os.devnull, flags)  # gets the lowest free number, which is `fd`


def _replace_unencodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_plain_character, error.object[error.start : error.end])), error.end


def _plain_character(character: str) -> str:
    if character in _PLAIN:
        return _PLAIN[character]
    from unicodedata import normalize

    letters = "".join(letter for letter in normalize("NFKD", character) if letter.isascii())
    return letters or "?"
