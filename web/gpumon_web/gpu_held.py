"""Holders of a GPU over time, for the color of its lines: by kept hours, by processes and runs, and by those of now.

Only what is known to be held has a person's color: an hour that somebody held in part says nothing of its other part.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import isfinite

from gpumon.analysis.epochs import Epochs
from gpumon.common.errors import GpumonError
from gpumon.model.frame import RunState
from gpumon.model.process import Process
from gpumon.storage.history.query import MAX_POINTS
from gpumon.storage.history.tiers import HOUR
from gpumon.storage.processes.query import HeldSpan, held_spans
from gpumon.storage.usage.query import read_accounts

Held = tuple[float, float, str]
"""From and to (s since 1970), and the user."""
_WHOLE = 0.99
"""Share of an hour for which somebody held a GPU, from which on all of it was held: ticks are skipped now and then."""


def held_by(
    begin: float, end: float, path: str, uuid: str, epochs: Epochs, keys: Sequence[str], processes: Sequence[Process]
) -> list[Held]:
    """Return who held a GPU from `begin` to `end`, without overlaps: what is more exact stands over the hours.

    `path` is the file that keeps hours and processes, or empty; `processes` are those of now.
    """
    kept = _kept_spans(path, uuid, begin, end)
    found = [*held_hours(path, uuid, begin, end), *((one.begin, one.end, one.user) for one in kept if one.user)]
    for key in keys:
        run = epochs.run(key)
        if run and isfinite(run.started) and run.user:
            over = end if run.state is RunState.RUNNING else run.updated
            found.append((run.started, over, run.user))
    came = {one.pid: one.begin for one in kept}
    # The largest holder of now last: it stands over the others.
    for process in sorted(processes, key=lambda one: one.memory_used if isfinite(one.memory_used) else 0.0):
        if process.user and isfinite(process.started):
            # It may have been there for long before it came to this GPU.
            found.append((max(process.started, came.get(process.pid, process.started)), end, process.user))
    return flat([one for one in found if one[0] < end and one[1] > begin], begin, end, (end - begin) / MAX_POINTS)


def _kept_spans(path: str, uuid: str, begin: float, end: float) -> list[HeldSpan]:
    try:
        return held_spans(path, uuid, begin, end) if path else []
    except GpumonError:
        return []  # lines without a person's color are right all the same


def held_hours(path: str, uuid: str, begin: float, end: float) -> list[Held]:
    """The kept hours all of which one user held; empty where there is no file, or none that can be read."""
    if not path:
        return []
    try:
        kept = read_accounts(path, begin - HOUR, end, device=uuid)
    except GpumonError:
        return []
    return [
        (hour.begin, hour.begin + HOUR, user)
        for hour in kept.hours
        if (user := next((one.user for one in hour.accounts if one.user and one.held >= _WHOLE * HOUR), ""))
    ]


def flat(spans: Iterable[Held], begin: float, end: float, gap: float = 0.0) -> list[Held]:
    """`spans` without overlaps, within a window: where two overlap, the later one of the list stands.

    Those of one user with no more than `gap` seconds between them are one: no screen shows what lies between.
    """
    inside = [one for one in spans if one[0] < end and one[1] > begin]
    given = [(max(since, begin), min(until, end), user) for since, until, user in inside]
    edges = sorted({edge for since, until, _ in given for edge in (since, until)})
    users = [""] * len(edges)
    free = [*range(len(edges))]  # of each part, itself or one behind it that has no user yet

    def next_free(at: int) -> int:
        while free[at] != at:
            free[at] = at = free[free[at]]
        return at

    for since, until, user in reversed(given):
        last, at = bisect_left(edges, until), next_free(bisect_left(edges, since))
        while at < last:
            users[at], free[at] = user, at + 1
            at = next_free(at + 1)
    found: list[Held] = []
    for (since, until), user in zip(pairwise(edges), users, strict=False):
        if not user:
            continue
        if found and found[-1][2] == user and since - found[-1][1] <= gap:
            found[-1] = (found[-1][0], until, user)
        else:
            found.append((since, until, user))
    return found
