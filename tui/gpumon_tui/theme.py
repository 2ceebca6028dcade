"""The colors, by what they mean. Nothing else names a color.

A high utilization is what a training wants, so nothing turns red for being busy. Yellow and red are
kept for what the metric table calls `warn` and `critical`, and for GPUs that do not answer.
"""

from __future__ import annotations

from functools import lru_cache

from rich.color import Color
from rich.style import Style

BACKGROUND = "#0e1118"
PANEL = "#171b26"
SELECTION = "#24344d"
TEXT = "#d6dce8"
MINT = "#4fd6a4"
BLUE = "#6ea8fe"
ROSE = "#e58fb8"
SAND = "#d3b58d"
CYAN = "#6fcfe6"
LAVENDER = "#b69cff"

PLAIN = Style(color=TEXT)
STRONG = Style(color="#f3f6fc", bold=True)
DIM = Style(color="#8490a8")
FAINT = Style(color="#3d4760")
TRACK = Style(color="#2e3649")
TITLE = Style(color=CYAN, bold=True)
RULE = Style(color="#323b50")
EPOCH = (Style(color=LAVENDER), Style(color="#f2a7d8"), Style(color="#9ad7ff"))
"""Epoch lines: of one run, and of others on the same chart."""
PHASE = Style(color="#f2a7d8")
BRIEF_PHASE = Style(color="#a67a9c")
"""Where phases were too brief to be drawn to scale."""
RUN = Style(color=LAVENDER)
KEY = Style(color=CYAN, bold=True, bgcolor=PANEL)
ON_BAR = Style(bgcolor=PANEL)
BAR = Style(color="#a9b4c8", bgcolor=PANEL)
BAR_STRONG = Style(color="#f3f6fc", bold=True, bgcolor=PANEL)
BAR_DIM = Style(color="#7885a0", bgcolor=PANEL)
HEADING = Style(color="#8fb8d8", bold=True, bgcolor=PANEL)
CURSOR = Style(bgcolor=SELECTION, bold=True)
LABEL = Style(color="#14161c", bgcolor="#f0b95b", bold=True)
"""Numbers that are not of live hardware say so in this."""
GOOD = Style(color=MINT)
WARN = Style(color="#f5c451")
CRITICAL = Style(color="#ff6e6e", bold=True)

LEVELS = (PLAIN, WARN, CRITICAL)
"""By the number that `levels.level` gives."""

HUES = {
    "gpu.utilization": MINT,
    "gpu.memory_used": BLUE,
    "gpu.power": ROSE,
    "gpu.temperature": SAND,
    "host.cpu_utilization": MINT,
    "host.memory_used": BLUE,
}

PARTS = {
    "allocated": ("█", Style(color=BLUE)),
    "cached": ("▓", Style(color="#c3dbff")),
    "context": ("▒", Style(color=SAND)),
    "others": ("╱", Style(color=ROSE)),
    "free": ("▁", TRACK),
    "driver": ("░", DIM),
}
"""Letter and color of the parts of device memory: told apart by each of the two alone."""


def hue(metric: str) -> str:
    """The color of a metric, the same in bars and charts."""
    return HUES.get(metric, CYAN)


@lru_cache(maxsize=256)
def ramp(color: str, rows: int) -> tuple[Style, ...]:
    """Styles for the rows of an area from top to bottom: bright at the crest, quiet below."""
    steps = max(1, rows - 1)
    return tuple(Style(color=_mix(color, BACKGROUND, 0.55 * row / steps)) for row in range(rows))


@lru_cache(maxsize=64)
def ink(color: str) -> Style:
    """A plain style of one color."""
    return Style(color=color)


def faded(style: Style) -> Style:
    """The same near the ground, without weight: for what is no longer so."""
    color = Color.parse(_mix(_hex(style.color), BACKGROUND, 0.55)) if style.color else None
    return Style(color=color.name if color else None, bgcolor=style.bgcolor.name if style.bgcolor else None)


@lru_cache(maxsize=256)
def faint(style: Style) -> Style:
    """The same, nearer to the ground: for what lies between the lowest and the highest value of a chart's column."""
    return Style(color=_mix(_hex(style.color), BACKGROUND, 0.3)) if style.color else style


def _hex(color: Color) -> str:
    return color.get_truecolor().hex


def _mix(color: str, other: str, share: float) -> str:
    pairs = ((int(color[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


FADED = faded(PLAIN)
