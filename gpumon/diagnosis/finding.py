"""A finding: something about a GPU or a run that a person should know, and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from gpumon.model import units
from gpumon.model.metrics import Metric


class Severity(IntEnum):
    """Order of findings: the highest first."""

    INFO = 0
    WARNING = 1
    CRITICAL = 2


class Subject(NamedTuple):
    """The GPU, run or epoch that a finding is about."""

    kind: str
    """`gpu`, `run` or `epoch`."""
    id: str
    """UUID of a GPU, id of a run, ordinal of an epoch."""
    title: str
    """For people, such as `GPU 3`."""


class Finding(NamedTuple):
    """One result of a rule."""

    kind: str
    """Stable name for programs, such as `input_bound`."""
    severity: Severity
    subject: Subject
    summary: str
    """One clause without the subject: `waits for data 35 % of its time`."""
    action: str
    """Suggested remedy, in a sentence; empty if there is none."""
    evidence: Mapping[str, float] = {}
    """The numbers behind it, in base units."""


def severity_of(metric: Metric, value: float) -> Severity:
    """Return how severe `value` is by the thresholds of its metric; INFO where it is unknown."""
    if value >= metric.critical:
        return Severity.CRITICAL
    return Severity.WARNING if value >= metric.warn else Severity.INFO


def finding_json(finding: Finding) -> dict[str, Any]:
    """Return a finding with keys that keep their meaning; what is unknown is left out of the evidence."""
    return {
        "kind": finding.kind,
        "severity": finding.severity.name.lower(),
        "subject": {"kind": finding.subject.kind, "id": finding.subject.id, "title": finding.subject.title},
        "summary": finding.summary,
        "action": finding.action or None,
        "evidence": {name: value for name, value in finding.evidence.items() if math.isfinite(value)},
    }


_GPU = "GPU "


class FindingGroup(NamedTuple):
    """A finding, or several that differ in their GPU alone."""

    findings: Sequence[Finding]

    @property
    def first(self) -> Finding:
        """The finding whose severity and summary are those of all."""
        return self.findings[0]

    @property
    def title(self) -> str:
        """The subjects: `GPU 3`, `GPU 0–7`, `GPU 0–2, 5`."""
        if len(self.findings) == 1:
            return self.first.subject.title
        names = [one.subject.title.removeprefix(_GPU) for one in self.findings]
        whole = ranges(int(name) for name in names if name.isdecimal())
        return _GPU + ", ".join(filter(None, (whole, *(name for name in names if not name.isdecimal()))))

    @property
    def action(self) -> str:
        """What to do: each remedy once, as a command names the GPU it acts on."""
        actions = dict.fromkeys(one.action for one in self.findings if one.action)
        if len(actions) < 2:
            return next(iter(actions), "")
        return " ".join(f"{one.subject.title}: {one.action}" for one in self.findings if one.action)

    @property
    def ids(self) -> frozenset[str]:
        """The ids of the subjects."""
        return frozenset(one.subject.id for one in self.findings)


def grouped(findings: Iterable[Finding]) -> list[FindingGroup]:
    """Return findings in their order; those of one kind that say the same of several GPUs stand where the first did."""
    found: dict[object, list[Finding]] = {}
    for place, one in enumerate(findings):
        alone = one.subject.kind != "gpu"
        key = place if alone else (one.kind, one.severity, one.summary)
        found.setdefault(key, []).append(one)
    return [FindingGroup(tuple(alike)) for alike in found.values()]


def one_per_subject_first(groups: Iterable[FindingGroup]) -> list[FindingGroup]:
    """Return groups with one of each GPU and run first, in their order, then the further ones."""
    first: list[FindingGroup] = []
    further: list[FindingGroup] = []
    seen = set[str]()
    for group in groups:
        (further if group.ids <= seen else first).append(group)
        seen |= group.ids
    return [*first, *further]


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers for people, in their order: `0–3, 6`."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(
        units.count(first) if first == last else f"{units.count(first)}–{units.count(last)}" for first, last in spans
    )
