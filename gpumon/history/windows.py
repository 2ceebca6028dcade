"""The windows of time that charts offer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import nan
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
    ChartWindow(3600, "1 h", has_button=True), ChartWindow(3 * 3600, "3 h"), ChartWindow(6 * 3600, "6 h"),
    ChartWindow(12 * 3600, "12 h"), ChartWindow(86400, "24 h", has_button=True), ChartWindow(3 * 86400, "3 d"),
    ChartWindow(7 * 86400, "7 d", has_button=True), ChartWindow(31 * 86400, "31 d", has_button=True),
)  # fmt: skip
"""From the shortest to the longest, which is as long as history is kept."""
CLOSE = (ChartWindow(2, "2 s"), ChartWindow(10, "10 s"), ChartWindow(30, "30 s"))
"""Shorter ones, for a look at single samples: only a step of the zoom leads there, never a default."""
USUAL = WINDOWS[3]
"""Until the user chooses another one."""
ALWAYS = WINDOWS[6]
"""The longest that is offered however little is known: as long as the last frames are kept at one a second."""


def offered(known: float, whole: float = nan) -> Sequence[ChartWindow]:
    """Return the windows to choose from where history goes back by `known` seconds; none is longer than it must be.

    `whole`: seconds of the recording that plays, beyond which there will never be more; NaN where time goes on.
    """
    most = next((window.seconds for window in WINDOWS if window.seconds >= whole), WINDOWS[-1].seconds)
    longer = [window for shorter, window in pairwise(WINDOWS) if shorter.seconds < known]
    found = [*CLOSE, *(window for window in WINDOWS if window.seconds <= ALWAYS.seconds or window in longer)]
    return [window for window in found if window.seconds <= most]
