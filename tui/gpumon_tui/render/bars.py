"""Bars for a share or a memory size, and large numerals."""

from __future__ import annotations

from math import isfinite

from rich.segment import Segment
from rich.style import Style

from gpumon.analysis.memory import THIS_RUN, breakdown_of, known_parts
from gpumon.model.frame import Sample
from gpumon_tui import theme
from gpumon_tui.render.text_width import Line

FULL, HALF, TRACK = "▄", "▃", "▁"
"""Half of a cell is drawn as a lower block, not a narrower one, which would leave a gap before the track."""
MIN_SHARE = 0.005
"""Minimum share for which anything is drawn; smaller ones are displayed as 0 next to the bar."""


def bar(share: float, cells: int, style: Style) -> Line:
    """Return a bar with `share` of `cells` filled, to half a cell; a dotted track if the share is NaN or infinite."""
    if cells <= 0:
        return []
    if not isfinite(share):
        return [Segment("┈" * cells, theme.TRACK)]
    filled = bar_text(share, cells).rstrip(TRACK)
    return [Segment(filled, style), Segment(TRACK * (cells - len(filled)), theme.TRACK)]


def bar_text(share: float, cells: int) -> str:
    """Return the same bar as plain text."""
    if not isfinite(share):
        return "┈" * cells
    halves = round(min(max(share, 0.0), 1.0) * 2 * cells)
    if share >= MIN_SHARE:
        halves = max(1, halves)
    full, half = divmod(halves, 2)
    return (FULL * full + HALF * half).ljust(cells, TRACK)


def progress_line(share: float, cells: int, style: Style, track: Style = theme.TRACK) -> Line:
    """Return progress as a heavy line, to half a cell; an empty track if it is unknown."""
    halves = round(min(1.0, max(0.0, share)) * 2 * cells) if isfinite(share) else 0
    done = "━" * (halves // 2) + "╸" * (halves % 2)
    line = [Segment(done, style), Segment("━" * (cells - len(done)), track)]
    return [segment for segment in line if segment.text]


CELL = "▆"
"""Lower than a full block, so that rows do not touch."""
TINTS = {
    "allocated": theme.tint("memory", 0.62),
    "cached": theme.tint("memory", 0.30),
    "context": theme.tint("memory", 0.18),
    "others": theme.tint("power", 0.34),
    "free": theme.ink("track"),
    "driver": theme.ink("track"),
}
"""Parts of memory, by the fields of `MemoryBreakdown`."""
WHOLE = theme.tint("memory", 0.45)
"""Memory whose use is unknown."""


def tint(name: str, title: str, *, is_whole: bool) -> Style:
    """Return the style of a part; `is_whole`: it is the only used part, because no run is available."""
    if title == THIS_RUN or (is_whole and name == "others"):
        return WHOLE
    return TINTS[name]


def used_parts(sample: Sample) -> list[tuple[float, Style]]:
    """Return sizes (bytes) and styles of the used parts, in the order of the bar; empty if unknown."""
    breakdown = breakdown_of(sample)
    if breakdown is None:
        return []
    parts = [(part, size) for part, size in known_parts(breakdown) if part.name not in ("free", "driver")]
    is_whole = len(parts) == 1
    return [(size, tint(part.name, part.title, is_whole=is_whole)) for part, size in parts]


def memory_bar(sample: Sample, cells: int) -> Line:
    """Draw used memory as a share of the total in `cells` cells; without values the line is empty, without even an
    unfilled bar.
    """
    total = sample.value("gpu.memory_total")
    parts = used_parts(sample)
    if not parts or not (isfinite(total) and total > 0):
        return []
    line: Line = []
    position, drawn_cells = 0.0, 0
    for size, style in parts:
        position += size
        end = min(cells, max(drawn_cells, round(position * cells / total)))
        if end > drawn_cells:
            line.append(Segment(CELL * (end - drawn_cells), style))
            drawn_cells = end
    if drawn_cells < cells:
        line.append(Segment(CELL * (cells - drawn_cells), TINTS["free"]))
    return line


_FONT = {
    "0": "111101101101111", "1": "010110010010111", "2": "111001111100111", "3": "111001111001111",
    "4": "101101111001001", "5": "111100111001111", "6": "111100111101111", "7": "111001001001001",
    "8": "111101111101111", "9": "111101111001111", "–": "000000111000000", ".": "00001",
}  # fmt: skip
"""Pixels of each character, five rows from the top."""
_HALVES = {"00": " ", "10": "▀", "01": "▄", "11": "█"}
ROWS = 3


def numerals(text: str) -> list[str]:
    """Return a number in three rows; characters other than digits, dot and dash are left out."""
    letters = [_letter(_FONT[letter]) for letter in text if letter in _FONT]
    return [" ".join(rows) for rows in zip(*letters, strict=True)] if letters else [""] * ROWS


def _letter(points: str) -> list[str]:
    pixel_columns = len(points) // 5
    rows = [points[index : index + pixel_columns] for index in range(0, len(points), pixel_columns)] + [
        "0" * pixel_columns
    ]
    return [
        "".join(_HALVES[upper + lower] for upper, lower in zip(rows[index], rows[index + 1], strict=True))
        for index in (0, 2, 4)
    ]
