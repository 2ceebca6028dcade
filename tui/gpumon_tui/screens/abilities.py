"""The properties of a view that decide which keys are told of in it."""

from __future__ import annotations

from gpumon.storage.history.query import HOST
from gpumon_tui.keys import Abilities
from gpumon_tui.view import View


def abilities_of(view: View) -> Abilities:
    """Return them as they are now."""
    return Abilities(view.is_readonly, view.may_seek, HOST in view.subjects, view.plays)
