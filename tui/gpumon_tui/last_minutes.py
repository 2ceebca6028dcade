"""The last minutes of GPUs, by which they are judged while an hour of frames is taken in, the oldest first."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.analysis.gpu_state import Activity
from gpumon.diagnosis.live_findings import LOOK_BACK
from gpumon.model.frame import Frame


class LastMinutes:
    """Activity of GPUs by the newest frames, for as long as the older ones are not all taken in."""

    def __init__(self) -> None:
        self._activity: Activity | None = None

    def take(self, frames: Sequence[Frame]) -> None:
        """Take in the newest of these frames, up to the one on screen."""
        self._activity = self._activity or Activity()
        for frame in frames[-LOOK_BACK:]:
            self._activity.add(frame)

    def judged_by(self, whole: Activity, *, filling: bool) -> Activity:
        """Return that of all frames, once they are taken in; until then that of the last ones."""
        if not filling:
            self._activity = None
        return self._activity or whole
