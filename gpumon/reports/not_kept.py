"""Words for people and for programs where nothing of the past is kept."""

from __future__ import annotations

NO_HISTORY = "no history is kept of this source"
"""Why there is nothing of the past, for programs."""
OF_HARDWARE = "'gpumon daemon' on a machine with GPUs keeps who held them and what happened, from its start on."
"""Advice for who wants a past."""
NOT_YET = "No history yet: 'gpumon daemon' writes it, within a minute of its start."
"""The same for people, of hardware."""
NO_HARDWARE = f"N{NO_HISTORY[1:]}: it is no hardware of this machine. {OF_HARDWARE}"
"""The same for people, of a simulation or a recording."""
