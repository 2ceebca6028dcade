"""Escape sequences for changed cells: a cursor movement for each range, and between cells only changes of the style."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style

from gpumon_tui.render.text_width import is_narrow, width

PLAIN = Style.null()
ATTRIBUTES = {"bold": "1", "dim": "2", "italic": "3", "underline": "4", "blink": "5", "reverse": "7", "strike": "9"}
"""Text attributes used by styles of gpumon and of its help, with their SGR codes."""
Pieces = Iterable[tuple[str, Style | None]]


class CellWriter:
    """Writes cells at positions on the screen."""

    def __init__(self, colors: ColorSystem) -> None:
        self._colors = colors
        self._parts: list[str] = []
        self._style = PLAIN

    def write(self, row: int, column: int, pieces: Pieces, first: int, last: int) -> None:
        """Write the cells from `first` up to `last` of some pieces at a row and column, counted from 0."""
        parts, current = self._parts, self._style
        parts.append(f"\x1b[{row + 1};{column + 1}H")
        for text, style in _cells(pieces, first, last):
            next_style = style or PLAIN
            if next_style is not current:
                parts.append(_style_change(current, next_style, self._colors))
                current = next_style
            parts.append(text)
        self._style = current

    def output(self) -> str:
        """Return the output, ending with a reset of the style."""
        return "".join(self._parts) + ("" if self._style is PLAIN else "\x1b[0m")


@lru_cache(maxsize=1024)
def _style_change(old_style: Style, new_style: Style, colors: ColorSystem) -> str:
    """Return the change between two styles. Colors are most of the output, and often one of the two stays the same."""
    if old_style == new_style:
        return ""
    if (
        _attributes(old_style) != _attributes(new_style)
        or (old_style.color and not new_style.color)
        or (old_style.bgcolor and not new_style.bgcolor)
    ):
        codes = ["0", *(code for name, code in ATTRIBUTES.items() if getattr(new_style, name))]
        old_style = PLAIN
    else:
        codes = []
    if new_style.color and new_style.color != old_style.color:
        codes += new_style.color.downgrade(colors).get_ansi_codes()
    if new_style.bgcolor and new_style.bgcolor != old_style.bgcolor:
        codes += new_style.bgcolor.downgrade(colors).get_ansi_codes(foreground=False)
    return f"\x1b[{';'.join(codes)}m" if codes else ""


def _attributes(style: Style) -> tuple[bool, ...]:
    """Return the text attributes: bold, underline and so on."""
    return tuple(bool(getattr(style, name)) for name in ATTRIBUTES)


def _cells(pieces: Pieces, first: int, last: int) -> Iterator[tuple[str, Style | None]]:
    """Return the pieces within a range of cells; `Strip.crop` would create a strip with all its caches for each
    range.
    """
    begin = 0
    for text, style in pieces:
        end = begin + width(text)
        if end > first:
            if begin < first or end > last:
                text = _part(text, max(0, first - begin), last - begin)
            yield text, style
        if end >= last:
            return
        begin = end


def _part(text: str, first: int, last: int) -> str:
    """Return the text within a range of cells; if every character is one cell wide, it is sliced without Rich."""
    if is_narrow(text):
        return text[first:last]
    return Segment(text).split_cells(last)[0].split_cells(first)[1].text
