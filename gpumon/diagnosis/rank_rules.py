"""Rules about a live run with its ranks: the notes below it, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpumon.analysis.ranks import Ranks
from gpumon.common.clock import SECOND
from gpumon.diagnosis.context import Rule, diagnose
from gpumon.diagnosis.finding import Finding, Severity, Subject
from gpumon.model import units
from gpumon.model.frame import Boundary


class RankContext(NamedTuple):
    """A run of the newest frame."""

    ranks: Ranks
    faults: Sequence[Boundary]
    """Its out-of-memory errors whose boundaries were seen."""

    @property
    def subject(self) -> Subject:
        """The run."""
        run = self.ranks.first
        return Subject("run", run.id, run.name.strip() or run.id)


def notes(ranks: Ranks, faults: Sequence[Boundary]) -> list[Finding]:
    """Return the incidents of a run: out-of-memory errors, by their boundaries, and a resume."""
    return diagnose(RANK_RULES, [RankContext(ranks, faults)])


def out_of_memory(run: RankContext) -> Iterator[Finding]:
    """Its last error; those that nobody saw happen are only counted."""
    faults, ooms = run.faults, run.ranks.ooms
    if faults:
        last = max(faults, key=lambda fault: fault.time_ns)
        often = f" ({len(faults)} times)" if len(faults) > 1 else ""
        room = f"requested {units.bytes_binary(last.asked)}, {units.bytes_binary(last.free)} free"
        summary = f"out of memory: {room}, at {units.clock(last.time_ns / SECOND)}{often}"
    elif ooms > 0:
        summary = f"out of memory {units.whole(ooms)} times" if ooms > 1 else "out of memory once"
    else:
        return
    yield Finding("out_of_memory", Severity.CRITICAL, run.subject, summary, "", {"ooms": float(len(faults)) or ooms})


def resumed(run: RankContext) -> Iterator[Finding]:
    """It continues what an earlier process began."""
    slowest = run.ranks.slowest
    if slowest.resumed:
        summary = f"resumed at epoch {slowest.first_epoch}"
        yield Finding("resumed", Severity.INFO, run.subject, summary, "", {"epoch": float(slowest.first_epoch)})


RANK_RULES: tuple[Rule[RankContext], ...] = (out_of_memory, resumed)
