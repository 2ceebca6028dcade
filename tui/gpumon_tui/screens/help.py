"""The help window: keys, colors, signs and terms."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style

from gpumon_tui import theme
from gpumon_tui.glyphs import spelled
from gpumon_tui.keybindings import habits, told_on
from gpumon_tui.look import Depth
from gpumon_tui.render.findings import wrap_words
from gpumon_tui.render.text_width import Line, length, spread
from gpumon_tui.screens.window import Scrolled, Text, abilities_of
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
        Segment("below a chart: validation or test, and checkpoints", theme.PLAIN),
    ],
    [Segment("dimmed ", theme.FADED), Segment("no newer data; the header says since when", theme.PLAIN)],
)  # fmt: skip
_COLORED = {"yellow ": "bold   ", "red    ": "reverse"}
"""Names of colors, with the attribute that replaces them on a terminal without colors."""


def signs(*, is_colored: bool) -> list[Line]:
    """Return the signs with their meanings; without colors, signs that are only colors are described by their
    replacement.
    """
    if is_colored:
        return list(COLORS)
    return [
        [
            *(Segment(_COLORED.get(text, text), style) for text, style, _ in sign), Segment(" "),
            Segment(what.partition("; rose")[0], ink),
        ]
        for *sign, (what, ink, _) in COLORS
    ]  # fmt: skip


WORDS = (
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
    ("util", "share of time in which any kernel ran, not of the capacity used"),
    ("ETA", "estimate, from the last finished epochs"),
)


SCROLLS = "↑ ↓ scroll  Esc closes"
"""Shown next to the first title, because the last line, which repeats it, may be below the screen."""


def told_beside(sign: Line, text: str, cells: int, style: Style | None = theme.PLAIN) -> list[Line]:
    """Return a text wrapped in a column to the right of `sign`, which precedes the first line."""
    at = length(sign)
    rows: list[Line] = [[Segment(part, style)] for part in wrap_words(text, max(8, cells - at))]
    return [[*(sign if place == 0 else [Segment(" " * at)]), *row] for place, row in enumerate(rows)]


class Explained(Text):
    """The lines of the help, including the keys of the current page."""

    def __init__(self, view: View, page: str) -> None:
        super().__init__(view)
        self.page = page

    def told(self, cells: int) -> list[Line]:
        look = self.view.look
        write = spelled if look.is_ascii else str
        is_colored = look.depth is not Depth.NONE
        view = self.view
        keys = [(f"{write(key.shown):>7} ", write(key.what)) for key in told_on(self.page, abilities_of(view))]
        apart = " | " if look.is_ascii else " · "  # replaced here, because it may end a line
        elsewhere = write(apart.join(f"{one.shown}: {one.there}" for one in habits(self.page)))
        meant = signs(is_colored=is_colored)
        parts: list[tuple[str, list[Line]]] = [
            ("Keys", [row for key, what in keys for row in told_beside([Segment(key, theme.TITLE)], what, cells)]),
            ("In other tools these keys mean", told_beside([], elsewhere, cells)),
            (
                "Colors" if is_colored else "Signs",
                [row for *sign, (what, style, _) in meant for row in told_beside(sign, what, cells, style)],
            ),
            (
                "Terms",
                [
                    row
                    for word, what in WORDS
                    for row in told_beside([Segment(f"{word:>15} ", theme.STRONG)], what, cells, theme.DIM)
                ],
            ),
        ]
        found: list[Line] = []
        for title, rows in parts:
            if rows:
                first: Line = [Segment(title, theme.TITLE)]
                found += [first if found else spread(first, [Segment(write(SCROLLS), theme.DIM)], cells), *rows, []]
        return [*found, [Segment(write("↑ ↓ scroll, any other key closes"), theme.DIM)]]


class Help(Scrolled):
    """The help window; any key closes it, except keys that scroll."""

    def __init__(self, view: View, *, page: str) -> None:
        super().__init__(Explained(view, page))
