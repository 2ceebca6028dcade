"""The source that plays a log of nvidia-smi as if it were live."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from threading import Thread
from typing import BinaryIO

from gpumon.common.clock import SECOND, Clock
from gpumon.common.errors import SourceError
from gpumon.common.paths import open_regular
from gpumon.model.origin import RECORDED, Driver, Origin
from gpumon.model.units import counted
from gpumon.recording.playback import MAX_NS, Playback
from gpumon.sources.base import Pace, Reading
from gpumon.sources.replay.format import BURST, BadLine, LogFormat, Row, check_speed
from gpumon.sources.replay.log import GZIP, LogFile, LogRows
from gpumon.sources.replay.nvidia_smi_csv import QueryFormat
from gpumon.sources.replay.ticks import LOOKAHEAD, LogDevices, detect_layout, group_ticks

_TAIL = 64 * 1024
"""The last line is searched for in this many bytes at the end of the log."""
_MAX_UNPACKED = 256 * 2**20
"""Maximum bytes that are decompressed to find the last line."""


def find_end(path: str, log_format: LogFormat, until_ns: int, playback: Playback) -> None:
    """Set the end of `playback` to the time of the last line of the log. Runs in a separate thread.

    `until_ns`: latest end in ns since 1970. If the end cannot be read from the log, it is not set.
    """

    def work() -> None:
        end = read_end_ns(path, log_format)
        if end > 0:
            playback.end = min(end, until_ns) / SECOND

    # Times of dmon may have no date. Their dates then depend on the lines before.
    if isinstance(log_format, QueryFormat) and log_format.has_times:
        Thread(target=work, name="gpumon-log-end", daemon=True).start()


def read_end_ns(path: str, log_format: LogFormat) -> int:
    """Return the time of the last complete line of a log in ns since 1970; 0 if it cannot be read."""
    try:
        with os.fdopen(open_regular(path, follow=True), "rb") as file:
            tail = _unpacked_tail(file) if file.read(2) == GZIP else _tail(file)
    except (OSError, EOFError, zlib.error):
        return 0
    for line in reversed(tail.decode("utf-8", "replace").splitlines()):
        try:
            time_ns = log_format.parse_row(0, line.strip(), 0).time_ns
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
    tail, count = b"", 0
    with gzip.GzipFile(fileobj=file) as unpacked:
        while part := unpacked.read(_TAIL):
            tail, count = (tail + part)[-_TAIL:], count + len(part)
            if count > _MAX_UNPACKED:
                return b""
    return tail


_FAR = 1 << 62


class ReplaySource:
    """Plays a log of `nvidia-smi --query-gpu --format=csv` or `nvidia-smi dmon`, plain or gzipped.

    Every tick of the log becomes a reading with its logged time (`Reading.time_ns`) and its logged interval
    (`Reading.monotonic_ns`). A tick is due when the time since the start of playback, multiplied by `speed`, has
    reached the time between the first tick and this tick. Times in the log are read in this machine's time zone. A log
    without times has one tick per second, starting at the current time.

    A line that cannot be parsed, or whose time goes back by more than a second, is skipped. The label contains the
    number of skipped lines. If more than 10 lines and more than 1 % of the lines are skipped, the log is rejected. In
    this case, the constructor raises an error, or a later `read` returns no more readings and `origin().problem` says
    why. If a GPU has no row in a tick, it keeps its last values, marked as stale. If rows do not identify their GPU,
    they are assigned to GPUs by the gaps between ticks. If this is impossible, all rows are shown as one GPU, and the
    label says so.
    """

    capabilities = RECORDED

    def __init__(self, path: str, *, speed: float = 1.0, clock: Clock, playback: Playback | None = None) -> None:
        """Open the log at `path` and read its beginning.

        `speed`: seconds of the log per second. `playback`: the portion to play, and the pause control. Raises
        UsageError for an invalid speed or portion, and SourceError if the log cannot be read.
        """
        check_speed(speed)
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
            log_format = self._rows.validated_format(head)
            self._has_times = log_format.has_times
            layout = detect_layout(head, log_format.has_ids, len(head) < LOOKAHEAD)
            self._is_certain = layout.is_certain
            self.interval = layout.interval_ns / SECOND
            """Median seconds between two ticks at the start of the log."""
            self.tick_period = self.interval / speed
            self._readings = self._read_ticks(
                self._complete_ticks(group_ticks(chain(head, rows), layout)), clock.time()
            )
            self._end = MAX_NS
            self._next = self._next_reading()
            begin = self._next.time_ns if self._next else 0
            portion = self._playback.portion
            self._end = portion.end_ns(begin)
            self._seek(portion.begin_ns(begin) - begin)
            self._playback.begin = self._first / SECOND
            find_end(path, log_format, self._end, self._playback)
        except BaseException:
            self._log.close()
            raise
        self._monotonic = self._last = clock.monotonic()
        self._played = 0.0
        """Played time of the log in ns."""

    def _seek(self, offset: int) -> None:
        begin = self._next.time_ns if self._next else 0
        while self._next is not None and self._next.time_ns - begin < offset:
            last = self._next.time_ns
            self._next = self._next_reading()
            if self._next is None:
                raise SourceError(
                    self._problem
                    or f"{self._log.name} ends after {(last - begin) / SECOND:.0f} s: start earlier than that"
                )
        self._first = self._next.time_ns if self._next else 0

    def _complete_ticks(self, ticks: Iterator[list[Row]]) -> Iterator[list[Row]]:
        """Yield the ticks.

        Leave out the last tick if the log ends within it, because rows of other GPUs are then missing.
        """
        before, rows = next(ticks, None), 0
        for tick in ticks:
            if before is not None:
                yield before
                rows = len(before)
            before = tick
        if before is not None and not (self._log.cut and len(before) < rows):
            yield before

    def _read_ticks(self, ticks: Iterator[list[Row]], now: int) -> Iterator[Reading]:
        """Yield a reading per tick.

        The time of a reading is the time of its first row, but always later than the previous reading.
        """
        last = -1
        pace = Pace(round(self.interval * SECOND), 0, 0, 0, 0)
        for tick in ticks:
            time = next((row.time_ns for row in tick if row.time_ns is not None and not row.is_broken), None)
            if time is None:
                time = now if last < 0 else last + (SECOND if not self._has_times else SECOND // 1000)
            # If times are whole seconds, several ticks may have the same time. Their readings get times that are a
            # millisecond apart.
            last = max(time, last + SECOND // 1000) if last >= 0 else time
            samples = self._devices.samples(tick, last)
            if samples:
                yield Reading(0, last, samples, pace=pace)

    def _next_reading(self) -> Reading | None:
        try:
            reading = next(self._readings, None)
        except SourceError as error:
            self._problem, reading = str(error), None
        if reading is None or reading.time_ns > self._end:
            self._log.close()
            return None
        return reading

    def origin(self) -> Origin:
        """Return the name of the log, the speed, whether the log has ended, and its problems."""
        remarks = []
        if not self._has_times:
            remarks.append("no timestamps: 1 s per tick assumed")
        if not self._is_certain:
            remarks.append("rows name no GPU: shown as one GPU")
        if self._rows.skipped:
            remarks.append(f"{counted(self._rows.skipped, 'line')} skipped")
        if self._log.cut:
            remarks.append(self._log.cut)
        suffix = " ended" if self._next is None else f" ×{self._speed:g}" if self._speed != 1 else ""
        label = f"REPLAY {self._log.name}{suffix}" + (f" ({', '.join(remarks)})" if remarks else "")
        ended = self._next is None
        return Origin("replay", label, self._problem, ended=ended, capabilities=self.capabilities, speed=self._speed)

    def driver(self) -> Driver:
        """Return the driver, if the log has a column with the version of the driver."""
        return self._devices.driver

    def read(self) -> Sequence[Reading]:
        """Return the ticks that have become due, oldest first, at most `BURST`; none while paused or after the end."""
        now = self._clock.monotonic()
        if not self._playback.is_paused:
            self._played += min((now - self._last) * self._speed, float(_FAR))
        self._last = now
        due = self._first + int(min(self._played, _FAR))
        readings: list[Reading] = []
        while self._next is not None and self._next.time_ns <= due and len(readings) < BURST:
            readings.append(replace(self._next, monotonic_ns=self._monotonic + self._next.time_ns - self._first))
            self._next = self._next_reading()
        return readings

    def close(self) -> None:
        """Close the log. Nothing is read afterward."""
        self._next = None
        self._log.close()
