"""The help: keys, what colors mean, and the words."""

from __future__ import annotations

from rich.segment import Segment

from gpumon_tui import theme
from gpumon_tui.keys import applying
from gpumon_tui.renderables.text_width import Line
from gpumon_tui.screens.scrolled import Scrolled, Text
from gpumon_tui.view import View

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
WORDS = (
    ("busy", "kernels ran in the latest samples"),
    ("pausing", "processes hold memory, and kernels ran within the last minute"),
    ("allocated", "processes hold memory; too early to tell a pause from idleness"),
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


class Explained(Text):
    """The help's lines, with the keys of the page on screen."""

    def __init__(self, view: View, page: str) -> None:
        super().__init__(view)
        self.page = page

    def told(self, cells: int) -> list[Line]:
        keys: list[Line] = [
            [Segment(f"{key.shown:>7} ", theme.TITLE), Segment(key.what, theme.PLAIN)]
            for key in applying(self.page)
            if key.what
        ]
        words: list[Line] = [[Segment(f"{word:>13} ", theme.STRONG), Segment(what, theme.DIM)] for word, what in WORDS]
        head = [[Segment(text, theme.TITLE)] for text in ("Keys", "Colors", "Terms")]
        return [
            head[0],
            *keys,
            [],
            head[1],
            *COLORS,
            [],
            head[2],
            *words,
            [],
            [Segment("press any key to close", theme.DIM)],
        ]


class Help(Scrolled):
    """Above the main screen; any key but those that scroll closes it."""

    def __init__(self, view: View, *, page: str) -> None:
        super().__init__(Explained(view, page))
