"""Opens the history that a view asks; a tier of longer history has its file in this package and its line here."""

from __future__ import annotations

from collections.abc import Callable

from gpumon.history.long import LongHistory
from gpumon.history.query import Tier

TIERS: tuple[Callable[[], Tier], ...] = ()
"""Histories that reach beyond the last frames, from the finest cells to the coarsest."""


def open_history() -> LongHistory:
    """Return a history without frames, which are added as they come."""
    return LongHistory([tier() for tier in TIERS])
