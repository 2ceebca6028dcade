"""The styles of the screen's parts, made of the roles in `palette`."""

from __future__ import annotations

from functools import lru_cache

from rich.color import Color
from rich.style import Style

from gpumon_tui import palette


def _hex_of(role: str) -> str:
    return palette.BY_NAME[role].dark


BACKGROUND = _hex_of("ground")
PANEL = _hex_of("panel")
TEXT = _hex_of("text")
MINT = _hex_of("util")
BLUE = _hex_of("memory")
ROSE = _hex_of("power")
SAND = _hex_of("temp")
CYAN = _hex_of("key")

PLAIN = palette.ink("text")
STRONG = palette.ink("strong", bold=True)
DIM = palette.ink("dim")
FAINT = palette.ink("faint")
TRACK = palette.ink("track")
TITLE = palette.ink("key", bold=True)
RULE = palette.ink("rule")
EPOCH = (palette.ink("run"), palette.ink("power"), palette.ink("key"))
"""Epoch lines: of one run, and of others on the same chart."""
PHASE = palette.ink("power")
BRIEF_PHASE = palette.tinted("power", 0.6)
"""Where phases were too brief to be drawn to scale."""
RUN = palette.ink("run")
KEY = palette.ink("key", "panel", bold=True)
ON_BAR = Style(bgcolor=palette.color("panel"))
BAR = palette.ink("text", "panel")
BAR_STRONG = palette.ink("strong", "panel", bold=True)
BAR_DIM = palette.ink("dim", "panel")
PAGE = palette.ink("strong", "select", bold=True)
"""The name of the page on screen."""
HEADING = palette.ink("faint")
CURSOR = Style(bgcolor=palette.color("select"))
LABEL = palette.ink("ground", "warn", bold=True)
"""Numbers that are not of live hardware say so in this."""
GOOD = palette.ink("util")
WARN = palette.ink("warn")
CRITICAL = palette.ink("crit", bold=True)

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
    return Style(color=color, bgcolor=style.bgcolor)


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
