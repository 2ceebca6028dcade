"""Lines one dot thick over bands of tint: values by column, of epochs or of time."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, isfinite, log10

from rich.segment import Segment
from rich.style import Style

from gpumon.frame import NAN
from gpumon.missing import is_known
from gpumon_tui import palette
from gpumon_tui.renderables.text_width import Line

EIGHTHS = " ▁▂▃▄▅▆▇"
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_FILL, _BAND = 0.035, 0.15


def resampled(values: Sequence[float], count: int) -> list[float]:
    """`values` as `count` ones over the same length: between them lines, of several in one place the mean.

    A value that is not finite leaves a gap.
    """
    size = len(values)
    if not size:
        return [NAN] * count
    if size > count:
        return [_mean(values[place * size // count : (place + 1) * size // count]) for place in range(count)]
    found = []
    for place in range(count):
        at = place * (size - 1) / (count - 1) if count > 1 else 0.0
        low = min(size - 1, int(at))
        part = at - low
        after = values[low + 1] if low + 1 < size else values[low]
        found.append(values[low] if part < 1e-9 else values[low] + (after - values[low]) * part)
    return [value if isfinite(value) else NAN for value in found]


def extremes(values: Sequence[float], count: int, highest: bool) -> list[float]:
    """The lowest or the highest of the values in each of `count` places; NaN of none."""
    size = len(values)
    found = []
    for place in range(count):
        first = place * size // count
        part = [one for one in values[first : max(first + 1, (place + 1) * size // count)] if isfinite(one)]
        found.append((max(part) if highest else min(part)) if part else NAN)
    return found


def plot(
    lines: Sequence[tuple[Sequence[float], Style]], cells: int, rows: int, *, role: str, low: Sequence[float] = (),
    high: Sequence[float] = (), filled: bool = False, cursor: int = -1,
) -> list[Line]:  # fmt: skip
    """Draw lines of `2 * cells` shares of 0..1 each, the first above the others, with a band from `low` to `high`.

    `low` and `high` have a share for each cell; `filled`: tint below the first line, where its axis begins at zero;
    `cursor`: the cell with a vertical line.
    """
    masks: dict[tuple[int, int], tuple[int, Style]] = {}
    for shares, style in reversed(lines):
        for key, mask in _dots(shares, rows).items():
            before = masks.get(key)
            masks[key] = (mask | before[0] if before else mask), style
    main = lines[0][0] if lines else ()
    ground = [_ground(main, low, high, column, rows, role, filled=filled) for column in range(cells)]
    found: list[Line] = []
    for row in range(rows):
        line: Line = []
        for column in range(cells):
            text, style = ground[column][row]
            if (column, row) in masks:
                mask, ink = masks[column, row]
                text, style = chr(0x2800 + mask), ink + Style(bgcolor=style.bgcolor) if style.bgcolor else ink
            elif column == cursor:
                text, style = "│", palette.ink("key") + Style(bgcolor=style.bgcolor)
            if line and line[-1].style == style:
                line[-1] = Segment(line[-1].text + text, style)
            else:
                line.append(Segment(text, style))
        found.append(line)
    return found


def round_scale(values: Sequence[float]) -> tuple[float, float, float]:
    """Lowest and highest number of an axis around finite values, and the step between its numbers."""
    known = [value for value in values if isfinite(value)]
    if not known:
        return 0.0, 1.0, 0.5
    low, high = min(known), max(known)
    if high <= low:
        low, high = low - abs(low or 1.0) * 0.5, high + abs(high or 1.0) * 0.5
    raw = (high - low) / 4
    decade = 10.0 ** floor(log10(raw)) if raw > 0 and isfinite(raw) else 1.0
    step = next((n * decade for n in (1, 2, 2.5, 5, 10) if n * decade >= raw * 0.999), 10 * decade)
    begin = floor(low / step + 1e-9) * step
    return begin, begin + step * max(1, ceil((high - begin) / step - 1e-9)), step


def numbers(low: float, high: float, step: float, rows: int) -> dict[int, float]:
    """The numbers of an axis by the rows that they stand beside: as many as have room, always its ends."""
    many = round((high - low) / step)
    while many > 1 and rows - 1 < 2 * many:
        many = many // 2 if many % 2 == 0 else 1
    return {round((rows - 1) * (1 - place / many)): low + (high - low) * place / many for place in range(many + 1)}


def scaled(values: Sequence[float], low: float, high: float) -> list[float]:
    """Values as shares of an axis."""
    size = high - low
    return [(value - low) / size if isfinite(value) and size > 0 else NAN for value in values]


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if isfinite(value)]
    return sum(known) / len(known) if known else NAN


def _dots(shares: Sequence[float], rows: int) -> dict[tuple[int, int], int]:
    """Braille masks by column and row, neighbors joined."""
    found: dict[tuple[int, int], int] = {}
    last: int | None = None
    most = 4 * rows - 1
    for place, share in enumerate(shares):
        if not is_known(share):
            last = None
            continue
        dot = min(most, max(0, round((1 - share) * most)))
        reached = [dot]
        if last is not None and abs(dot - last) > 1:
            step = 1 if dot > last else -1
            reached = list(range(last + step, dot + step, step))
        for one in reached:
            key = place // 2, one // 4
            found[key] = found.get(key, 0) | _DOTS[place % 2][one % 4]
        last = dot
    return found


def _ground(
    main: Sequence[float], low: Sequence[float], high: Sequence[float], column: int, rows: int, role: str, *,
    filled: bool,
) -> list[tuple[str, Style]]:  # fmt: skip
    """Return the cells below the lines in a column, from the top down."""
    bare = (" ", Style.null())
    pair = [share for share in main[2 * column : 2 * column + 2] if is_known(share)]
    if not pair or not (filled or low):
        return [bare] * rows
    middle = sum(pair) / len(pair)
    lowest = low[column] if low and is_known(low[column]) else middle
    highest = high[column] if high and is_known(high[column]) else middle
    eighths, fill = 8 * rows, _FILL if filled else 0.0
    begin, end = round(max(0.0, min(lowest, middle)) * eighths), round(min(1.0, max(highest, middle)) * eighths)
    found = []
    for row in range(rows):
        base = (rows - 1 - row) * 8
        pieces = [
            (size, share)
            for first, last, share in ((0, begin, fill), (begin, end, _BAND), (end, eighths, 0.0))
            if (size := min(last, base + 8) - max(first, base)) > 0
        ]
        pieces = sorted(sorted(pieces, key=lambda one: -one[0])[:2], key=pieces.index)
        if not pieces:
            found.append(bare)
        elif len(pieces) == 1:
            share = pieces[0][1]
            found.append((" ", Style(bgcolor=palette.color(role, share))) if share else bare)
        else:
            (size, under), (_, over) = pieces
            ink = palette.color(role, under) if under else palette.color("ground")
            ground = palette.color(role, over) if over else None
            found.append((EIGHTHS[max(1, min(7, size))], Style(color=ink, bgcolor=ground)))
    return found
