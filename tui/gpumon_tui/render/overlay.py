"""A box of lines drawn over a dimmed page."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style

from gpumon_tui import palette
from gpumon_tui.render.text_width import Line, cut, length

FADED = palette.tint("dim", 0.6)
_PANEL = Style(bgcolor=palette.color("panel"))


def overlay(page: Sequence[Line], box: Sequence[Line], cells: int, edge: str = "key") -> tuple[list[Line], int, int]:
    """Return the page with a box in its middle, and the first cell and row of the box.

    `edge` is the role of the box's left border. A box larger than the page is truncated.
    """
    box_cells = min(cells, max((length(line) for line in box), default=0) + 4)
    left, top = (cells - box_cells) // 2, max(0, (len(page) - len(box) - 2) // 2)
    blank: Line = []
    inner = [blank, *box, blank][: max(0, len(page) - top)]
    lines = [_faded(line) for line in page]
    for row, line in enumerate(inner, top):
        text_line = cut(line, box_cells - 4)
        body = [Segment(text, _PANEL + style if style else _PANEL) for text, style, _ in text_line]
        fill = Segment(" " * (box_cells - 2 - length(text_line)), _PANEL)
        bar = Segment("▌", palette.ink(edge, "panel"))
        left_part, right_part = _window(lines[row], 0, left), _window(lines[row], left + box_cells, cells)
        lines[row] = [*left_part, bar, Segment(" ", _PANEL), *body, fill, *right_part]
    return lines, left + 2, top + 1


def _faded(line: Line) -> Line:
    return [Segment("".join(text for text, _, _ in line), FADED)]


def _window(line: Line, begin: int, end: int) -> Line:
    """Return a range of cells of a faded line; half of a wide character becomes a blank."""
    if end <= begin:
        return []
    text = line[0].text if line else ""
    letters, position = [], 0
    for letter in text:
        letter_cells = length([Segment(letter)])
        if begin <= position and position + letter_cells <= end:
            letters.append(letter)
        elif position < end and position + letter_cells > begin:
            letters.append(" " * (min(position + letter_cells, end) - max(position, begin)))
        position += letter_cells
    return [Segment("".join(letters) + " " * max(0, end - max(position, begin)), FADED)]
