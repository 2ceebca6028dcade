"""Two runs side by side: what differs in what they were given, each measure with its interval, and what was learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING

from rich.segment import Segment
from rich.style import Style

from gpumon import units
from gpumon.frame import NAN
from gpumon.missing import is_known
from gpumon_tui import palette, theme
from gpumon_tui.renderables.run_curves import LABELS
from gpumon_tui.renderables.run_plot import numbers, plot, resampled, round_scale, scaled
from gpumon_tui.renderables.section import HEAD, NAME, keys, margin, section
from gpumon_tui.renderables.text_width import Line, cut, fit, length, safe, width

if TYPE_CHECKING:
    from gpumon_tui.run_reading import ComparedRow, ComparedRuns

RUN = palette.ink("run", bold=True)
STRONG = palette.ink("strong", bold=True)
WORDS = 30
"""Cells of a difference in words."""
ENDS = (0.1, 0.2, 0.5, 1.0)
"""Where the axis of differences may end, as shares; larger ones have an arrow."""
LETTERS = ("A", "B")
"""As sentences about both runs name them, the baseline first."""
PLOT_FROM = 24
CURVES_FROM = 9
_SETTING = 30


def compared(runs: ComparedRuns, cells: int, rows: int) -> list[Line]:
    """The comparison in at most `rows` lines; the run in color is the one that is compared with the baseline."""
    lines = [_title(runs, cells)]
    lines += [_who(runs, place, cells) for place in (1, 0)]
    airy = rows >= 30
    lines += [[]] if airy else []
    lines += _config(runs, cells, rows // 3)
    lines += [[]] if airy and len(lines) > 4 else []
    lines += _measures(runs, cells)
    notes = [cut([Segment(" " * (margin(cells) + 1)), Segment(safe(note), theme.DIM)], cells) for note in runs.notes]
    left = rows - len(lines) - len(notes) - 1
    drawn = _curves(runs, cells, min(left, 26)) if left >= CURVES_FROM else []
    return [*lines, *notes, *([[], *drawn] if drawn else [])][:rows]


def _title(runs: ComparedRuns, cells: int) -> Line:
    other, base = runs.records[1].run, runs.records[0].run
    detail: Line = [
        Segment(safe(other.name), RUN), Segment("  with the baseline  ", theme.DIM), Segment(safe(base.name), STRONG),
    ]  # fmt: skip
    return section("Compare", detail, keys(("x", "swap"), ("Esc", "close")), cells)


def _who(runs: ComparedRuns, place: int, cells: int) -> Line:
    run, style = runs.records[place].run, RUN if place else STRONG
    text = "  ·  ".join((run.user or "unknown user", units.moment(run.started)[:16], runs.counts[place]))
    line: Line = [
        Segment(" " * (margin(cells) + 1)),
        Segment(f"{LETTERS[place]} ⠒⠒ ", style),
        Segment(safe(run.id), style),
    ]
    return cut([*line, Segment(f"  {safe(text)}", theme.DIM)], cells - margin(cells))


def _config(runs: ComparedRuns, cells: int, rows: int) -> list[Line]:
    """Settings that differ, in columns, each with both values."""
    told = []
    if runs.same:
        told.append(f"{units.counted(runs.same, 'parameter')} {'is' if runs.same == 1 else 'are'} the same")
    if runs.is_dirty:
        told.append("uncommitted changes: code may differ")

    told += [f"no parameters are known of {LETTERS[place]}" for place in runs.without]
    if not runs.config and not told:
        return [
            section(
                "What differs", [Segment("no parameters are known: run.config(…) records them", theme.DIM)], [], cells
            )
        ]
    lines = [section("What differs", [Segment("  ·  ".join(told), theme.DIM)] if told else [], [], cells)]
    side = margin(cells)
    across = max(1, (cells - 2 * side) // (_SETTING + 2))
    room = max(1, rows)
    for first in range(0, len(runs.config), across):
        if len(lines) >= room and first + across < len(runs.config):
            more = len(runs.config) - first
            lines.append([Segment(" " * (side + 1)), Segment(f"+{more} ▼", theme.TITLE)])
            break
        line: Line = [Segment(" " * (side + 1))]
        for setting, base, other in runs.config[first : first + across]:
            parts: Line = [
                Segment(f"{safe(setting)} ", theme.DIM), Segment(safe(other), RUN), Segment(" was ", theme.FAINT),
                Segment(safe(base), theme.PLAIN),
            ]  # fmt: skip
            parts = cut(parts, _SETTING)
            line += [*parts, Segment(" " * (_SETTING + 2 - length(parts)))]
        lines.append(cut(line, cells))
    return lines


def _measures(runs: ComparedRuns, cells: int) -> list[Line]:
    side = margin(cells)
    every = [*runs.rows, *runs.whole]
    if not every:
        return [[Segment(" " * (side + 1)), Segment("Nothing of these runs was measured.", theme.DIM)]]
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
            row.append(Segment("  " + fit(one.verdict, words), STRONG if one.is_clear else theme.DIM))
            lines.append(cut([*row, Segment("  "), *_interval(one, end, wide)] if wide else row, cells))
    text = (
        "In brackets and as a line: 95 % interval of the difference, by the epochs of each run."
        if runs.by_epochs
        else "One value of each: a single value has no confidence interval."
    )
    lines.append(cut([Segment(" " * (side + 1)), Segment(text, theme.FAINT)], cells))
    return lines


def _end(every: Sequence[ComparedRow]) -> float:
    largest = max((abs(one.share) for one in every if isfinite(one.share)), default=0.0)
    return next((end for end in ENDS if largest <= end), ENDS[-1])


def _place(share: float, end: float, wide: int) -> int:
    half = wide // 2
    return half + round(max(-1.0, min(1.0, share / end)) * half)


def _ends(end: float, wide: int) -> str:
    left, right = f"−{end * 100:.0f} %", f"+{end * 100:.0f} %"
    text = [" "] * wide
    text[: len(left)], text[wide - len(right) :] = left, right
    text[wide // 2] = "0"
    return "".join(text)


def _interval(one: ComparedRow, end: float, wide: int) -> Line:
    """The difference as a dot, and its interval as a line, on an axis from -`end` to `end`."""
    cells = [" "] * wide
    styles: list[Style] = [theme.RULE] * wide
    for share in (-1.0, 0.0, 1.0):
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


def _curves(runs: ComparedRuns, cells: int, rows: int) -> list[Line]:
    """The metric that both logged, by epoch and by time; the baseline is dim."""
    if not runs.metric or not all(runs.curves):
        return []
    base, other = runs.curves
    values = [value for _, value in (*base, *other)]
    low, high, step = round_scale(values)
    both = cells >= 100
    wide = ((cells - 2 * margin(cells) - 4) // 2 if both else cells - 2 * margin(cells)) - LABELS
    height = rows - 2
    longest = max(len(base), len(other))
    by_epoch = [_by_epoch(curve, longest, wide, low, high) for curve in (other, base)]
    beside = numbers(low, high, step, height)
    left = _panel(f"{safe(runs.metric).capitalize()} by epoch", by_epoch, wide, height, beside)
    left.append([Segment(" " * LABELS), Segment(_stretched("first", f"{longest} epochs", wide), theme.FAINT)])
    if not both:
        return [[Segment(" " * margin(cells)), *line] for line in left]
    most = max(curve[-1][0] for curve in (base, other))
    by_time = [_by_time(curve, most, wide, low, high) for curve in (other, base)]
    right = _panel(f"{safe(runs.metric).capitalize()} by time", by_time, wide, height, beside)
    right.append([Segment(" " * LABELS), Segment(_stretched("0", units.span(most), wide), theme.FAINT)])
    return [
        [Segment(" " * margin(cells)), *one, Segment(" " * (wide + LABELS + 4 - length(one))), *two]
        for one, two in zip(left, right, strict=True)
    ]


def _panel(
    title: str, curves: Sequence[Sequence[float]], wide: int, rows: int, beside: Mapping[int, float]
) -> list[Line]:  # fmt: skip
    styles = (theme.RUN, theme.DIM)
    drawn = plot(list(zip(curves, styles, strict=True)), wide, rows, role="run")
    labels = {row: units.plain(value) for row, value in beside.items()}
    body = [
        [Segment(fit(labels.get(row, ""), LABELS - 1, right=True) + " ", theme.FAINT), *line]
        for row, line in enumerate(drawn)
    ]
    return [[Segment(fit(title, wide + LABELS), NAME)], *body]


def _by_epoch(
    curve: Sequence[tuple[float, float]], longest: int, wide: int, low: float, high: float
) -> list[float]:  # fmt: skip
    own = max(2, round(2 * wide * len(curve) / longest))
    return [*resampled(scaled([value for _, value in curve], low, high), own), *([NAN] * (2 * wide))][: 2 * wide]


def _by_time(
    curve: Sequence[tuple[float, float]], most: float, wide: int, low: float, high: float
) -> list[float]:  # fmt: skip
    """A value at the end of each epoch, lines between them."""
    shares = scaled([value for _, value in curve], low, high)
    found = [NAN] * (2 * wide)
    last: tuple[int, float] | None = None
    for (time, _), share in zip(curve, shares, strict=True):
        if not is_known(share):
            last = None
            continue
        at = min(2 * wide - 1, round(time / most * (2 * wide - 1))) if most > 0 else 0
        if last is not None:
            for between in range(last[0] + 1, at):
                found[between] = last[1] + (share - last[1]) * (between - last[0]) / (at - last[0])
        found[at] = share
        last = at, share
    return found


def _stretched(left: str, right: str, cells: int) -> str:
    return left + " " * max(1, cells - len(left) - len(right)) + right
