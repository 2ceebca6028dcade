"""The styles of the screen's parts, made of the roles in `palette`."""

from __future__ import annotations

from functools import lru_cache

from rich.style import Style

from gpumon_tui import palette

MINT, BLUE, ROSE, SAND, CYAN = "util", "memory", "power", "temp", "key"
"""Roles of hues."""

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
CHIP = palette.ink("ground", "key", bold=True)
"""For what is of a recording."""
RECORDED = palette.ink("key", bold=True)
GOOD = palette.ink("util")
WARN = palette.ink("warn", bold=True)
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
    "allocated": ("█", palette.ink(BLUE)),
    "cached": ("▓", palette.tinted(BLUE, 0.4)),
    "context": ("▒", palette.ink(SAND)),
    "others": ("╱", palette.ink(ROSE)),
    "free": ("▁", TRACK),
    "driver": ("░", DIM),
}
"""Letter and color of the parts of device memory: told apart by each of the two alone."""


def hue(metric: str) -> str:
    """The role of a metric's color, the same in bars and charts."""
    return HUES.get(metric, CYAN)


@lru_cache(maxsize=256)
def ramp(role: str, rows: int) -> tuple[Style, ...]:
    """Styles for the rows of an area from top to bottom: bright at the crest, quiet below."""
    steps = max(1, rows - 1)
    return tuple(palette.tinted(role, round(1.0 - 0.8 * row / steps, 3)) for row in range(rows))


def ink(role: str) -> Style:
    """A plain style of one color."""
    return palette.ink(role)


@lru_cache(maxsize=256)
def faint(style: Style) -> Style:
    """The same, nearer to the ground: for what lies between the lowest and the highest value of a chart's column."""
    meant = palette.meant(style.color.name) if style.color else None
    return palette.tinted(meant[0], round(0.5 * meant[1], 3)) if meant else style


FADED = palette.tinted("text", 0.4)
