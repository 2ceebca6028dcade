"""Golden screens: every page at four sizes, the first one for 0 to 32 GPUs, in dark, light, 16 colors and ASCII.

`make golden` writes them anew: look at what `git diff` shows of them before you commit it. `make test` compares every
page at the two smallest sizes and at one of the larger ones, `make test-all` at all of them.
"""

from __future__ import annotations

from typing import Any

import pytest
from rich.cells import cell_len

from tests.tui.golden_files import FRAME, GOLDEN, REWRITES, TABLE, looks_table, section, styles_in
from tests.tui.golden_scenes import SIZES, all_screens, files, of_file

PAGE = slice(1, -1)
SIZE_IDS = [f"{columns}x{rows}" for columns, rows in SIZES]
SMALL, LARGE = SIZES[:2], SIZES[2:]
QUICK = {
    "processes": LARGE[0], "process": LARGE[0], "windows": LARGE[0], "states": LARGE[0], "events": LARGE[0],
    "runs": LARGE[1], "runs-opened": LARGE[1], "runs-compared": LARGE[1],
    "overview": LARGE[1], "chart": LARGE[1], "accounts": LARGE[1],
}  # fmt: skip
"""The large size of each file that `make test` draws: one for all files that come of the same session."""


def sized(file: str, size: tuple[int, int]) -> Any:
    """One golden file; slow where `make test` leaves it out."""
    quick = size in SMALL or size == QUICK.get(file)
    name = f"{file}-{size[0]}x{size[1]}"
    return pytest.param(file, size, marks=() if quick else (pytest.mark.slow,), id=name)


def hold(name: str, lines: list[str]) -> None:
    """Compare with a golden file, or write it."""
    path = GOLDEN / name
    if REWRITES:
        path.write_text("\n".join(lines) + "\n")
    assert lines == path.read_text().splitlines()


@pytest.mark.parametrize(("file", "size"), [sized(file, size) for file in files() for size in SIZES])
def test_page_is_as_its_golden_screens(file: str, size: tuple[int, int]) -> None:
    found = of_file(file, size)
    assert all(
        cell_len(row) <= size[0] for screen in found.values() for rows in screen.letters.values() for row in rows
    )
    lines = [line for name, screen in found.items() for line in section(name, screen, PAGE)]
    hold(f"{file}-{size[0]}x{size[1]}.txt", lines)


@pytest.mark.parametrize(("file", "size"), [sized(FRAME, size) for size in SIZES])
def test_header_and_footer_are_as_the_golden_ones(file: str, size: tuple[int, int]) -> None:
    ends = slice(0, None, size[1] - 1)
    found = ((f"{scene.file}: {scene.name}", screen) for scene, screen in all_screens(size))
    lines = [line for name, screen in found for line in section(name, screen, ends)]
    hold(f"{file}-{size[0]}x{size[1]}.txt", lines)


def test_roles_are_in_each_look_as_in_the_golden_table() -> None:
    hold(TABLE, looks_table(styles_in(GOLDEN)))


def test_each_page_has_a_large_size_in_make_test_and_each_large_size_a_page() -> None:
    assert set(QUICK) == set(files())
    assert set(QUICK.values()) == set(LARGE)


def test_there_is_no_golden_screen_of_nothing() -> None:
    names = {f"{file}-{size}.txt" for file in (*files(), FRAME) for size in SIZE_IDS}
    assert {path.name for path in GOLDEN.iterdir()} == {*names, TABLE}
