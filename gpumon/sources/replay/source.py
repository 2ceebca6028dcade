"""The source that shows a log as if it were live."""

from __future__ import annotations

import gzip
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from threading import Thread
from typing import BinaryIO

from gpumon.common.clock import SECOND, Clock
from gpumon.common.errors import SourceError, UsageError
from gpumon.common.paths import open_regular
from gpumon.model.origin import RECORDED, Driver, Origin
from gpumon.recording.playback import LAST, Playback
from gpumon.sources.base import Pace, Reading
from gpumon.sources.replay.format import BadLine, Form, Row
from gpumon.sources.replay.log import LogFile, LogRows
from gpumon.sources.replay.query import QueryForm
from gpumon.sources.replay.ticks import LOOKAHEAD, LogDevices, layout, ticks

_TAIL = 64 * 1024
"""Bytes at the end in which a line is looked for."""
_MOST_PACKED = 256 * 2**20
"""Bytes that are unpacked for it at most."""
_GZIP = b"\x1f\x8b"


def tell_end(path: str, form: Form, until_ns: int, playback: Playback) -> None:
    """Set the end of `playback`, at most `until_ns`, some time later; never where the log does not tell."""

    def work() -> None:
        found = end_ns(path, form)
        if found > 0:
            playback.end = min(found, until_ns) / SECOND

    if isinstance(form, QueryForm) and form.timed:  # times of dmon may lack the date, and then mean the line before
        Thread(target=work, name="gpumon-log-end", daemon=True).start()


def end_ns(path: str, form: Form) -> int:
    """Return the time of the last whole line, in ns since 1970; 0 where that cannot be read."""
    try:
        with os.fdopen(open_regular(path, follow=True), "rb") as file:
            tail = _unpacked_tail(file) if file.read(2) == _GZIP else _tail(file)
    except (OSError, EOFError, zlib.error):
        return 0
    for line in reversed(tail.decode("utf-8", "replace").splitlines()):
        try:
            time_ns = form.row(0, line.strip(), 0).time_ns
        except (BadLine, ValueError):
            continue
        return time_ns or 0
    return 0


def _tail(file: BinaryIO) -> bytes:
    size = file.seek(0, 2)
    file.seek(max(0, size - _TAIL))
    return file.read(_TAIL)


def _unpacked_tail(file: BinaryIO) -> bytes:
    file.seek(0)
    tail, many = b"", 0
    with gzip.GzipFile(fileobj=file) as unpacked:
        while part := unpacked.read(_TAIL):
            tail, many = (tail + part)[-_TAIL:], many + len(part)
            if many > _MOST_PACKED:
                return b""
    return tail


BURST = 2000
"""Readings that one `read` gives at most, so that a high speed cannot stall the sampler."""
_FAR = 1 << 62


class ReplaySource:
    """A log of `nvidia-smi --query-gpu --format=csv` or `nvidia-smi dmon`, plain or gzipped.

    Every tick of the log becomes one reading, in its own time (`Reading.time`) and with its own
    spacing (`Reading.monotonic_ns`). A tick is due once the time since the start, times `speed`,
    has reached its distance from the first. Times in the log are local: they are read in this
    machine's time zone. A log without times counts one second for each tick, from now on.

    A line that cannot be read, or whose time goes back by more than a second, is skipped; the
    label says how many were. More than 10 such lines and more than 1 % refuse the log: the
    constructor raises, and later `read` gives nothing more and `origin().problem` says why.
    A GPU that has no row in a tick keeps its last values and is stale. Rows that do not name
    their GPU are told apart by the gaps between ticks; where these do not tell, they are one GPU, and
    the label says so.
    """

    capabilities = RECORDED

    def __init__(
        self, path: str, *, speed: float = 1.0, clock: Clock, start: float = 0.0, playback: Playback | None = None
    ) -> None:
        """Open the log at `path` and read its beginning.

        `speed` is log seconds per second; `start` skips so many seconds of the log; `playback` has the portion that is
        played, and pauses it.
        Raises UsageError for a speed that is not positive and finite, a start that is negative or a portion that
        makes no sense, SourceError when the log cannot be read.
        """
        if not (math.isfinite(speed) and speed > 0):
            raise UsageError(f"invalid speed {speed:g}: give a number greater than 0, such as 10")
        if not (math.isfinite(start) and start >= 0):
            raise UsageError(f"invalid start {start:g} s: give seconds from the beginning, such as 60")
        self._clock = clock
        self._speed = speed
        self._playback = playback or Playback()
        self._playback.can_pause = True
        self._devices = LogDevices()
        self._problem = ""
        self._log = LogFile(path)
        try:
            self._rows = LogRows(self._log)
            rows = iter(self._rows)
            head = list(islice(rows, LOOKAHEAD))
            form = self._rows.checked(head)
            self._timed = form.timed
            found = layout(head, form.identified, len(head) < LOOKAHEAD)
            self._sure = found.sure
            self.interval = found.interval_ns / SECOND
            """Seconds from tick to tick in the log: the median of its beginning."""
            self.tick_period = self.interval / speed
            self._ticks = self._dated(self._whole(ticks(chain(head, rows), found)), clock.time())
            self._end = LAST
            self._next = self._following()
            begin = self._next.time_ns if self._next else 0
            portion = self._playback.portion
            self._end = portion.end_ns(begin)
            self._seek(max(int(min(start * SECOND, _FAR)), portion.begin_ns(begin) - begin))
            self._playback.begin = self._first / SECOND
            tell_end(path, form, self._end, self._playback)
        except BaseException:
            self._log.close()
            raise
        self._monotonic = self._last = clock.monotonic()
        self._played = 0.0
        """ns of the log that have become due."""

    def _seek(self, offset: int) -> None:
        begin = self._next.time_ns if self._next else 0
        while self._next is not None and self._next.time_ns - begin < offset:
            last = self._next.time_ns
            self._next = self._following()
            if self._next is None:
                raise SourceError(
                    self._problem
                    or f"{self._log.name} ends after {(last - begin) / SECOND:.0f} s: start earlier than that"
                )
        self._first = self._next.time_ns if self._next else 0

    def _whole(self, groups: Iterator[list[Row]]) -> Iterator[list[Row]]:
        """Yield `groups`, without the last one of a log that is cut short within it: the other GPUs answered too."""
        before, rows = next(groups, None), 0
        for group in groups:
            if before is not None:
                yield before
                rows = len(before)
            before = group
        if before is not None and not (self._log.cut and len(before) < rows):
            yield before

    def _dated(self, groups: Iterator[list[Row]], now: int) -> Iterator[Reading]:
        """Each tick with its time: that of its first row, and always later than the one before."""
        last = -1
        pace = Pace(round(self.interval * SECOND), 0, 0, 0, 0)
        for group in groups:
            time = next((row.time_ns for row in group if row.time_ns is not None and not row.broken), None)
            if time is None:
                time = now if last < 0 else last + (SECOND if not self._timed else SECOND // 1000)
            # Times of whole seconds may stand for several ticks: a millisecond keeps them apart.
            last = max(time, last + SECOND // 1000) if last >= 0 else time
            samples = self._devices.samples(group, last)
            if samples:
                yield Reading(0, last, samples, pace=pace)

    def _following(self) -> Reading | None:
        try:
            following = next(self._ticks, None)
        except SourceError as error:
            self._problem, following = str(error), None
        if following is None or following.time_ns > self._end:
            self._log.close()
            return None
        return following

    def origin(self) -> Origin:
        """The name of the log, the speed, whether it has ended, and what could not be read."""
        remarks = []
        if not self._timed:
            remarks.append("no times: 1 s a tick")
        if not self._sure:
            remarks.append("rows name no GPU: shown as one")
        if self._rows.skipped:
            remarks.append(f"{self._rows.skipped} {'line' if self._rows.skipped == 1 else 'lines'} skipped")
        if self._log.cut:
            remarks.append(self._log.cut)
        how = " ended" if self._next is None else f" ×{self._speed:g}" if self._speed != 1 else ""
        label = f"REPLAY {self._log.name}{how}" + (f" ({', '.join(remarks)})" if remarks else "")
        ended = self._next is None
        return Origin("replay", label, self._problem, ended=ended, capabilities=self.capabilities, speed=self._speed)

    def driver(self) -> Driver:
        """The version, where the log has a column of it."""
        return self._devices.driver

    def read(self) -> Sequence[Reading]:
        """Every tick that has become due, oldest first, at most `BURST`; nothing while paused, or after the end."""
        now = self._clock.monotonic()
        if not self._playback.is_paused:
            self._played += min((now - self._last) * self._speed, float(_FAR))
        self._last = now
        due = self._first + int(min(self._played, _FAR))
        readings: list[Reading] = []
        while self._next is not None and self._next.time_ns <= due and len(readings) < BURST:
            readings.append(self._next._replace(monotonic_ns=self._monotonic + self._next.time_ns - self._first))
            self._next = self._following()
        return readings

    def close(self) -> None:
        """Close the log; nothing more is read."""
        self._next = None
        self._log.close()
