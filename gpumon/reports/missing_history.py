"""Messages for sources without history."""

from __future__ import annotations

NO_HISTORY = "no history is recorded for this source"
"""Reason why there is no history, for answers to programs."""
OF_HARDWARE = "To record users and events, run 'gpumon daemon' on a machine with GPUs."
"""Sentence that says how to record a history."""
NOT_YET = "No history yet: 'gpumon daemon' writes it within a minute of its start."
"""Message for users if the source is the hardware of this machine."""
NO_HARDWARE = f"N{NO_HISTORY[1:]}, which is a simulation or a recording. {OF_HARDWARE}"
"""Message for users if the source is a simulation or a recording."""
