"""The stretch of a recording that is played: `--from` and `--to`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from gpumon.common.clock import SECOND, seconds
from gpumon.common.errors import UsageError

LAST = 1 << 62
_TIMES = ("%H:%M", "%H:%M:%S")
_DATES = tuple(f"%Y-%m-%d{between}{time}" for between in (" ", "T") for time in _TIMES)
_HOW = "write a time of day (14:03), a date and a time (2026-11-22 14:03), or a duration from its beginning (10m)"


class Portion(NamedTuple):
    """Begin and end of playing, as texts; empty for the recording's own beginning and end."""

    begin: str = ""
    end: str = ""

    def checked(self) -> Portion:
        """The same. Raises UsageError for what is no moment."""
        for text in filter(None, self):
            _moment(text, 0)
        return self

    def begin_ns(self, first_ns: int) -> int:
        """ns since 1970, of a recording that begins at `first_ns`."""
        return _moment(self.begin, first_ns) if self.begin else 0

    def end_ns(self, first_ns: int) -> int:
        """ns since 1970, of a recording that begins at `first_ns`. Raises UsageError where it ends before it begins."""
        end = _moment(self.end, first_ns) if self.end else LAST
        if end <= self.begin_ns(first_ns):
            raise UsageError(f"--to {self.end} is not after --from {self.begin}: give a later moment")
        return end


WHOLE = Portion()


def _moment(text: str, first_ns: int) -> int:
    """ns since 1970. A time of day is the first such one of the recording, by this machine's time zone."""
    for form in _DATES:
        try:
            return round(datetime.strptime(text, form).timestamp() * SECOND)
        except ValueError:
            continue
    for form in _TIMES:
        try:
            time = datetime.strptime(text, form)
        except ValueError:
            continue
        first = datetime.fromtimestamp(first_ns // SECOND)
        then = first.replace(hour=time.hour, minute=time.minute, second=time.second)
        return round((then if then >= first else then + timedelta(days=1)).timestamp() * SECOND)
    try:
        length = seconds(text)
    except UsageError:
        length = -1.0
    if not 0 <= length < 1e9:
        raise UsageError(f"'{text}' is no moment of a recording: {_HOW}")
    return first_ns + round(length * SECOND)
