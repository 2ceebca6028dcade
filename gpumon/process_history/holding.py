"""Holders of a GPU, from when to when, by the processes that the file has: whole spans, without what they used."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.common.clock import SECOND
from gpumon.common.privacy import in_force
from gpumon.common.text import clean
from gpumon.database.cells import typed_rows
from gpumon.history.read import reading
from gpumon.process_history.kept import newest, reach

MOST = 20_000
"""Spans of a window, the newest."""
_MOST_TEXT = 100
_LATEST = 2**62


class HeldSpan(NamedTuple):
    """A process on a GPU, as long as it was seen there."""

    begin: float
    """Seconds since 1970, as `end`."""
    end: float
    pid: int
    user: str
    """Empty where that is not known."""


def held_spans(path: str, device: str, begin: float, end: float) -> list[HeldSpan]:
    """Return the processes on a GPU (a UUID) between two times (s since 1970), by when they were first seen.

    One that is still there reaches until what the file has last. Raises GpumonError.
    """
    with reading(path) as file:
        if not file.has_processes:
            return []
        db = file.connection
        db.execute("BEGIN")  # all tables as they are at one moment
        until, present, people = reach(db).until, newest(db), in_force()
        # The end of one that is still there may be behind in its row.
        rows = db.execute(
            "SELECT id, first, last, pid, user FROM process WHERE device = ? AND first <= ? ORDER BY last DESC LIMIT ?",
            (device, round(min(end * SECOND, _LATEST)), MOST),
        )
        found = [
            HeldSpan(first / SECOND, max(until, last / SECOND) if number in present else last / SECOND, pid,
                     people.name(clean(user, _MOST_TEXT)) if user else "")
            for number, first, last, pid, user in typed_rows(rows, int, int, int, int, str)
        ]  # fmt: skip
    return sorted(span for span in found if span.end >= begin)
