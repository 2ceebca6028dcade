"""Contexts and findings of what a frame shows now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpumon.analysis.gpu_status import GpuStatus
from gpumon.analysis.ranks import Ranks
from gpumon.clock import SECOND
from gpumon.diagnosis.context import GpuContext, RunContext, diagnose
from gpumon.diagnosis.finding import Finding, Subject
from gpumon.diagnosis.gpu_rules import GPU_RULES
from gpumon.frame import NAN, RunState
from gpumon.missing import is_known

if TYPE_CHECKING:
    from gpumon.analysis.epochs import Epochs


def findings(
    statuses: Sequence[GpuStatus],
    runs: Sequence[Ranks],
    epochs: Epochs | None,
    now: float,
    rates: Mapping[str, Mapping[str, float]] | None = None,
) -> list[Finding]:
    """Return all findings about the GPUs and runs of a frame, the most severe first.

    `epochs` has taken in the boundaries that are known, and may be None without runs; `now` is the frame's time;
    `rates` are those of counters, by UUID and metric, where the caller has them.
    """
    gpus = [GpuContext(status=one, now=now, rates=(rates or {}).get(one.sample.device.uuid, {})) for one in statuses]
    found = diagnose(GPU_RULES, gpus)
    if runs and epochs is not None:
        from gpumon.diagnosis.run_rules import RUN_RULES  # without a run, `status` does without them

        found += diagnose(RUN_RULES, [live_run(ranks, epochs, now) for ranks in runs])
    return sorted(found, key=lambda finding: -finding.severity)


def live_run(ranks: Ranks, epochs: Epochs, now: float) -> RunContext:
    """Return the context of a run of the newest frame."""
    run = ranks.first
    running = ranks.state is RunState.RUNNING
    faults = epochs.faults([one.key for one in ranks.all])
    ended = max((one.updated for one in ranks.all if is_known(one.updated)), default=NAN)
    # In its first epoch a training compiles and fills caches.
    settled = running and run.epoch > run.first_epoch and now > run.started
    return RunContext(
        subject=Subject("run", run.id, run.name.strip() or run.id),
        state=ranks.state,
        epoch=run.epoch_text if run.epoch >= 0 else "",
        since_end=NAN if running else now - ended,
        ooms=float(len(faults)) if faults else ranks.ooms,
        since_oom=now - faults[-1].time_ns / SECOND if faults else NAN,
        asked=faults[-1].asked if faults else NAN,
        free=faults[-1].free if faults else NAN,
        wait_share=run.wait / (now - run.started) if settled else NAN,
    )
