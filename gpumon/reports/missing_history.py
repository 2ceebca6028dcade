"""Messages for sources without history."""

from __future__ import annotations

NO_HISTORY = "no history is kept of this source"
"""Reason in answers to programs."""
OF_HARDWARE = "'gpumon daemon' on a machine with GPUs keeps who held them and what happened, from its start on."
"""How to get a history."""
NOT_YET = "No history yet: 'gpumon daemon' writes it, within a minute of its start."
"""Message for people if the source is the hardware of this machine."""
NO_HARDWARE = f"N{NO_HISTORY[1:]}: it is no hardware of this machine. {OF_HARDWARE}"
"""Message for people if the source is a simulation or a recording."""
