"""Show golden screens in the colors of a look: `python -m tests.tui.golden_show overview-80x24 --look light`.

`git show HEAD:tests/tui/golden/chart-80x24.txt | python -m tests.tui.golden_show -` shows those of before.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import NamedTuple

from rich.color import ColorSystem

from tests.tui.golden_cells import LOOKS, PLAIN, parsed
from tests.tui.golden_files import FRAME, GOLDEN


class Section(NamedTuple):
    """A screen of a golden file: its rows, how they are colored, and what looks show in their place."""

    name: str
    rows: list[str]
    roles: dict[int, str]
    letters: dict[str, dict[int, str]]


def sections(lines: list[str]) -> Iterator[Section]:
    """Read the screens of a file."""
    now, part = Section("", [], {}, {}), ""
    for line in lines:
        if line.startswith("== "):
            if now.name:
                yield now
            now, part = Section(line[3:], [], {}, {}), ""
        elif line.startswith("-- "):
            part = line[3:]
        elif not part:
            now.rows.append(line)
        elif part == "roles":
            where, _, told = line.partition(": ")
            first, _, last = where.partition("-")
            now.roles.update(dict.fromkeys(range(int(first), int(last or first) + 1), told))
        else:
            now.letters.setdefault(part, {})[int(line[:2])] = line[3:]
    yield now


def painted(screen: Section, number: int, look: str, columns: int) -> str:
    """Return a row, numbered from 1, with the codes of its colors."""
    row = screen.rows[number - 1] if number <= len(screen.rows) else ""
    row = screen.letters.get(look, {}).get(number, row)
    found, place = "", 0
    row = row.ljust(columns)
    for run in screen.roles.get(number, f"{columns} text").split(", "):
        cells, _, name = run.partition(" ")
        style = (parsed(name) or PLAIN).seen(LOOKS[look])
        found += style.render(row[place : place + int(cells)], color_system=ColorSystem.TRUECOLOR)
        place += int(cells)
    return found


def screen_lines(screen: Section, ends: Section | None, look: str, size: tuple[int, int]) -> list[str]:
    """Return all rows of a screen, with header and footer where these are known."""
    columns, rows = size
    page = [painted(screen, number, look, columns) for number in range(1, rows - 1)]
    if ends is None:
        return page
    return [painted(ends, 1, look, columns), *page, painted(ends, 2, look, columns)]


def main() -> None:
    """Print the screens of a file."""
    parser = argparse.ArgumentParser(description="Show golden screens in the colors of a look.")
    parser.add_argument("file", help="such as overview-80x24; - for standard input")
    parser.add_argument("screen", nargs="?", default="", help="such as '8 GPUs'; all if none is named")
    parser.add_argument("--look", choices=LOOKS, default="dark")
    asked = parser.parse_args()
    path = GOLDEN / f"{asked.file.removesuffix('.txt')}.txt"
    lines = (sys.stdin.read() if asked.file == "-" else path.read_text()).splitlines()
    kind, _, told = path.stem.rpartition("-")
    size = tuple(map(int, told.split("x"))) if told else (200, 50)
    frame = GOLDEN / f"{FRAME}-{told}.txt"
    ends = {one.name: one for one in sections(frame.read_text().splitlines())} if frame.is_file() else {}
    for screen in sections(lines):
        if asked.screen in ("", screen.name):
            print(f"{screen.name}:")
            print("\n".join(screen_lines(screen, ends.get(f"{kind}: {screen.name}"), asked.look, size)))


if __name__ == "__main__":
    main()
