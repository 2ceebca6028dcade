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
from gpumon_tui.render.table import margin, section_head
from gpumon_tui.render.text_width import Line, cut, safe

if TYPE_CHECKING:
    from gpumon.storage.ledger.records import RunSummary

DRIVER_FILES = "; ".join(vendor.looked_for for vendor in VENDORS if vendor.looked_for)
RETRY_NOTE = "gpumon looks again every few seconds; this page changes by itself."
MAX_PAST = 6
"""Maximum number of past runs shown."""
COMMAND = re.compile(r"(?<!\w)'([^']+)'")
"""A command in quotes within a sentence."""
TITLE_CELLS = 12
"""Width of the titles before texts."""
WIDE = 70
"""Page width from which titles are placed before texts."""


class _Paragraph(NamedTuple):
    """A paragraph of the page."""

    title: str
    text: str
    style: Style = theme.DIM
    mark: Style | None = None
    """Style of a title that is a mark or a key; other titles are dim."""
    has_title_column: bool = False
    """Whether it is placed to the right of a title."""
    keep: int = 9
    """Priority: the larger, the longer it is kept when there is no room."""


def problem_lines(
    origin: Origin, *, hostname: str, simulation: bool, run_count: int, cells: int, rows: int
) -> list[Line]:  # fmt: skip
    """Return why there is no GPU, in at most `rows` lines.

    `simulation`: whether a key starts one; `run_count`: the number of recorded runs.
    """
    host = f" on {safe(hostname)}" if hostname else ""
    is_live = Capability.LIVE in origin.capabilities
    paragraphs = [_Paragraph("", f"No GPU can be read{host}", theme.STRONG)]
    paragraphs += [_Paragraph("", RETRY_NOTE, keep=3), _Paragraph("", "", keep=1)] if is_live else []
    if origin.problem:
        paragraphs.append(_Paragraph("▲", safe(origin.problem), theme.PLAIN, theme.CRITICAL, has_title_column=True))
    if is_live:
        instructions = [] if origin.lacks_card else [vendor.for_driver for vendor in VENDORS]
        instructions = [text for text in (*instructions, *(vendor.for_container for vendor in VENDORS)) if text]
        paragraphs += [
            _Paragraph("try" if not index else "", text, has_title_column=True, keep=6)
            for index, text in enumerate(instructions)
        ]
        paragraphs.append(
            _Paragraph("", f"'{program()} doctor' checks each part, and names the cause", has_title_column=True, keep=4)
        )
        paragraphs.append(_Paragraph("looked for", DRIVER_FILES, has_title_column=True, keep=2))
    meanwhile = [
        _Paragraph(
            "s",
            "a simulation: GPUs with trainings on them, to look around",
            mark=theme.TITLE,
            has_title_column=True,
            keep=8,
        )
    ]
    meanwhile = meanwhile if simulation else []
    if run_count:
        meanwhile.append(
            _Paragraph(
                "4",
                f"{units.counted(run_count, 'past run')} of this machine",
                mark=theme.TITLE,
                has_title_column=True,
                keep=7,
            )
        )
    if meanwhile:
        paragraphs += [_Paragraph("", "", keep=1), _Paragraph("", "Meanwhile", theme.STRONG, keep=4), *meanwhile]
    while len(paragraphs) > 1 and sum(len(_lines(paragraph, cells)) for paragraph in paragraphs) > rows:
        paragraphs.remove(min(paragraphs, key=lambda paragraph: paragraph.keep))
    return [line for paragraph in paragraphs for line in _lines(paragraph, cells)]


def waiting_lines(text: str, cells: int) -> list[Line]:
    """Return the lines shown before the first frame."""
    return _lines(_Paragraph("", safe(text), theme.PLAIN), cells)


def _lines(paragraph: _Paragraph, cells: int) -> list[Line]:
    """Wrap a paragraph; commands in quotes are highlighted."""
    left_margin, has_titles = margin(cells) + 1, cells >= WIDE
    indent = 0 if not paragraph.has_title_column else TITLE_CELLS if has_titles else 3 if paragraph.mark else 0
    title = paragraph.title if has_titles or paragraph.mark else ""
    text = COMMAND.sub("\x01\\1\x01", paragraph.text)
    lines: list[Line] = []
    is_command = False
    for row, part in enumerate(wrap(text, max(20, cells - left_margin - indent - 1), break_on_hyphens=False) or [""]):
        line: Line = [Segment(" " * left_margin)]
        if indent:
            line.append(Segment(f"{'' if row else title:<{indent}}", paragraph.mark or theme.FAINT))
        for index, piece in enumerate(part.split("\x01")):
            is_command = not is_command if index else is_command
            if piece:
                line.append(Segment(piece, theme.TITLE if is_command else paragraph.style))
        lines.append(line)
    return lines


def past_runs(runs: Sequence[RunSummary], now: float, cells: int) -> list[Line]:
    """Return the newest runs of the ledger with a title; empty if there are none."""
    if not runs:
        return []
    from gpumon.reports.run_list import lines

    left_margin = margin(cells)
    heading, *rows = lines(runs[:MAX_PAST], now, cells - 2 * left_margin - 1)
    texts = [Segment(f"{heading}", theme.HEADING), *(Segment(row, theme.PLAIN) for row in rows)]
    detail: Line = [Segment(f"{len(runs)}   {program()} runs", theme.DIM)]
    key_hint: Line = [Segment("4", theme.TITLE), Segment(" all runs", theme.DIM)]
    title = section_head("Past runs", detail, key_hint, cells, left_margin)
    return [title, *(cut([Segment(" " * (left_margin + 1)), text], cells) for text in texts)]
