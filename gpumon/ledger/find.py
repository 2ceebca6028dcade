"""The run that a person means: by its id, its name (the newest of that name), or the beginning of either."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpumon.common.errors import GpumonError
from gpumon.common.text import cut
from gpumon.ledger.reader import NOTHING, Ledger, Ledgers
from gpumon.ledger.records import RunRow
from gpumon.model import units

LAST = ("last", "-1")
"""Words for the newest run, whatever runs are called: one of that name is found by its id."""
_NAMED = 5
"""Candidates that are named."""
_WIDE = 40

Found = tuple[Ledger, RunRow]


def find(ledgers: Ledgers, wanted: str, now: float, say: Callable[[str], object] = str) -> Found:
    """The run meant by `wanted`, with the ledger that has it. Raises GpumonError that names the candidates.

    `say` gets a line when others are of that name, too: scripts give all of theirs the same one.
    """
    if wanted in LAST:
        newest = ledgers.candidates(limit=1)
        if not newest:
            raise GpumonError(NOTHING)
        return newest[0]
    candidates = ledgers.candidates(wanted)
    by_id = [found for found in candidates if found[1].id == wanted]
    by_name = [found for found in candidates if found[1].name == wanted]
    if by_id:
        return by_id[0]
    if by_name:
        if len(by_name) > 1:
            run = by_name[0][1]
            say(f"{len(by_name)} runs are named '{cut(wanted, _WIDE)}'; this is the newest, {run.id}")
        return by_name[0]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise GpumonError(
            f"'{wanted}' is ambiguous. It matches {len(candidates)} runs: {_named(candidates, now)}. Give more "
            "of the id"
        )
    known = ledgers.candidates()
    if not known:
        raise GpumonError(NOTHING)
    raise GpumonError(f"no such run: '{wanted}'. The newest are {_named(known, now)}; 'gpumon runs' lists all")


def _named(found: Sequence[Found], now: float) -> str:
    """The newest of them, with what tells them apart."""
    parts = []
    for ledger, run in found[:_NAMED]:
        done = ledger.listed(run).done
        epochs = "no epoch seen" if done is None else f"{done} epoch{'' if done == 1 else 's'}"
        parts.append(f"{cut(run.id, _WIDE)} ({cut(run.name, _WIDE)}, {units.age(run.started, now)}, {epochs})")
    more = len(found) - _NAMED
    return ", ".join(parts) + (f" and {more} more" if more > 0 else "")
