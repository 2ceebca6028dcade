"""Comparison of two runs: headlines in large numbers, the table of differences with intervals, curves and settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

from rich.segment import Segment
from rich.style import Style

from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon_tui import palette, theme
from gpumon_tui.data.run_rows import WARM_UP
from gpumon_tui.render.compare_curves import compared_curves
from gpumon_tui.render.compare_settings import LETTERS, RUN, settings_lines
from gpumon_tui.render.findings import wrapped
from gpumon_tui.render.numerals import ROWS, numerals
from gpumon_tui.render.section import HEAD, NAME, keys, margin, section
from gpumon_tui.render.text_width import SENTENCE, Line, cut, fit, length, safe, width

if TYPE_CHECKING:
    from gpumon_tui.data.run_rows import ComparedRow, ComparedRuns


LEAST = 28
"""Minimum width of a headline."""
HEIGHT = ROWS + 3
_CLEAR, _QUIET = palette.ink("run", bold=True), palette.ink("dim", bold=True)


class Headline(NamedTuple):
    """A number of the other run relative to the baseline."""

    number: str
    """Digits and a dot."""
    unit: str
    what: str
    """Description: `less energy an epoch`."""
    detail: str
    """Both values."""
    is_clear: bool


def headlines(runs: ComparedRuns) -> Iterator[Headline]:
    """Yield the known headlines, most important first; differences within the variation between epochs are left to
    the table.
    """
    rows = {one.name: one for one in (runs.rows if runs.by_epochs else runs.whole) if not _is_unclear(one)}
    each = " an epoch" if runs.by_epochs else ""
    if (time := rows.get("seconds")) and is_known(time.share) and time.share > -1:
        yield _time(time, each)
    if (energy := rows.get("energy")) and is_known(energy.share):
        yield _percent(energy, f"energy{each}")
    if learned := _learned(runs):
        yield learned
    if (memory := rows.get("memory_used_peak")) and is_known(memory.share):
        number, _, unit = memory.difference.partition(" ")
        number, unit = (number, unit) if memory.share else ("0", memory.values[1].partition(" ")[2])
        yield _headline(memory, number, unit, f"{_direction(memory.share)} memory")


def headline_lines(runs: ComparedRuns, cells: int) -> list[Line]:
    """Return the headlines side by side in `HEIGHT` rows, as many as fit; empty if nothing is known."""
    side = margin(cells)
    shown = list(headlines(runs))[: (cells - 2 * side) // LEAST]
    if not shown:
        return []
    wide = (cells - 2 * side) // len(shown)
    blocks = [_block(one, wide - 2) for one in shown]
    return [_beside([block[row] for block in blocks], wide, side + 1) for row in range(HEIGHT)]


def _time(one: ComparedRow, each: str) -> Headline:
    is_faster = one.share < 0
    factor = 1 / (1 + one.share) if is_faster else 1 + one.share
    text = f"{factor:.2f}" if factor < 9.995 else f"{factor:.0f}"
    return _headline(
        one, text, "×", "the same time" if not one.share else f"as {'fast' if is_faster else 'long'}{each}"
    )


def _percent(one: ComparedRow, what: str) -> Headline:
    return _headline(one, f"{abs(one.share) * 100:.0f}", "%", f"{_direction(one.share)} {what}")


def _headline(one: ComparedRow, number: str, unit: str, what: str) -> Headline:
    return Headline(number, unit, what, f"{one.values[1]}, was {one.values[0]}", one.is_clear)


def _is_unclear(one: ComparedRow) -> bool:
    return not one.is_clear and bool(one.share) and is_known(one.low)


def _learned(runs: ComparedRuns) -> Headline | None:
    """Return the metric at the last epoch that both runs have completed; with one value per run, it cannot be
    significant.
    """
    baseline, other = (curve.values for curve in runs.curves)
    for place in reversed(range(min(len(baseline), len(other)))):
        base, own = baseline[place], other[place]
        if is_known(base) and is_known(own) and abs(base) > 0:
            break
    else:
        return None
    share = own / base - 1 if base > 0 else 1 - own / base
    if not abs(share) < 1e6:
        return None
    word = "lower" if share < 0 else "higher" if share else "the same"
    text = f"{abs(share) * 100:.1f}" if abs(share) < 0.0995 else f"{abs(share) * 100:.0f}"
    detail = f"{units.logged_number(own)}, was {units.logged_number(base)}"
    return Headline(text, "%", f"{word} {safe(runs.metric)} after {units.counted(place + 1, 'epoch')}", detail, False)


def _direction(share: float) -> str:
    return "less" if share < 0 else "more" if share else "as much"


def _block(one: Headline, cells: int) -> list[Line]:
    style = _CLEAR if one.is_clear else _QUIET
    lines: list[Line] = [[Segment(row, style)] for row in numerals(one.number)]
    lines[-1].append(Segment(f" {one.unit}", theme.DIM))
    what, detail = Segment(fit(one.what, cells).rstrip(), NAME), Segment(fit(one.detail, cells).rstrip(), theme.DIM)
    return [*lines, [], [what], [detail]]


def _beside(parts: Sequence[Line], wide: int, begin: int) -> Line:
    line: Line = [Segment(" " * begin)]
    for place, part in enumerate(parts):
        line += [Segment(" " * max(0, begin + place * wide - length(line))), *part]
    return line


STRONG = palette.ink("strong", bold=True)
WORDS = 30
"""Width of a difference in words."""
ENDS = (0.1, 0.2, 0.5, 1.0)
"""Possible ends of the difference axis, as shares; larger differences are drawn as an arrow."""
PLOT_FROM = 24
GUIDES, GUIDES_FROM = (-1.0, -0.5, 0.0, 0.5, 1.0), 50
"""Guide lines of the difference axis, as shares of its end, and the width from which inner ones are drawn."""
AIRY, LARGE = 30, 40
"""Screen height from which blank rows separate sections, and from which headlines are shown."""
CURVES, MOST_CURVES = 10, 26
"""Minimum and maximum rows of the curves."""


def compared(
    runs: ComparedRuns, cells: int, rows: int, *, has_equal: bool = False, has_colors: bool = True
) -> list[Line]:
    """Return the comparison, which may be longer than the `rows` of the screen; `has_equal`: include equal settings.

    The colored run is compared with the baseline; without colors, each line is marked with its run's letter.
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
        return lines  # a note explains why
    text = f"In brackets{' and as a line' if wide else ''}: 95 % interval of the difference, by the epochs of each run."
    return [*lines, *_said(text, theme.FAINT, cells)]


def in_cells(forms: Sequence[str], cells: int) -> str:
    """Return the longest of some texts that fits; a truncated number or sentence would be misleading."""
    return next((one for one in forms if width(one) <= cells), forms[-1])


def _said(text: str, style: Style, cells: int) -> list[Line]:
    """Wrap a sentence completely, because its end matters as much as its beginning."""
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
    """Draw the difference as a dot and its interval as a line, on an axis from -`end` to `end`."""
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
