"""The numbered lines of a log, plain or gzipped, whatever it is named."""

from __future__ import annotations

import errno
import gzip
import io
import os
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from gpumon.common.errors import SourceError
from gpumon.common.paths import open_regular
from gpumon.common.text import clean
from gpumon.sources.replay.foreign import COMMAND

_GZIP = b"\x1f\x8b"
_RING = b"GPUMRNG\x01"
_LONGEST = 65536
_BOMS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


class LogLine(NamedTuple):
    """A line of text, without its end."""

    number: int
    """Counts from 1."""
    text: str
    whole: bool
    """False for a last line that no line end closes: it may have been cut."""


class LogFile:
    """A text file that is read once, from its beginning, without holding more than a line.

    Raises SourceError where `path` is missing, not a file, empty, a daemon's ring, or no text.
    """

    def __init__(self, path: str) -> None:
        self.name = clean(os.path.basename(path) or path, 120)
        self.cut = ""
        """Why the file ended before its end, for a label; empty when it did not."""
        try:
            self._raw = os.fdopen(open_regular(path, follow=True), "rb")
        except IsADirectoryError:
            raise SourceError(f"{self.name} is a directory: pass a log file") from None
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno == errno.EINVAL:
                raise SourceError(
                    f"{self.name} is not a regular file: save the log to a file, then replay that"
                ) from None
            why = error.strerror if isinstance(error, OSError) else "the name holds a NUL"
            raise SourceError(f"cannot open {clean(path)}: {why}: check the path") from None
        try:
            self.modified_ns = os.fstat(self._raw.fileno()).st_mtime_ns
            """ns since 1970."""
            self._text = self._open_text()
        except BaseException:
            self._raw.close()
            raise

    def _open_text(self) -> io.TextIOWrapper:
        magic = self._raw.peek(8)[:8]
        if magic == _RING:
            raise SourceError(f"{self.name} is a daemon's ring: record it with 'gpumon record --last 1h -o FILE'")
        stream = gzip.GzipFile(fileobj=self._raw) if magic.startswith(_GZIP) else self._raw
        try:
            head = stream.peek(4096)[:4096]
        except (EOFError, OSError, zlib.error) as error:
            raise SourceError(f"{self.name}: unreadable ({_why(error)}): copy the file again") from None
        if not head:
            raise SourceError(f"{self.name} is empty: log with '{COMMAND}'")
        encoding = next((encoding for bom, encoding in _BOMS if head.startswith(bom)), "utf-8")
        # Every byte below a space but tab and line ends is foreign to a log.
        foreign = 0 if encoding == "utf-16" else sum(byte < 32 and byte not in b"\t\n\r\x1b" for byte in head)
        if foreign * 50 > len(head):
            raise SourceError(f"{self.name}: line 1: binary, not text: pass an nvidia-smi log")
        return io.TextIOWrapper(stream, encoding=encoding, errors="replace")

    def __iter__(self) -> Iterator[LogLine]:
        """Lines in order; a damaged end sets `cut` and ends them. Raises SourceError for a line of 64 KiB."""
        number = 0
        while True:
            number += 1
            try:
                text = self._text.readline(_LONGEST)
            except (EOFError, OSError, zlib.error, UnicodeError) as error:
                self.cut = f"{_why(error)} after line {number - 1}"
                return
            if not text:
                return
            if len(text) >= _LONGEST:
                raise SourceError(f"{self.name}: line {number}: longer than 64 KiB: not an nvidia-smi log")
            yield LogLine(number, text.rstrip("\r\n"), text.endswith("\n"))

    def close(self) -> None:
        """Let go of the file; more than once does no harm."""
        self._text.close()
        self._raw.close()


def _why(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "cut short"
    if isinstance(error, (gzip.BadGzipFile, zlib.error, UnicodeError)):
        return "damaged"
    return str(getattr(error, "strerror", "")) or "unreadable"
