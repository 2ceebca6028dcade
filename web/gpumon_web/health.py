"""Health checks of a GPU for its page: throttling, ECC, XID, link and thresholds, each of which may be unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from gpumon.analysis import thresholds
from gpumon.analysis.throttling import CAUSES, SEVERE_REASONS, throttle_reasons
from gpumon.common.clock import SECOND
from gpumon.common.numbers import NAN, is_known
from gpumon.diagnosis.faults import OF_LINKS, SLOW_LINK
from gpumon.diagnosis.finding import Finding, Severity, severity_of
from gpumon.diagnosis.gpu import NOTHING, nothing_found
from gpumon.model import units
from gpumon.model.frame import Sample
from gpumon.model.metrics import BY_NAME, Availability, Unit
from gpumon.model.remedies import may_have
from gpumon.model.xids import xid_of
from gpumon.reports.figures.document import Cells
from gpumon.storage.events.device_watch import QUIET
from gpumon.storage.history.recent import RecentHistory
from gpumon_web.components import levels

UNKNOWN = "unknown"
"""Level of a check without data."""
_FAULTS = (THROTTLING, ECC, XID) = ("Throttling", "ECC", "XID")
"""Titles of the checks that detect faults themselves. The link check depends on findings, and thresholds are shown only
for information.
"""

LATELY = QUIET / SECOND
"""Seconds for which a GPU still counts as throttled afterward, as in the event log."""


def recent_throttling(history: RecentHistory | None, uuid: str, now: float) -> dict[str, float]:
    """Return, for each of `CAUSES` that is known, its highest share of a second during the last `LATELY` seconds."""
    if history is None:
        return {}
    shares = {metric.name: history.peak(uuid, metric.name, now - LATELY, now) for metric in CAUSES}
    return {name: share for name, share in shares.items() if is_known(share)}


def checks(
    sample: Sample, throttled: Mapping[str, float] = MappingProxyType({}), faults: Sequence[Finding] = ()
) -> list[Cells]:
    """Return the checks of a GPU in display order: level, title, text and more text.

    `throttled` is the result of `recent_throttling`; `faults` are the findings about this GPU.

    For a GPU that does not answer, only its faults are listed, marked as of its last answer.
    """
    xid = [_xid(sample)] if may_have(sample.device, "gpu.xid") else []
    results = [_throttling(sample, throttled), _ecc(sample), *xid, _link(sample, faults), _thresholds(sample)]
    return results if sample.state is Availability.OK else [_mark_outdated(check) for check in results]


def attention(results: Sequence[Cells]) -> str:
    """Return a summary such as `1 of 5 needs attention`; unknown checks never count as usual."""
    judged = [check for check in results if check["level"] != UNKNOWN]
    alarms = [check for check in judged if check["level"] in ("warn", "bad")]
    if alarms:
        return f"{len(alarms)} of {len(judged)} need{'s' if len(alarms) == 1 else ''} attention"
    if not judged:
        return "nothing is reported"
    return "as usual" if len(judged) == len(results) else f"as usual, as far as known ({len(judged)} of {len(results)})"


def nothing_wrong(checks_by_gpu: Sequence[Sequence[Cells]], not_judged: Sequence[str]) -> str:
    """Return the sentence shown if nothing needs attention. `checks_by_gpu`: the checks of each GPU that responds."""
    counts = Counter(check["title"] for results in checks_by_gpu for check in results if check["level"] == UNKNOWN)
    unknown = [
        (title if title.isupper() else title.lower()) + ("" if counts[title] == len(checks_by_gpu) else " of some GPUs")
        for title in _FAULTS if counts[title]
    ]  # fmt: skip
    if not_judged or not unknown:
        return nothing_found(not_judged)
    return f"{NOTHING.removesuffix('.')}, as far as known; not reported: {', '.join(unknown)}."


def _mark_outdated(check: Cells) -> Cells:
    if check["level"] not in ("warn", "bad"):
        return _none(check["title"])
    return {**check, "more": " · ".join(filter(None, (check["more"], "when it last answered")))}


def _check(title: str, text: str, more: str = "", level: str = "ok") -> Cells:
    return {"title": title, "text": text, "more": more, "level": level}


def _none(title: str) -> Cells:
    return _check(title, "not reported", level=UNKNOWN)


def _throttling(sample: Sample, throttled: Mapping[str, float]) -> Cells:
    reasons = throttle_reasons(sample)
    causes = [metric for metric in CAUSES if severity_of(metric, throttled.get(metric.name, NAN)) is not Severity.INFO]
    if reasons is None and not throttled:
        return _none(THROTTLING)
    text = f"clocks held by {', '.join(reasons)}" if reasons else "none now" if causes else "none"
    # A sample has the present causes of throttling; counters include those since the sample before.
    more = [
        f"{metric.title[0].lower()}{metric.title[1:]} for up to {_share(throttled[metric.name])} of a second"
        for metric in causes
    ]
    if more:
        more = [f"· in the last {LATELY:.0f} s {' and '.join(more)}"]
    is_severe = bool(causes) or not SEVERE_REASONS.isdisjoint(reasons or ())
    return _check(THROTTLING, text, " ".join(more), "warn" if is_severe else "ok")


def _share(share: float) -> str:
    return units.number(share, Unit.RATIO) if share >= 0.01 else "less than 1 %"


def _ecc(sample: Sample) -> Cells:
    uncorrected, corrected = sample.value("gpu.ecc_uncorrected"), sample.value("gpu.ecc_corrected")
    if not is_known(uncorrected) and not is_known(corrected):
        return _none(ECC)
    parts = []
    if is_known(corrected):
        parts.append(f"{units.count(round(corrected))} corrected")
    rows = [sample.value(f"gpu.rows_remapped_{kind}") for kind in ("corrected", "uncorrected")]
    if all(is_known(row) for row in rows):
        count = round(sum(rows))
        parts.append(f"{units.count(count)} {'row' if count == 1 else 'rows'} remapped")
    if sample.value("gpu.remapping_pending") > 0 or sample.value("gpu.retirement_pending") > 0:
        parts.append("a reset is needed to replace memory")
    if sample.value("gpu.remapping_failed") > 0:
        parts.append("rows could not be replaced")
    names = ("ecc_uncorrected", "remapping_pending", "remapping_failed", "retirement_pending")
    text = (
        f"{units.count(round(uncorrected))} uncorrected"
        if is_known(uncorrected)
        else "uncorrected errors are not reported"
    )
    return _check(ECC, text, " · ".join(parts), _worst(sample, names))


def _xid(sample: Sample) -> Cells:
    code = sample.value("gpu.xid")
    if not is_known(code):
        return _none(XID)
    if not code:
        return _check(XID, "none since gpumon began to watch")
    fault = xid_of(int(code))
    return _check(XID, f"XID {code:.0f}", fault.meaning, "bad" if fault.severity == "critical" else "warn")


def _link(sample: Sample, faults: Sequence[Finding]) -> Cells:
    parts, more, level = [], [], "ok"
    link_findings = [finding for finding in faults if finding.kind in OF_LINKS]
    generation, width = sample.value("gpu.pcie_generation"), sample.value("gpu.pcie_width")
    if is_known(generation) and is_known(width):
        parts.append(f"PCIe {generation:.0f}.0 ×{width:.0f}")
        maxima = [sample.value("gpu.pcie_generation_max"), sample.value("gpu.pcie_width_max")]
        if all(is_known(maximum) for maximum in maxima) and maxima != [generation, width]:
            more.append(f"of {maxima[0]:.0f}.0 ×{maxima[1]:.0f}{_link_note(sample, link_findings)}")
            level = UNKNOWN  # an idle link steps down: a slow link is only a fault under load
    active, links = sample.value("gpu.nvlink_active"), sample.value("gpu.nvlink_links")
    if is_known(active) and is_known(links) and links:
        parts.append(f"NVLink {active:.0f} of {links:.0f}")
    replays = sample.value("gpu.pcie_replays")
    if is_known(replays):
        more.append(units.counted(round(replays), "replay"))
    if link_findings:
        level = levels.SEVERITY_LEVELS[max(finding.severity for finding in link_findings)]
    return _check("Link", ", ".join(parts), " · ".join(more), level) if parts else _none("Link")


def _link_note(sample: Sample, link_findings: Sequence[Finding]) -> str:
    """Return a clause that says why a slow link is not judged yet; empty once it is judged under load."""
    is_loaded = sample.value("gpu.utilization") >= thresholds.LOADED
    if any(finding.kind == SLOW_LINK for finding in link_findings):
        return "" if is_loaded else "; slow under load too"
    if is_loaded:
        return f"; judged after {thresholds.LOADED_FOR:.0f} s of load"
    return "; idle links step down"


def _thresholds(sample: Sample) -> Cells:
    slowdown, shutdown = sample.value("gpu.temperature_slowdown"), sample.value("gpu.temperature_shutdown")
    watts = sample.value("gpu.power_limit")
    temperatures = [
        f"{word} {value:.0f} °C" for word, value in (("slowdown", slowdown), ("shutdown", shutdown)) if is_known(value)
    ]
    limit = f"power limit {watts:,.0f} W" if is_known(watts) else ""
    if not temperatures and not limit:
        return _none("Thresholds")
    return _check("Thresholds", ", ".join(temperatures) or limit, limit if temperatures else "")


def _worst(sample: Sample, names: Sequence[str]) -> str:
    severities = [severity_of(BY_NAME[f"gpu.{name}"], sample.value(f"gpu.{name}")) for name in names]
    worst = max(severities, default=Severity.INFO)
    return levels.SEVERITY_LEVELS[worst] or "ok"
