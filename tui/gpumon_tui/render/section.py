"""Title lines of sections, and blocks side by side."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment

from gpumon_tui import palette, theme
from gpumon_tui.render.table import GAP, hidden_counts, margin
from gpumon_tui.render.text_width import Line, cut, length

NAME = palette.ink("strong", bold=True)
HEAD = palette.ink("dim", "panel")
KEY = palette.ink("key", bold=True)


def section(name: str, detail: Line, right: Line, cells: int, *, hairline: bool = True) -> Line:
    """Return a title line: name, details, a hairline, and keys at the right."""
    left_margin = margin(cells)
    left: Line = [Segment(" " * left_margin), Segment(name, NAME), *([Segment("  "), *detail] if detail else [])]
    room = cells - 2 * left_margin - length(left) + left_margin - (length(right) + GAP if right else 0)
    if room < 0 and right:
        return section(name, detail, [], cells, hairline=hairline)
    if room < 0:
        return cut(left, cells - left_margin)
    hairline_segment = Segment(" " + "─" * (room - 1) + " " if hairline and room > 2 else " " * (room + 1), theme.RULE)
    return [*left, hairline_segment, *([Segment(" " * (GAP - 1)), *right] if right else [])]


def section_head(name: str, detail: Line, key_hint: Line, cells: int, left_margin: int) -> Line:
    """Return the line with a section's name, `left_margin` cells from the edges; `key_hint`: key that opens more."""
    head: Line = [Segment(" " * left_margin), Segment(name, NAME)]
    if detail:
        head += [Segment("  "), *detail]
    end = cells - left_margin
    room = end - length(head) - length(key_hint) - 1
    if room < 3:
        key_hint, room = [], end - length(head) - 1
    if room < 1:
        return cut(head, end)
    if not key_hint:
        return [*head, Segment(" "), Segment("─" * room, theme.RULE)]
    return [*head, Segment(" "), Segment("─" * (room - 1), theme.RULE), Segment(" "), *key_hint]


def keys(*pairs: tuple[str, str]) -> Line:
    """Return keys with their descriptions, for a title line."""
    line: Line = []
    for key, description in pairs:
        line += [Segment("   " if line else ""), Segment(key, KEY), Segment(f" {description}", theme.DIM)]
    return line


def hidden_rows(below: int, above: int, cells: int) -> Line:
    """Return the numbers of rows above and below the visible ones."""
    return [Segment(" " * (margin(cells) + 1)), Segment(hidden_counts(above, below), theme.TITLE)]


def side_by_side(left: Sequence[Line], right: Sequence[Line], cells: int, right_cells: int) -> list[Line]:
    """Join two blocks: the left one of width `cells`, the right one of at most `right_cells`."""
    lines = []
    for row in range(max(len(left), len(right))):
        left_line = left[row] if row < len(left) else []
        right_line = right[row] if row < len(right) else []
        lines.append(
            [*left_line, Segment(" " * (cells - length(left_line))), *cut(right_line, right_cells)]
            if right_line
            else left_line
        )
    return lines
