"""Partial updates that send only the changed cells, and of their styles only what changes from cell to cell.

Textual 8 begins each changed range at the first cell of its widget; on a line of cards that is most of
the line, and most of what goes to the terminal. It has no public hook for this.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from rich.color import ColorSystem
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, CompositorUpdate
from textual.strip import Strip

from gpumon_tui.renderables.text_width import is_narrow, width

PLAIN = Style.null()
LETTERS = ("bold", "dim", "italic", "underline", "blink", "reverse", "strike")
"""All that a style of gpumon or of its help may have beside its colors."""


class CellDiffUpdate(CompositorUpdate):
    """The ranges of a partial update, each from its own first cell."""

    def __init__(self, update: ChopsUpdate) -> None:
        self._update = update

    def render_segments(self, console: Console) -> str:
        """Return the escape sequences and the text for the terminal."""
        update = self._update
        parts: list[str] = []
        ink = PLAIN
        colors = getattr(console, "_color_system", None) or ColorSystem.TRUECOLOR
        for row, begin, end in update.spans:
            for right, (left, strip) in zip(update.chop_ends[row], update.chops[row].items(), strict=False):
                if strip is None or left >= end or right <= begin:
                    continue
                first, last = max(left, begin), min(right, end)
                parts.append(f"\x1b[{row + 1};{first + 1}H")
                for text, style in _cells(strip, first - left, last - left):
                    new = style or PLAIN
                    if new is not ink:
                        parts.append(_change(ink, new, colors))
                        ink = new
                    parts.append(text)
        if ink is not PLAIN:
            parts.append("\x1b[0m")
        return "".join(parts)


@lru_cache(maxsize=1024)
def _change(old: Style, new: Style, colors: ColorSystem) -> str:
    """From one style to another: colors are most of what is sent, and one of the two is often the same."""
    if old == new:
        return ""
    if _letters(old) != _letters(new) or (old.color and not new.color) or (old.bgcolor and not new.bgcolor):
        full = Strip.render_ansi(new, colors)
        return f"\x1b[0;{full}m" if full else "\x1b[0m"
    codes: list[str] = []
    if new.color and new.color != old.color:
        codes += new.color.downgrade(colors).get_ansi_codes()
    if new.bgcolor and new.bgcolor != old.bgcolor:
        codes += new.bgcolor.downgrade(colors).get_ansi_codes(foreground=False)
    return f"\x1b[{';'.join(codes)}m" if codes else ""


def _letters(style: Style) -> tuple[bool, ...]:
    """Bold, underlined and so on."""
    return tuple(bool(getattr(style, name)) for name in LETTERS)


def _cells(strip: Strip, first: int, last: int) -> Iterator[tuple[str, Style | None]]:
    """The segments of some cells; `Strip.crop` would make a strip with all its caches for each range."""
    begin = 0
    for segment in strip:
        text, style, _ = segment
        end = begin + width(text)
        if end > first:
            if begin < first or end > last:
                text = _part(segment, max(0, first - begin), last - begin)
            yield text, style
        if end >= last:
            return
        begin = end


def _part(segment: Segment, first: int, last: int) -> str:
    """The text of some cells; where letters are cells, Rich need not look for the place."""
    if is_narrow(segment.text):
        return segment.text[first:last]
    return segment.split_cells(last)[0].split_cells(first)[1].text


def cell_diff(renderable: RenderableType | None) -> Any:
    """Return a partial update that sends changed cells only; anything else unchanged."""
    return CellDiffUpdate(renderable) if isinstance(renderable, ChopsUpdate) else renderable
