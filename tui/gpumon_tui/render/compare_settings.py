"""The settings section of a comparison: settings that differ, and on request equal settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from rich.segment import Segment

from gpumon.model import units
from gpumon_tui import palette, theme
from gpumon_tui.render.section import keys, section
from gpumon_tui.render.table import margin
from gpumon_tui.render.text_width import Line, cut, length, safe

if TYPE_CHECKING:
    from gpumon_tui.data.run_rows import ComparedRuns

T = TypeVar("T")
RUN = palette.ink("run", bold=True)
LETTERS = ("A", "B")
"""Letters of the runs in sentences about both, baseline first."""
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
