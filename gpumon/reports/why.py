"""The findings about a run or a GPU as text and as JSON, for `gpumon why`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpumon.analysis.throttling import THERMAL
from gpumon.common.numbers import is_known
from gpumon.common.text import wrap_words
from gpumon.diagnosis.finding import Finding, Gain, finding_json
from gpumon.diagnosis.gpu import NOTHING
from gpumon.diagnosis.past_findings import findings, not_judged
from gpumon.diagnosis.running_findings import RecordedFindings, add_recorded
from gpumon.diagnosis.training import Unjudged
from gpumon.model import units
from gpumon.model.metrics import BY_NAME, Unit
from gpumon.reports.run_json import run_to_json
from gpumon.reports.run_text import overview
from gpumon.reports.text_table import wrapped
from gpumon.storage.ledger import aggregate
from gpumon.storage.ledger.records import Record
from gpumon.storage.ledger.summary import EpochSummary

SCHEMA = 1
_INDENT = "   "
_LABEL = 10
"""Width of the labels before the cause, the action and the numbers of a finding."""
EVIDENCE: Mapping[str, tuple[str, Unit]] = {
    "wait_share": ("wait for data", Unit.RATIO),
    "wait_per_step": ("wait per step", Unit.SECONDS),
    "step": ("time per step", Unit.SECONDS),
    "workers": ("workers", Unit.COUNT),
    "busy_share": ("they compute", Unit.RATIO),
    "pass_wait": ("start and end", Unit.SECONDS),
    "share": ("share of the time", Unit.RATIO),
    "seconds": ("for", Unit.SECONDS),
    "epoch_seconds": ("per epoch", Unit.SECONDS),
    "validated": ("epochs with validation", Unit.COUNT),
    "ooms": ("failed allocations", Unit.COUNT),
    "asked": ("requested", Unit.BYTES),
    "free": ("free", Unit.BYTES),
    "left": ("time left", Unit.SECONDS),
    "limit_in": ("until the limit", Unit.SECONDS),
    "silent": ("without progress", Unit.SECONDS),
    "idle_share": ("idle", Unit.RATIO),
    "explained_share": ("explained by waits and phases", Unit.RATIO),
    "throttled_share": ("throttled", Unit.RATIO),
    "excess": ("waits longer by", Unit.RATIO),
    "ratio": ("compared with the others", Unit.RATIO),
    "rank": ("rank", Unit.COUNT),
    "others": ("other ranks", Unit.RATIO),
    "utilization": ("utilization", Unit.RATIO),
    "utilization_p95": ("utilization, 95th percentile", Unit.RATIO),
    "utilization_mean": ("mean utilization", Unit.RATIO),
    "tensor_throughput": ("tensor throughput", Unit.RATIO),
    "sm_activity": ("SM activity", Unit.RATIO),
    "fp32_activity": ("FP32 activity", Unit.RATIO),
    "memory_share": ("peak of the memory", Unit.RATIO),
    "epoch": ("epoch", Unit.COUNT),
    "usual": ("the others", Unit.SECONDS),
    "longest": ("the longest", Unit.SECONDS),
    "shortest": ("the shortest", Unit.SECONDS),
    "newest": ("the newest", Unit.SECONDS),
    "outliers": ("such epochs", Unit.COUNT),
    "growth": ("growth", Unit.RATIO),
    "growth_bytes": ("growth", Unit.BYTES),
    "per_epoch": ("per epoch", Unit.BYTES),
    "full_from": ("full from epoch", Unit.COUNT),
    "full_until": ("or until epoch", Unit.COUNT),
    "others_memory": ("memory of others", Unit.BYTES),
    "retries": ("retries", Unit.COUNT),
    "held_ratio": ("held compared with needed", Unit.RATIO),
    "run_reserved_peak": ("held", Unit.BYTES),
    "framework_peak": ("needed", Unit.BYTES),
}
"""Title and unit of the numbers in the evidence of findings about trainings."""
RATES: Mapping[str, tuple[str, Unit]] = {
    metric.key: (f"{metric.title.lower()}, share of the time", Unit.RATIO) for metric in THERMAL
}
"""The same for counters of time in the evidence of findings about GPUs, which have their rates."""
HIDDEN = frozenset(("age", "exit_code", "exit_signal"))
"""Numbers in the evidence that are for programs, or are in the summary."""
_METRICS = {metric.key: (metric.title.lower(), metric.unit) for metric in BY_NAME.values()}


def run_lines(record: Record, now: float, width: int, live: Sequence[Finding] = ()) -> Iterator[str]:
    """Yield the findings about a recorded run with cause, action and gain, and then what could not be judged.

    `record`: must have been read with the times of phases. `now`: current time, s since 1970. `width`: maximum width of
    a line; 0 if unlimited. `live`: findings about the run in the newest frame.
    """
    epochs = aggregate.epoch_summaries(record)
    total = aggregate.run_total(record, epochs)
    yield from wrapped([record.run.name or record.run.id, f"run {record.run.id}"], width)
    yield from wrapped([*overview(record, epochs, now)], width)
    yield ""
    yield from lines(_ranked(record, total, now, epochs, live), not_judged(record, total, epochs), width)


def run_document(record: Record, now: float, live: Sequence[Finding] = ()) -> dict[str, Any]:
    """Return the findings about a recorded run as JSON. The arguments are as for `run_lines`."""
    epochs = aggregate.epoch_summaries(record)
    total = aggregate.run_total(record, epochs)
    missing = not_judged(record, total, epochs)
    return document(_ranked(record, total, now, epochs, live), missing, run=run_to_json(record.run, now))


def _ranked(
    record: Record, total: EpochSummary, now: float, epochs: Sequence[EpochSummary], live: Sequence[Finding]
) -> list[Finding]:
    """Return the findings by the ledger and those about the newest frame, without shares of time of the frame."""
    recorded = RecordedFindings(findings(record, total, now, epochs), is_judged=True)
    return add_recorded(live, {record.run.id: recorded})


def document(
    ranked: Sequence[Finding], missing: Sequence[Unjudged], *, run: Mapping[str, Any] | None = None,
    gpu: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return ranked findings, and what could not be judged, as JSON. `run` and `gpu`: what they are about."""
    return {
        "schema": SCHEMA,
        "run": run,
        "gpu": gpu,
        "findings": [finding_json(finding) for finding in ranked],
        "not_judged": [{"what": what, "why": why} for what, why in missing],
    }


def lines(
    ranked: Sequence[Finding], missing: Sequence[Unjudged], width: int, *, titled: bool = False
) -> Iterator[str]:  # fmt: skip
    """Yield ranked findings, and what could not be judged.

    `titled`: begin each finding with the name of its GPU or run.
    """
    if not ranked:
        yield NOTHING if not missing else "Nothing was found in what could be judged."
    for number, finding in enumerate(ranked, 1):
        yield from _finding_lines(number, finding, width, titled=titled)
    if missing:
        if ranked:
            yield ""
        yield "Not judged:"
        for what, why in missing:
            yield from wrap_words(f"- {what}: {why}", width)


def _finding_lines(number: int, finding: Finding, width: int, *, titled: bool) -> Iterator[str]:
    if number > 1:
        yield ""
    summary = f"{finding.subject.title}: {finding.summary}" if titled else _sentence(finding.summary)
    yield from _indented(f"{number}. ", f"{summary}." if titled else summary, width)
    cause = f"{finding.cause} ({finding.certainty.value})" if finding.cause and finding.certainty else finding.cause
    for label, text in (
        ("cause", cause), ("do", finding.action), ("saves", gain_text(finding.gain)), ("because", _because(finding)),
    ):  # fmt: skip
        if text:
            yield from _indented(f"{_INDENT}{label}".ljust(_LABEL + len(_INDENT)), text, width)


def gain_text(gain: Gain | None) -> str:
    """Return an expected gain as text, such as `30% to 60% of the time of an epoch`; empty if there is none."""
    if gain is None:
        return ""
    text = f"{_range(gain.low, gain.high)} of the time of an epoch"
    if is_known(gain.energy_high):
        text += f", {_range(gain.energy_low, gain.energy_high)} of its energy"
    return text


def _range(low: float, high: float) -> str:
    least, most = units.share(low), units.share(high)
    return least if least == most else f"{least} to {most}"


def _because(finding: Finding) -> str:
    """Return the numbers of a finding, its limit, and the time over which they were measured, as text."""
    parts, titles = [], {**_METRICS, **RATES, **EVIDENCE}
    for index, (name, value) in enumerate(finding.evidence.items()):
        title, unit = titles.get(name, (name.replace("_", " "), Unit.COUNT))
        if not is_known(value) or name in HIDDEN:
            continue
        limit = f" (limit {_number(finding.threshold, unit)})" if not index and is_known(finding.threshold) else ""
        parts.append(f"{title} {_number(value, unit)}{limit}")
    return f"{', '.join(parts)}{f'; {finding.window}' if finding.window and parts else ''}"


def _number(value: float, unit: Unit) -> str:
    return units.fine_duration(value) if unit is Unit.SECONDS else units.number(value, unit)


def _sentence(clause: str) -> str:
    return f"{clause[:1].upper()}{clause[1:]}."


def _indented(first: str, text: str, width: int) -> Iterator[str]:
    """Yield a text that begins with `first`, with its further lines indented below it."""
    room = max(20, width - len(first)) if width else 0
    for index, line in enumerate(wrap_words(text, room)):
        yield f"{first if not index else ' ' * len(first)}{line}"
