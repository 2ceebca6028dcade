"""The replacement for the GPUs if none can be read: the search, the advice, and past runs.

For many this is the first screen they see.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style

from gpumon.frame import Origin
from gpumon.origin import Capability
from gpumon.vendors import VENDORS
from gpumon_tui import theme
from gpumon_tui.program import program
from gpumon_tui.renderables.text_width import Line, cut, rule, safe

if TYPE_CHECKING:
    from gpumon.ledger.records import RunSummary

_WHAT = "; ".join(vendor.looked_for for vendor in VENDORS if vendor.looked_for)
LOOKED_FOR = f"searching every few seconds: {_WHAT}"
TO_DO = tuple(text for vendor in VENDORS for text in vendor.to_do)
SIMULATION = "press s for a simulation"
BELOW = "below: this host, and the trainings on it"
MOST_PAST = 6
"""Past runs shown."""


def problem(origin: Origin, simulation: bool, cells: int) -> list[Line]:
    """Why there is no GPU; `simulation`: whether a key shows one."""
    texts: list[tuple[str, Style]] = [("No GPU can be read", theme.STRONG)]
    if origin.problem:
        texts.append((safe(origin.problem), theme.PLAIN))
    if simulation:
        texts.append((SIMULATION, theme.TITLE))
    if Capability.LIVE in origin.capabilities:
        texts += [(text, theme.DIM) for text in (*TO_DO, LOOKED_FOR)]
    texts.append((BELOW, theme.DIM))
    return [line for text, style in texts for line in _told(text, style, cells)]


def waiting(text: str, cells: int) -> list[Line]:
    """Before the first frame."""
    return _told(safe(text), theme.PLAIN, cells)


def _told(text: str, style: Style, cells: int) -> list[Line]:
    """Whole words, on as many lines as they take."""
    parts = wrap(text, max(20, cells - 5), break_on_hyphens=False)
    return [[Segment("  ▌ ", theme.WARN), Segment(part, style)] for part in parts]


def past(runs: Sequence[RunSummary], now: float, cells: int) -> list[Line]:
    """The newest runs of the ledger, under a title; nothing where there is none."""
    if not runs:
        return []
    from gpumon.reports.run_list import lines

    head, *rows = lines(runs[:MOST_PAST], now, cells - 2)
    title: Line = [Segment("Past runs", theme.TITLE), Segment(f"  {program()} runs", theme.DIM)]
    count: Line = [Segment(str(len(runs)), theme.DIM)]
    texts = [Segment(f"  {head}", theme.DIM), *(Segment(f"  {row}", theme.PLAIN) for row in rows)]
    return [rule(title, count, cells, theme.RULE), *(cut([text], cells) for text in texts)]
