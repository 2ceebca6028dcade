"""Slowly changing data of the pages: GPUs with their holders, runs, and findings that need attention.

All functions are pure; only `Fleet` remembers since when each GPU has been idle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from gpumon.analysis.gpu_state import Activity
from gpumon.analysis.gpu_status import GpuStatus, gpu_statuses
from gpumon.analysis.progress import progress
from gpumon.analysis.ranks import Ranks, ranks_of
from gpumon.analysis.run_epochs import Epochs
from gpumon.common.numbers import is_known
from gpumon.diagnosis.context import GpuContext, diagnose
from gpumon.diagnosis.faults import FAULT_RULES
from gpumon.diagnosis.finding import Finding, FindingGroup, group_findings, ranges
from gpumon.diagnosis.gpu import idle_text, not_judged
from gpumon.diagnosis.live_findings import findings, is_recent
from gpumon.diagnosis.running_findings import RecordedFindings, add_recorded
from gpumon.model import units
from gpumon.model.device import Device
from gpumon.model.frame import Frame, Run, RunState
from gpumon.model.origin import Capability, Driver, Origin
from gpumon.model.process import Process
from gpumon.reports.run_json import nullable
from gpumon.storage.history.recent import RecentHistory
from gpumon_web.components import levels
from gpumon_web.components.machine import Fault, Gpu, Holder, LiveRun, Now, coarse
from gpumon_web.health import checks, recent_throttling

SHOWN = 6
"""Findings shown at first; the others are shown when expanded, and in print."""


def present_findings(
    statuses: Sequence[GpuStatus],
    all_ranks: Sequence[Ranks],
    epochs: Epochs,
    frame: Frame,
    history: RecentHistory | None,
    recorded: Mapping[str, RecordedFindings],
) -> list[Finding]:
    """Return the present findings about the GPUs and runs of a frame, the worst first.

    `recorded`: what the ledger says about running runs, by id.
    """
    candidates = findings(statuses, all_ranks, epochs, frame.time, history, monotonic_ns=frame.monotonic_ns)
    return [finding for finding in add_recorded(candidates, recorded) if is_recent(finding)]


def overview_notes(all_findings: Sequence[Finding], statuses: Sequence[GpuStatus], now: float) -> list[dict[str, str]]:
    """Return findings as {"kind", "level", "about", "text", "action", "link"}; free GPUs share one entry."""
    others = [_note(group) for group in group_findings(finding for finding in all_findings if finding.kind != "free")]
    free = {finding.subject.id for finding in all_findings if finding.kind == "free"}
    notes = [*others, *_free([status for status in statuses if status.sample.device.uuid in free], now)]
    return [*notes[:SHOWN], *_expander(len(notes) - SHOWN), *notes[SHOWN:]]


def findings_about(all_findings: Sequence[Finding], uuid: str) -> list[Finding]:
    """Return the findings about one GPU."""
    return [finding for finding in all_findings if (finding.subject.kind, finding.subject.id) == ("gpu", uuid)]


def gpu_notes(all_findings: Sequence[Finding], uuid: str) -> list[dict[str, str]]:
    """Return the findings about one GPU for its own page, which already shows whether it is free."""
    own = [finding for finding in findings_about(all_findings, uuid) if finding.kind != "free"]
    return [{**_note(group), "link": ""} for group in group_findings(own)]


def fault(status: GpuStatus, now: float) -> Fault | None:
    """Return the most urgent fault of a GPU; None without one."""
    faults = diagnose(FAULT_RULES, [GpuContext(status=status, now=now)])
    if not faults:
        return None
    return Fault(levels.SEVERITY_LEVELS[faults[0].severity], faults[0].summary, len(faults))


def _note(group: FindingGroup) -> dict[str, str]:
    finding = group.first
    return {
        "kind": finding.kind,
        "level": levels.SEVERITY_LEVELS[finding.severity],
        "about": group.title,
        "text": finding.summary,
        "action": group.action,
        "link": f"#/{finding.subject.kind}/{finding.subject.id}" if len(group.findings) == 1 else "#/fleet",
    }


def _expander(count: int) -> Iterable[dict[str, str]]:
    """Yield the row that expands the `count` findings below it."""
    if count > 0:
        yield {"kind": "more", "text": f"and {count} more", "opened": "show fewer", "opens": "look"}


def _free(statuses: Sequence[GpuStatus], now: float) -> Iterable[dict[str, str]]:
    """Yield one sentence for all GPUs that have been free for long, with the shortest time of any of them."""
    if statuses:
        newest = max(statuses, key=lambda status: status.since.time if status.since else 0.0)
        about = f"GPU {gpu_ranges([status.sample.device for status in statuses])}"
        more = " or longer" if len(statuses) > 1 and newest.since and not newest.since.at_least else ""
        link = f"#/gpu/{statuses[0].sample.device.uuid}" if len(statuses) == 1 else "#/fleet"
        text = f"free for {idle_text(GpuContext(status=newest, now=now))}{more}"
        yield {"kind": "free", "level": "ok", "about": about, "text": text, "action": "", "link": link}


def gpu_ranges(devices: Sequence[Device]) -> str:
    """Return the GPUs as ranges such as `0–3, 6`, and each MIG instance by itself."""
    whole = ranges([device.index for device in devices if not device.is_instance])
    return ", ".join(filter(None, (whole, *(device.label for device in devices if device.is_instance))))


NAMED = 8
"""Maximum number of holders listed; the others are combined into one."""
PROGRAMS = 3
"""Maximum number of programs named per holder."""


class Fleet:
    """Remembers since when each GPU is idle."""

    def __init__(self) -> None:
        self._activity = Activity()

    def add(self, frame: Frame) -> None:
        """Add the next frame."""
        self._activity.add(frame)

    def about(
        self, frame: Frame, epochs: Epochs, origin: Origin, driver: Driver, hostname: str,
        history: RecentHistory | None = None, recorded: Mapping[str, RecordedFindings] = MappingProxyType({}),
    ) -> Now:  # fmt: skip
        """Return the slowly changing data: all but the values of GPUs and of the host.

        `recorded`: what the ledger says about running runs, by id.
        """
        all_ranks = ranks_of(frame.runs)
        statuses = gpu_statuses(frame, all_ranks, self._activity)
        news = present_findings(statuses, all_ranks, epochs, frame, history, recorded)
        runs = [run_row(ranks, frame, epochs) for ranks in all_ranks]
        gpus = []
        for status in statuses:
            uuid = status.sample.device.uuid
            throttled = recent_throttling(history, uuid, frame.time)
            gpu = make_gpu(status, all_ranks, throttled, findings_about(news, uuid))
            gpus.append(replace(gpu, fault=fault(status, frame.time), notes=gpu_notes(news, uuid)))
        knows_processes = Capability.PROCESSES in origin.capabilities
        return Now(
            time=frame.time,
            hostname=hostname,
            gpus=gpus,
            runs={run["id"]: run for run in runs},
            findings=overview_notes(news, statuses, frame.time),
            not_judged=not_judged(frame.samples, tells_processes=knows_processes),
            processes_known=knows_processes,
            driver=driver.version,
        )


def make_gpu(
    status: GpuStatus, all_ranks: Sequence[Ranks], throttled: Mapping[str, float] = MappingProxyType({}),
    gpu_findings: Sequence[Finding] = (),
) -> Gpu:  # fmt: skip
    """Create a GPU without values. `throttled` is the result of `recent_throttling`."""
    run_ids = {run.key: ranks.first.id for ranks in all_ranks for run in ranks.all}
    health = checks(status.sample, throttled, gpu_findings)
    return Gpu(status, holders(status.processes, run_ids), health, run_ids=run_ids)


def holders(processes: Sequence[Process], run_ids: Mapping[str, str]) -> list[Holder]:
    """Return the holders of memory by user and run, the largest first; those beyond `NAMED` are combined."""
    groups: dict[tuple[str, str | None], list[Process]] = {}
    for process in processes:
        run = run_ids.get(process.run) if process.run else None
        groups.setdefault((process.user, run), []).append(process)
    ordered = sorted(
        groups.items(), key=lambda group: -sum(_known_or_zero(process.memory_used) for process in group[1])
    )
    largest = [_holder(user, run, members) for (user, run), members in ordered[:NAMED]]
    rest = [process for _, members in ordered[NAMED:] for process in members]
    if not rest:
        return largest
    without_run = sum(len(members) for (_, run), members in ordered[NAMED:] if run is None)
    return [*largest, replace(_holder(None, None, rest), without_run=without_run)]  # runs are listed separately


def _holder(user: str | None, run: str | None, members: Sequence[Process]) -> Holder:
    names = dict.fromkeys(process.name for process in members if process.name)
    memory = coarse(sum(process.memory_used for process in members))
    return Holder(user, run, [*names][:PROGRAMS], len(members), members[0].pid, memory)


def _known_or_zero(memory: float) -> float:
    return memory if is_known(memory) else 0.0


def run_row(ranks: Ranks, frame: Frame, epochs: Epochs) -> LiveRun:
    """Return a run for a list: owner, state, progress and time left."""
    run = ranks.slowest
    estimate = progress(ranks, epochs, frame.time)
    running = ranks.state is RunState.RUNNING
    return {
        "id": run.id,
        "name": run.name.strip() or run.id,
        "user": run.user,
        "state": ranks.state.name.lower(),
        "framework": run.framework,
        "ranks": ranks.present if ranks.is_distributed else "",
        "gpus": list(ranks.gpus),
        "started": nullable(run.started),
        "updated": nullable(run.updated) if not running else None,
        "epoch": run.epoch_text if run.epoch >= 0 else "",
        "step_text": _step_text(run),
        "phase": run.phase,
        "resumed": run.first_epoch if run.resumed else None,
        "progress": nullable(round(estimate.done, 3)),
        "left": coarse_time(estimate.left),
        "stalled": is_known(ranks.stalled_since),
    }


def _step_text(run: Run) -> str:
    """Return the steps of a run without epochs: `140 of 300`, or `140` without a plan; else empty."""
    if run.epoch >= 0 or run.epochs:
        return ""
    planned = round(run.facts.planned_steps)
    return f"{units.count(run.step)} of {units.count(planned)}" if planned else f"{run.step:,}" if run.step else ""


def coarse_time(seconds: float) -> float | None:
    """Round seconds to two significant digits, for an estimated time."""
    if not math.isfinite(seconds):
        return None
    step = 10 ** max(0, math.floor(math.log10(max(seconds, 1))) - 1)
    return float(round(seconds / step) * step)
