"""The findings that need attention, the worst first, each with its remedy and a link; those beyond the sixth open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpumon.analysis.epochs import Epochs
from gpumon.analysis.gpu_status import GpuStatus
from gpumon.analysis.ranks import Ranks
from gpumon.diagnosis.context import GpuContext, diagnose
from gpumon.diagnosis.faults import FAULT_RULES
from gpumon.diagnosis.finding import Finding, FindingGroup, group_findings, ranges
from gpumon.diagnosis.gpu import idle_text
from gpumon.diagnosis.live_findings import findings, is_recent
from gpumon.model.device import Device
from gpumon.model.frame import Frame
from gpumon.storage.history.recent import RecentHistory
from gpumon_web import levels

SHOWN = 6
"""Findings that stand there at once; the others do once somebody opens them, and on paper."""


def news_of(
    statuses: Sequence[GpuStatus], joined: Sequence[Ranks], epochs: Epochs, frame: Frame, history: RecentHistory | None
) -> list[Finding]:
    """The findings about the GPUs and runs of a frame that are of now, the worst first."""
    all_found = findings(statuses, joined, epochs, frame.time, history, monotonic_ns=frame.monotonic_ns)
    return [finding for finding in all_found if is_recent(finding)]


def worth_a_look(found: Sequence[Finding], statuses: Sequence[GpuStatus], now: float) -> list[dict[str, str]]:
    """Return `news_of` as {"kind", "level", "about", "text", "action", "link"}; those of free GPUs are one."""
    others = [_note(group) for group in group_findings(finding for finding in found if finding.kind != "free")]
    free = {finding.subject.id for finding in found if finding.kind == "free"}
    notes = [*others, *_free([status for status in statuses if status.sample.device.uuid in free], now)]
    return [*notes[:SHOWN], *_more(len(notes) - SHOWN), *notes[SHOWN:]]


def news_about(found: Sequence[Finding], uuid: str) -> list[Finding]:
    """The part of `news_of` about one GPU."""
    return [one for one in found if (one.subject.kind, one.subject.id) == ("gpu", uuid)]


def notes_of(found: Sequence[Finding], uuid: str) -> list[dict[str, str]]:
    """The part of `news_of` about one GPU, for its own page: that it is free stands there already."""
    own = [one for one in news_about(found, uuid) if one.kind != "free"]
    return [{**_note(group), "link": ""} for group in group_findings(own)]


def fault(status: GpuStatus, now: float) -> dict[str, Any] | None:
    """Return the most urgent fault of a GPU as {"level", "text", "count"}, of so many that it has; None without one."""
    found = diagnose(FAULT_RULES, [GpuContext(status=status, now=now)])
    if not found:
        return None
    return {"level": levels.OF_SEVERITY[found[0].severity], "text": found[0].summary, "count": len(found)}


def _note(group: FindingGroup) -> dict[str, str]:
    finding = group.first
    return {
        "kind": finding.kind,
        "level": levels.OF_SEVERITY[finding.severity],
        "about": group.title,
        "text": finding.summary,
        "action": group.action,
        "link": f"#/{finding.subject.kind}/{finding.subject.id}" if len(group.findings) == 1 else "#/fleet",
    }


def _more(count: int) -> Iterable[dict[str, str]]:
    """The row that opens the findings that follow it."""
    if count > 0:
        yield {"kind": "more", "text": f"and {count} more", "opened": "show fewer", "opens": "look"}


def _free(statuses: Sequence[GpuStatus], now: float) -> Iterable[dict[str, str]]:
    """One sentence for all GPUs that are free for long, by the one that is so for the shortest time."""
    if statuses:
        newest = max(statuses, key=lambda status: status.since.time if status.since else 0.0)
        about = f"GPU {named([status.sample.device for status in statuses])}"
        more = " or longer" if len(statuses) > 1 and newest.since and not newest.since.at_least else ""
        link = f"#/gpu/{statuses[0].sample.device.uuid}" if len(statuses) == 1 else "#/fleet"
        text = f"free for {idle_text(GpuContext(status=newest, now=now))}{more}"
        yield {"kind": "free", "level": "ok", "about": about, "text": text, "action": "", "link": link}


def named(devices: Sequence[Device]) -> str:
    """Return `0–3, 6`, and MIG instances by themselves."""
    whole = ranges([device.index for device in devices if not device.is_instance])
    return ", ".join(filter(None, (whole, *(device.label for device in devices if device.is_instance))))
