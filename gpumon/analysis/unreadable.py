"""A frame of which no GPU can be read: whether it is one, and why."""

from __future__ import annotations

from gpumon.frame import Frame
from gpumon.metrics import Availability

ANSWERS = (Availability.OK, Availability.ASLEEP)
"""States of a GPU that nothing is wrong with."""


def is_unreadable(frame: Frame) -> bool:
    """Return whether no GPU answers."""
    return not any(sample.state in ANSWERS for sample in frame.samples)


def why_none(frame: Frame, problem: str) -> str:
    """Return why no GPU of a frame can be read; `problem` is that of its origin, empty where it has none."""
    if problem:
        return problem if frame.samples else f"{problem}. For a simulation: gpumon status --source sim"
    return "no GPU can be read: " + ", ".join(
        sorted({sample.state.reason for sample in frame.samples}) or ["none found"]
    )
