"""Slowly changing data of the pages: GPUs with their holders, runs, and findings that need attention.

All functions are pure; only `Fleet` remembers since when each GPU has been idle.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gpumon.analysis.gpu_state import Activity, GpuState
from gpumon.analysis.gpu_status import GpuStatus, gpu_statuses
from gpumon.analysis.memory import PARTS, breakdown_of, known_parts
from gpumon.analysis.processes import job_or_container
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
from gpumon.model.frame import Frame, Run, RunState, Sample
from gpumon.model.metrics import PROCESSES, Availability
from gpumon.model.origin import Capability, Driver, Origin
from gpumon.model.panels import GPU_PANELS
from gpumon.model.process import Process
from gpumon.model.remedies import missing_reason
from gpumon.model.vendors import NVIDIA, short_name
from gpumon.reports.figures.run_chart import MEMORY_COLORS
from gpumon.reports.run_json import nullable
from gpumon.storage.history.recent import RecentHistory
from gpumon_web.components import levels
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


def fault(status: GpuStatus, now: float) -> dict[str, Any] | None:
    """Return the most urgent fault of a GPU, and how many it has: {"level", "text", "count"}; None without one."""
    faults = diagnose(FAULT_RULES, [GpuContext(status=status, now=now)])
    if not faults:
        return None
    return {"level": levels.SEVERITY_LEVELS[faults[0].severity], "text": faults[0].summary, "count": len(faults)}


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
_STEP = 2.0**26

_SHOWN = frozenset(panel.metric.name for panel in GPU_PANELS)


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
    ) -> dict[str, Any]:  # fmt: skip
        """Return the slowly changing data: devices, holders, runs, and processes without their command lines.

        `recorded`: what the ledger says about running runs, by id.
        """
        all_ranks = ranks_of(frame.runs)
        statuses = gpu_statuses(frame, all_ranks, self._activity)
        news = present_findings(statuses, all_ranks, epochs, frame, history, recorded)
        return {
            "hostname": hostname,
            "driver": driver.version,
            "cuda": driver.version_of(NVIDIA.runtime),
            "source": origin.source,
            "processes_known": Capability.PROCESSES in origin.capabilities,
            "gpus": [
                {**gpu_row(status, all_ranks, recent_throttling(history, status.sample.device.uuid, frame.time),
                           findings_about(news, status.sample.device.uuid)),
                 "fault": fault(status, frame.time), "look": gpu_notes(news, status.sample.device.uuid)}
                for status in statuses
            ],
            "runs": [run_row(ranks, frame, epochs) for ranks in all_ranks],
            "look": overview_notes(news, statuses, frame.time),
            "not_judged": not_judged(frame.samples, tells_processes=Capability.PROCESSES in origin.capabilities),
        }  # fmt: skip


def gpu_row(
    status: GpuStatus,
    all_ranks: Sequence[Ranks],
    throttled: Mapping[str, float] = MappingProxyType({}),
    gpu_findings: Sequence[Finding] = (),
) -> dict[str, Any]:
    """Return one GPU: device data, state and since when, holders, processes, runs and health checks.

    `throttled` is the result of `recent_throttling`; `gpu_findings` are the findings about the GPU.
    """
    sample, since, processes = status.sample, status.since, status.processes
    device = sample.device
    return {
        "uuid": device.uuid,
        "index": device.index,
        "label": device.label or str(device.index),
        "order": device.index + (device.instance + 1) / 1024,
        "parent": device.parent,
        "name": short_name(device.name),
        "state": status.state.value,
        "word": status.word() if status.state is GpuState.BUSY else status.state.title,
        "reason": "" if sample.state is Availability.OK else sample.reason,
        "since": round(since.time, 1) if since else None,
        "at_least": bool(since and since.at_least),
        "memory_total": nullable(sample.value("gpu.memory_total")),
        "power_limit": nullable(sample.value("gpu.power_limit")),
        "age": round(sample.age, 1) if sample.state is Availability.STALE else None,
        "last": last_known(sample),
        "holders": holders(processes, all_ranks),
        "unlisted": status.is_unlisted,
        "empty": status.is_empty,
        "health": checks(sample, throttled, gpu_findings),
        "split": parts(sample),
        "processes": [process_row(process, all_ranks) for process in processes],
        "shares_memory": device.missing.get("gpu.memory_used") is Availability.SHARED_WITH_HOST,
        "processes_unknown": device.missing[PROCESSES].reason if PROCESSES in device.missing else "",
        "runs": [ranks.first.id for ranks in status.runs],
        "missing": {name: missing_reason(device, name) for name in sorted(device.missing) if name in _SHOWN},
    }


def last_known(sample: Sample) -> dict[str, float | None] | None:
    """Return the last values of a stale GPU, as they were `age` seconds ago; None for any other GPU."""
    if sample.state is not Availability.STALE:
        return None
    return {panel.metric.name: nullable(sample.value(panel.metric.name)) for panel in GPU_PANELS if not panel.is_rate}


def parts(sample: Sample) -> list[dict[str, Any]]:
    """Return the memory breakdown of a GPU, part by part; empty if the driver does not report it."""
    breakdown = breakdown_of(sample)
    colors = dict(zip((part.name for part in PARTS), MEMORY_COLORS, strict=True))
    return [
        {"title": part.title, "bytes": coarse(value), "color": colors[part.name]}
        for part, value in (known_parts(breakdown) if breakdown else ())
    ]


def holders(processes: Sequence[Process], all_ranks: Sequence[Ranks]) -> list[dict[str, Any]]:
    """Return the holders of memory by user and run, the largest first; those beyond `NAMED` as one with `user` None.

    An empty `user` is unknown, for example for a process in another container.
    """
    groups: dict[tuple[str, str | None], list[Process]] = {}
    for process in processes:
        groups.setdefault((process.user, _run_id(process, all_ranks)), []).append(process)
    ordered = sorted(
        groups.items(), key=lambda group: -sum(_known_or_zero(process.memory_used) for process in group[1])
    )
    largest = [_holder(user, run, members) for (user, run), members in ordered[:NAMED]]
    rest = [process for _, members in ordered[NAMED:] for process in members]
    without_run = sum(_run_id(process, all_ranks) is None for process in rest)  # runs are listed separately
    return [*largest, *([{**_holder(None, None, rest), "alone": without_run}] if rest else [])]


def _holder(user: str | None, run: str | None, members: Sequence[Process]) -> dict[str, Any]:
    names = dict.fromkeys(process.name for process in members if process.name)
    return {
        "user": user,
        "run": run,
        "names": [*names][:PROGRAMS],
        "count": len(members),
        "pid": members[0].pid,
        "memory": coarse(sum(process.memory_used for process in members)),
    }


def _known_or_zero(memory: float) -> float:
    return memory if is_known(memory) else 0.0


def _run_id(process: Process, all_ranks: Iterable[Ranks]) -> str | None:
    if not process.run:
        return None
    return next((ranks.first.id for ranks in all_ranks if any(run.key == process.run for run in ranks.all)), None)


def process_row(process: Process, all_ranks: Iterable[Ranks]) -> dict[str, Any]:
    """Return the data of a process that viewers may see; never its command line."""
    return {
        "pid": process.pid,
        "user": process.user,
        "name": process.name,
        "kind": process.kind,
        "memory": nullable(process.memory_used),
        "sm": nullable(round(process.sm_utilization, 2)),
        "encoder": nullable(round(process.encoder_utilization, 2)),
        "decoder": nullable(round(process.decoder_utilization, 2)),
        "cpu": nullable(round(process.cpu_utilization, 1)),
        "started": nullable(process.started),
        "run": _run_id(process, all_ranks),
        "where": job_or_container(process),
    }


def run_row(ranks: Ranks, frame: Frame, epochs: Epochs) -> dict[str, Any]:
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


def coarse(memory: float) -> float | None:
    """Round bytes to 64 MiB, so that not every tick is a change."""
    return round(memory / _STEP) * _STEP if math.isfinite(memory) else None


def coarse_time(seconds: float) -> float | None:
    """Round seconds to two significant digits, for an estimated time."""
    if not math.isfinite(seconds):
        return None
    step = 10 ** max(0, math.floor(math.log10(max(seconds, 1))) - 1)
    return float(round(seconds / step) * step)
