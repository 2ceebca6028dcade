"""Findings as data for programs and pages."""

from __future__ import annotations

import math
from typing import Any

from gpumon.diagnosis.finding import Finding


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
