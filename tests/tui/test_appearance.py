"""Themes can be read by everybody; few colors, none, and ASCII say the same in another way, cell for cell."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Any

import pytest
from rich.cells import cell_len
from rich.color_triplet import ColorTriplet
from rich.segment import Segment
from rich.style import Style
from textual.events import CursorPosition
from textual.pilot import Pilot

from gpumon_tui import theme
from gpumon_tui.app import GpumonApp
from gpumon_tui.appearance import REPLACEMENTS, Appearance, ColorDepth, from_terminal, to_ascii, without_color
from gpumon_tui.theme import BY_NAME, DARK, THEMES, next_theme, theme_color
from tests.tui.fakes import FakeFeed
from tests.tui.golden_files import GOLDEN, styles_in
from tests.tui.screen import play, text

HUES = ("util", "memory", "power", "temp", "run", "key", "warn", "crit")
SIXTEEN = Appearance(depth=ColorDepth.SIXTEEN)
NONE = Appearance(depth=ColorDepth.NONE)
ASCII = Appearance(depth=ColorDepth.NONE, is_ascii=True)


def luminance(color: ColorTriplet) -> float:
    """As WCAG defines it."""
    parts = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in color]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one: ColorTriplet, other: ColorTriplet) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", BY_NAME)
def test_words_and_hues_of_every_theme_stand_out_from_the_ground(theme: str) -> None:
    least = {"text": 12.0, "strong": 12.0, "dim": 5.0, "faint": 4.5, **dict.fromkeys(HUES, 4.5)}
    ground = theme_color(theme, "ground")
    found = {role: contrast(theme_color(theme, role), ground) for role in least}
    assert {role: value for role, value in found.items() if value < least[role]} == {}


CHIPS, OF_CHARTS = 4.1, 2.9
"""Least contrast of bold words on a tint of their own color, and of lines on areas and bands."""
ON = {"ground": 4.5, "panel": 4.5, "select": 4.3}
LESS = {"faint": 3.4, "dim": 4.3}
"""On other grounds than the page: of headings, and of units and labels."""


@pytest.mark.parametrize("theme", BY_NAME)
def test_all_that_golden_screens_show_stands_out_from_what_it_stands_on(theme: str) -> None:
    """Decoration and areas need not; nor what one looks through, as the mean of the peers behind a band."""
    look, faint = Appearance(theme=BY_NAME[theme]), []
    told = [one for one in styles_in(GOLDEN) if "@" not in one.ink and one.ink not in ("rule", "track", "ground")]
    assert len(told) > 50
    for one in told:
        if one.is_old or (one.ink == "faint" and "@" in one.back):
            continue
        style = one.seen(look)
        assert style.color is not None
        assert style.bgcolor is not None
        role, is_tint, _ = one.back.partition("@")
        own = CHIPS if one.bold and role == one.ink else OF_CHARTS if one.ink in HUES else 1.8
        least = own if is_tint else min(ON.get(role, 4.5), LESS.get(one.ink, 5.0) if role != "ground" else 5.0)
        found = contrast(style.color.get_truecolor(), style.bgcolor.get_truecolor())
        if found < least:
            faint.append(f"{one}: {found:.1f} < {least}")
    assert faint == []


@pytest.mark.parametrize("theme", BY_NAME)
def test_what_is_old_can_still_be_read_and_is_fainter(theme: str) -> None:
    ground = theme_color(theme, "ground")
    old, now = (contrast(theme_color(theme, "text", is_old=is_old), ground) for is_old in (True, False))
    assert 4.5 <= old < 0.6 * now


@pytest.mark.parametrize("theme", BY_NAME)
def test_equal_steps_of_a_tint_go_one_way_from_the_ground_to_the_hue(theme: str) -> None:
    ground = theme_color(theme, "ground")
    steps = [contrast(theme_color(theme, "util", share / 20), ground) for share in range(21)]
    assert steps == sorted(steps)
    assert steps[20] > 4.5


# Machado, Oliveira and Fernandes 2009, severity 1, on linear light.
BLIND = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
}


def seen(color: ColorTriplet, matrix: tuple[tuple[float, ...], ...]) -> tuple[float, float, float]:
    """A color in CIE L*a*b* as somebody sees it who lacks a kind of cones."""
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in color]
    r, g, b = (min(1.0, max(0.0, sum(m * c for m, c in zip(row, linear, strict=True)))) for row in matrix)
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089
    fx, fy, fz = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.mark.parametrize("kind", BLIND)
@pytest.mark.parametrize("theme", [name for name in BY_NAME if name.startswith("color-blind")])
def test_the_color_blind_safe_themes_keep_apart_what_stands_side_by_side(theme: str, kind: str) -> None:
    """Work, attention and alarm in one row; own memory and that of others in one bar."""
    beside = [*combinations(("util", "warn", "crit"), 2), ("memory", "power"), ("text", "warn")]
    for one, other in beside:
        colors = [seen(theme_color(theme, role), BLIND[kind]) for role in (one, other)]
        apart = sum((a - b) ** 2 for a, b in zip(*colors, strict=True)) ** 0.5
        assert apart > 15, f"{one} and {other}: {apart:.0f}"


def test_f2_goes_through_all_themes_and_says_which() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for chosen in (*THEMES[1:], THEMES[0]):
            await pilot.press("f2")
            await pilot.pause()
            assert app.view.appearance.theme is chosen
            assert f"theme: {chosen.name}" in text(app)[-1]
            grounds = {
                segment.style.bgcolor.get_truecolor().hex
                for strip in app.screen._compositor.render_strips()[1:-1]
                for segment in strip
                if segment.style and segment.style.bgcolor
            }
            assert chosen.colors["ground"] in grounds
            usual = {DARK.colors["ground"], BY_NAME["light"].colors["ground"]}
            assert not grounds & usual - {chosen.colors["ground"]}

    play(FakeFeed(), (120, 40), script)


def test_themes_follow_one_another_in_a_circle() -> None:
    theme = DARK
    for _ in THEMES:
        theme = next_theme(theme)
    assert theme is DARK


def styles_of(look: Appearance, size: tuple[int, int] = (120, 40)) -> list[Style]:
    found: list[Style] = []

    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        for strip in app.screen._compositor.render_strips():
            found.extend(segment.style for segment in strip if segment.style)

    play(FakeFeed(lost=(3,)), size, script, appearance=look)
    return found


def test_without_colors_there_are_none_and_alarm_is_reversed() -> None:
    styles = styles_of(NONE)
    plain_names = {None, "default"}
    assert {style.color.name if style.color else None for style in styles} <= plain_names
    assert {style.bgcolor.name if style.bgcolor else None for style in styles} <= plain_names
    assert any(style.reverse for style in styles)
    assert NONE.cells(theme.ink("crit")).reverse
    assert NONE.cells(theme.ink("warn")).bold
    assert not NONE.cells(theme.ink("dim")).bold


def test_a_terminal_of_16_colors_gets_only_its_own() -> None:
    colors = [color for style in styles_of(SIXTEEN) for color in (style.color, style.bgcolor) if color]
    assert all(color.is_default or (color.number is not None and color.number < 16) for color in colors)
    warn = SIXTEEN.cells(theme.ink("warn"))
    assert warn.color is not None
    assert (warn.color.number, warn.bold) == (11, True)
    assert SIXTEEN.cells(theme.tint("util", 0.42)).color == SIXTEEN.cells(theme.ink("util")).color


@pytest.mark.parametrize("size", [(40, 20), (80, 24), (200, 50)])
def test_without_unicode_every_letter_is_ascii_in_the_same_cell(size: tuple[int, int]) -> None:
    whole, lines = play(FakeFeed(), size), play(FakeFeed(), size, appearance=ASCII)
    assert all(line.isascii() for line in lines)
    assert [cell_len(line.rstrip()) for line in lines][1:-1] != [0] * (len(lines) - 2)
    for before, after_it in zip(whole[:-1], lines[:-1], strict=True):  # the footer spells some keys out
        cells = zip(before, after_it.ljust(size[0]), strict=False)
        assert all(one == other for one, other in cells if one.isalnum() and one.isascii())


def test_strangers_letters_become_question_marks_of_the_same_width() -> None:
    assert to_ascii("日本 é µ") == "???? e u"
    assert all(cell_len(other) == cell_len(letter) == 1 for letter, other in REPLACEMENTS.items())


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["at ≥ 56.2 GiB"], ["at >=56.2 GiB"]), (["  ≥31.0 GiB"], [" >=31.0 GiB"]), (["≤ 5"], ["<=5"]),
        (["alice ", "≥28.2", "  "], ["alice>", "=28.2", "  "]), (["over ≥", " 30 s"], ["over >", "=30 s"]),
    ],
)  # fmt: skip
def test_no_less_than_is_not_told_as_more_than_in_ascii(texts: list[str], told: list[str]) -> None:
    line = [Segment(text, theme.ink("text")) for text in texts]
    assert [to_ascii(segment.text) for segment in ASCII.bounds(line)] == told


def test_a_bound_on_screen_has_both_of_its_signs_in_ascii() -> None:
    whole, lines = play(FakeFeed(), (120, 40)), play(FakeFeed(), (120, 40), appearance=ASCII)
    (place,) = (place for place, line in enumerate(whole) if "over ≥ 30 s" in line)
    assert "over >=30 s" in lines[place]


def test_a_full_bar_and_an_empty_one_differ_in_ascii_and_without_colors() -> None:
    for look in (ASCII, NONE):
        full, empty = (look.letters("▆▆━━", theme.ink(role)) for role in ("memory", "track"))
        assert not set(full) & set(empty)


@pytest.mark.parametrize("theme", [theme.name for theme in THEMES if theme.reverses_selection])
def test_the_bar_of_the_selected_row_is_told_apart_from_its_track_where_the_row_is_reversed(theme: str) -> None:
    def bars(theme: str) -> dict[bool, list[str]]:
        found: dict[bool, list[str]] = {True: [], False: []}

        async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
            await pilot.press("j")
            await pilot.pause()
            for strip in app.screen._compositor.render_strips()[3:9]:
                line = "".join(segment.text for segment in strip)
                if "▆" in line:
                    found["▌" in line[:3]].append(line)

        play(FakeFeed(), (120, 40), script, appearance=Appearance(theme=BY_NAME[theme]))
        return found

    found = bars(theme)
    assert len(found[True]) == 1
    assert re.search("▆▁", found[True][0])
    assert found[False]
    assert not any("▆▁" in line for line in found[False]), "colors tell it there"
    assert "▆▁" not in bars("dark")[True][0]


@pytest.mark.parametrize(
    ("env", "system", "encoding", "depth", "is_ascii"),
    [
        ({"TERM": "xterm-256color"}, "256", "utf-8", ColorDepth.MANY, False),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, "truecolor", "UTF-8", ColorDepth.MANY, False),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "256", "utf-8", ColorDepth.NONE, False),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, "256", "utf-8", ColorDepth.MANY, False),
        ({"TERM": "linux"}, "standard", "utf-8", ColorDepth.SIXTEEN, True),
        ({"TERM": "xterm"}, "standard", "latin-1", ColorDepth.SIXTEEN, True),
        ({"TERM": "vt100"}, "standard", "ascii", ColorDepth.NONE, True),
        ({}, None, "utf_8", ColorDepth.SIXTEEN, False),
    ],
)  # fmt: skip
def test_a_terminal_is_given_what_it_can_show(
    env: dict[str, str], system: str | None, encoding: str, depth: ColorDepth, is_ascii: bool
) -> None:
    look = from_terminal(env, system, encoding)
    assert (look.depth, look.is_ascii) == (depth, is_ascii)


@pytest.mark.parametrize(
    ("env", "is_ascii"),
    [
        ({"LC_ALL": "C"}, True), ({"LC_ALL": "POSIX", "LANG": "de_DE.UTF-8"}, True), ({"LANG": "C"}, True), ({}, False),
        ({"LC_ALL": "C.UTF-8"}, False), ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, False), ({"LANG": "en_US.UTF-8"}, False),
    ],
)  # fmt: skip
def test_a_locale_without_letters_gets_ascii_though_python_writes_utf_8(env: dict[str, str], is_ascii: bool) -> None:
    assert from_terminal(env, "truecolor", "utf-8").is_ascii is is_ascii


def test_a_heat_strip_and_a_band_are_letters_where_there_are_no_colors() -> None:
    strip = "".join(without_color("▌", "util", share) for share in (0.012, 0.2, 0.66))
    assert strip[0] < strip[1] < strip[2], "blocks that grow"
    assert to_ascii("▌▌", "util", 0.66) == "##"
    assert to_ascii("▌", "ground") == " ", "the half of a cell of which nothing is known"
    assert to_ascii("█▃", "util", 0.15) == without_color("█▃", "util", 0.15) == ": "
    assert without_color("█▃", "util", 0.035) == "  ", "an area under a line tells nothing that the line does not"
    assert to_ascii("‹ ›", "key") == "< >"


@pytest.mark.parametrize(("column", "is_ascii"), [(1, False), (2, True)])
def test_where_letters_of_ambiguous_width_take_two_cells_all_is_ascii(column: int, is_ascii: bool) -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        app.post_message(CursorPosition(column, 1))
        await pilot.pause()
        assert all(line.isascii() for line in text(app)) is is_ascii

    play(FakeFeed(), (120, 40), script)


def test_what_is_copied_does_nothing_where_it_is_pasted() -> None:
    async def script(app: GpumonApp, pilot: Pilot[Any]) -> None:
        app.copy_to_clipboard("alice\t\x1b[201~rm -rf x\r\ncarol\t\x07")
        assert app.clipboard == "alice\t\\x1b[201~rm -rf x\ncarol\t\\x07"
        app.copy_to_clipboard("x" * 100_000)
        assert len(app.clipboard) <= 16 * 1024

    play(FakeFeed(), (80, 24), script)


def test_without_unicode_enter_has_its_name_on_every_page() -> None:
    async def script(app: GpumonApp, pilot: Pilot[None]) -> None:
        app.set_appearance(ASCII)
        for page in "45":
            await pilot.press(page)
            await pilot.pause()
            shown = "\n".join(text(app))
            assert "Enter open" in shown
            assert " E open" not in shown

    play(FakeFeed(seconds=40), (120, 40), script)
