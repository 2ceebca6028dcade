"""Findings that say the same of several GPUs as one line, and what could not be judged at all: for people.

Programs get each finding by itself.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpumon.diagnosis.finding import Finding
from gpumon.model import units

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


def each_subject_first(groups: Iterable[FindingGroup]) -> list[FindingGroup]:
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
