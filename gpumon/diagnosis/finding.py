"""Findings: what a user should know about a GPU or a run, with suggested actions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, IntEnum
from typing import Any, NamedTuple

from gpumon.common.numbers import NAN
from gpumon.model import units
from gpumon.model.metrics import Metric


class Severity(IntEnum):
    """Urgency of a finding."""

    INFO = 0
    WARNING = 1
    CRITICAL = 2


class Subject(NamedTuple):
    """The GPU, run or epoch that a finding is about."""

    kind: str
    """Kind of the subject: `gpu`, `run` or `epoch`."""
    id: str
    """UUID of the GPU, id of the run, or ordinal of the epoch."""
    title: str
    """Name for users, such as `GPU 3`."""


class Certainty(Enum):
    """How sure a rule is of the cause that it names."""

    MEASURED = "measured"
    """The numbers show the cause itself."""
    LIKELY = "likely"
    """The numbers fit this cause, and the other usual causes were ruled out."""
    POSSIBLE = "possible"
    """The numbers fit several causes, and this one is the most common."""


class Gain(NamedTuple):
    """What an action is expected to save, as shares (0 to 1) of the time and energy of an epoch.

    The time between this epoch and the next one counts as part of the epoch.
    """

    low: float
    high: float
    energy_low: float = NAN
    energy_high: float = NAN

    @property
    def middle(self) -> float:
        """Middle of the interval for the time, by which findings are ranked."""
        return (self.low + self.high) / 2


class Finding(NamedTuple):
    """A fact that a rule has detected about a GPU, a run or an epoch."""

    kind: str
    """Stable identifier for programs, such as `input_bound`."""
    severity: Severity
    subject: Subject
    summary: str
    """A clause without the subject, such as `waits for data 35 % of its time`."""
    action: str
    """Suggested remedy as a sentence; empty if there is none."""
    evidence: Mapping[str, float] = {}
    """The numbers on which the finding is based, by name, in base units."""
    cause: str = ""
    """Why it is so, as a sentence; empty if the rule names no cause."""
    certainty: Certainty | None = None
    """How sure the rule is of the cause; None if it names none."""
    gain: Gain | None = None
    """What the action is expected to save; None if it cannot be predicted."""
    window: str = ""
    """The time over which the numbers were measured, such as `epochs 1–4`; empty if it is the time of the finding."""
    threshold: float = NAN
    """The limit that the first number of the evidence reached; NaN if the rule has no limit."""


def severity_of(metric: Metric, value: float) -> Severity:
    """Return the severity of `value` according to the thresholds of its metric; INFO if `value` is NaN."""
    if value >= metric.critical:
        return Severity.CRITICAL
    return Severity.WARNING if value >= metric.warn else Severity.INFO


def finding_json(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON. Numbers that are NaN are left out of the evidence."""
    return {
        "kind": finding.kind,
        "severity": finding.severity.name.lower(),
        "subject": {"kind": finding.subject.kind, "id": finding.subject.id, "title": finding.subject.title},
        "summary": finding.summary,
        "action": finding.action or None,
        "evidence": {name: value for name, value in finding.evidence.items() if math.isfinite(value)},
        "cause": finding.cause or None,
        "certainty": finding.certainty.value if finding.certainty else None,
        "gain": _gain_json(finding.gain) if finding.gain else None,
        "window": finding.window or None,
        "threshold": finding.threshold if math.isfinite(finding.threshold) else None,
    }


def _gain_json(gain: Gain) -> dict[str, Any]:
    energy = [round(gain.energy_low, 4), round(gain.energy_high, 4)]
    return {
        "time": [round(gain.low, 4), round(gain.high, 4)],
        "energy": energy if all(map(math.isfinite, energy)) else None,
    }


_GPU = "GPU "


class FindingGroup(NamedTuple):
    """One finding, or several findings that differ only in their GPU."""

    findings: Sequence[Finding]

    @property
    def first(self) -> Finding:
        """The first finding. All have the same severity and summary."""
        return self.findings[0]

    @property
    def title(self) -> str:
        """The subjects of the findings as text, such as `GPU 3`, `GPU 0–7` or `GPU 0–2, 5`."""
        if len(self.findings) == 1:
            return self.first.subject.title
        names = [finding.subject.title.removeprefix(_GPU) for finding in self.findings]
        whole = ranges(int(name) for name in names if name.isdecimal())
        return _GPU + ", ".join(filter(None, (whole, *(name for name in names if not name.isdecimal()))))

    @property
    def action(self) -> str:
        """The suggested action.

        If the actions of the findings differ, the action for each GPU is listed. For example, a command may name the
        GPU.
        """
        actions = dict.fromkeys(finding.action for finding in self.findings if finding.action)
        if len(actions) < 2:
            return next(iter(actions), "")
        return " ".join(f"{finding.subject.title}: {finding.action}" for finding in self.findings if finding.action)

    @property
    def ids(self) -> frozenset[str]:
        """UUIDs or ids of the subjects of all findings in the group."""
        return frozenset(finding.subject.id for finding in self.findings)


def group_findings(findings: Iterable[Finding]) -> list[FindingGroup]:
    """Group findings that differ only in their GPU. A group has the position of its first finding."""
    groups: dict[object, list[Finding]] = {}
    for index, finding in enumerate(findings):
        is_single = finding.subject.kind != "gpu"
        key = index if is_single else (finding.kind, finding.severity, finding.summary)
        groups.setdefault(key, []).append(finding)
    return [FindingGroup(tuple(group)) for group in groups.values()]


def one_per_subject_first(groups: Iterable[FindingGroup]) -> list[FindingGroup]:
    """Return the groups in another order: first one group for each GPU and run, then the remaining groups."""
    first: list[FindingGroup] = []
    further: list[FindingGroup] = []
    seen = set[str]()
    for group in groups:
        (further if group.ids <= seen else first).append(group)
        seen |= group.ids
    return [*first, *further]


def ranges(numbers: Iterable[int]) -> str:
    """Return sorted numbers as text with ranges: `0–3, 6`."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(
        units.count(first) if first == last else f"{units.count(first)}–{units.count(last)}" for first, last in spans
    )
