"""Styles of the parts of the screen, built from the roles in `palette`."""

from __future__ import annotations

from rich.style import Style

from gpumon_tui import palette

MINT, BLUE, ROSE, SAND, CYAN = "util", "memory", "power", "temp", "key"
"""Color roles."""

PLAIN = palette.ink("text")
STRONG = palette.ink("strong", bold=True)
DIM = palette.ink("dim")
FAINT = palette.ink("faint")
TRACK = palette.ink("track")
TITLE = palette.ink("key", bold=True)
RULE = palette.ink("rule")
RUN = palette.ink("run")
KEY = palette.ink("key", "panel", bold=True)
ON_BAR = Style(bgcolor=palette.color("panel"))
BAR = palette.ink("text", "panel")
BAR_STRONG = palette.ink("strong", "panel", bold=True)
BAR_DIM = palette.ink("dim", "panel")
PAGE = palette.ink("strong", "select", bold=True)
"""Name of the current page."""
HEADING = palette.ink("faint")
CURSOR = Style(bgcolor=palette.color("select"))
LABEL = palette.ink("ground", "warn", bold=True)
"""Label of numbers that do not come from live hardware."""
CHIP = palette.ink("ground", "key", bold=True)
"""Label of recordings."""
RECORDED = palette.ink("key", bold=True)
GOOD = palette.ink("util")
WARN = palette.ink("warn", bold=True)
CRITICAL = palette.ink("crit", bold=True)

LEVELS = (PLAIN, WARN, CRITICAL)
"""Styles indexed by the result of `gpu_status.level`."""


def ink(role: str) -> Style:
    """Return a plain style of one color role."""
    return palette.ink(role)


FADED = palette.tint("text", 0.4)
