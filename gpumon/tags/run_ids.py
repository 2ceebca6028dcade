"""Ids of runs, of which each is one user's: a user may give a run the id of another user's.

What has the same id is shown as ranks of one run, with the epochs of the lowest. A launcher that starts its ranks
again may give them the same id: each attempt is a run of its own.
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
    key: str = ""
    """Of its board."""
    rank: int = 0
    world_size: int = 1
    began: float = 0.0
    """Seconds since 1970, by its own clock."""
    is_over: bool = False


class RunIds:
    """Owners of ids, for as long as a run of theirs has it."""

    def __init__(self) -> None:
        self._owners: dict[str, int] = {}
        self._attempts: dict[str, tuple[str, int]] = {}
        """By key: the id without its attempt, and the number of that from 1."""

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
        owned = [run.id if owners[run.id] == run.uid or not run.id else _of_user(run) for run in runs]
        return self._of_attempts(runs, owned)

    def _of_attempts(self, runs: Sequence[Named], ids: Sequence[str]) -> list[str]:
        """`ids` of `runs`, with a number behind those of a later attempt. What a run was called once, it stays."""
        known = {run.key for run in runs}
        self._attempts = {key: attempt for key, attempt in self._attempts.items() if key in known}
        if len(self._attempts) < len(known):
            shown: dict[str, list[Named]] = {}
            newest: dict[str, int] = {}
            for run in runs:
                if run.key in self._attempts:
                    id, number = self._attempts[run.key]
                    shown.setdefault(_of_attempt(id, number), []).append(run)
                    newest[id] = max(number, newest.get(id, 1))
            fresh = [(run, id) for run, id in zip(runs, ids, strict=True) if run.key not in self._attempts]
            for run, id in sorted(fresh, key=lambda one: one[0].began):
                number = newest.get(id, 1)
                while id and any(_is_earlier(one, run) for one in shown.get(_of_attempt(id, number), ())):
                    number += 1
                newest[id] = number
                self._attempts[run.key] = id, number
                shown.setdefault(_of_attempt(id, number), []).append(run)
        return [_of_attempt(*self._attempts[run.key]) for run in runs]


def _is_earlier(one: Named, run: Named) -> bool:
    """Whether two of one id are the same rank, in two attempts."""
    return one.rank == run.rank and (one.is_over or run.world_size > 1)


def _of_attempt(id: str, number: int) -> str:
    behind = f"~{number}" if number > 1 else ""
    return id[: ID_LENGTH - len(behind)] + behind


def _of_user(run: Named) -> str:
    behind = f"~{run.uid}"
    return run.id[: ID_LENGTH - len(behind)] + behind
