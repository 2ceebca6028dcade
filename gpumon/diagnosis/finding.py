"""A finding: something about a GPU or a run that a person should know, and what to do about it."""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

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
