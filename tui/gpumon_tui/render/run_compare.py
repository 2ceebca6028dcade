"""Comparison of two runs: headlines in large numbers, the table of differences with intervals, curves and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rich.segment import Segment
from rich.style import Style

from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon_tui import theme
from gpumon_tui.data.run_rows import WARM_UP
from gpumon_tui.render.bars import ROWS, numerals
from gpumon_tui.render.run_curves import LETTERS, compared_curves
from gpumon_tui.render.table import HEAD, NAME, keys, margin, section
from gpumon_tui.render.text_width import SENTENCE, Line, cut, fit, length, safe, width, wrap_words

if TYPE_CHECKING:
    from gpumon_tui.data.run_rows import ComparedRow, ComparedRuns


MIN_HEADLINE = 28
"""Minimum width of a headline."""
HEIGHT = ROWS + 3
_CLEAR, _UNCLEAR = theme.ink("run", bold=True), theme.ink("dim", bold=True)


class Headline(NamedTuple):
    """A number of the other run relative to the baseline."""

    number: str
    """Digits and a dot."""
    unit: str
    description: str
    """Description: `less energy an epoch`."""
    detail: str
    """Both values."""
    is_clear: bool


def headlines(runs: ComparedRuns) -> Iterator[Headline]:
    """Yield the known headlines, most important first; differences within the variation between epochs are left to
    the table.
    """
    rows = {row.name: row for row in (runs.rows if runs.by_epochs else runs.whole) if not _is_unclear(row)}
    per_epoch = " an epoch" if runs.by_epochs else ""
    if (time := rows.get("seconds")) and is_known(time.share) and time.share > -1:
        yield _time(time, per_epoch)
    if (energy := rows.get("energy")) and is_known(energy.share):
        yield _percent(energy, f"energy{per_epoch}")
    if metric := _metric_headline(runs):
        yield metric
    if (memory := rows.get("memory_used_peak")) and is_known(memory.share):
        number, _, unit = memory.difference.partition(" ")
        number, unit = (number, unit) if memory.share else ("0", memory.values[1].partition(" ")[2])
        yield _headline(memory, number, unit, f"{_direction(memory.share)} memory")


def headline_lines(runs: ComparedRuns, cells: int) -> list[Line]:
    """Return the headlines side by side in `HEIGHT` rows, as many as fit; empty if no value is available."""
    left_margin = margin(cells)
    visible = list(headlines(runs))[: (cells - 2 * left_margin) // MIN_HEADLINE]
    if not visible:
        return []
    headline_cells = (cells - 2 * left_margin) // len(visible)
    blocks = [_block(headline, headline_cells - 2) for headline in visible]
    return [_joined_row([block[row] for block in blocks], headline_cells, left_margin + 1) for row in range(HEIGHT)]


def _time(row: ComparedRow, per_epoch: str) -> Headline:
    is_faster = row.share < 0
    factor = 1 / (1 + row.share) if is_faster else 1 + row.share
    text = f"{factor:.2f}" if factor < 9.995 else f"{factor:.0f}"
    return _headline(
        row, text, "×", "the same time" if not row.share else f"as {'fast' if is_faster else 'long'}{per_epoch}"
    )


def _percent(row: ComparedRow, description: str) -> Headline:
    return _headline(row, f"{abs(row.share) * 100:.0f}", "%", f"{_direction(row.share)} {description}")


def _headline(row: ComparedRow, number: str, unit: str, description: str) -> Headline:
    return Headline(number, unit, description, f"{row.values[1]}, was {row.values[0]}", row.is_clear)


def _is_unclear(row: ComparedRow) -> bool:
    return not row.is_clear and bool(row.share) and is_known(row.low)


def _metric_headline(runs: ComparedRuns) -> Headline | None:
    """Return the metric at the last epoch that both runs have completed; with one value per run, it cannot be
    significant.
    """
    baseline, other = (curve.values for curve in runs.curves)
    for epoch in reversed(range(min(len(baseline), len(other)))):
        baseline_value, value = baseline[epoch], other[epoch]
        if is_known(baseline_value) and is_known(value) and abs(baseline_value) > 0:
            break
    else:
        return None
    share = value / baseline_value - 1 if baseline_value > 0 else 1 - value / baseline_value
    if not abs(share) < 1e6:
        return None
    word = "lower" if share < 0 else "higher" if share else "the same"
    text = f"{abs(share) * 100:.1f}" if abs(share) < 0.0995 else f"{abs(share) * 100:.0f}"
    detail = f"{units.logged_number(value)}, was {units.logged_number(baseline_value)}"
    return Headline(text, "%", f"{word} {safe(runs.metric)} after {units.counted(epoch + 1, 'epoch')}", detail, False)


def _direction(share: float) -> str:
    return "less" if share < 0 else "more" if share else "as much"


def _block(headline: Headline, cells: int) -> list[Line]:
    style = _CLEAR if headline.is_clear else _UNCLEAR
    lines: list[Line] = [[Segment(row, style)] for row in numerals(headline.number)]
    lines[-1].append(Segment(f" {headline.unit}", theme.DIM))
    description, detail = (
        Segment(fit(headline.description, cells).rstrip(), NAME),
        Segment(fit(headline.detail, cells).rstrip(), theme.DIM),
    )
    return [*lines, [], [description], [detail]]


def _joined_row(parts: Sequence[Line], part_cells: int, begin: int) -> Line:
    line: Line = [Segment(" " * begin)]
    for index, part in enumerate(parts):
        line += [Segment(" " * max(0, begin + index * part_cells - length(line))), *part]
    return line


STRONG = theme.ink("strong", bold=True)
WORDS = 30
"""Width of a difference in words."""
ENDS = (0.1, 0.2, 0.5, 1.0)
"""Possible ends of the difference axis, as shares; larger differences are drawn as an arrow."""
PLOT_FROM = 24
GUIDES, GUIDES_FROM = (-1.0, -0.5, 0.0, 0.5, 1.0), 50
"""Guide lines of the difference axis, as shares of its end, and the width from which inner ones are drawn."""
BLANKS_FROM, HEADLINES_FROM = 30, 40
"""Screen height from which blank rows separate sections, and from which headlines are shown."""
MIN_CURVES, MAX_CURVES = 10, 26
"""Minimum and maximum rows of the curves."""


def compare_lines(
    runs: ComparedRuns, cells: int, rows: int, *, has_equal: bool = False, has_colors: bool = True
) -> list[Line]:
    """Return the comparison, which may be longer than the `rows` of the screen; `has_equal`: include equal settings.

    The colored run is compared with the baseline; without colors, each line is marked with its run's letter.
    """
    lines = [_title(runs, cells)]
    lines += [_run_line(runs, index, cells, has_colors=has_colors) for index in (1, 0)]
    has_blanks = rows >= BLANKS_FROM
    if rows >= HEADLINES_FROM and (large := headline_lines(runs, cells)):
        lines += [[], *large]
    lines += [[]] if has_blanks else []
    lines += settings_lines(runs, cells, rows // 3, has_equal=has_equal)
    lines += [[]] if has_blanks and runs.config else []
    lines += _measures(runs, cells)
    lines += [line for note in runs.notes for line in _wrapped(note, theme.DIM, cells)]
    rows_left = rows - len(lines) - 1
    curve_rows = max(MIN_CURVES, min(rows_left, MAX_CURVES))
    curve_lines = compared_curves(runs, cells, curve_rows, has_letters=not has_colors)
    return [*lines, *([[], *curve_lines] if curve_lines else [])]


def _title(runs: ComparedRuns, cells: int) -> Line:
    other, base = runs.records[1].run, runs.records[0].run
    detail: Line = [
        Segment(safe(other.name), RUN), Segment("  with the baseline  ", theme.DIM), Segment(safe(base.name), STRONG),
    ]  # fmt: skip
    return section("Compare", detail, keys(("x", "swap"), ("Esc", "close")), cells)


def _run_line(runs: ComparedRuns, index: int, cells: int, *, has_colors: bool) -> Line:
    run, style = runs.records[index].run, RUN if index else STRONG
    texts = [
        "  ·  ".join((run.user or "unknown user", units.moment(run.started)[:16], count))
        for count in (runs.counts[index], runs.counts[index].removesuffix(WARM_UP), runs.counts[index].split(",")[0])
    ]
    line: Line = [
        Segment(" " * (margin(cells) + 1)),
        Segment(LETTERS[index], style),
        Segment(f" {'⠒⠒' if has_colors else f'⠒{LETTERS[index]}⠒'} ", RUN if index else theme.DIM),
        Segment(safe(run.id), style),
    ]
    room = cells - margin(cells)
    text = next(
        (candidate for candidate in map(safe, texts) if length(line) + 2 + width(candidate) <= room), safe(texts[-1])
    )
    return cut([*line, Segment(f"  {text}", theme.DIM)], room)


def _measures(runs: ComparedRuns, cells: int) -> list[Line]:
    left_margin = margin(cells)
    all_rows = [*runs.rows, *runs.whole]
    if not all_rows:
        return [[Segment(" " * (left_margin + 1)), Segment("No value of these runs was measured.", theme.DIM)]]
    name_cells = max(20, *(width(measure.title) for measure in all_rows)) if cells >= 70 else 16
    value_cells = max(8, *(width(text) for measure in all_rows for text in measure.values))
    has_values = cells >= 60
    verdict_cells = min(WORDS, cells - 2 * left_margin - name_cells - (2 * value_cells + 4 if has_values else 0) - 2)
    plot_cells = cells - 2 * left_margin - name_cells - 2 * value_cells - verdict_cells - 10
    plot_cells = min(plot_cells, 80) | 1 if plot_cells >= PLOT_FROM else 0
    end = _axis_end(all_rows)
    lines: list[Line] = []
    for title, section_rows in (
        ("median of epochs", runs.rows), ("whole run" if not runs.by_epochs else "of whole runs", runs.whole),
    ):  # fmt: skip
        if not section_rows:
            continue
        head: Line = [Segment(" " * left_margin + fit(title, name_cells), HEAD)]
        if has_values:
            head.append(Segment("  " + fit("B", value_cells, right=True), HEAD + RUN))
            head.append(Segment("  " + fit("A", value_cells, right=True), HEAD))
        head.append(Segment("  " + fit("B − A", verdict_cells), HEAD))
        head += [Segment("  " + _axis_labels(end, plot_cells), HEAD)] if plot_cells else []
        lines.append([*cut(head, cells), Segment(" " * max(0, cells - length(head)), HEAD)])
        for measure in section_rows:
            row: Line = [Segment(" " * left_margin + fit(measure.title, name_cells), theme.PLAIN)]
            if has_values:
                row.append(Segment("  " + fit(measure.values[1], value_cells, right=True), STRONG))
                row.append(Segment("  " + fit(measure.values[0], value_cells, right=True), theme.DIM))
            verdict = first_fitting((measure.verdict, *measure.briefs), verdict_cells)
            row.append(Segment("  " + fit(verdict, verdict_cells), STRONG if measure.is_clear else theme.DIM))
            lines.append(cut([*row, Segment("  "), *_interval(measure, end, plot_cells)] if plot_cells else row, cells))
    if not runs.by_epochs:
        return [*lines, *_wrapped("One value of each: a single value has no confidence interval.", theme.FAINT, cells)]
    if not any(isfinite(measure.low) for measure in runs.rows):
        return lines  # a note explains why
    line_note = " and as a line" if plot_cells else ""
    text = f"In brackets{line_note}: 95 % interval of the difference, by the epochs of each run."
    return [*lines, *_wrapped(text, theme.FAINT, cells)]


def first_fitting(forms: Sequence[str], cells: int) -> str:
    """Return the longest form that fits; a truncated number or sentence would be misleading."""
    return next((form for form in forms if width(form) <= cells), forms[-1])


def _wrapped(text: str, style: Style, cells: int) -> list[Line]:
    """Wrap a sentence completely, because its end matters as much as its beginning."""
    indent = margin(cells) + 1
    parts = wrap_words(safe(text, SENTENCE), max(1, cells - indent - margin(cells)))
    return [[Segment(" " * (indent + 2 * bool(index))), Segment(part, style)] for index, part in enumerate(parts)]


def _axis_end(rows: Sequence[ComparedRow]) -> float:
    largest = max((abs(row.share) for row in rows if isfinite(row.share)), default=0.0)
    return next((end for end in ENDS if largest <= end), ENDS[-1])


def _axis_cell(share: float, end: float, plot_cells: int) -> int:
    half = plot_cells // 2
    return half + round(max(-1.0, min(1.0, share / end)) * half)


def _axis_labels(end: float, plot_cells: int) -> str:
    text = [" "] * plot_cells
    for share in GUIDES if plot_cells >= GUIDES_FROM else (-1.0, 0.0, 1.0):
        label = f"{share * end * 100:+.4g} %".replace("-", "−") if share else "0"
        begin = max(0, min(plot_cells - len(label), _axis_cell(share, 1.0, plot_cells) - len(label) // 2))
        text[begin : begin + len(label)] = label
    return "".join(text)


def _interval(row: ComparedRow, end: float, plot_cells: int) -> Line:
    """Draw the difference as a dot and its interval as a line, on an axis from -`end` to `end`."""
    cells = [" "] * plot_cells
    styles: list[Style] = [theme.RULE] * plot_cells
    for share in GUIDES if plot_cells >= GUIDES_FROM else (-1.0, 0.0, 1.0):
        cell = _axis_cell(share, 1.0, plot_cells)
        cells[cell], styles[cell] = ("│", theme.FAINT) if not share else ("╎", theme.RULE)
    if isfinite(row.share):
        style = RUN if row.is_clear else theme.DIM
        if isfinite(row.low):
            for cell in range(_axis_cell(row.low, end, plot_cells), _axis_cell(row.high, end, plot_cells) + 1):
                cells[cell], styles[cell] = "─", style
        cell = _axis_cell(row.share, end, plot_cells)
        cells[cell], styles[cell] = ("▸" if row.share > end else "◂" if row.share < -end else "●"), style
    line: Line = []
    for text, style in zip(cells, styles, strict=True):
        if line and line[-1].style == style:
            line[-1] = Segment(line[-1].text + text, style)
        else:
            line.append(Segment(text, style))
    return line


T = TypeVar("T")
RUN = theme.ink("run", bold=True)
_GAP, _MAX_SETTING = 3, 60
"""Cells between columns of settings, and maximum width of a setting."""


def settings_lines(runs: ComparedRuns, cells: int, rows: int, *, has_equal: bool) -> list[Line]:
    """Return the section in at most `rows` lines, with equal settings if `has_equal`; sorted by name, down the
    columns.
    """
    notes: list[str] = []
    if runs.same:
        notes.append(f"{units.counted(runs.same, 'parameter')} {'is' if runs.same == 1 else 'are'} the same")
    if runs.is_dirty:
        notes.append("uncommitted changes: code may differ")
    notes += [f"{LETTERS[index]} has no recorded parameters" for index in runs.without]
    if not runs.config and not notes:
        notes = ["no recorded parameters: run.config(…) records them"]
    key_hints = keys(("d", "hides them" if has_equal else "shows them")) if runs.equal else []
    lines = [section("What differs", [Segment("  ·  ".join(notes), theme.DIM)], key_hints, cells)]
    max_rows = max(1, rows - 1)
    differing = sorted(runs.config, key=lambda setting: setting[0].casefold())
    lines += _columns(differing, lambda setting: _differing(*setting), cells, max_rows)
    if has_equal and runs.equal:
        equal = sorted(runs.equal, key=lambda setting: setting[0].casefold())
        lines.append(section("Equal", [], [], cells))
        lines += _columns(equal, lambda setting: _equal(*setting), cells, max_rows)
    return lines


def _differing(name: str, base: str, other: str) -> tuple[str, Line]:
    values: Line = [Segment(safe(other), RUN), Segment(" was ", theme.FAINT), Segment(safe(base), theme.PLAIN)]
    return safe(name), values


def _equal(name: str, value: str) -> tuple[str, Line]:
    return safe(name), [Segment(safe(value), theme.PLAIN)]


def _columns(items: Sequence[T], render: Callable[[T], tuple[str, Line]], cells: int, rows: int) -> list[Line]:
    """Return names and values in as many columns as fit; items without a row are counted."""
    if not items:
        return []
    rendered = [render(item) for item in items]
    side = margin(cells)
    room = cells - 2 * side - 1
    column_cells = min(
        _MAX_SETTING, room, max(length([Segment(name)]) + 1 + length(values) for name, values in rendered)
    )
    column_count = min(len(rendered), max(1, (room + _GAP) // (column_cells + _GAP)))
    row_count = -(-len(rendered) // column_count)
    column_count = -(-len(rendered) // row_count)
    lines: list[Line] = []
    for row in range(min(row_count, rows)):
        if row == rows - 1 < row_count - 1:
            hidden = sum(index % row_count >= row for index in range(len(rendered)))
            lines.append([Segment(" " * (side + 1)), Segment(f"+{hidden} ▼", theme.TITLE)])
            break
        line: Line = [Segment(" " * (side + 1))]
        for column in range(column_count):
            if column * row_count + row >= len(rendered):
                break
            column_items = rendered[column * row_count : (column + 1) * row_count]
            longest = max(length([Segment(name)]) for name, _ in column_items)
            name, values = column_items[row]
            padded = name + " " * (longest - length([Segment(name)]) + 1)
            line.append(Segment(" " * max(0, side + 1 + column * (column_cells + _GAP) - length(line))))
            line += cut([Segment(padded, theme.DIM), *values], column_cells + _GAP - 1)
        lines.append(cut(line, cells))
    return lines
