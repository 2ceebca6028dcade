"""The lines of a log into rows in the order of time; what cannot be read is skipped and counted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from gpumon.common.clock import SECOND
from gpumon.common.errors import SourceError
from gpumon.sources.replay import dmon, query
from gpumon.sources.replay.foreign import COMMAND, describe
from gpumon.sources.replay.form import Form, Row
from gpumon.sources.replay.lines import LogFile, LogLine
from gpumon.sources.replay.parse_value import BadLine

_FREE = 10
_PREFACE = 20
"""Lines in front of a heading."""
_SHARE = 100
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
        return self._in_order(self._rows())

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


def _behind(row: Row, other: Row) -> bool:
    return row.time_ns is not None and other.time_ns is not None and other.time_ns - row.time_ns > _SLEW


def _ending(text: str) -> str:
    match = re.search(r"[^0-9]*$", text)
    return match[0] if match else ""


def _is_cut(text: str, ending: str) -> bool:
    """Whether a line without a line end stops inside the unit that the line before ends with."""
    own = _ending(text)
    return own != ending and ending.startswith(own)
