"""Two runs side by side: what differs in what they were given, each measure with its interval, and what was learned."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style

from gpumon.model import units
from gpumon_tui import palette, theme
from gpumon_tui.renderables.attention import wrapped
from gpumon_tui.renderables.compared_curves import compared_curves
from gpumon_tui.renderables.compared_headline import headline_lines
from gpumon_tui.renderables.compared_settings import LETTERS, RUN, settings_lines
from gpumon_tui.renderables.section import HEAD, keys, margin, section
from gpumon_tui.renderables.text_width import SENTENCE, Line, cut, fit, length, safe, width
from gpumon_tui.run_reading.rows import WARM_UP

if TYPE_CHECKING:
    from gpumon_tui.run_reading.rows import ComparedRow, ComparedRuns

STRONG = palette.ink("strong", bold=True)
WORDS = 30
"""Cells of a difference in words."""
ENDS = (0.1, 0.2, 0.5, 1.0)
"""Where the axis of differences may end, as shares; larger ones have an arrow."""
PLOT_FROM = 24
GUIDES, GUIDES_FROM = (-1.0, -0.5, 0.0, 0.5, 1.0), 50
"""Shares of the axis of differences with a line, and the cells from which those between have one."""
AIRY, LARGE = 30, 40
"""Rows of the screen from which sections are apart, and from which a few numbers stand large above them."""
CURVES, MOST_CURVES = 10, 26
"""Rows of the curves, at least and at most."""


def compared(
    runs: ComparedRuns, cells: int, rows: int, *, has_equal: bool = False, has_colors: bool = True
) -> list[Line]:
    """Return the comparison, which may be longer than the `rows` of the screen; `has_equal`: equal settings too.

    The run in color is the one that is compared with the baseline; without colors the letter of each is on its line.
    """
    lines = [_title(runs, cells)]
    lines += [_who(runs, place, cells, has_colors=has_colors) for place in (1, 0)]
    airy = rows >= AIRY
    if rows >= LARGE and (large := headline_lines(runs, cells)):
        lines += [[], *large]
    lines += [[]] if airy else []
    lines += settings_lines(runs, cells, rows // 3, has_equal=has_equal)
    lines += [[]] if airy and runs.config else []
    lines += _measures(runs, cells)
    lines += [line for note in runs.notes for line in _said(note, theme.DIM, cells)]
    left = rows - len(lines) - 1
    most = max(CURVES, min(left, MOST_CURVES))
    drawn = compared_curves(runs, cells, most, has_letters=not has_colors)
    return [*lines, *([[], *drawn] if drawn else [])]


def _title(runs: ComparedRuns, cells: int) -> Line:
    other, base = runs.records[1].run, runs.records[0].run
    detail: Line = [
        Segment(safe(other.name), RUN), Segment("  with the baseline  ", theme.DIM), Segment(safe(base.name), STRONG),
    ]  # fmt: skip
    return section("Compare", detail, keys(("x", "swap"), ("Esc", "close")), cells)


def _who(runs: ComparedRuns, place: int, cells: int, *, has_colors: bool) -> Line:
    run, style = runs.records[place].run, RUN if place else STRONG
    texts = [
        "  ·  ".join((run.user or "unknown user", units.moment(run.started)[:16], count))
        for count in (runs.counts[place], runs.counts[place].removesuffix(WARM_UP), runs.counts[place].split(",")[0])
    ]
    line: Line = [
        Segment(" " * (margin(cells) + 1)),
        Segment(LETTERS[place], style),
        Segment(f" {'⠒⠒' if has_colors else f'⠒{LETTERS[place]}⠒'} ", RUN if place else theme.DIM),
        Segment(safe(run.id), style),
    ]
    room = cells - margin(cells)
    text = next((one for one in map(safe, texts) if length(line) + 2 + width(one) <= room), safe(texts[-1]))
    return cut([*line, Segment(f"  {text}", theme.DIM)], room)


def _measures(runs: ComparedRuns, cells: int) -> list[Line]:
    side = margin(cells)
    every = [*runs.rows, *runs.whole]
    if not every:
        return [[Segment(" " * (side + 1)), Segment("No value of these runs was measured.", theme.DIM)]]
    name = max(20, *(width(one.title) for one in every)) if cells >= 70 else 16
    value = max(8, *(width(text) for one in every for text in one.values))
    tells_values = cells >= 60
    words = min(WORDS, cells - 2 * side - name - (2 * value + 4 if tells_values else 0) - 2)
    wide = cells - 2 * side - name - 2 * value - words - 10
    wide = min(wide, 80) | 1 if wide >= PLOT_FROM else 0
    end = _end(every)
    lines: list[Line] = []
    for title, of in (
        ("median of epochs", runs.rows), ("whole run" if not runs.by_epochs else "of whole runs", runs.whole),
    ):  # fmt: skip
        if not of:
            continue
        head: Line = [Segment(" " * side + fit(title, name), HEAD)]
        if tells_values:
            head.append(Segment("  " + fit("B", value, right=True), HEAD + RUN))
            head.append(Segment("  " + fit("A", value, right=True), HEAD))
        head.append(Segment("  " + fit("B − A", words), HEAD))
        head += [Segment("  " + _ends(end, wide), HEAD)] if wide else []
        lines.append([*cut(head, cells), Segment(" " * max(0, cells - length(head)), HEAD)])
        for one in of:
            row: Line = [Segment(" " * side + fit(one.title, name), theme.PLAIN)]
            if tells_values:
                row.append(Segment("  " + fit(one.values[1], value, right=True), STRONG))
                row.append(Segment("  " + fit(one.values[0], value, right=True), theme.DIM))
            told = in_cells((one.verdict, *one.briefs), words)
            row.append(Segment("  " + fit(told, words), STRONG if one.is_clear else theme.DIM))
            lines.append(cut([*row, Segment("  "), *_interval(one, end, wide)] if wide else row, cells))
    if not runs.by_epochs:
        return [*lines, *_said("One value of each: a single value has no confidence interval.", theme.FAINT, cells)]
    if not any(isfinite(one.low) for one in runs.rows):
        return lines  # a note says why
    text = f"In brackets{' and as a line' if wide else ''}: 95 % interval of the difference, by the epochs of each run."
    return [*lines, *_said(text, theme.FAINT, cells)]


def in_cells(forms: Sequence[str], cells: int) -> str:
    """Return the longest of some words that has room: a number or a sentence that is cut says something else."""
    return next((one for one in forms if width(one) <= cells), forms[-1])


def _said(text: str, style: Style, cells: int) -> list[Line]:
    """A sentence in as many lines as it needs: its end says as much as its beginning."""
    indent = margin(cells) + 1
    found = wrapped(safe(text, SENTENCE), max(1, cells - indent - margin(cells)))
    return [[Segment(" " * (indent + 2 * bool(place))), Segment(part, style)] for place, part in enumerate(found)]


def _end(every: Sequence[ComparedRow]) -> float:
    largest = max((abs(one.share) for one in every if isfinite(one.share)), default=0.0)
    return next((end for end in ENDS if largest <= end), ENDS[-1])


def _place(share: float, end: float, wide: int) -> int:
    half = wide // 2
    return half + round(max(-1.0, min(1.0, share / end)) * half)


def _ends(end: float, wide: int) -> str:
    text = [" "] * wide
    for share in GUIDES if wide >= GUIDES_FROM else (-1.0, 0.0, 1.0):
        word = f"{share * end * 100:+.4g} %".replace("-", "−") if share else "0"
        begin = max(0, min(wide - len(word), _place(share, 1.0, wide) - len(word) // 2))
        text[begin : begin + len(word)] = word
    return "".join(text)


def _interval(one: ComparedRow, end: float, wide: int) -> Line:
    """The difference as a dot, and its interval as a line, on an axis from -`end` to `end`."""
    cells = [" "] * wide
    styles: list[Style] = [theme.RULE] * wide
    for share in GUIDES if wide >= GUIDES_FROM else (-1.0, 0.0, 1.0):
        at = _place(share, 1.0, wide)
        cells[at], styles[at] = ("│", theme.FAINT) if not share else ("╎", theme.RULE)
    if isfinite(one.share):
        style = RUN if one.is_clear else theme.DIM
        if isfinite(one.low):
            for at in range(_place(one.low, end, wide), _place(one.high, end, wide) + 1):
                cells[at], styles[at] = "─", style
        at = _place(one.share, end, wide)
        cells[at], styles[at] = ("▸" if one.share > end else "◂" if one.share < -end else "●"), style
    line: Line = []
    for text, style in zip(cells, styles, strict=True):
        if line and line[-1].style == style:
            line[-1] = Segment(line[-1].text + text, style)
        else:
            line.append(Segment(text, style))
    return line
