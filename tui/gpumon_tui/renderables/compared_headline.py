"""The few numbers that a comparison comes to, large: time, energy, what was learned, memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.segment import Segment

from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon_tui import palette, theme
from gpumon_tui.renderables.numerals import ROWS, numerals
from gpumon_tui.renderables.section import NAME, margin
from gpumon_tui.renderables.text_width import Line, fit, length, safe

if TYPE_CHECKING:
    from gpumon_tui.run_reading.rows import ComparedRow, ComparedRuns

LEAST = 28
"""Cells of a number with its words, at least."""
HEIGHT = ROWS + 3
_CLEAR, _QUIET = palette.ink("run", bold=True), palette.ink("dim", bold=True)


class Headline(NamedTuple):
    """A number of the other run against the baseline."""

    number: str
    """Digits and a dot."""
    unit: str
    what: str
    """Its words: `less energy an epoch`."""
    detail: str
    """Both values."""
    is_clear: bool


def headlines(runs: ComparedRuns) -> Iterator[Headline]:
    """Yield what is known, the most wanted first; a difference that epochs have anyway is left to the table."""
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
    """Return the numbers in `HEIGHT` rows beside each other, as many as have room; empty where nothing is known."""
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
    """The metric after as many epochs as both have made: one value of each, so that nothing is clear."""
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
