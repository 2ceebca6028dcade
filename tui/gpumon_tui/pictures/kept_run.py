"""Runs of the ledgers that are those on screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.model.frame import Run
from gpumon.model.origin import Capability
from gpumon_tui.view import View

if TYPE_CHECKING:
    from gpumon.storage.ledger.records import RunRow

_SAME_BEGIN = 1.0
"""Seconds between the begins of a run as its processes and its ledger tell it, at most."""


def are_kept(view: View) -> bool:
    """Whether anybody keeps the runs on screen: of what is played, the player alone does."""
    return Capability.NOW in view.origin.capabilities or view.player is not None


def is_on_screen(kept: RunRow, run: Run, view: View) -> bool:
    """Whether a run of a ledger is this one: another may have the same id."""
    is_played = Capability.NOW not in view.origin.capabilities
    return (is_played or kept.label == view.origin.label) and abs(kept.started - run.started) <= _SAME_BEGIN
