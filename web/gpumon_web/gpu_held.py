"""Holders of a GPU over time, for the color of its lines: by kept hours, by runs, and by the processes of now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import isfinite

from gpumon.accounting.query import read_accounts
from gpumon.analysis.epochs import Epochs
from gpumon.errors import GpumonError
from gpumon.frame import Process, RunState
from gpumon.history.tiers import HOUR

Held = tuple[float, float, str]
"""From and to (s since 1970), and the user."""


def held_by(
    begin: float, end: float, hours: Iterable[Held], epochs: Epochs, keys: Sequence[str], processes: Sequence[Process]
) -> list[Held]:
    """Return who held a GPU from `begin` to `end`, without overlaps: what is more exact stands over the hours."""
    found = [*hours]
    for key in keys:
        run = epochs.run(key)
        if run and isfinite(run.started) and run.user:
            over = end if run.state is RunState.RUNNING else run.updated
            found.append((run.started, over, run.user))
    # The largest holder of now last: it stands over the others.
    for process in sorted(processes, key=lambda one: one.memory_used if isfinite(one.memory_used) else 0.0):
        if process.user and isfinite(process.started):
            found.append((process.started, end, process.user))
    return flat([one for one in found if one[0] < end and one[1] > begin], begin, end)


def held_hours(path: str, uuid: str, begin: float, end: float) -> list[Held]:
    """The user who held most of each hour that is kept; empty where there is no file, or none that can be read."""
    if not path:
        return []
    try:
        kept = read_accounts(path, begin - HOUR, end, device=uuid)
    except GpumonError:
        return []  # lines without a person's color are right all the same
    found: list[Held] = []
    for hour in kept.hours:
        user = next((one.user for one in hour.accounts if one.user), "")
        if not user:
            continue
        if found and found[-1][2] == user and found[-1][1] == hour.begin:
            found[-1] = (found[-1][0], hour.begin + HOUR, user)
        else:
            found.append((hour.begin, hour.begin + HOUR, user))
    return found


def flat(spans: Sequence[Held], begin: float, end: float) -> list[Held]:
    """`spans` without overlaps, within a window: where two overlap, the later one of the list stands."""
    edges = sorted({begin, end, *(edge for since, until, _ in spans for edge in (since, until) if begin < edge < end)})
    found: list[Held] = []
    for since, until in pairwise(edges):
        user = next((who for first, last, who in reversed(spans) if first <= since and until <= last), "")
        if not user:
            continue
        if found and found[-1][2] == user and found[-1][1] == since:
            found[-1] = (found[-1][0], until, user)
        else:
            found.append((since, until, user))
    return found
