"""A line whose texts stand at cells of their own: what has no room is cut, and moves nothing else."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style

from gpumon_tui.renderables.text_width import Line, cut, width

Piece = tuple[int, str, Style]
"""First cell, text, style."""


class Placed:
    """Texts by their first cell, in any order."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []

    def put(self, at: int, text: str, style: Style) -> int:
        """Put `text` at a cell; return the cell after it."""
        if text:
            self.pieces.append((at, text, style))
        return at + width(text)

    def right(self, end: int, text: str, style: Style) -> int:
        """Put `text` so that it ends before cell `end`; return where it begins."""
        begin = end - width(text)
        self.put(begin, text, style)
        return begin

    def segments(self, at: int, line: Line) -> int:
        """Put the segments of a line one after the other; return the cell after them."""
        for text, style, _ in line:
            at = self.put(at, text, style or Style.null())
        return at


def drawn(pieces: list[Piece], cells: int, ground: Style | None = None) -> Line:
    """Return the line of `cells` cells; `ground` lies under all of it but its first and its last cell."""
    line: Line = []
    at = 0
    for begin, text, style in sorted(pieces, key=_begin):
        if begin < at:
            text, begin = text[at - begin :], at  # never under what stands before it
        if not text or begin >= cells:
            continue
        if begin > at:
            _pad(line, at, begin, ground)
        line.append(Segment(text, style + ground if ground and begin else style))
        at = begin + width(text)
    if at > cells:
        return cut(line, cells)
    if ground and at < cells - 1:
        _pad(line, at, cells - 1, ground)
    return line


def _pad(line: Line, at: int, end: int, ground: Style | None) -> None:
    if ground and at == 0:
        line.append(Segment(" "))
        at = 1
    if end > at:
        line.append(Segment(" " * (end - at), ground))


def _begin(piece: Piece) -> int:
    return piece[0]
