"""Files that are no log of rows by GPU: what they are, and the command that makes one that can be played."""

from __future__ import annotations

import errno
import gzip
import io
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.errors import SourceError
from gpumon.common.paths import open_regular
from gpumon.common.text import clean
from gpumon.sources.replay import dmon, query
from gpumon.sources.replay.format import BadLine, Form, Row, is_repeated

COMMAND = (
    "nvidia-smi --query-gpu=timestamp,index,uuid,name,utilization.gpu,memory.used,memory.total,power.draw,"
    "temperature.gpu --format=csv -l 1 -f FILE"
)
_KINDS = (
    (r"<\?xml|<!DOCTYPE|<nvidia_smi_log", "XML, as of 'nvidia-smi -q -x'"),
    (r"=+NVSMI LOG=+", "the report of 'nvidia-smi -q'"),
    (r"Every [0-9.,]+s?: ", "the screen of 'watch'"),
    (r"#.*\bpid\b", "a log of processes, as of 'nvidia-smi pmon'"),
    (r"(?=.*,).*\bpid\b", "a list of processes, as of 'nvidia-smi --query-compute-apps'"),
    (r".*\| NVIDIA-SMI [0-9]|\+-{30,}", "the table of 'nvidia-smi'"),
    (r"GPU [0-9]+: .*UUID", "the list of 'nvidia-smi -L'"),
    (r"# ?(?:HELP|TYPE) ", "metrics for Prometheus"),
    (r"#\s*(?:Entity|ID)\b", "a log of 'dcgmi dmon'"),
    (r"[{\[]\s*(?:[\"{\[]|$)", "JSON"),
)
"""The beginning of a line, and what has such a line."""


def describe(lines: Sequence[str]) -> str:
    """What a file is that begins with these lines, as part of a sentence; empty where that is not known."""
    for pattern, what in _KINDS:
        if any(re.match(pattern, line) for line in lines):
            return what
    return ""


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


_FREE = 10
_PREFACE = 20
"""Lines in front of a heading."""
_SHARE = 100
_MOST_NAMES = 1024
_SLEW = SECOND
"""A clock that is set right may go back by so much; more is an error of the log."""
_ADVICE = f"log with '{COMMAND}', or with 'nvidia-smi dmon -o DT'"


class LogRows:
    """The rows of a log, read once, from its beginning; two rows at most are held.

    A line that cannot be read, or whose time goes back by more than a second, is skipped and
    counted in `skipped`. Beyond 10 such lines and beyond 1 % of the lines so far the log is
    refused: SourceError with the line and the reason. So is one without a heading.
    """

    def __init__(self, log: LogFile) -> None:
        self._log = log
        self.skipped = 0
        self.form: Form | None = None
        """The format; None before the first row."""
        self._lines = 0

    def __iter__(self) -> Iterator[Row]:
        return self._in_order(_without_repeats(self._rows()))

    def checked(self, head: Sequence[Row]) -> Form:
        """The format; raises SourceError where `head`, the beginning of the log, holds nothing."""
        if self.form is None or all(row.broken for row in head):
            raise SourceError(f"{self._log.name}: a header but no readable row: log for longer")
        if not self.form.measures:
            raise SourceError(f"{self._log.name}: no column is a metric that gpumon knows: {_ADVICE}")
        return self.form

    def _rows(self) -> Iterator[Row]:
        last = -1
        first = True
        ending = ""
        preface: list[str] = []
        for line in self._log:
            text = line.text.strip()
            if not text:
                continue
            self._lines = line.number
            form = self._heading(text)
            if form is not None:
                first = first or not form.identified
                self.form = form
            elif self.form is None:
                preface.append(text)
                if len(preface) > _PREFACE:
                    break
            elif text.startswith("#"):
                continue
            else:
                row = self._row(self.form, line, text, last, ending)
                if row is not None:
                    yield row._replace(first=True) if first else row
                    first = False
                    if not row.broken:
                        ending = _ending(text)
                        last = row.time_ns if row.time_ns is not None else last
        if self.form is None:
            if what := describe(preface):
                raise SourceError(f"{self._log.name} is {what}, not a log with a row for each GPU: {_ADVICE}")
            raise SourceError(f"{self._log.name}: line 1: no header of an nvidia-smi log (omit 'noheader'): {_ADVICE}")

    def _row(self, form: Form, line: LogLine, text: str, last: int, ending: str) -> Row | None:
        """The row in a line, or what holds its place, or None."""
        try:
            if line.whole or not _is_cut(text, ending):
                return form.row(line.number, text, last)
        except BadLine as bad:
            if line.whole:
                self._skip(line.number, str(bad))
        if not line.whole:
            self._log.cut = self._log.cut or f"cut short in line {line.number}"
            return None
        if form.identified or not form.holds_place(text):
            return None
        return Row(line.number, max(last, 0) if form.timed else None, (), -1, broken=True)

    def _heading(self, text: str) -> Form | None:
        """The format from here on, when `text` is a heading."""
        if text.startswith("#"):
            if isinstance(self.form, query.QueryForm):
                return None
            return dmon.heading(text, self.form, self._log.modified_ns)
        if not (text[0].isalpha() or text[0] in '"\ufeff') or isinstance(self.form, dmon.DmonForm):
            return None
        return query.heading(text.lstrip("\ufeff"))

    def _in_order(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Rows whose times do not go back; of two that disagree, the one that ran ahead is the bad one."""
        start = list(islice(rows, 3))
        if len(start) == 3 and _behind(start[1], start[0]) and not _behind(start[2], start[0]):
            self._skip(start.pop(1).line, "its time goes back")
        before, held = -1, None
        for row in chain(start, rows):
            good = row
            if held is not None and held.time_ns is not None and row.time_ns is not None and row.time_ns < held.time_ns:
                if not _behind(row, held):
                    good = row._replace(time_ns=held.time_ns)
                elif row.time_ns >= before:
                    self._skip(held.line, "its time is after that of the next line")
                    held = None
                else:
                    self._skip(row.line, "its time goes back")
                    continue
            if held is not None:
                before = held.time_ns if held.time_ns is not None else before
                yield held
            held = good
        if held is not None:
            yield held

    def _skip(self, line: int, why: str) -> None:
        self.skipped += 1
        if self.skipped > max(_FREE, self._lines // _SHARE):
            raise SourceError(
                f"{self._log.name}: line {line}: {why}, and {self.skipped} of {self._lines} lines so far "
                f"are unreadable: {_ADVICE}"
            )


def _without_repeats(rows: Iterable[Row]) -> Iterator[Row]:
    """Leave out the lines of named GPUs that stand in the log once more: the last of its GPU says the same of one time.

    Times of whole seconds may stand for several ticks; then only the line right behind is one and the same.
    """
    last: dict[str, Row] = {}
    before: Row | None = None
    for row in rows:
        name = row.names[0] if row.names else ""
        other = last.get(name)
        if name and other is not None and is_repeated(row, other, follows=other is before):
            continue
        before = row
        if name and (len(last) < _MOST_NAMES or name in last):
            last[name] = row
        yield row


def _behind(row: Row, other: Row) -> bool:
    return row.time_ns is not None and other.time_ns is not None and other.time_ns - row.time_ns > _SLEW


def _ending(text: str) -> str:
    match = re.search(r"[^0-9]*$", text)
    return match[0] if match else ""


def _is_cut(text: str, ending: str) -> bool:
    """Whether a line without a line end stops inside the unit that the line before ends with."""
    own = _ending(text)
    return own != ending and ending.startswith(own)
