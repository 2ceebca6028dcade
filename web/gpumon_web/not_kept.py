"""Why nothing of the past is kept of a source: one rule for every page, and the words."""

from __future__ import annotations

from gpumon.origin import Capability, Origin

NO_HISTORY = "no history is kept of this source"
"""Why there is nothing of the past, for programs."""
NOT_YET = "No history yet: 'gpumon daemon' writes it, within a minute of its start."
"""The same for people, of hardware."""


def why_no_history(origin: Origin) -> str:
    """One sentence for people: a daemon keeps history of hardware alone; empty where `origin` is that."""
    return "" if Capability.LIVE in origin.capabilities else f"N{NO_HISTORY[1:]}: it is no hardware of this machine."


def why_no_runs(origin: Origin) -> str:
    """The same of runs."""
    return "" if Capability.LIVE in origin.capabilities else "A daemon keeps the runs of hardware alone: this is none."
