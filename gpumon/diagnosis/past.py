"""Contexts and findings of runs in a ledger, and of their epochs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gpumon.analysis.thresholds import SAMPLED, WHOLE
from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.context import RunContext, diagnose
from gpumon.diagnosis.finding import Finding, Severity, Subject
from gpumon.diagnosis.runs import RUN_RULES
from gpumon.model import units
from gpumon.model.frame import Mark
from gpumon.storage.ledger.records import Record
from gpumon.storage.ledger.summary import EpochSummary


def findings(record: Record, total: EpochSummary, now: float) -> list[Finding]:
    """Return the findings about a run; `total` as from `aggregate.whole`."""
    return diagnose(RUN_RULES, [past_run(record, total, now)])


def past_run(record: Record, total: EpochSummary, now: float) -> RunContext:
    """Return the context of a run in the ledger."""
    run = record.run
    ooms = [mark for mark in record.marks if mark.mark is Mark.OUT_OF_MEMORY]
    last = ooms[-1] if ooms else None
    newest = max((row.epoch for row in record.epochs), default=-1)
    odd = {name for row in record.epochs for name, value in row.metrics.items() if not math.isfinite(value)}
    return RunContext(
        subject=Subject("run", run.id, run.name.strip() or run.id),
        state=run.state,
        epoch=units.epoch(newest, run.epochs, run.base) if newest >= 0 else "",
        since_end=now - run.ended,
        ooms=float(len(ooms)) if ooms else NAN,
        since_oom=now - last.time if last else NAN,
        asked=last.asked if last else NAN,
        free=last.free if last else NAN,
        wait_share=total.wait_share,
        waits_in_part=_waits_in_part(total),
        throttled_share=total.value("throttled_share"),
        idle_share=total.value("idle_share"),
        diverged=sorted(odd),
    )


FINE = "fine"
"""The kind of a verdict on an epoch that was as it should be."""
PARTLY_SAMPLED = "incompletely_sampled"
"""The kind of a verdict on an epoch of which too little was sampled to judge its GPUs."""


class Verdict(NamedTuple):
    """One word for an epoch."""

    kind: str
    """That of its first finding; else `running`, `settling`, `not_finished`, `incompletely_sampled` or `fine`."""
    text: str
    severity: Severity | None
    """None where nothing was judged."""


_WORDS = {
    "diverged": "diverged",
    "input_bound": "waits for data",
    "throttled": "throttled",
    "mostly_idle": "mostly idle",
}


_JUDGED = ("utilization_mean", "idle_share", "throttled_share")
"""Measured columns of which one can say that they are fine."""


def brief(finding: Finding) -> str:
    """Return a finding about a run or an epoch in as few words as there are, without numbers where it has a word."""
    return _WORDS.get(finding.kind, finding.summary)


def verdict(epoch: EpochSummary, running: bool) -> Verdict | None:
    """Return the verdict on an epoch of a run that is `running` or over.

    None of one that ended while nothing of its GPUs was measured: nobody knows whether it was fine. One that just
    ended is not judged by what may still change.
    """
    found = epoch_findings(epoch)
    if epoch.is_settling and not (found and found[0].severity is Severity.CRITICAL):
        return Verdict("settling", "settling", None)
    if found and (found[0].severity is Severity.CRITICAL or is_known(epoch.ended)):
        return Verdict(found[0].kind, brief(found[0]), found[0].severity)
    if not is_known(epoch.ended):
        if running:
            return Verdict("running", "running", None)
        return Verdict("not_finished", "not finished", Severity.WARNING)
    if is_partly_sampled(epoch):
        return Verdict(PARTLY_SAMPLED, sampled(epoch), None)
    return Verdict(FINE, "fine", Severity.INFO) if is_measured(epoch) else None


Verdicts = Mapping[int, Verdict | None]
"""The verdict on each epoch of a run, by its ordinal."""


def verdicts_of(epochs: Iterable[EpochSummary], *, running: bool) -> Verdicts:
    """Judge epochs of a run that is `running` or over, once for all who show them."""
    return {epoch.ordinal: verdict(epoch, running) for epoch in epochs}


def _waits_in_part(stretch: EpochSummary) -> bool:
    """Whether the share of waits is of less than the whole, by more than can be seen in it."""
    return stretch.wait_share * stretch.seconds > WHOLE * stretch.wait


def is_partly_sampled(stretch: EpochSummary) -> bool:
    """Whether too little of an epoch or a run was sampled for its measured values to stand for all of it."""
    return stretch.sampled_share < SAMPLED or stretch.lacks_energy


def sampled(stretch: EpochSummary) -> str:
    """Say how much of an epoch or a run was sampled."""
    share = units.percent(stretch.sampled_share)
    return f"{share} sampled" if share != units.percent(0.0) else "not sampled"


def is_measured(stretch: EpochSummary) -> bool:
    """Whether anything of its GPUs is known that the rules judge: short waits alone do not make a run fine."""
    return any(is_known(stretch.value(name)) for name in _JUDGED)


def epoch_findings(epoch: EpochSummary) -> list[Finding]:
    """Return the findings about one epoch, by the rules for runs; its GPUs are judged if enough of it was sampled."""
    is_judged = not is_partly_sampled(epoch)
    context = RunContext(
        subject=Subject("epoch", str(epoch.ordinal), f"epoch {epoch.epoch}"),
        wait_share=epoch.wait_share,
        waits_in_part=_waits_in_part(epoch),
        throttled_share=epoch.value("throttled_share") if is_judged else NAN,
        idle_share=epoch.value("idle_share") if is_judged else NAN,
        diverged=[name for name, value in epoch.metrics.items() if not math.isfinite(value)],
    )
    return diagnose(RUN_RULES, [context])
