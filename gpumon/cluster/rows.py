"""Rows of answers, by question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpumon.cluster.engine import EngineSeries
from gpumon.common.numbers import NAN

Answers = Mapping[str, Sequence[EngineSeries]]
"""Rows by question; a question that was never answered is not in it."""


def single(answers: Answers, name: str) -> float:
    """Return the value of an answer of one row; NaN without one."""
    rows = answers.get(name, ())
    return rows[0].value if len(rows) == 1 else NAN


def node_of(row: EngineSeries) -> str:
    """Return the node that a row is of."""
    return row.labels.get("instance", "")
