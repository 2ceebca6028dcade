"""The windows of time that charts offer."""

from __future__ import annotations

from typing import NamedTuple


class ChartWindow(NamedTuple):
    """The last `seconds` up to now."""

    seconds: int
    title: str
    has_button: bool = False
    """It is offered also where each window takes a button, rather than a step of the zoom."""


WINDOWS = (
    ChartWindow(60, "1 min", has_button=True), ChartWindow(120, "2 min"), ChartWindow(300, "5 min"),
    ChartWindow(600, "10 min", has_button=True), ChartWindow(900, "15 min"), ChartWindow(1800, "30 min"),
    ChartWindow(3600, "1 h", has_button=True),
)  # fmt: skip
"""From the shortest to the longest, which is as long as the last frames are kept at one a second."""
USUAL = WINDOWS[3]
"""Until the user chooses another one."""
