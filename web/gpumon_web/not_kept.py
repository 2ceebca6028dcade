"""Why nothing of the past is kept of a source: one rule for every page, and the words."""

from __future__ import annotations

from typing import Any

from gpumon.common.numbers import NAN, is_known
from gpumon.model.origin import Capability, Origin
from gpumon.reports.missing_history import NO_HARDWARE


def why_no_history(origin: Origin, begun: float = NAN) -> str | dict[str, Any]:
    """Words for people: a daemon keeps history of hardware alone; empty where `origin` is that.

    `begun`: s since 1970 of the first sample that is here. The scripts write that moment in the viewer's time zone.
    """
    if Capability.LIVE in origin.capabilities:
        return ""
    return {"text": f"{NO_HARDWARE} Its charts go back to", "time": begun} if is_known(begun) else NO_HARDWARE


def why_none_listed(origin: Origin, *, is_moment: bool) -> str:
    """Words for a list of runs without any, where none will begin: in a recording; empty of other origins.

    `is_moment`: the runs are those of one moment of it.
    """
    if Capability.NOW in origin.capabilities:
        return ""
    if Capability.PROCESSES not in origin.capabilities:  # as a log
        return f"This recording does not tell of runs{' at this moment' if is_moment else ''}."
    if is_moment:
        return "No run at this moment of the recording."
    return "This recording has no runs." if origin.ended else "No runs in this recording so far."


def why_no_runs(origin: Origin) -> str:
    """The same of runs, where the daemon that plays another origin has kept none of it, as before its first one."""
    return "" if Capability.LIVE in origin.capabilities else "Its daemon has kept no run of this."
