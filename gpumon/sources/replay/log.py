"""Opens log files as text, and reads their rows in chronological order."""

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
from gpumon.sources.replay import nvidia_smi_csv, nvidia_smi_dmon
from gpumon.sources.replay.format import BadLine, LogFormat, Row, is_duplicate

COMMAND = (
    "nvidia-smi --query-gpu=timestamp,index,uuid,name,utilization.gpu,memory.used,memory.total,power.draw,"
    "temperature.gpu --format=csv -l 1 -f FILE"
)
_KINDS = (
    (r"<\?xml|<!DOCTYPE|<nvidia_smi_log", "XML, as written by 'nvidia-smi -q -x'"),
    (r"=+NVSMI LOG=+", "the report of 'nvidia-smi -q'"),
    (r"Every [0-9.,]+s?: ", "the screen of 'watch'"),
    (r"#.*\bpid\b", "a log of processes, as written by 'nvidia-smi pmon'"),
    (r"(?=.*,).*\bpid\b", "a list of processes, as written by 'nvidia-smi --query-compute-apps'"),
    (r".*\| NVIDIA-SMI [0-9]|\+-{30,}", "the table of 'nvidia-smi'"),
    (r"GPU [0-9]+: .*UUID", "the list of 'nvidia-smi -L'"),
    (r"# ?(?:HELP|TYPE) ", "metrics for Prometheus"),
    (r"#\s*(?:Entity|ID)\b", "a log of 'dcgmi dmon'"),
    (r"[{\[]\s*(?:[\"{\[]|$)", "JSON"),
)
"""Pairs of a regular expression for the start of a line, and the kind of file in which such lines occur."""


def detect_kind(lines: Sequence[str]) -> str:
    """Return the kind of a file that starts with these lines, as words for a message. Empty if no kind matches."""
    for pattern, kind in _KINDS:
        if any(re.match(pattern, line) for line in lines):
            return kind
    return ""


GZIP = b"\x1f\x8b"
_UNSUPPORTED = (
    (b"\xfd7zXZ\0", "xz"), (b"BZh", "bzip2"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"PK\x03\x04", "zip"),
)  # fmt: skip
"""First bytes and names of compressed formats that gpumon does not read."""
_RING = b"GPUMRNG\x01"
_LONGEST_LINE = 65536
_BOMS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


class LogLine(NamedTuple):
    """A line of text without its line end."""

    number: int
    """Number of the line, counted from 1."""
    text: str
    is_whole: bool
    """False for a last line without a line end, which may be incomplete."""


class LogFile:
    """A text file that is read line by line, only once.

    Raises SourceError if `path` does not exist, is not a file, is empty, is the ring of a daemon, or is not text.
    """

    def __init__(self, path: str) -> None:
        self.name = clean(os.path.basename(path) or path, 120)
        self.cut = ""
        """Text for the label that says why the file ended too early; empty if the file is complete."""
        try:
            self._raw = os.fdopen(open_regular(path, follow=True), "rb")
        except IsADirectoryError:
            raise SourceError(f"{self.name} is a directory: pass a log file") from None
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno == errno.EINVAL:
                raise SourceError(
                    f"{self.name} is not a regular file: save the log to a file, then replay that"
                ) from None
            why = error.strerror if isinstance(error, OSError) else "the name contains a NUL"
            raise SourceError(f"cannot open {clean(path)}: {why}: check the path") from None
        try:
            self.modified_ns = os.fstat(self._raw.fileno()).st_mtime_ns
            """ns since 1970."""
            self._text = self._open_text()
        except OSError as error:
            self._raw.close()
            raise SourceError(f"cannot read {clean(path)}: {error.strerror}") from None
        except BaseException:
            self._raw.close()
            raise

    def _open_text(self) -> io.TextIOWrapper:
        magic = self._raw.peek(8)[:8]
        if magic == _RING:
            raise SourceError(f"{self.name} is a daemon's ring: record it with 'gpumon record --last 1h -o FILE'")
        for start, compression in _UNSUPPORTED:
            if magic.startswith(start):
                raise SourceError(f"{self.name} is compressed with {compression}: unpack it, or compress it with gzip")
        stream = gzip.GzipFile(fileobj=self._raw) if magic.startswith(GZIP) else self._raw
        try:
            head = stream.peek(4096)[:4096]
        except (EOFError, OSError, zlib.error) as error:
            self.cut = _describe(error)
            raise self.damage_error() from None
        if not head:
            raise SourceError(f"{self.name} is empty: log with '{COMMAND}'")
        encoding = next((encoding for bom, encoding in _BOMS if head.startswith(bom)), "utf-8")
        # A text log contains no control characters except tab, line ends and escape.
        foreign = 0 if encoding == "utf-16" else sum(byte < 32 and byte not in b"\t\n\r\x1b" for byte in head)
        if foreign * 50 > len(head):
            raise SourceError(f"{self.name}: line 1: binary, not text: pass an nvidia-smi log")
        return io.TextIOWrapper(stream, encoding=encoding, errors="replace")

    def __iter__(self) -> Iterator[LogLine]:
        """Yield the lines.

        If the rest of the file is damaged, set `cut` and stop. Raises SourceError for a line of more than 64 KiB.
        """
        number = 0
        while True:
            number += 1
            try:
                text = self._text.readline(_LONGEST_LINE)
            except (EOFError, OSError, zlib.error, UnicodeError) as error:
                self.cut = f"{_describe(error)} after line {number - 1}"
                return
            if not text:
                return
            if len(text) >= _LONGEST_LINE:
                raise SourceError(f"{self.name}: line {number}: longer than 64 KiB: not an nvidia-smi log")
            yield LogLine(number, text.rstrip("\r\n"), text.endswith("\n"))

    def damage_error(self) -> SourceError:
        """Return the error to raise if a file ends too early and nothing in it can be shown."""
        return SourceError(f"{self.name}: unreadable ({self.cut}): copy the file again")

    def close(self) -> None:
        """Close the file; may be called several times."""
        self._text.close()
        self._raw.close()


def _describe(error: Exception) -> str:
    if isinstance(error, EOFError):
        return "truncated"
    if isinstance(error, (gzip.BadGzipFile, zlib.error, UnicodeError)):
        return "damaged"
    return str(getattr(error, "strerror", "")) or "unreadable"


_SKIPPED_FREE = 10
_SKIPPED_SHARE = 100
"""A log is rejected if the number of skipped lines exceeds both `_SKIPPED_FREE` and 1/`_SKIPPED_SHARE` of all lines."""
_MAX_PREFACE = 20
"""Maximum number of lines before the heading."""
_MAX_GPUS = 1024
_SLEW = SECOND
"""Times may go back by up to this many ns, because the clock may have been adjusted. A larger step back is an error in
the log.
"""
_ADVICE = f"log with '{COMMAND}', or with 'nvidia-smi dmon -o DT'"


class LogRows:
    """The rows of a log, read once from the start. No more than two rows are kept in memory.

    A line is skipped and counted in `skipped` if it cannot be parsed, or if its time is more than a second before the
    time of the previous line. If more than 10 lines and more than 1 % of the lines so far are skipped, SourceError is
    raised with the line and the reason. SourceError is also raised if there is no heading.
    """

    def __init__(self, log: LogFile) -> None:
        self._log = log
        self.skipped = 0
        self.format: LogFormat | None = None
        """Format of the rows; None before the first row."""
        self._lines = 0

    def __iter__(self) -> Iterator[Row]:
        return self._in_order(_without_duplicates(self._rows()))

    def validated_format(self, head: Sequence[Row]) -> LogFormat:
        """Return the format.

        `head`: first rows of the log. Raises SourceError if these rows contain nothing to show.
        """
        if self.format is None or all(row.is_broken for row in head):
            if self._log.cut:
                raise self._log.damage_error()
            raise SourceError(f"{self._log.name}: a header but no readable row: log for longer")
        if not self.format.has_metrics:
            raise SourceError(f"{self._log.name}: no column is a metric that gpumon knows: {_ADVICE}")
        return self.format

    def _rows(self) -> Iterator[Row]:
        last = -1
        is_first = True
        ending = ""
        preface: list[str] = []
        for line in self._log:
            text = line.text.strip()
            if not text:
                continue
            self._lines = line.number
            log_format = self._parse_heading(text)
            if log_format is not None:
                is_first = is_first or not log_format.has_ids
                self.format = log_format
            elif self.format is None:
                preface.append(text)
                if len(preface) > _MAX_PREFACE:
                    break
            elif text.startswith("#"):
                continue
            else:
                row = self._parse_row(self.format, line, text, last, ending)
                if row is not None:
                    yield row._replace(is_first=True) if is_first else row
                    is_first = False
                    if not row.is_broken:
                        ending = _ending(text)
                        last = row.time_ns if row.time_ns is not None else last
        if self.format is None:
            if self._log.cut:
                raise self._log.damage_error()
            if kind := detect_kind(preface):
                raise SourceError(f"{self._log.name} is {kind}, not a log with a row for each GPU: {_ADVICE}")
            raise SourceError(f"{self._log.name}: line 1: no header of an nvidia-smi log (omit 'noheader'): {_ADVICE}")

    def _parse_row(self, log_format: LogFormat, line: LogLine, text: str, last: int, ending: str) -> Row | None:
        """Parse a line. If this fails, return None, or a row without values if the order of the rows must be kept."""
        try:
            if line.is_whole or not _is_cut(text, ending):
                return log_format.parse_row(line.number, text, last)
        except BadLine as bad:
            if line.is_whole:
                self._skip(line.number, str(bad))
        if not line.is_whole:
            self._log.cut = self._log.cut or f"truncated at line {line.number}"
            return None
        if log_format.has_ids or not log_format.looks_like_row(text):
            return None
        return Row(line.number, max(last, 0) if log_format.has_times else None, (), -1, is_broken=True)

    def _parse_heading(self, text: str) -> LogFormat | None:
        """Return the format of the following rows if `text` is a heading; otherwise None."""
        if text.startswith("#"):
            if isinstance(self.format, nvidia_smi_csv.QueryFormat):
                return None
            return nvidia_smi_dmon.parse_heading(text, self.format, self._log.modified_ns)
        if not (text[0].isalpha() or text[0] in '"\ufeff') or isinstance(self.format, nvidia_smi_dmon.DmonFormat):
            return None
        return nvidia_smi_csv.parse_heading(text.lstrip("\ufeff"))

    def _in_order(self, rows: Iterator[Row]) -> Iterator[Row]:
        """Yield the rows whose times do not go back.

        If the times of two rows conflict, skip the row with the later time.
        """
        start = list(islice(rows, 3))
        if len(start) == 3 and _is_behind(start[1], start[0]) and not _is_behind(start[2], start[0]):
            self._skip(start.pop(1).line, "its time goes back")
        before, last = -1, None
        for row in chain(start, rows):
            good = row
            if last is not None and last.time_ns is not None and row.time_ns is not None and row.time_ns < last.time_ns:
                if not _is_behind(row, last):
                    good = row._replace(time_ns=last.time_ns)
                elif row.time_ns >= before:
                    self._skip(last.line, "its time is after the time of the next line")
                    last = None
                else:
                    self._skip(row.line, "its time goes back")
                    continue
            if last is not None:
                before = last.time_ns if last.time_ns is not None else before
                yield last
            last = good
        if last is not None:
            yield last

    def _skip(self, line: int, why: str) -> None:
        self.skipped += 1
        if self.skipped > max(_SKIPPED_FREE, self._lines // _SKIPPED_SHARE):
            raise SourceError(
                f"{self._log.name}: line {line}: {why}, and {self.skipped} of {self._lines} lines so far "
                f"are unreadable: {_ADVICE}"
            )


def _without_duplicates(rows: Iterable[Row]) -> Iterator[Row]:
    """Drop rows that repeat the last row of the same GPU with the same time.

    Rows that do not identify a GPU are kept.
    """
    last: dict[str, Row] = {}
    before: Row | None = None
    for row in rows:
        name = row.names[0] if row.names else ""
        other = last.get(name)
        if name and other is not None and is_duplicate(row, other, follows=other is before):
            continue
        before = row
        if name and (len(last) < _MAX_GPUS or name in last):
            last[name] = row
        yield row


def _is_behind(row: Row, other: Row) -> bool:
    return row.time_ns is not None and other.time_ns is not None and other.time_ns - row.time_ns > _SLEW


def _ending(text: str) -> str:
    """Return the text after the last digit, such as a unit."""
    match = re.search(r"[^0-9]*$", text)
    return match[0] if match else ""


def _is_cut(text: str, ending: str) -> bool:
    """Return whether `text`, a line without a line end, is truncated within its last unit.

    `ending`: text after the last digit of the previous line.
    """
    own = _ending(text)
    return own != ending and ending.startswith(own)
