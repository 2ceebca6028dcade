"""Ids of runs, of which each is one user's: a user may give a run the id of another user's.

What has the same id is shown as ranks of one run, with the epochs of the lowest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from gpumon.tags.description import ID_LENGTH


class Named(NamedTuple):
    """A run that a board reports."""

    id: str
    """As it calls itself."""
    uid: int
    """Its owner, by the kernel."""
    pid: int
    """0 where it is not known, as of a run that has ended."""


class RunIds:
    """Owners of ids, for as long as a run of theirs has it."""

    def __init__(self) -> None:
        self._owners: dict[str, int] = {}

    def of(self, runs: Sequence[Named], start_time: Callable[[int], int]) -> list[str]:
        """Return the ids under which runs are shown: of those of another user than the first, with that user behind.

        Of two that are new at once the first is that whose process began first (`start_time` of a pid; 0: not known).
        """
        named = {(run.id, run.uid) for run in runs}
        owners = {id: uid for id, uid in self._owners.items() if (id, uid) in named}
        if len(named) > len({id for id, _ in named}):
            runs_by_age = sorted(runs, key=lambda run: (run.pid and start_time(run.pid)) or inf)
        else:  # as good as always, and no process is asked
            runs_by_age = list(runs)
        for run in runs_by_age:
            owners.setdefault(run.id, run.uid)
        self._owners = owners
        return [run.id if owners[run.id] == run.uid or not run.id else _of_user(run) for run in runs]


def _of_user(run: Named) -> str:
    behind = f"~{run.uid}"
    return run.id[: ID_LENGTH - len(behind)] + behind
