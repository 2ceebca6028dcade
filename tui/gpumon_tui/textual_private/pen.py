"""Escape sequences for runs of cells; between cells, only changes of the style are sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style

from gpumon_tui.render.text_width import is_narrow, width

if TYPE_CHECKING:
    from rich.console import Console

PLAIN = Style.null()
LETTERS = {"bold": "1", "dim": "2", "italic": "3", "underline": "4", "blink": "5", "reverse": "7", "strike": "9"}
"""Text attributes used by styles of gpumon and of its help, with their SGR codes."""
Pieces = Iterable[tuple[str, Style | None]]


def colors_of(console: Console) -> ColorSystem:
    """Return the color system of a console."""
    return getattr(console, "_color_system", None) or ColorSystem.TRUECOLOR


class Pen:
    """Writes cells at positions on the screen."""

    def __init__(self, colors: ColorSystem) -> None:
        self._colors = colors
        self._parts: list[str] = []
        self._ink = PLAIN

    def write(self, row: int, column: int, pieces: Pieces, first: int, last: int) -> None:
        """Write the cells from `first` up to `last` of some pieces at a row and column, counted from 0."""
        parts, ink = self._parts, self._ink
        parts.append(f"\x1b[{row + 1};{column + 1}H")
        for text, style in _cells(pieces, first, last):
            new = style or PLAIN
            if new is not ink:
                parts.append(_change(ink, new, self._colors))
                ink = new
            parts.append(text)
        self._ink = ink

    def written(self) -> str:
        """Return the output, ending with a reset of the style."""
        return "".join(self._parts) + ("" if self._ink is PLAIN else "\x1b[0m")


@lru_cache(maxsize=1024)
def _change(old: Style, new: Style, colors: ColorSystem) -> str:
    """Return the change between two styles. Colors are most of the output, and often one of the two stays the same."""
    if old == new:
        return ""
    if _letters(old) != _letters(new) or (old.color and not new.color) or (old.bgcolor and not new.bgcolor):
        codes = ["0", *(code for name, code in LETTERS.items() if getattr(new, name))]
        old = PLAIN
    else:
        codes = []
    if new.color and new.color != old.color:
        codes += new.color.downgrade(colors).get_ansi_codes()
    if new.bgcolor and new.bgcolor != old.bgcolor:
        codes += new.bgcolor.downgrade(colors).get_ansi_codes(foreground=False)
    return f"\x1b[{';'.join(codes)}m" if codes else ""


def _letters(style: Style) -> tuple[bool, ...]:
    """Return the text attributes: bold, underline and so on."""
    return tuple(bool(getattr(style, name)) for name in LETTERS)


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
