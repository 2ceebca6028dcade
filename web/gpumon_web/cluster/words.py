"""Formatted numbers and links for the pages of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from gpumon.common.numbers import is_known
from gpumon.model import units
from gpumon.model.metrics import Unit
from gpumon_web.components.page import Cells
from gpumon_web.components.tokens import link, text

_NAMED = 4
"""Maximum number of nodes named in a cell."""


def gpus(value: float) -> str:
    """Format a mean number of GPUs, which may be fractional."""
    if not is_known(value):
        return units.MISSING
    return f"{value:,.0f}" if abs(value - round(value)) < 0.05 or value >= 100 else f"{value:.1f}"


def percent(value: float) -> str:
    """Format a ratio as percent; a dash if unknown."""
    return units.number(value, Unit.RATIO) if is_known(value) else units.MISSING


def node_link(name: str, css: str = "name") -> Cells:
    """Return a link to a node's page."""
    return link(name, node_address(name), css)


def node_address(name: str) -> str:
    """Return the address of a node's page."""
    return f"#/node/{quote(name, safe='')}"


def user_address(name: str) -> str:
    """Return the address of a user's page."""
    return f"#/person/{quote(name, safe='')}"


def nodes(names: Sequence[str], count: float = 0.0) -> list[Cells]:
    """Return links to a few nodes and how many more there are; only `count` if the names were not queried."""
    if not names:
        return [text(units.counted(round(count), "node"), "mut")] if is_known(count) and count else []
    more = [text(f"and {len(names) - _NAMED:,} more", "mut")] if len(names) > _NAMED else []
    return [*(node_link(name) for name in names[:_NAMED]), *more]
