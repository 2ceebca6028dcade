"""The run that a person means: by its id, its name, or the beginning of either that no other run has."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon import units
from gpumon.errors import GpumonError
from gpumon.runs.ledger import NOTHING, Ledger, Ledgers
from gpumon.runs.rows import RunRow
from gpumon.runs.table import cut

LAST = ("last", "-1")
"""Words for the newest run, unless a run is called so."""
_NAMED = 5
"""Candidates that are named."""
_WIDE = 40

Found = tuple[Ledger, RunRow]


def find(ledgers: Ledgers, wanted: str, now: float) -> Found:
    """The run meant by `wanted`, with the ledger that has it. Raises GpumonError that names the candidates."""
    candidates = ledgers.candidates(wanted)
    by_id = [found for found in candidates if found[1].id == wanted]
    by_name = [found for found in candidates if found[1].name == wanted]
    for few in (by_id, by_name, [] if by_name else candidates):
        if len(few) == 1:
            return few[0]
    if wanted in LAST and not by_name:
        newest = ledgers.candidates()
        if newest:
            return newest[0]
    if by_name or candidates:
        several = by_name or candidates
        raise GpumonError(f"'{wanted}' may be one of {len(several)} runs: {_named(several, now)}; give more of its id")
    known = ledgers.candidates()
    if not known:
        raise GpumonError(NOTHING)
    raise GpumonError(f"no run begins with '{wanted}': the newest are {_named(known, now)}; 'gpumon runs' lists all")


def _named(found: Sequence[Found], now: float) -> str:
    """The newest of them, with what tells them apart."""
    parts = []
    for ledger, run in found[:_NAMED]:
        done = ledger.listed(run).done
        epochs = f"{done} epoch{'' if done == 1 else 's'}"
        parts.append(f"{cut(run.id, _WIDE)} ({cut(run.name, _WIDE)}, {units.age(run.started, now)}, {epochs})")
    more = len(found) - _NAMED
    return ", ".join(parts) + (f" and {more} more" if more > 0 else "")
