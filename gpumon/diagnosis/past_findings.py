"""Findings about runs in the ledger, and one-word verdicts on their epochs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpumon.analysis.thresholds import INPUT_BOUND, MOSTLY_IDLE, SAMPLED, THROTTLED, WHOLE
from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.context import RunContext, by_rank, diagnose
from gpumon.diagnosis.finding import Finding, Severity, Subject
from gpumon.diagnosis.runs import RUN_RULES, diverged_names, is_loss
from gpumon.diagnosis.slow_trainings import SLOW_RULES, explain
from gpumon.diagnosis.training import NEEDED, Training, Unjudged, training_of, unjudged
from gpumon.diagnosis.training_trends import COUNTER_RULES, TREND_RULES
from gpumon.model import units
from gpumon.model.frame import ENDED_BADLY, Mark, RunState
from gpumon.storage.ledger.aggregate import epoch_summaries
from gpumon.storage.ledger.records import RankRow, Record
from gpumon.storage.ledger.summary import EpochSummary

_JUDGED_BY_EPOCHS = ("input_bound", "mostly_idle")
"""Kinds of findings that need judged epochs: the start of a training and its first epoch wait and idle anyway."""


def findings(
    record: Record, total: EpochSummary, now: float, epochs: Sequence[EpochSummary] | None = None
) -> list[Finding]:
    """Return the findings about a run, by severity and expected gain.

    `record`: read with the times of phases. `total`: result of `aggregate.run_total`. `now`: current time, s since
    1970. `epochs`: result of `aggregate.epoch_summaries`, if the caller has it.
    """
    run = past_run(record, total, now)
    training = training_of(record, epoch_summaries(record) if epochs is None else epochs, total, run.subject)
    if training.is_running and training.is_judged:
        run = _recent_shares(run, training)
    result = diagnose(RUN_RULES, [run])
    if training.is_judged:
        result = [*filter(None, (explain(finding, training) for finding in result))]
        result += diagnose([*SLOW_RULES, *TREND_RULES], [training])
    else:
        result = [finding for finding in result if finding.kind not in _JUDGED_BY_EPOCHS]
    return by_rank([*result, *diagnose(COUNTER_RULES, [training])])


def _recent_shares(run: RunContext, training: Training) -> RunContext:
    """Return the facts about a running run with shares of its newest windows instead of the whole run.

    A share is NaN unless it has reached its limit in enough of these windows (see `Training.lasts`).
    """
    wait = training.lasts(lambda window: window.summary.wait_share >= INPUT_BOUND)
    idle = training.lasts(lambda window: window.summary.value("idle_share") >= MOSTLY_IDLE)
    throttled = training.lasts(lambda window: window.summary.value("throttled_share") >= THROTTLED)
    return run._replace(
        wait_share=max(window.summary.wait_share for window in training.windows[-NEEDED:]) if wait else NAN,
        idle_share=training.highest("idle_share") if idle else NAN,
        throttled_share=training.highest("throttled_share") if throttled else NAN,
    )


def not_judged(record: Record, total: EpochSummary, epochs: Sequence[EpochSummary]) -> list[Unjudged]:
    """Return what no rule about slow trainings could judge, and why. The arguments are as for `findings`."""
    return unjudged(training_of(record, epochs, total, Subject("run", record.run.id, record.run.name)))


def past_run(record: Record, total: EpochSummary, now: float) -> RunContext:
    """Return the facts about a run in the ledger.

    `total`: result of `aggregate.run_total`. `now`: current time, s since 1970.
    """
    run = record.run
    ooms = [mark for mark in record.marks if mark.mark is Mark.OUT_OF_MEMORY]
    last = ooms[-1] if ooms else None
    # If only some ranks died or failed, this is the epoch of the first such rank, not of the ranks that went on.
    first = _first_failed(record.ranks)
    ended = first or next((rank for rank in record.ranks if rank.state is run.state), None)
    own = [row.epoch for row in record.epochs if ended is not None and row.rank == ended.key]
    facts = first.facts if first is not None else record.end_facts
    newest = max(own or [row.epoch for row in record.epochs], default=-1)
    logged: dict[str, list[Mapping[str, float]]] = {}
    for row in sorted(record.epochs, key=lambda row: row.ordinal):
        logged.setdefault(row.rank, []).append(row.metrics)
    diverged = [item for of_rank in logged.values() for item in diverged_names(of_rank).items()]
    return RunContext(
        subject=Subject("run", run.id, run.name.strip() or run.id),
        state=run.state,
        epoch=units.epoch(newest, run.epochs, run.base) if newest >= 0 else "",
        since_end=now - run.ended,
        exit_code=facts.exit_code,
        exit_signal=facts.exit_signal,
        failed_rank=first.rank if first is not None else NAN,
        ooms=float(len(ooms)) if ooms else NAN,
        since_oom=now - last.time if last else NAN,
        asked=last.asked if last else NAN,
        free=last.free if last else NAN,
        wait_share=total.wait_share,
        waits_in_part=_waits_in_part(total),
        throttled_share=total.value("throttled_share"),
        idle_share=total.value("idle_share"),
        diverged=sorted({name for name, _ in diverged}),
        was_finite=any(was_finite for _, was_finite in diverged),
    )


def _first_failed(ranks: Sequence[RankRow]) -> RankRow | None:
    """Return the rank of several that failed first; None if that is not known.

    The time at which a rank raised an exception is exact, but not the time at which it was killed.
    """
    failed = sorted((rank for rank in ranks if rank.state in ENDED_BADLY), key=lambda rank: rank.ended)
    if len(ranks) < 2 or not failed:
        return None
    is_exact = all(rank.state is RunState.FAILED and is_known(rank.ended) for rank in failed)
    if len(failed) > 1 and not (is_exact and failed[0].ended < failed[1].ended):
        return None
    return failed[0]


FINE = "fine"
"""Kind of the verdict on an epoch without findings."""
PARTLY_SAMPLED = "incompletely_sampled"
"""Kind of the verdict on an epoch with too few samples to judge its GPUs."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The assessment of an epoch in one or two words."""

    kind: str
    """The kind of the epoch's first finding, or `running`, `settling`, `not_finished`, `incompletely_sampled` or
    `fine`."""
    text: str
    severity: Severity | None
    """Severity of the verdict; None if the epoch was not judged."""

    @property
    def needs_a_look(self) -> bool:
        """Whether the verdict is a warning or critical."""
        return self.severity in (Severity.WARNING, Severity.CRITICAL)


SLOW: Mapping[str, str] = {
    "worker_start": "workers restart",
    "straggler": "waits for a rank",
    "slow_validation": "long validation",
    "slow_checkpoints": "slow checkpoints",
    "between_epochs": "time between epochs",
    "low_utilization": "low utilization",
    "no_tensor_cores": "no tensor cores",
    "epoch_outlier": "one slow epoch",
    "first_epoch": "slow first epoch",
    "slower_epochs": "slower each epoch",
    "memory_growth": "memory grows",
    "shared_gpu": "shared GPU",
    "allocator_retries": "memory scarce",
    "fragments": "fragments",
}
"""Findings about recorded trainings in one or two words, by kind."""
_WORDS = {
    "diverged": "diverged",
    "input_bound": "waits for data",
    "throttled": "throttled",
    "mostly_idle": "mostly idle",
    **SLOW,
}


_JUDGED_COLUMNS = ("utilization_mean", "idle_share", "throttled_share")
"""An epoch can get the verdict `fine` only if one of these columns has a value."""


def short_summary(finding: Finding) -> str:
    """Return a finding about a run or an epoch in one or two words, or its summary if there is no shorter text."""
    return _WORDS.get(finding.kind, finding.summary)


def verdict(epoch: EpochSummary, running: bool) -> Verdict | None:
    """Return the verdict on an epoch, or None if the epoch has ended and its GPUs were not measured.

    `running`: whether the run of the epoch is still running. An epoch that has just ended is `settling`, because its
    values may still change.
    """
    first = next(iter(epoch_findings(epoch)), None)
    is_critical = first is not None and first.severity is Severity.CRITICAL
    if epoch.is_settling and not is_critical:
        return Verdict("settling", "settling", None)
    if first is not None and (is_critical or is_known(epoch.ended)):
        return Verdict(first.kind, short_summary(first), first.severity)
    if not is_known(epoch.ended):
        if running:
            return Verdict("running", "running", None)
        return Verdict("not_finished", "not finished", Severity.WARNING)
    if is_partly_sampled(epoch):
        return Verdict(PARTLY_SAMPLED, sampled_text(epoch), None)
    return Verdict(FINE, "fine", Severity.INFO) if is_measured(epoch) else None


Verdicts = Mapping[int, Verdict | None]
"""The verdict on each epoch of a run, by its ordinal."""


def verdicts_of(epochs: Iterable[EpochSummary], *, running: bool) -> Verdicts:
    """Return the verdicts on epochs by ordinal. `running`: whether the run of the epochs is still running."""
    return {epoch.ordinal: verdict(epoch, running) for epoch in epochs}


def _waits_in_part(summary: EpochSummary) -> bool:
    """Return whether waits for data were measured in noticeably less than the whole time."""
    return summary.wait_share * summary.seconds > WHOLE * summary.wait


def is_partly_sampled(summary: EpochSummary) -> bool:
    """Return whether too few samples were taken for the values to represent the whole epoch or run."""
    return lacks_samples(summary) or summary.lacks_energy


def lacks_samples(summary: EpochSummary) -> bool:
    """Return whether means, such as the utilization, cover only part of the epoch or run."""
    return summary.sampled_share < SAMPLED


def sampled_text(summary: EpochSummary) -> str:
    """Return how much of a partly sampled epoch or run was sampled, such as `80% sampled`.

    If all of the time was sampled but part of the energy is missing, the text is `energy incomplete`.
    """
    if summary.lacks_ranks:
        return "not all ranks"
    if summary.sampled_share == 0:
        return "not sampled"
    text = units.share(summary.sampled_share)
    return "energy incomplete" if text in (units.share(1.0), units.MISSING) else f"{text} sampled"


def is_measured(summary: EpochSummary) -> bool:
    """Return whether any value that the rules judge was measured. Waits for data do not count."""
    return any(is_known(summary.value(name)) for name in _JUDGED_COLUMNS)


def epoch_findings(epoch: EpochSummary) -> list[Finding]:
    """Return the findings about an epoch. Its GPUs are judged only if a sufficient share of the epoch was sampled."""
    is_judged = not is_partly_sampled(epoch)
    context = RunContext(
        subject=Subject("epoch", str(epoch.ordinal), f"epoch {epoch.epoch}"),
        wait_share=epoch.wait_share,
        waits_in_part=_waits_in_part(epoch),
        throttled_share=epoch.value("throttled_share") if is_judged else NAN,
        idle_share=epoch.value("idle_share") if is_judged else NAN,
        diverged=[name for name, value in epoch.metrics.items() if is_loss(name) and not math.isfinite(value)],
    )
    return diagnose(RUN_RULES, [context])
