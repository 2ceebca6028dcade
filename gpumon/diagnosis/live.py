"""Contexts and findings of what a frame shows now."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from gpumon.analysis.gpu_status import GpuStatus
from gpumon.analysis.progress import seconds_since_begin
from gpumon.analysis.ranks import Ranks
from gpumon.analysis.thresholds import JUDGED_OVER, RECENT, WHOLE
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.context import GpuContext, LoadedLink, RunContext, diagnose, has_slow_link
from gpumon.diagnosis.finding import Finding, Subject
from gpumon.diagnosis.gpu_rules import GPU_RULES
from gpumon.model.frame import RunState
from gpumon.model.metrics import Availability

if TYPE_CHECKING:
    from gpumon.analysis.epochs import Epochs
    from gpumon.storage.history.recent import RecentHistory


_LINKS = "gpu.nvlink_active"


def findings(
    statuses: Sequence[GpuStatus],
    runs: Sequence[Ranks],
    epochs: Epochs | None,
    now: float,
    history: RecentHistory | None = None,
    rates: Mapping[str, Mapping[str, float]] = {},
    loaded: Mapping[str, LoadedLink] = {},
    monotonic_ns: int = 0,
) -> list[Finding]:
    """Return all findings about the GPUs and runs of a frame, the most severe first.

    `epochs` has taken in the boundaries that are known, and may be None without runs; `now` is the frame's time,
    `monotonic_ns` the same by the clock that nobody sets, 0 where it is unknown;
    `history` is that of the time before, where the caller has it: rates of counters and shares of the time need it.
    `rates` by UUID and metric, and links when they were last `loaded`, are for a caller that has no history.
    """
    contexts = [_gpu(one, now, history, rates, loaded) for one in statuses]
    lost = {one.sample.device.uuid for one in statuses if one.sample.state is Availability.LOST}
    if lost:
        contexts = list(_lost(contexts, lost))
    found = diagnose(GPU_RULES, [_among(context, statuses) for context in contexts])
    if runs and epochs is not None:
        from gpumon.diagnosis.run_rules import RUN_RULES  # without a run, `status` does without them

        found += diagnose(RUN_RULES, [live_run(ranks, epochs, now, history, monotonic_ns) for ranks in runs])
    return sorted(found, key=lambda finding: -finding.severity)


def is_news(finding: Finding) -> bool:
    """Return whether what befell a run did so lately; other findings are about now."""
    return "age" not in finding.evidence or finding.evidence["age"] < RECENT


def _gpu(
    status: GpuStatus,
    now: float,
    history: RecentHistory | None,
    known: Mapping[str, Mapping[str, float]],
    loaded: Mapping[str, LoadedLink],
) -> GpuContext:
    uuid = status.sample.device.uuid
    if history is None or status.sample.state is not Availability.OK:
        return GpuContext(status, now, known.get(uuid, {}), loaded.get(uuid, LoadedLink()))
    from gpumon.diagnosis.before import rates  # for who has a history: `status` has none
    from gpumon.diagnosis.loaded_link import course_of_history, last_loaded

    link = last_loaded(course_of_history(history, uuid, now), now) if has_slow_link(status) else LoadedLink()
    return GpuContext(status, now, rates(history, uuid, now), link)


def _lost(contexts: Sequence[GpuContext], lost: Collection[str]) -> Iterator[GpuContext]:
    """The contexts of GPUs of which some, by their UUIDs, are lost."""
    devices = [one.status.sample.device for one in contexts]
    numbers = {device.label for device in devices if device.uuid not in lost}
    for context, device in zip(contexts, devices, strict=True):
        is_replaced = device.uuid in lost and device.label in numbers
        yield context._replace(is_lost_with_gpu=device.parent in lost, is_replaced=is_replaced)


def _among(context: GpuContext, statuses: Sequence[GpuStatus]) -> GpuContext:
    """The context of a GPU among the others of the machine."""
    if not is_known(context.value(_LINKS)):
        return context
    own = context.status.sample.device
    others = [one.sample for one in statuses if one.sample.device.name == own.name and one.sample.device != own]
    links = [sample.value(_LINKS) for sample in others if sample.state is Availability.OK]
    return context._replace(peer_links=max((one for one in links if is_known(one)), default=NAN))


def live_run(
    ranks: Ranks, epochs: Epochs, now: float, history: RecentHistory | None = None, monotonic_ns: int = 0
) -> RunContext:
    """Return the context of a run of the newest frame; shares of its time are known where there is a history.

    `now` and `monotonic_ns` as of `findings`.
    """
    run = ranks.first
    running = ranks.state is RunState.RUNNING
    faults = epochs.faults([one.key for one in ranks.all])
    ended = max((one.updated for one in ranks.all if is_known(one.updated)), default=NAN)
    # In its first epoch a training compiles and fills caches.
    lasted = seconds_since_begin(run, now, monotonic_ns)
    settled = running and run.epoch > run.first_epoch and lasted > 0
    waited = epochs.waited(run.key, now, monotonic_ns)
    throttled, idle = _shares(ranks, now, history) if settled and history is not None else (NAN, NAN)
    return RunContext(
        subject=Subject("run", run.id, run.name.strip() or run.id),
        state=ranks.state,
        epoch=run.epoch_text if run.epoch >= 0 else "",
        since_end=NAN if running else now - ended,
        ooms=float(len(faults)) if faults else ranks.ooms,
        since_oom=now - faults[-1].time_ns / SECOND if faults else NAN,
        asked=faults[-1].asked if faults else NAN,
        free=faults[-1].free if faults else NAN,
        # By the board alone, where no boundary is kept: then nobody knows what of the time was no training.
        wait_share=NAN if not settled else waited.share if waited.of > 0 else run.wait / lasted,
        waits_in_part=lasted > WHOLE * waited.of > 0,
        throttled_share=throttled,
        idle_share=idle,
        diverged=sorted({name for one in ranks.all for name, value in one.metrics.items() if not isfinite(value)}),
        claimed=sum(int(one.facts.claimed) for one in ranks.all) if running else 0,
    )


def _shares(ranks: Ranks, now: float, history: RecentHistory) -> tuple[float, float]:
    from gpumon.diagnosis.before import shares

    return shares(history, ranks.gpus, max(ranks.first.started, now - JUDGED_OVER), now)
