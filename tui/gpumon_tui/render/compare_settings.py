"""The settings section of a comparison: settings that differ, and on request those that are equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from rich.segment import Segment

from gpumon.model import units
from gpumon_tui import palette, theme
from gpumon_tui.render.section import keys, margin, section
from gpumon_tui.render.text_width import Line, cut, length, safe

if TYPE_CHECKING:
    from gpumon_tui.data.run_rows import ComparedRuns

T = TypeVar("T")
RUN = palette.ink("run", bold=True)
LETTERS = ("A", "B")
"""Letters of the runs in sentences about both, baseline first."""
_GAP, _MOST = 3, 60
"""Cells between columns of settings, and maximum width of a setting."""


def settings_lines(runs: ComparedRuns, cells: int, rows: int, *, has_equal: bool) -> list[Line]:
    """Return the section in at most `rows` lines, with equal settings if `has_equal`; sorted by name, down the
    columns.
    """
    told: list[str] = []
    if runs.same:
        told.append(f"{units.counted(runs.same, 'parameter')} {'is' if runs.same == 1 else 'are'} the same")
    if runs.is_dirty:
        told.append("uncommitted changes: code may differ")
    told += [f"no parameters are known of {LETTERS[place]}" for place in runs.without]
    if not runs.config and not told:
        told = ["no parameters are known: run.config(…) records them"]
    press = keys(("d", "hides them" if has_equal else "shows them")) if runs.equal else []
    lines = [section("What differs", [Segment("  ·  ".join(told), theme.DIM)], press, cells)]
    room = max(1, rows - 1)
    differing = sorted(runs.config, key=lambda one: one[0].casefold())
    lines += _columns(differing, lambda one: _differing(*one), cells, room)
    if has_equal and runs.equal:
        equal = sorted(runs.equal, key=lambda one: one[0].casefold())
        lines.append(section("Equal", [], [], cells))
        lines += _columns(equal, lambda one: _equal(*one), cells, room)
    return lines


def _differing(name: str, base: str, other: str) -> tuple[str, Line]:
    values: Line = [Segment(safe(other), RUN), Segment(" was ", theme.FAINT), Segment(safe(base), theme.PLAIN)]
    return safe(name), values


def _equal(name: str, value: str) -> tuple[str, Line]:
    return safe(name), [Segment(safe(value), theme.PLAIN)]


def _columns(of: Sequence[T], shown: Callable[[T], tuple[str, Line]], cells: int, rows: int) -> list[Line]:
    """Return names and values in as many columns as fit; items without a row are counted."""
    if not of:
        return []
    made = [shown(one) for one in of]
    side = margin(cells)
    room = cells - 2 * side - 1
    wide = min(_MOST, room, max(length([Segment(name)]) + 1 + length(values) for name, values in made))
    across = min(len(made), max(1, (room + _GAP) // (wide + _GAP)))
    down = -(-len(made) // across)
    across = -(-len(made) // down)
    lines: list[Line] = []
    for row in range(min(down, rows)):
        if row == rows - 1 < down - 1:
            hidden = sum(at % down >= row for at in range(len(made)))
            lines.append([Segment(" " * (side + 1)), Segment(f"+{hidden} ▼", theme.TITLE)])
            break
        line: Line = [Segment(" " * (side + 1))]
        for column in range(across):
            if column * down + row >= len(made):
                break
            part = made[column * down : (column + 1) * down]
            longest = max(length([Segment(name)]) for name, _ in part)
            name, values = part[row]
            padded = name + " " * (longest - length([Segment(name)]) + 1)
            line.append(Segment(" " * max(0, side + 1 + column * (wide + _GAP) - length(line))))
            line += cut([Segment(padded, theme.DIM), *values], wide + _GAP - 1)
        lines.append(cut(line, cells))
    return lines
