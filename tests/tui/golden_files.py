"""Golden screens as text: a file per kind of screen and size, with a section per screen.

Of each screen it tells the letters; then the roles of every row, from the left: `3 dim, 12 util@.42/select, 4 strong*`
are 3 cells in one role, 12 in a share of another on the ground of a third, and 4 bold ones; `~` stands before what is
no longer so. Rows that follow one another and are colored alike are told together. Then those rows of which
a terminal of 16 colors, and one without Unicode, show other letters. `looks.txt` tells what the roles are in each look.

`make golden` writes all of them anew; `golden_show.py` shows one in its colors.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from rich.style import Style

from tests.tui.golden_cells import LOOKS, GoldenScreen, RoleStyle, parsed, written

GOLDEN = Path(__file__).parent / "golden"
REWRITES = bool(os.environ.get("GPUMON_REWRITE_GOLDEN"))
FRAME = "frame"
"""The file of headers and footers, which stand in no other: a key more at the foot is no other page."""
TABLE = "looks.txt"


def section(name: str, screen: GoldenScreen, rows: slice) -> list[str]:
    """Return a screen, or some of its rows, as lines of text."""
    letters = {look: lines[rows] for look, lines in screen.letters.items()}
    lines = letters["dark"]
    roles = [", ".join(f"{cells} {style}" for cells, style in written(row)) for row in screen.rows[rows]]
    found = [f"== {name}", *_without_end(lines), "-- roles", *_together(roles)]
    for look in LOOKS:
        others = [f"{number:2} {row}" for number, row in enumerate(letters[look], 1) if row != lines[number - 1]]
        found += [f"-- {look}", *others] if others else []
    return found


def _without_end(lines: list[str]) -> list[str]:
    return "\n".join(lines).rstrip().splitlines()


def _together(roles: Iterable[str]) -> Iterator[str]:
    number = 1
    for told, group in groupby(roles):
        last = number + len(list(group)) - 1
        if told:
            yield f"{number}{f'-{last}' if last > number else ''}: {told}"
        number = last + 1


def styles_in(directory: Path) -> set[RoleStyle]:
    """Return all styles of the golden screens."""
    told = [line.partition(": ")[2] for path in directory.glob("*-*x*.txt") for line in _roles(path)]
    names = {one.split(" ")[1] for line in told for one in line.split(", ")}
    return {style for name in names if (style := parsed(name))}


def _roles(path: Path) -> Iterator[str]:
    is_roles = False
    for line in path.read_text().splitlines():
        if line.startswith(("-- ", "== ")):
            is_roles = line == "-- roles"
        elif is_roles:
            yield line


def looks_table(styles: Iterable[RoleStyle]) -> list[str]:
    """Return what styles are in each look, as lines of text."""
    rows = sorted((str(style), *(_told(style.seen(look)) for look in LOOKS.values())) for style in styles)
    return ["  ".join(f"{part:<22}" for part in row).rstrip() for row in [("roles", *LOOKS), *rows]]


def _told(style: Style) -> str:
    colors = [color.name for color in (style.color, style.bgcolor) if color is not None]
    kinds = [name for name in ("bold", "dim", "reverse") if getattr(style, name)]
    return " ".join(["/".join(colors).replace("default", "–"), *kinds]).strip() or "–"
