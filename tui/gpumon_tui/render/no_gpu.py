"""Shown in place of the GPUs if none can be read: the reason, what to do, and what works without one.

For many users this is the first screen they see.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, NamedTuple

from rich.segment import Segment
from rich.style import Style

from gpumon.common.program import program
from gpumon.model import units
from gpumon.model.origin import Capability, Origin
from gpumon.model.vendors import VENDORS
from gpumon_tui import theme
from gpumon_tui.render.lean_section import margin, section_head
from gpumon_tui.render.text_width import Line, cut, safe

if TYPE_CHECKING:
    from gpumon.storage.ledger.records import RunSummary

LOOKED_FOR = "; ".join(vendor.looked_for for vendor in VENDORS if vendor.looked_for)
TO_DO = tuple(text for vendor in VENDORS for text in vendor.to_do)
NO_GPU = "is on the PCI bus"
AGAIN = "gpumon looks again every few seconds; this page changes by itself."
MOST_PAST = 6
"""Maximum number of past runs shown."""
COMMAND = re.compile(r"(?<!\w)'([^']+)'")
"""A command in quotes within a sentence."""
TITLES = 12
"""Width of the titles before texts."""
WIDE = 70
"""Page width from which titles are placed before texts."""


class _Said(NamedTuple):
    """A text of the page."""

    title: str
    text: str
    style: Style = theme.DIM
    mark: Style | None = None
    """Style of a title that is a mark or a key; other titles are dim."""
    is_beside: bool = False
    """Whether it is placed to the right of a title."""
    keep: int = 9
    """Priority: the larger, the longer it is kept when there is no room."""


def problem(
    origin: Origin, *, hostname: str, simulation: bool, past: int, cells: int, rows: int
) -> list[Line]:  # fmt: skip
    """Return why there is no GPU, in at most `rows` lines.

    `simulation`: whether a key starts one; `past`: the number of known runs.
    """
    host = f" on {safe(hostname)}" if hostname else ""
    is_live = Capability.LIVE in origin.capabilities
    said = [_Said("", f"No GPU can be read{host}", theme.STRONG)]
    said += [_Said("", AGAIN, keep=3), _Said("", "", keep=1)] if is_live else []
    if origin.problem:
        said.append(_Said("▲", safe(origin.problem), theme.PLAIN, theme.CRITICAL, is_beside=True))
    if is_live:
        # If there is no card in the machine, a driver does not help.
        to_do = [text for text in TO_DO if not (NO_GPU in origin.problem and text.startswith("with a"))]
        said += [_Said("try" if not place else "", text, is_beside=True, keep=6) for place, text in enumerate(to_do)]
        said.append(_Said("", f"'{program()} doctor' checks each part, and names the cause", is_beside=True, keep=4))
        said.append(_Said("looked for", LOOKED_FOR, is_beside=True, keep=2))
    meanwhile = [
        _Said(
            "s", "a simulation: GPUs with trainings on them, to look around", mark=theme.TITLE, is_beside=True, keep=8
        )
    ]
    meanwhile = meanwhile if simulation else []
    if past:
        meanwhile.append(
            _Said("4", f"{units.counted(past, 'past run')} of this machine", mark=theme.TITLE, is_beside=True, keep=7)
        )
    if meanwhile:
        said += [_Said("", "", keep=1), _Said("", "Meanwhile", theme.STRONG, keep=4), *meanwhile]
    while len(said) > 1 and sum(len(_lines(one, cells)) for one in said) > rows:
        said.remove(min(said, key=lambda one: one.keep))
    return [line for one in said for line in _lines(one, cells)]


def waiting(text: str, cells: int) -> list[Line]:
    """Return the lines shown before the first frame."""
    return _lines(_Said("", safe(text), theme.PLAIN), cells)


def _lines(said: _Said, cells: int) -> list[Line]:
    """Wrap a text; commands in quotes are highlighted."""
    left, has_titles = margin(cells) + 1, cells >= WIDE
    indent = 0 if not said.is_beside else TITLES if has_titles else 3 if said.mark else 0
    head = said.title if has_titles or said.mark else ""
    text = COMMAND.sub("\x01\\1\x01", said.text)
    found: list[Line] = []
    is_command = False
    for place, part in enumerate(wrap(text, max(20, cells - left - indent - 1), break_on_hyphens=False) or [""]):
        line: Line = [Segment(" " * left)]
        if indent:
            line.append(Segment(f"{'' if place else head:<{indent}}", said.mark or theme.FAINT))
        for at, piece in enumerate(part.split("\x01")):
            is_command = not is_command if at else is_command
            if piece:
                line.append(Segment(piece, theme.TITLE if is_command else said.style))
        found.append(line)
    return found


def past(runs: Sequence[RunSummary], now: float, cells: int) -> list[Line]:
    """Return the newest runs of the ledger with a title; empty if there are none."""
    if not runs:
        return []
    from gpumon.reports.run_tables import lines

    left = margin(cells)
    head, *rows = lines(runs[:MOST_PAST], now, cells - 2 * left - 1)
    texts = [Segment(f"{head}", theme.HEADING), *(Segment(row, theme.PLAIN) for row in rows)]
    detail: Line = [Segment(f"{len(runs)}   {program()} runs", theme.DIM)]
    more: Line = [Segment("4", theme.TITLE), Segment(" all runs", theme.DIM)]
    title = section_head("Past runs", detail, more, cells, left)
    return [title, *(cut([Segment(" " * (left + 1)), text], cells) for text in texts)]
