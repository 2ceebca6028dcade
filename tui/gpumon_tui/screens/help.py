"""The help window: keys, colors, signs and terms."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style

from gpumon_tui import theme
from gpumon_tui.appearance import ColorDepth, spell_keys
from gpumon_tui.keybindings import help_keys, page_habits
from gpumon_tui.render.text_width import Line, length, spread, wrap_words
from gpumon_tui.screens.window import ModalWindow, TextWidget, view_abilities
from gpumon_tui.state import View

COLORS: tuple[Line, ...] = (
    [Segment("▄▄▄▃▁▁ ", theme.ink(theme.MINT)), Segment("utilization; a training should keep it high", theme.PLAIN)],
    [
        Segment("▄▄", theme.ink(theme.BLUE)), Segment("▂▂", theme.ink(theme.ROSE)), Segment("▁▁ ", theme.TRACK),
        Segment("memory in use; rose: by processes other than the run", theme.PLAIN),
    ],
    [
        Segment("⠒⠒⠒⠒⠒  ", theme.ink(theme.MINT)),
        Segment("in charts: the mean; the band around it goes from the lowest to the highest value", theme.PLAIN),
    ],
    [Segment("yellow ", theme.WARN), Segment("attention: nearly full, hot, stale, allocated but idle", theme.PLAIN)],
    [Segment("red    ", theme.CRITICAL), Segment("problem: full, too hot, heat-throttled, lost, died", theme.PLAIN)],
    [Segment("╷e7    ", theme.RUN), Segment("epoch 7 began here, as the training reported", theme.PLAIN)],
    [Segment("▲ OOM  ", theme.CRITICAL), Segment("out of memory here; the run shows the requested size", theme.PLAIN)],
    [
        Segment("▀▀▀", theme.ink(theme.ROSE)), Segment("▀▀  ", theme.ink(theme.SAND)),
        Segment("below a chart: validation or test (left color), saving a checkpoint (right color)", theme.PLAIN),
    ],
    [Segment("dimmed ", theme.FADED), Segment("no newer data; the header says since when", theme.PLAIN)],
)  # fmt: skip
_ATTRIBUTES = {"yellow ": "bold   ", "red    ": "reverse"}
"""Names of colors, with the attribute that replaces them on a terminal without colors."""


def signs(*, is_colored: bool) -> list[Line]:
    """Return the signs with their meanings; without colors, signs that are only colors are described by their
    replacement.
    """
    if is_colored:
        return list(COLORS)
    return [
        [
            *(Segment(_ATTRIBUTES.get(text, text), style) for text, style, _ in sign), Segment(" "),
            Segment(meaning.partition("; rose")[0], meaning_style),
        ]
        for *sign, (meaning, meaning_style, _) in COLORS
    ]  # fmt: skip


TERMS = (
    ("busy", "kernels ran in the latest samples"),
    ("light load", "the same, for less than a fifth of the time; counted as busy"),
    ("pausing", "its memory is in use, and kernels ran within the last minute"),
    ("allocated", "its memory is in use; too early to tell a pause from idleness"),
    ("allocated, idle", "the same, and nothing has run for a minute"),
    ("free", "idle, no process, and its memory is empty"),
    ("asleep", "powered down until a program uses it, as a laptop's GPU"),
    ("stale", "the driver has not answered; the values are the last known ones"),
    ("lost", "the driver lost this GPU"),
    ("allocated", "of memory: live tensors, as the framework reports"),
    ("cached", "memory that the framework reserved for later tensors"),
    ("fragments", "cached, but not releasable: parts of blocks still in use"),
    ("resumed", "the run continues an earlier one"),
    ("died", "its process exited without reporting (killed or OOM)"),
    ("–", "unknown; a gap in a chart is, too"),
    ("+5 ▼", "more GPUs off screen: press g, or use the wheel"),
    ("util", "share of time with at least one kernel running, not how much of the GPU was used"),
    ("ETA", "estimate, from the last finished epochs"),
)


SCROLL_HINT = "↑ ↓ scroll  Esc closes"
"""Shown next to the first title, because the last line, which repeats it, may be below the screen."""


def wrap_beside(sign: Line, text: str, cells: int, style: Style | None = theme.PLAIN) -> list[Line]:
    """Return `text` wrapped in a column to the right of `sign`, which precedes the first line."""
    indent = length(sign)
    rows: list[Line] = [[Segment(part, style)] for part in wrap_words(text, max(8, cells - indent))]
    return [[*(sign if index == 0 else [Segment(" " * indent)]), *row] for index, row in enumerate(rows)]


class HelpText(TextWidget):
    """The lines of the help, including the keys of the current page."""

    def __init__(self, view: View, page: str) -> None:
        super().__init__(view)
        self.page = page

    def text_lines(self, cells: int) -> list[Line]:
        appearance = self.view.appearance
        write = spell_keys if appearance.is_ascii else str
        is_colored = appearance.depth is not ColorDepth.NONE
        view = self.view
        bindings = help_keys(self.page, view_abilities(view))
        keys = [(f"{write(key.key_display or ''):>7} ", write(key.tooltip)) for key in bindings]
        separator = " | " if appearance.is_ascii else " · "  # replaced here, because it may end a line
        habits_text = write(separator.join(f"{habit.label}: {habit.note}" for habit in page_habits(self.page)))
        sign_lines = signs(is_colored=is_colored)
        parts: list[tuple[str, list[Line]]] = [
            (
                "Keys",
                [row for key, meaning in keys for row in wrap_beside([Segment(key, theme.TITLE)], meaning, cells)],
            ),
            ("In other tools these keys mean", wrap_beside([], habits_text, cells)),
            (
                "Colors" if is_colored else "Signs",
                [row for *sign, (meaning, style, _) in sign_lines for row in wrap_beside(sign, meaning, cells, style)],
            ),
            (
                "Terms",
                [
                    row
                    for term, meaning in TERMS
                    for row in wrap_beside([Segment(f"{term:>15} ", theme.STRONG)], meaning, cells, theme.DIM)
                ],
            ),
        ]
        lines: list[Line] = []
        for title, rows in parts:
            if rows:
                title_line: Line = [Segment(title, theme.TITLE)]
                lines += [
                    title_line if lines else spread(title_line, [Segment(write(SCROLL_HINT), theme.DIM)], cells),
                    *rows,
                    [],
                ]
        return [*lines, [Segment(write("↑ ↓ scroll, any other key closes"), theme.DIM)]]


class HelpWindow(ModalWindow):
    """The help window; any key closes it, except keys that scroll."""

    def __init__(self, view: View, *, page: str) -> None:
        super().__init__(HelpText(view, page))
